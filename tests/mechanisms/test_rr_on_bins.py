"""RR-on-Bins against brute force, a linear program over all kernels, and published anchors."""

import math
from itertools import pairwise, product

import numpy as np
import pytest
from dpcompare_mechanisms.rr_on_bins import RROnBins, rr_on_bins
from scipy.optimize import linprog
from scipy.sparse import coo_array
from scipy.special import xlogy
from scipy.stats import poisson

from dpcompare import accounting, tasks
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0]
FALLING = [0.6, 0.2, 0.1, 0.06, 0.04]
LOSSES = {
    "squared": lambda y, v: (y - v) ** 2,
    "poisson": lambda y, v: xlogy(y, y / v) - y + v,
}


def poisson_prior(rate, cap):
    prior = poisson.pmf(np.arange(cap + 1), rate)
    return prior / prior.sum()


def zero_inflated(cap):
    """90 % zeros, else a geometric count cut to 10: mean .1665; what is above the cap is capped."""
    counts = 0.4 ** np.arange(10)
    full = np.concatenate([[0.9], 0.1 * counts / counts.sum()])
    return np.append(full[:cap], full[cap:].sum())


def expected_loss(kernel, prior, loss):
    labels = np.arange(len(prior), dtype=float)[:, None]
    return float(
        np.sum(np.asarray(prior)[:, None] * kernel.probabilities * loss(labels, kernel.outputs))
    )


def bins_of(kernel):
    """The labels of each bin."""
    best = np.argmax(kernel.probabilities, axis=1)
    return [np.flatnonzero(best == index).tolist() for index in range(len(kernel.outputs))]


def brute_force(prior, epsilon, loss):
    """The smallest loss over all cuts of the labels, with outputs by Bayes' rule."""
    prior, labels = np.asarray(prior), np.arange(len(prior), dtype=float)
    smallest = math.inf
    for cuts in product([False, True], repeat=len(prior) - 1):
        bins = np.concatenate([[0], np.cumsum(cuts)]).astype(int)
        count = bins[-1] + 1
        keep = math.exp(epsilon) / (math.exp(epsilon) + count - 1)
        other = 1 / (math.exp(epsilon) + count - 1)
        kernel = np.where(bins[:, None] == np.arange(count), keep, other)
        joint = prior[:, None] * kernel
        outputs = labels @ joint / joint.sum(axis=0)
        smallest = min(smallest, float(np.sum(joint * loss(labels[:, None], outputs))))
    return smallest


def least_loss_of_any_kernel(prior, epsilon, loss, outputs):
    """The optimum over all epsilon-DP kernels with these outputs, by linear programming."""
    rows, columns = len(prior), len(outputs)
    cell = np.arange(rows * columns).reshape(rows, columns)
    least = rows * columns + np.arange(columns)
    costs = np.asarray(prior)[:, None] * loss(np.arange(rows, dtype=float)[:, None], outputs)
    flat = np.arange(rows * columns)
    per_cell = np.tile(least, rows)
    ones = np.ones(rows * columns)
    # least <= cell, and cell <= exp(epsilon) least
    bounds = coo_array(
        (
            np.concatenate([ones, -ones, math.exp(-epsilon) * ones, -ones]),
            (
                np.concatenate([flat, flat, flat + len(flat), flat + len(flat)]),
                np.concatenate([per_cell, flat, flat, per_cell]),
            ),
        )
    )
    sums = coo_array(
        (ones, (np.repeat(np.arange(rows), columns), cell.ravel())),
        shape=(rows, len(flat) + columns),
    )
    result = linprog(
        np.concatenate([costs.ravel(), np.zeros(columns)]),
        A_ub=bounds,
        b_ub=np.zeros(2 * len(flat)),
        A_eq=sums,
        b_eq=np.ones(rows),
        method="highs",
    )
    assert result.success
    return float(result.fun)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seed", range(12))
