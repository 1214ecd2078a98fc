"""What a choice costs: exact laws of chosen outputs, dp-accounting's own accounting, draws."""

import logging
import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import rdp
from scipy.stats import norm

from dpcompare.accounting import (
    RELATIONS,
    dpsgd_event,
    epsilon,
    renyi_divergences,
    sampled_gaussian_event,
)
from dpcompare.calibration import noise_multiplier
from dpcompare.errors import UsageError
from dpcompare.privacy import ROW_RELATIONS, Budget, Release, Schedule
from dpcompare.private_selection import (
    ORDERS,
    _log_parameter,
    candidate_budget,
    guarantee,
    number_of_candidates,
    selection_epsilon,
)
from dpcompare.sampled_gaussian import SampledGaussian

DELTA = 1e-6
SCHEDULE = Schedule.from_epochs(100_000, 4096, 20, "poisson")


def gaussian(sigma: float, q: float = 1.0, steps: int = 1) -> dp.DpEvent:
    return sampled_gaussian_event(SampledGaussian(sigma, q, steps))


def response(pure: float) -> dp.DpEvent:
    """Binary randomized response: the chance that its output is drawn at random."""
    return dp.RandomizedResponseDpEvent(2 / (1 + math.exp(pure)), 2)


def released(*events: dp.DpEvent) -> list[Release]:
    return [Release(event, "example") for event in events]


def law_of_best(single: np.ndarray, mean: float) -> np.ndarray:
    """Probabilities of the best of K outputs, worst first, from those of one output.

    The best of k is at most j with the k-th power of the chance that one is, and the expectation
    of powers is the generating function log(1 - p s) / log(1 - p) of K.
    """
    p = -math.expm1(-_log_parameter(mean))
    below = np.append(np.cumsum(single)[:-1], 1.0)
    return np.diff(np.log1p(-p * below) / math.log1p(-p), prepend=0.0)


def delta_between(a: np.ndarray, b: np.ndarray, at: float) -> float:
    return float(np.maximum(a - math.exp(at) * b, 0).sum())


@pytest.mark.parametrize("mean", [1.0, 1.001, 1.5, 4.0, 12.0, 300.0])
def test_mean_number_of_candidates(mean):
    rng = np.random.default_rng(3)
    draws = np.array([number_of_candidates(mean, rng) for _ in range(20_000)])
    assert draws.min() == 1
    assert abs(draws.mean() - mean) <= 4 * draws.std() / math.sqrt(len(draws))


def test_law_of_the_number_of_candidates():
    rng = np.random.default_rng(4)
    mean, count = 5.0, 40_000
    draws = np.array([number_of_candidates(mean, rng) for _ in range(count)])
    x = _log_parameter(mean)
    for k in range(1, 12):
        chance = -((math.expm1(-x) * (-1)) ** k) / (k * x) * -1
        error = math.sqrt(chance * (1 - chance) / count)
        assert abs((draws == k).mean() - chance) < 4 * error


@pytest.mark.parametrize("mean", [1 + 1e-9, 1.01, 2.0, 12.0, 1e3, 1e9])
def test_parameter_has_the_mean_and_is_what_dp_accounting_accounts(mean):
    x = _log_parameter(mean)
    assert math.expm1(x) / x == pytest.approx(mean, rel=1e-12)
    gamma = rdp.rdp_privacy_accountant._gamma_truncated_negative_binomial(0, mean)
    assert gamma == pytest.approx(math.exp(-x), rel=1e-6)


@pytest.mark.parametrize("mean", [1.5, 12.0, 100.0])
@pytest.mark.parametrize(
    "events",
    [
        [gaussian(1.0)],
        [gaussian(30.0)],
        [gaussian(1.2, 0.01, 2000), gaussian(5.0)],
        [gaussian(0.6, 0.04, 300)],
    ],
)
@pytest.mark.parametrize("relation", ["zero-out", "add-or-remove-one"])
def test_dp_accounting_agrees(events, mean, relation):
    finite = [order for order in ORDERS if math.isfinite(order)]
    single = rdp.RdpAccountant(finite, RELATIONS[relation])
    single.compose(dp.ComposedDpEvent(events))
    # Its accountant cannot go without the divergence at order 1, which the theorem multiplies by 0.
    orders, divergences = [1.0, *finite], [0.0, *single._rdp]
    chosen = rdp.rdp_privacy_accountant._compute_rdp_repeat_and_select(orders, divergences, mean, 0)
    theirs, _ = rdp.compute_epsilon(orders, chosen, DELTA)
    ours = selection_epsilon(events, mean, DELTA, relation)
    assert ours == pytest.approx(theirs, rel=1e-6)
    # Its event, at its own orders and without order 1, is never much below.
    default = rdp.RdpAccountant(neighboring_relation=RELATIONS[relation])
    default.compose(dp.dp_event.RepeatAndSelectDpEvent(dp.ComposedDpEvent(events), mean, 0))
    assert ours <= default.get_epsilon(DELTA) * 1.001


