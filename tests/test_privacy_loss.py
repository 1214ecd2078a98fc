"""Composed privacy losses: safe at every stage, and sharp."""

import math

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from dp_accounting.pld import pld_pmf
from scipy import optimize
from scipy.stats import norm

from dpcompare import privacy_loss
from dpcompare.privacy_loss import ComposedLoss, PrivacyLoss, Response, connect_the_dots
from dpcompare.saddle_point import estimated_log_delta
from dpcompare.sampled_gaussian import SampledGaussian

CASES = [
    (SampledGaussian(1.0, 0.01, 1000), 2.0),
    (SampledGaussian(0.5, 0.002, 5000), 5.0),
    (SampledGaussian(20.0, 0.3, 200), 0.5),
    (SampledGaussian(22.797, 65_536 / 36_672_493, 83_937), 0.1),
    (SampledGaussian(1.9299, 1024 / 1e8, 14_648_438), 0.1),
]
DIRECTIONS = ("remove", "add", "replace")


def one_step_delta(sigma, q, direction, epsilon):
    """Of the half-line on which the loss exceeds epsilon, by distribution functions."""

    def log_mix(x, mean):
        return np.logaddexp(math.log1p(-q), math.log(q) + (2 * mean * x - 1) / (2 * sigma**2))

    def mix(x, mean):
        return (1 - q) * norm.cdf(x / sigma) + q * norm.cdf((x - mean) / sigma)

    # The tail is that of small x; "remove" and "replace" are mirrored for that.
    used, other = {"remove": (-1, 0), "add": (0, 1), "replace": (-1, 1)}[direction]

    def excess(x):
        log_used = log_mix(x, used) if used else 0.0
        return log_used - (log_mix(x, other) if other else 0.0) - epsilon

    far = 12 * sigma + 2
    if excess(-far) <= 0:
        return 0.0
    x = far if excess(far) >= 0 else optimize.brentq(excess, -far, far, xtol=1e-13)
    return float(mix(x, used) - math.exp(epsilon) * mix(x, other))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.05), (1.0, 1e-4), (5.0, 0.3)])
def test_masses_of_one_step_never_read_too_low(direction, sigma, q):
    loss = PrivacyLoss([SampledGaussian(sigma, q, 100)], [], direction)
    part = loss._parts[0]
    losses = part.indices * loss.interval
    assert math.fsum(part.masses) + part.infinite == pytest.approx(1, abs=1e-14)
    spread = losses[-1] - losses[0]
    for epsilon in np.linspace(losses[0] - 0.1 * spread, losses[-1], 40):
        gain = np.maximum(0, -np.expm1(epsilon - losses))
        read = float(part.masses @ gain) + part.infinite
        assert read >= one_step_delta(sigma, q, direction, epsilon) - privacy_loss.ROUNDING


def test_connected_dots_are_those_of_dp_accounting():
    rng = np.random.default_rng(0)
    indices = np.cumsum(rng.integers(1, 5, 300)) - 200
    deltas = np.sort(rng.uniform(0, 1, 300))[::-1] ** 3
    interval = 0.01
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots(interval, indices, deltas).to_dense_pmf()
    masses, infinite = connect_the_dots(indices * interval, deltas)
    np.testing.assert_allclose(masses, pmf._probs[indices - indices[0]], rtol=1e-9, atol=1e-12)
    assert infinite == pmf._infinity_mass


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("gaussian", "epsilon"), CASES)
def test_chernoff_is_above_the_composition_which_is_close_above_the_truth(
    gaussian, epsilon, direction
):
    loss = PrivacyLoss([gaussian], [], direction)
    chernoff = loss.delta_bound(epsilon)
    composed = loss.composed(loss.order_at_epsilon(epsilon)).delta(epsilon)
    estimate = estimated_log_delta(gaussian, epsilon, direction)
    assert chernoff > composed
    if estimate < math.log(1e-14):  # what was cut off is all that is left
        assert composed >= math.exp(estimate)
        return
    assert estimate <= math.log(composed) <= estimate + 0.04


@pytest.mark.parametrize("order", [0.5, 1.0, 3.0, 30.0])
def test_any_order_gives_a_bound(order):
    gaussian = SampledGaussian(1.0, 0.01, 1000)
    loss = PrivacyLoss([gaussian], [], "remove")
    exact = math.exp(estimated_log_delta(gaussian, 2.0, "remove"))
    assert loss.log_chernoff(order, 2.0) > math.log(exact)
    assert loss.composed(order).delta(2.0) >= exact


@pytest.mark.parametrize("direction", ["remove", "add"])
def test_the_composition_is_that_of_dp_accounting(direction):
    loss = PrivacyLoss([SampledGaussian(1.0, 0.01, 300)], [], direction)
    part = loss._parts[0]
    dense = np.zeros(part.indices[-1] - part.indices[0] + 1)
    dense[part.indices - part.indices[0]] = part.masses
    first = int(part.indices[0])
    pmf = pld_pmf.DensePLDPmf(loss.interval, first, dense, part.infinite, True)
    composed = loss.composed(loss.order_at_epsilon(1.0))
    reference = pmf.self_compose(300)
    for epsilon in (0.5, 1.0, 1.5):
        expected = reference.get_delta_for_epsilon(epsilon)
        assert composed.delta(epsilon) == pytest.approx(expected, rel=1e-6, abs=1e-13)
    assert composed.epsilon(1e-6) == pytest.approx(reference.get_epsilon_for_delta(1e-6), rel=1e-5)


