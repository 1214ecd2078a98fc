"""The fast estimate against closed forms, dp-accounting on fine grids, and published values."""

import math

import dp_accounting as dp
import pytest
from dp_accounting import gaussian_mechanism
from scipy.stats import norm

from dpcompare.saddle_point import estimated_log_delta, estimated_noise
from dpcompare.sampled_gaussian import SampledGaussian


@pytest.mark.parametrize("steps", [2, 50, 1_000_000])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_unsampled_gaussians_are_the_analytic_one(steps, epsilon):
    mu = 0.4 * math.sqrt(epsilon)  # of the whole
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
    sigma = math.sqrt(steps) / mu
    for direction, times in (("remove", 1), ("add", 1), ("replace", 2)):
        gaussian = SampledGaussian(times * sigma, 1.0, steps)
        value = estimated_log_delta(gaussian, epsilon, direction)
        assert value == pytest.approx(math.log(exact), abs=1e-6)


def test_a_single_step_is_estimated_to_a_few_percent():
    value = gaussian_mechanism.get_epsilon_gaussian(1.0, 1e-6)
    estimate = estimated_log_delta(SampledGaussian(1.0, 1.0, 1), value, "remove")
    assert estimate == pytest.approx(math.log(1e-6), abs=0.03)


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"),
    [(1.0, 0.01, 1000, 1e-6), (0.6, 0.05, 200, 1e-5), (3.0, 0.2, 50, 1e-5)],
)
@pytest.mark.parametrize("relation", ["ADD_OR_REMOVE_ONE", "REPLACE_ONE"])
def test_dp_accounting_on_a_fine_grid_is_close_above(sigma, q, steps, delta, relation):
    neighboring = getattr(dp.NeighboringRelation, relation)
    event = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(sigma)), steps)
    accountant = dp.pld.PLDAccountant(neighboring, 5e-5).compose(event)
    value = accountant.get_epsilon(delta)
    names = ("replace",) if relation == "REPLACE_ONE" else ("remove", "add")
    gaussian = SampledGaussian(sigma, q, steps)
    estimate = max(estimated_log_delta(gaussian, value, name) for name in names)
    assert math.log(delta) - 2e-3 < estimate < math.log(delta) + 1e-5


def test_no_sum_of_losses_exceeds_what_never_being_drawn_tells():
    gaussian = SampledGaussian(1.0, 0.01, 100)
    assert estimated_log_delta(gaussian, 100 * -math.log1p(-0.01) + 1e-9, "add") == -math.inf


def test_far_tails_do_not_spoil_high_orders():
    """4.7 million steps at epsilon .1: untruncated moments put delta 85 times too low here."""
    gaussian = SampledGaussian(3.10896, 1024 / 32_000_000, 4_687_500)
    assert estimated_log_delta(gaussian, 0.1, "remove") == pytest.approx(-17.2812, abs=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "true"),
    [(0.1, 22.786), (0.5, 4.973), (1.0, 2.650), (3.0, 1.135), (10.0, 0.6585), (50.0, 0.4385)],
)
def test_the_papers_configuration(epsilon, true):
    rows = 36_672_493
    found = estimated_noise(epsilon, 1 / rows, 65_536 / rows, 83_937, ("remove", "add"))
    assert found == pytest.approx(true, abs=1e-3 if true > 0.7 else 5e-5)


def test_the_estimated_noise_spends_the_budget():
    for directions in (("remove", "add"), ("replace",)):
        sigma = estimated_noise(2.0, 1e-6, 0.01, 1000, directions)
        gaussian = SampledGaussian(sigma, 0.01, 1000)
        values = [estimated_log_delta(gaussian, 2.0, direction) for direction in directions]
        assert max(values) == pytest.approx(math.log(1e-6), abs=1e-4)


def test_extreme_requests_end():
    assert estimated_noise(1e6, 1e-6, 0.01, 1000, ("remove", "add")) < 0.1
    assert estimated_noise(1e-9, 1e-6, 0.01, 1000, ("remove", "add")) > 1e4