@pytest.mark.parametrize(("spent", "known"), [(0.5, 0.976), (1, 1.886), (3, 5.27), (10, 15.7)])
def test_known_values_of_calibrated_candidates(spent, known):
    delta = SCHEDULE.examples**-1.1
    sigma = noise_multiplier(Budget(spent, delta), SCHEDULE)
    chosen = selection_epsilon([dpsgd_event(sigma, SCHEDULE)], 12, delta, "zero-out")
    assert chosen == pytest.approx(known, rel=0.003)


@pytest.mark.parametrize("relation", ROW_RELATIONS)
def test_mean_one_is_the_epsilon_of_one_candidate(relation):
    events = [gaussian(1.1, 0.01, 1000), gaussian(8.0)]
    one = epsilon(dp.ComposedDpEvent(events), DELTA, relation, "rdp")
    at_one = selection_epsilon(events, 1, DELTA, relation)
    assert at_one == pytest.approx(one, rel=2e-3)
    # And hardly ever drawing a second one costs hardly more.
    assert selection_epsilon(events, 1 + 1e-7, DELTA, relation) == pytest.approx(at_one, rel=1e-5)


def test_replacing_a_row_of_an_unsampled_gaussian_is_half_the_noise():
    replaced = selection_epsilon([gaussian(2.0)], 12, DELTA, "replace-one")
    assert replaced == pytest.approx(selection_epsilon([gaussian(1.0)], 12, DELTA, "zero-out"))


def test_more_candidates_cost_more():
    events = [gaussian(1.0, 0.02, 500)]
    costs = [selection_epsilon(events, mean, DELTA, "zero-out") for mean in (1, 1.5, 4, 20, 500)]
    assert all(np.diff(costs) > 0)


@pytest.mark.parametrize("pure", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("mean", [1.01, 12.0, 1e4])
def test_pure_candidates_cost_at_most_twice(pure, mean):
    chosen = selection_epsilon([response(pure)], mean, 1e-12, "replace-one")
    assert pure < chosen <= 2 * pure * (1 + 1e-9)
    assert selection_epsilon([response(pure)], 1, DELTA, "zero-out") <= pure * (1 + 1e-9)


@pytest.mark.parametrize("pure", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("mean", [1.2, 4.0, 50.0, 1e4])
def test_best_randomized_response_against_its_exact_law(pure, mean):
    truth = np.array([1, math.exp(pure)]) / (1 + math.exp(pure))
    one, other = law_of_best(truth, mean), law_of_best(truth[::-1], mean)
    worst = float(np.max(np.abs(np.log(one / other))))
    claimed = selection_epsilon([response(pure)], mean, 1e-15, "replace-one")
    assert pure < worst <= claimed
    for delta in (1e-6, 1e-2):
        at = selection_epsilon([response(pure)], mean, delta, "replace-one")
        assert delta_between(one, other, at) <= delta
        assert delta_between(other, one, at) <= delta


def test_choosing_can_cost_nearly_twice_a_pure_epsilon():
    """A thin output that gets likelier by e^eps, while what would beat it gets as much rarer."""
    pure, thin, better = 0.5, 1e-8, 1e-3
    up = math.exp(pure)
    one = np.array([1 - thin - better, thin, better])
    other = np.array([1 - thin / up - better * up, thin / up, better * up])
    ratio = math.log(law_of_best(one, 1e6)[1] / law_of_best(other, 1e6)[1])
    claimed = selection_epsilon([response(pure)], 1e6, 1e-15, "replace-one")
    assert 1.99 * pure < ratio <= claimed <= 2 * pure * (1 + 1e-9)


@pytest.mark.parametrize("mean", [1.5, 12.0, 200.0])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 10.0])
def test_largest_normal_against_its_exact_law(sigma, mean):
    """The best of K normals around 0 or 1, in fine bins, both ways."""
    edges = np.linspace(-8 * sigma, 1 + 9 * sigma, 20_000)
    without, with_row = (
        law_of_best(np.diff(norm.cdf(edges, shift, sigma), prepend=0, append=1), mean)
        for shift in (0.0, 1.0)
    )

    def exact(at: float) -> float:
        return max(delta_between(with_row, without, at), delta_between(without, with_row, at))

    for delta in (1e-5, 1e-2):
        claimed = selection_epsilon([gaussian(sigma)], mean, delta, "zero-out")
        assert exact(claimed) <= delta
        assert exact(claimed / 5) > delta  # the claim is not idle


def test_draws_of_the_best_follow_the_exact_law():
    rng = np.random.default_rng(5)
    single, mean, count = np.array([0.7, 0.25, 0.05]), 6.0, 20_000
    best = [
        rng.choice(3, size=number_of_candidates(mean, rng), p=single).max() for _ in range(count)
    ]
    law = law_of_best(single, mean)
    share = np.bincount(best, minlength=3) / count
    assert np.all(np.abs(share - law) < 4 * np.sqrt(law * (1 - law) / count))