def test_bins_are_the_best_of_all_cuts(loss, seed):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(rng.integers(2, 7), 10 ** rng.uniform(-1, 1)))
    for epsilon in (0.05, 0.5, 1.0, 2.0, 4.0, 8.0):
        kernel, least = rr_on_bins(prior, epsilon, loss)
        assert least == pytest.approx(brute_force(prior, epsilon, LOSSES[loss]), rel=1e-9)
        assert expected_loss(kernel, prior, LOSSES[loss]) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", [FALLING, poisson_prior(0.3, 5), [0.2, 0.5, 0.1, 0.2]])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_no_other_kernel_has_a_smaller_loss(loss, prior, epsilon):
    kernel, least = rr_on_bins(prior, epsilon, loss)
    grid = np.union1d(np.linspace(0.01, len(prior) - 1, 120), kernel.outputs)
    assert least_loss_of_any_kernel(prior, epsilon, LOSSES[loss], grid) == pytest.approx(
        least, rel=1e-4
    )


@pytest.mark.parametrize(
    ("epsilon", "loss"), [(0.5, 0.2880), (1, 0.2556), (2, 0.1676), (3, 0.1001), (4, 0.0659)]
)
def test_poisson_counts_are_told_from_zero_only(epsilon, loss):
    kernel, least = rr_on_bins(poisson_prior(0.3, 5), epsilon, "squared")
    assert least == pytest.approx(loss, abs=5e-5)
    assert bins_of(kernel) == [[0], [1, 2, 3, 4, 5]]
    if epsilon == 1:
        assert kernel.outputs == pytest.approx([0.132, 0.564], abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon", "loss", "bins"),
    [
        (0.5, 1.18499, 2),
        (1, 1.06255, 2),
        (2, 0.75662, 3),
        (3, 0.43589, None),
        (5, 0.11351, 4),
        (8, 0.00803, 5),
    ],
)
def test_falling_prior(epsilon, loss, bins):  # LDP-05
    kernel, least = rr_on_bins(FALLING, epsilon, "squared")
    assert least == pytest.approx(loss, abs=5e-6)
    if bins is not None:
        assert len(kernel.outputs) == bins
    if epsilon == 0.5:
        assert bins_of(kernel) == [[0], [1, 2, 3, 4]]
    if epsilon == 1:
        assert kernel.outputs == pytest.approx([0.3644, 1.1921], abs=5e-5)


@pytest.mark.parametrize("loss", LOSSES)
def test_at_epsilon_50_hardly_anything_is_lost(loss):  # LDP-05
    kernel, least = rr_on_bins(FALLING, 50, loss)
    assert 0 < least < 1e-18
    assert kernel.outputs == pytest.approx([0, 1, 2, 3, 4], abs=1e-9)


@pytest.mark.parametrize(
    ("epsilon", "cap", "error"),
    [
        (1, 1, 0.082),
        (1, 2, 0.185),
        (1, 5, 0.319),
        (1, 10, 0.338),
        (3, 1, 0.034),
        (3, 2, 0.091),
        (3, 5, 0.189),
    ],
)
def test_squared_errors_of_zero_inflated_counts(epsilon, cap, error):
    assert rr_on_bins(zero_inflated(cap), epsilon, "squared")[1] == pytest.approx(error, abs=6e-4)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", [FALLING, poisson_prior(0.3, 5), zero_inflated(10)])
def test_the_loss_falls_with_epsilon_and_starts_below_that_of_the_mean(loss, prior):
    labels = np.arange(len(prior), dtype=float)
    of_mean = np.dot(prior, LOSSES[loss](labels, np.dot(prior, labels)))
    losses = [rr_on_bins(prior, epsilon, loss)[1] for epsilon in EPSILONS]
    assert losses[0] <= of_mean * (1 + 1e-12)
    assert all(later < earlier for earlier, later in pairwise(losses))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_ratio_and_keep_probability_are_those_of_the_merged_bins(epsilon, loss):  # LDP-01, LDP-02
    kernel, _ = rr_on_bins(zero_inflated(10), epsilon, loss)
    bins = len(kernel.outputs)
    assert bins >= 2
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)
    keep = 1 / (1 + (bins - 1) * math.exp(-epsilon))
    assert kernel.probabilities.max(axis=1) == pytest.approx(keep, rel=1e-12)