def test_a_million_gaussians_are_the_analytic_one():
    sigma = 2000.0
    exact = gaussian_mechanism.get_epsilon_gaussian(sigma / 1000, 1e-8)
    loss = PrivacyLoss([SampledGaussian(sigma, 1.0, 10**6)], [], "remove")
    value = loss.composed(loss.order_at_delta(1e-8)).epsilon(1e-8)
    assert exact <= value <= exact * 1.001


def test_rounding_stays_far_below_delta_over_fifteen_million_steps():
    gaussian, epsilon = CASES[-1]
    for direction in ("remove", "add"):
        loss = PrivacyLoss([gaussian], [], direction)
        composed = loss.composed(loss.order_at_epsilon(epsilon))
        assert composed.infinite + composed.rounding(epsilon) < 1e-3 * composed.delta(epsilon)
        negative = -float(composed.masses[composed.masses < 0].sum())
        assert abs(math.fsum(composed.masses) - 1) + negative <= composed.error


def test_wrong_mass_is_charged_where_it_does_most_harm():
    losses, masses = np.arange(-50, 50) * 0.1, np.full(100, 0.01)
    exact = ComposedLoss(losses, masses, 2.0, 0.3, 1e-9, 0.0)
    wrong = exact._replace(error=1e-3)
    for place in range(100):
        moved = exact._replace(masses=masses + 1e-3 * (np.arange(100) == place))
        assert wrong.delta(1.0) >= moved.delta(1.0) - 1e-15


def test_epsilon_is_the_inverse_of_delta_and_safe():
    loss = PrivacyLoss([SampledGaussian(1.0, 0.01, 1000)], [], "remove")
    for delta in (1e-2, 1e-6, 1e-12):
        composed = loss.composed(loss.order_at_delta(delta))
        value = composed.epsilon(delta)
        assert delta * (1 - 1e-6) <= composed.delta(value) <= delta
    assert math.isinf(composed.epsilon(composed.infinite / 2))
    assert loss.composed(loss.order_at_delta(0.9)).epsilon(0.9) == 0.0


def test_responses_have_their_closed_form():
    response = Response(0.5, 2, 3)
    assert response.epsilon == pytest.approx(math.log(3))
    assert math.isinf(Response(0.0, 2, 1).epsilon)
    tiny = SampledGaussian(1e6, 1.0, 1)
    loss = PrivacyLoss([tiny], [response], "replace")
    # Three flips in a row have the largest loss, with probability (3/4)^3.
    composed = loss.composed(loss.order_at_epsilon(3.0))
    expected = 0.75**3 * -math.expm1(3.0 - 3 * math.log(3))
    assert composed.delta(3.0) == pytest.approx(expected, rel=1e-3)


def test_a_transform_that_would_be_too_long_is_made_on_a_coarser_grid_safely(monkeypatch):
    gaussian = SampledGaussian(1.0, 0.01, 1000)
    loss = PrivacyLoss([gaussian], [], "remove")
    order = loss.order_at_epsilon(2.0)
    usual = loss.composed(order)
    monkeypatch.setattr(privacy_loss, "LARGEST_TRANSFORM", len(usual.masses) // 3)
    coarser = loss.composed(order)
    assert len(coarser.masses) <= len(usual.masses) // 3
    exact = math.exp(estimated_log_delta(gaussian, 2.0, "remove"))
    assert exact < usual.delta(2.0) < coarser.delta(2.0) < 1.2 * exact


def test_rows_that_are_hardly_ever_drawn():
    """A row is drawn at most once, nearly: then delta is that of a single drawing, q T times."""
    gaussian = SampledGaussian(0.35, 1e-6, 1000)
    loss = PrivacyLoss([gaussian], [], "remove")
    once = 1000 * one_step_delta(0.35, 1e-6, "remove", 1.0)
    assert once < loss.composed(loss.order_at_epsilon(1.0)).delta(1.0) < 1.01 * once


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(
    ("sigma", "q", "steps"),
    [(1e7, 1e-7, 100), (1e7, 3e-8, 10), (0.05, 1e-4, 1), (0.05, 1e-7, 1)],
)
def test_the_ends_of_the_search_have_bounds_at_tiny_sampling_rates(sigma, q, steps, direction):
    loss = PrivacyLoss([SampledGaussian(sigma, q, steps)], [], direction)
    exact = steps * max(0.0, one_step_delta(sigma, q, direction, 0.0)) if steps == 1 else 0.0
    assert exact - 1e-14 <= loss.delta_bound(0.0) <= 1.0
    assert loss.composed(loss.order_at_epsilon(1e-3)).epsilon(1e-6) >= 0


def test_the_delta_of_epsilon_zero_has_an_epsilon_near_zero():
    """Where a Gaussian's own delta at 0 is asked for, rounding must not make the search endless."""
    delta = 2 * norm.cdf(0.5) - 1  # of sigma 1, one step, at epsilon 0
    loss = PrivacyLoss([SampledGaussian(1.0, 1.0, 1)], [], "remove")
    assert 0 <= loss.composed(loss.order_at_delta(delta)).epsilon(delta) < 0.01