@pytest.mark.parametrize(
    ("relation", "mean", "asked"),
    [
        ("zero-out", 12.0, 0.3),
        ("zero-out", 1.0, 3.0),
        ("zero-out", 12.0, 20.0),
        ("add-or-remove-one", 2.0, 3.0),
        ("replace-one", 12.0, 3.0),
        ("replace-one", 1.0, 0.3),
    ],
)
def test_candidate_budget_is_spent_and_not_exceeded(relation, mean, asked):
    budget = Budget(asked, DELTA, relation)
    calls = []

    def calibrate(candidate):
        calls.append(candidate)
        return released(dpsgd_event(noise_multiplier(candidate, SCHEDULE), SCHEDULE))

    found = candidate_budget(calibrate, budget, mean)
    assert len(calls) <= 8
    assert all((c.delta, c.neighboring, c.accountant) == (DELTA, relation, "pld") for c in calls)
    spent = guarantee(calibrate(found), mean, DELTA, relation).epsilon
    assert asked * (1 - 1.2e-3) <= spent <= asked


def test_candidate_budget_of_pure_candidates_is_half():
    found = candidate_budget(
        lambda b: released(response(b.epsilon)), Budget(1.0, 1e-12, "replace-one"), 1e4
    )
    assert 0.499 <= found.epsilon <= 0.5


def test_candidate_budget_where_calibration_goes_in_leaps():
    def calibrate(b):
        return released(response(math.floor(b.epsilon * 8) / 8 + 1e-3))

    found = candidate_budget(calibrate, Budget(1.0, DELTA, "replace-one"), 100)
    assert guarantee(calibrate(found), 100, DELTA, "replace-one").epsilon <= 1


def test_no_candidate_fits():
    with pytest.raises(UsageError, match="no budget of one candidate"):
        candidate_budget(lambda b: released(gaussian(0.5)), Budget(1.0, DELTA), 12)
    with pytest.raises(UsageError, match="no budget of one candidate"):
        candidate_budget(lambda b: [], Budget(1.0, DELTA), 12)


def test_without_a_budget_nothing_is_searched():
    budget = Budget(math.inf, DELTA)
    assert candidate_budget(lambda b: pytest.fail("calibrated"), budget, 12) == budget


@pytest.mark.parametrize("events", [[], [dp.NonPrivateDpEvent()], [gaussian(0.0)]])
def test_what_guarantees_nothing(events):
    assert selection_epsilon(events, 12, DELTA, "zero-out") == math.inf


@pytest.mark.parametrize("mean", [0.9, 0, -1, math.inf, math.nan])
def test_mean_out_of_range(mean):
    with pytest.raises(UsageError, match="at least 1"):
        number_of_candidates(mean, np.random.default_rng(0))
    with pytest.raises(UsageError, match="at least 1"):
        selection_epsilon([gaussian(1.0)], mean, DELTA, "zero-out")
    with pytest.raises(UsageError, match="at least 1"):
        candidate_budget(lambda b: released(gaussian(1.0)), Budget(1.0, DELTA), mean)


def test_other_events_are_refused():
    with pytest.raises(UsageError, match="Laplace"):
        selection_epsilon([dp.LaplaceDpEvent(1.0)], 12, DELTA, "zero-out")


def test_orders_that_do_not_converge_are_infinite_and_say_nothing(caplog):
    with caplog.at_level(logging.WARNING, logger="absl"):
        divergences = renyi_divergences([gaussian(10.0, 0.5)], ORDERS, "zero-out")
    assert not caplog.records
    assert np.isinf(divergences[0])
    assert np.isfinite(divergences[len(ORDERS) // 2])
    assert not np.isnan(divergences).any()


@pytest.mark.parametrize("relation", ROW_RELATIONS)
def test_divergences_of_one_gaussian_in_closed_form(relation):
    orders = np.array([1.5, 2.0, 20.0, math.inf])
    distance = 2 if relation == "replace-one" else 1
    divergences = renyi_divergences([gaussian(3.0, 1.0, 7), response(0.5)], orders, relation)
    np.testing.assert_allclose(divergences, 7 * orders * distance**2 / 18 + 0.5, rtol=1e-9)


def test_the_guarantee_states_what_was_chosen_from_and_every_relation():
    event = dpsgd_event(3.0, SCHEDULE)
    stated = guarantee(released(event), 12, DELTA, "zero-out")
    assert (stated.unit, stated.accountant, stated.delta) == ("example", "rdp", DELTA)
    assert stated.epsilon == selection_epsilon([event], 12, DELTA, "zero-out")
    assert stated.other_relations["add-or-remove-one"] == stated.epsilon
    assert stated.other_relations["replace-one"] > 1.5 * stated.epsilon
    assert "best of a logarithmic number (mean 12) of candidates" in stated.events[0]


def test_groups_are_accounted_as_replaced():
    event = dpsgd_event(3.0, SCHEDULE, 4)
    stated = guarantee([Release(event, "example", 4)], 12, DELTA, "zero-out")
    assert stated.epsilon == selection_epsilon([event], 12, DELTA, "replace-one")
    assert stated.other_relations["add-or-remove-one"] is None


def test_labels_need_no_private_selection():
    with pytest.raises(UsageError, match="costs nothing more"):
        guarantee([Release(response(1.0), "label")], 12, DELTA, "zero-out")