def test_the_loss_may_decide_where_bins_are_cut():
    prior = [0.1, 0.3, 0.2, 0.2, 0.1, 0.1]
    bins = [bins_of(rr_on_bins(prior, 3.0, loss)[0]) for loss in ("squared", "poisson")]
    assert bins[0] != bins[1]


def test_labels_without_mass_join_a_bin():
    kernel, least = rr_on_bins([0.5, 0.0, 0.3, 0.0, 0.2, 0.0], 4.0, "squared")
    assert sum(map(len, bins_of(kernel))) == 6
    assert len(kernel.outputs) <= 3
    assert least == pytest.approx(brute_force([0.5, 0.0, 0.3, 0.0, 0.2], 4.0, LOSSES["squared"]))


def test_a_single_label_with_mass_is_a_constant_and_loses_no_privacy():
    kernel, least = rr_on_bins([0.0, 1.0, 0.0], 1.0, "poisson")
    assert kernel.probabilities.tolist() == [[1.0], [1.0], [1.0]]
    assert (kernel.outputs.tolist(), least, kernel.epsilon()) == ([1.0], 0.0, 0.0)


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 700.0])
def test_outputs_stay_above_zero_where_positive_labels_have_mass(epsilon):
    kernel, least = rr_on_bins([0.999, 0.001, 0.0], epsilon, "poisson")
    assert np.all(kernel.outputs > 0)
    assert math.isfinite(least)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 701.0])
def test_epsilons_out_of_range_are_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        rr_on_bins(FALLING, epsilon)


def at(epsilon, task, **parameters):
    mechanism = RROnBins(**parameters)
    mechanism.check()
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, task)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_outputs_are_drawn_as_the_kernel_says(epsilon):
    task, draws = tasks.find("pconvs", 4), 200_000
    mechanism = at(epsilon, task, prior=FALLING, design_loss="squared")
    kernel = mechanism.kernel(task)
    for label in range(5):
        _, values = mechanism.release_labels(
            np.full(draws, label), NO_FEATURES, numpy_generator("rr", epsilon, label), task
        )
        values = np.asarray(values)
        assert values.dtype == np.float32
        for output, p in zip(kernel.outputs, kernel.probabilities[label], strict=True):
            seen = np.mean(values == np.float32(output))
            assert abs(seen - p) < 4 * math.sqrt(p * (1 - p) / draws)


def test_a_private_prior_leads_to_nearly_the_public_design():
    task, prior = tasks.find("pconvs", 4), np.array(FALLING)
    labels = np.repeat(np.arange(5), (prior * 100_000).astype(int))
    mechanism = at(3.0, task)
    assert mechanism.kernel(task) is None
    after, _ = mechanism.release_labels(labels, NO_FEATURES, numpy_generator("prior"), task)
    expected, _ = rr_on_bins(prior, mechanism.label_epsilon, "poisson")
    assert after.kernel(task).outputs == pytest.approx(expected.outputs, abs=1e-2)
    guarantee = accounting.guarantee(after.events(SCHEDULE), 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(3.0, rel=1e-9)


def test_binary_labels_get_their_posterior_means():
    kernel = at(1.0, tasks.PCTR, prior=[0.9, 0.1]).kernel(tasks.PCTR)
    e = math.e
    assert kernel.outputs == pytest.approx([0.1 / (0.9 * e + 0.1), 0.1 * e / (0.9 + 0.1 * e)])
    assert kernel.probabilities[0, 0] == pytest.approx(e / (1 + e))


def test_bias_is_said_and_unknown_losses_are_refused():
    assert any("not calibrated" in note for note in at(1.0, tasks.PCTR).notes())
    assert not at(math.inf, tasks.PCTR).notes()
    with pytest.raises(UsageError, match="design_loss must be one of poisson, squared"):
        RROnBins(design_loss="absolute").check()
    with pytest.raises(UsageError, match="sum to 1"):
        RROnBins(prior=[0.2, 0.2]).check()
