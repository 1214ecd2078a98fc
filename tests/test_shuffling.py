"""Lower bounds for shuffled batches: known values, sampled likelihood ratios, exact Gaussians."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.stats import norm

from dpcompare.accounting import epsilon, sampled_gaussian_event
from dpcompare.errors import UsageError
from dpcompare.sampled_gaussian import SampledGaussian
from dpcompare.shuffling import (
    _composed,
    _log_masses,
    _log_tails,
    _rounded,
    epsilon_lower_bound,
)

CRITEO_ROWS = 36_672_493


@pytest.mark.parametrize(
    ("steps", "sigma", "known"),
    [
        (4492, 0.4, 16.2),
        (4492, 0.5, 12.4),
        (4492, 0.7, 8.3),
        (4492, 1.0, 3.8),
        (560, 0.4, 16.2),
        (560, 0.5, 12.4),
        (560, 0.7, 8.4),
        (560, 1.0, 5.1),
    ],
)
def test_one_epoch_against_known_values(steps, sigma, known):
    assert epsilon_lower_bound(sigma, steps, 1, 2.7e-8) == pytest.approx(known, abs=0.05)


@pytest.mark.parametrize(
    ("sigma", "known"), [(4.973, 0.06), (2.65, 0.48), (1.135, 12.4), (0.709, 103.5)]
)
def test_150_epochs_prove_at_least_what_is_known(sigma, known):
    assert epsilon_lower_bound(sigma, 560, 150, 1 / CRITEO_ROWS) >= known


def test_150_epochs_contradict_large_claims_and_not_small_ones():
    """The noise multipliers are those of Poisson-sampled batches at epsilon .5, 1, 3 and 8."""
    bounds = [
        epsilon_lower_bound(sigma, 560, 150, 1 / CRITEO_ROWS) for sigma in (4.973, 2.65, 1.135)
    ]
    assert bounds == pytest.approx([0.133, 0.560, 12.55], rel=0.01)


@pytest.mark.parametrize("mean", [1.0, 2.0])
@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 3), (1.5, 7), (3.0, 1)])
def test_tails_of_the_maximum_against_draws(mean, sigma, steps):
    draws = 400_000
    w = np.random.default_rng(1).normal(size=(draws, steps)) * sigma
    w[:, 0] += mean  # which step it is does not matter to the maximum
    c = np.array([-0.5, 0.5, 1.5, 3.0, 5.0])
    above, below = _log_tails(c, mean, sigma, steps)
    share = (w.max(axis=1)[:, None] >= c).mean(axis=0)
    error = np.sqrt(np.exp(above + below) / draws) + 1e-9
    assert np.all(np.abs(share - np.exp(above)) < 4 * error)
    np.testing.assert_allclose(np.exp(above) + np.exp(below), 1, rtol=1e-12)


def test_far_tails_are_those_of_one_normal():
    above, _ = _log_tails(np.array([30.0]), 1.0, 0.4, 1)
    assert above[0] == pytest.approx(norm.logsf(29 / 0.4), rel=1e-12)
    # 60 standard deviations up, the steps without the row add next to nothing.
    crowd, _ = _log_tails(np.array([30.0]), 1.0, 0.4, 1000)
    assert crowd[0] == pytest.approx(above[0], rel=1e-12)


def test_bins_hold_everything_and_agree_with_differences():
    edges = np.linspace(-1, 4, 9)
    masses = np.exp(_log_masses(edges, 2.0, 0.8, 5))
    below = norm.cdf((edges - 2) / 0.8) * norm.cdf(edges / 0.8) ** 4
    np.testing.assert_allclose(masses, np.diff(below, prepend=0, append=1), atol=1e-14)


def test_composition_against_all_outcomes():
    """Five bins, four epochs: 625 outcomes, whose rounded ratios are added one by one."""
    edges = np.linspace(0, 3, 4)
    present, missing = (_log_masses(edges, mean, 0.7, 6) for mean in (2.0, 1.0))
    width = 0.03
    law = _composed(_rounded(present, missing, width), 4, 0.0)
    cells = np.rint((present - missing) / width).astype(int)
    expected: dict[int, np.ndarray] = {}
    for bins in map(list, product(range(5), repeat=4)):
        weights = np.exp([present[bins].sum(), missing[bins].sum()])
        cell = int(cells[bins].sum())
        expected[cell] = expected.get(cell, np.zeros(2)) + weights
    for place, (p, q) in enumerate(zip(law.present, law.missing, strict=True)):
        cell = law.first + place
        want = expected.pop(cell, np.zeros(2))
        np.testing.assert_allclose([p, q * math.exp(-cell * width)], want, rtol=1e-11)
    assert not expected


@pytest.mark.parametrize(
    ("sigma", "steps", "epochs", "delta"),
    [
        (0.8, 2, 1, 1e-2),
        (0.6, 5, 1, 1e-3),
        (1.2, 4, 3, 1e-2),
        (2.0, 10, 8, 1e-2),
        (1.0, 3, 5, 1e-3),
        (3.0, 2, 20, 1e-2),
    ],
)
def test_the_true_delta_at_the_bound_is_no_smaller(sigma, steps, epochs, delta):
    """Whole runs are drawn, and their exact likelihood ratios give the true delta."""
    draws = 200_000
    rng = np.random.default_rng(2)
    losses = np.zeros(draws)
    for _ in range(epochs):
        w = rng.normal(size=(draws, steps)) * sigma
        w[np.arange(draws), rng.integers(steps, size=draws)] += 2
        present, missing = (
            np.exp((2 * mean * w - mean**2) / (2 * sigma**2)).mean(axis=1) for mean in (2.0, 1.0)
        )
        losses += np.log(present) - np.log(missing)
    bound = epsilon_lower_bound(sigma, steps, epochs, delta)
    assert bound > 0

    def true_delta(at):
        parts = np.maximum(-np.expm1(at - losses), 0)
        return parts.mean(), parts.std() / math.sqrt(draws)

    value, error = true_delta(bound)
    assert value > delta - 4 * error
    # And the bound is of use: at twice that epsilon much of the delta is gone.
    assert true_delta(2 * bound)[0] < 0.5 * delta


@pytest.mark.parametrize(
    ("sigma", "epochs"), [(0.1, 1), (1.0, 1), (20.0, 1), (1.0, 20), (0.3, 20), (5.0, 100)]
)
def test_one_step_per_epoch_is_nearly_the_exact_gaussian(sigma, epochs):
    exact = gaussian_mechanism.get_epsilon_gaussian(sigma / math.sqrt(epochs), 1e-6)
    bound = epsilon_lower_bound(sigma, 1, epochs, 1e-6)
    assert exact * 0.999 < bound <= exact


@pytest.mark.parametrize(("sigma", "epochs"), [(0.4, 1), (0.7, 10), (2.0, 50), (10.0, 150)])
@pytest.mark.parametrize("steps", [2, 50, 10_000])
def test_never_above_a_run_without_amplification(sigma, epochs, steps):
    delta = 1e-7
    every_row = sampled_gaussian_event(SampledGaussian(sigma, 1.0, epochs))
    bound = epsilon_lower_bound(sigma, steps, epochs, delta)
    assert bound <= epsilon(every_row, delta, "zero-out")


def test_more_noise_and_more_steps_prove_less_and_more_epochs_prove_more():
    by_noise = [epsilon_lower_bound(sigma, 100, 10, 1e-6) for sigma in (0.3, 0.5, 1, 2, 4, 8)]
    assert all(np.diff(by_noise) < 0)
    by_steps = [epsilon_lower_bound(1.0, steps, 10, 1e-6) for steps in (1, 4, 20, 100, 1000)]
    assert all(np.diff(by_steps) < 0)
    by_epochs = [epsilon_lower_bound(1.0, 100, epochs, 1e-6) for epochs in (1, 2, 5, 7, 40, 300)]
    assert all(np.diff(by_epochs) > 0)
    by_delta = [epsilon_lower_bound(1.0, 100, 3, delta) for delta in (1e-9, 1e-6, 1e-3)]
    assert all(np.diff(by_delta) < 0)


def test_extremes_stay_finite_and_below_the_exact_gaussian():
    for sigma, steps, epochs in [(0.02, 5000, 1), (0.05, 1000, 10), (1e4, 10, 2)]:
        exact = gaussian_mechanism.get_epsilon_gaussian(sigma / math.sqrt(epochs), 1e-8)
        assert 0 <= epsilon_lower_bound(sigma, steps, epochs, 1e-8) <= exact
    assert epsilon_lower_bound(0.02, 5000, 1, 1e-8) > 1500


def test_where_nothing_is_proven_the_bound_is_zero():
    assert epsilon_lower_bound(5.0, 100, 1, 0.5) == 0


def test_without_noise_nothing_is_private():
    assert epsilon_lower_bound(0.0, 100, 1, 1e-6) == math.inf


@pytest.mark.parametrize(
    "arguments",
    [(-1.0, 10, 1, 1e-6), (math.nan, 10, 1, 1e-6), (1.0, 0, 1, 1e-6), (1.0, 9, 0, 1e-6)],
)
def test_arguments_out_of_range(arguments):
    with pytest.raises(UsageError, match="lower bound"):
        epsilon_lower_bound(*arguments)
    with pytest.raises(UsageError, match="delta"):
        epsilon_lower_bound(1.0, 10, 1, 1.0)
