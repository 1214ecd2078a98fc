"""Attack power against closed forms, brute force over tests, and dp-accounting's profiles."""

import math
from itertools import permutations
from pathlib import Path
from typing import Any

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.common import DifferentialPrivacyParameters
from dp_accounting.pld.privacy_loss_distribution import from_privacy_parameters
from scipy import optimize
from scipy.special import ndtr, ndtri

from dpcompare import accounting, attack_power
from dpcompare.accounting import RELATIONS, sampled_gaussian_event
from dpcompare.attack_power import (
    COLUMNS,
    of_epsilon_delta,
    of_gaussians,
    of_guarantee,
    of_kernel,
    of_records,
    of_responses,
)
from dpcompare.label_kernel import (
    LabelKernel,
    binary_randomized_response,
    k_ary_randomized_response,
)
from dpcompare.label_mechanism import pure_releases
from dpcompare.mechanism import find
from dpcompare.privacy import Budget, Neighboring, Release, Schedule
from dpcompare.recorded_releases import binary_response
from dpcompare.results import ResultsFolder
from dpcompare.sampled_gaussian import SampledGaussian
from dpcompare.tasks import find as find_task
from tests import fabricated_records as made

RATES = np.array([0.0, 1e-6, 1e-4, 0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.99, 1.0])
QUICKSTART = Path(__file__).resolve().parents[1] / "results" / "reference" / "quickstart"


def response_power(epsilon: float, rates: np.ndarray) -> np.ndarray:
    """Of binary randomized response, by hand."""
    return np.minimum(math.exp(epsilon) * rates, 1 - math.exp(-epsilon) * (1 - rates))


def best_test(first: np.ndarray, second: np.ndarray, rate: float) -> float:
    """P(S) at most, over all randomized tests with Q(S) at most `rate`: a linear program."""
    found = optimize.linprog(-first, A_ub=second[None, :], b_ub=[rate], bounds=(0, 1))
    return float(-found.fun)


def brute_force(kernel: LabelKernel, rates: np.ndarray) -> np.ndarray:
    pairs = list(permutations(kernel.probabilities, 2))
    return np.array([max(best_test(p, q, rate) for p, q in pairs) for rate in rates])


def random_kernel(labels: int, outputs: int, seed: int) -> LabelKernel:
    rows = np.random.default_rng(seed).dirichlet(np.full(outputs, 0.7), size=labels)
    return LabelKernel(rows, np.arange(outputs, dtype=float))


def assert_is_a_bound_of_its_kind(rates: np.ndarray, power: np.ndarray) -> None:
    """At least guessing, at most 1, rising and concave."""
    assert (power >= rates).all()
    assert (power <= 1).all()
    assert (np.diff(power) >= 0).all()
    slopes = np.diff(power) / np.diff(rates)
    assert (np.diff(slopes) <= 1e-9 * slopes[:-1] + 1e-9).all()


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 3.0, 10.0, 50.0])
def test_randomized_response_is_exact(epsilon: float) -> None:
    exact = response_power(epsilon, RATES)
    for power in (
        of_responses([binary_response(epsilon)], RATES),
        of_kernel(binary_randomized_response(epsilon), RATES),
        of_epsilon_delta(epsilon, 0.0, RATES),  # the most that the epsilon alone allows
    ):
        np.testing.assert_allclose(power, exact, rtol=1e-11)
        assert (power >= exact).all()


def test_the_sentence_of_the_documentation() -> None:
    assert of_responses([binary_response(1.0)], 0.001)[0] == pytest.approx(0.00271828, rel=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_kernels_equal_the_best_of_all_tests(seed: int) -> None:
    kernel = random_kernel(3, 5, seed)
    power = of_kernel(kernel, RATES)
    np.testing.assert_allclose(power, brute_force(kernel, RATES), rtol=1e-9, atol=1e-12)


def test_outputs_that_give_a_label_away_are_recognized_without_any_error() -> None:
    kernel = LabelKernel(np.array([[0.7, 0.3, 0.0], [0.6, 0.2, 0.2]]), np.arange(3.0))
    power = of_kernel(kernel, [0.0, 0.5])
    np.testing.assert_allclose(power, brute_force(kernel, np.array([0.0, 0.5])), rtol=1e-9)
    assert power[0] == pytest.approx(0.2)  # delta at an infinite epsilon


def test_more_labels_are_told_less_well_than_two_at_the_same_epsilon() -> None:
    many, two = of_kernel(k_ary_randomized_response(3.0, 11), RATES), response_power(3.0, RATES)
    assert (many <= two * (1 + 1e-9)).all()
    assert many[4] == pytest.approx(two[4])  # at 1%
    assert many[6] < 0.95 * two[6]  # at 20%


def test_responses_compose_as_all_their_outcomes() -> None:
    prior, labels = binary_randomized_response(0.4), binary_randomized_response(1.1)
    rows = [
        np.multiply.outer(
            np.multiply.outer(prior.probabilities[y], prior.probabilities[y]),
            labels.probabilities[y],
        ).ravel()
        for y in range(2)
    ]
    product = LabelKernel(np.array(rows), np.arange(8.0))
    power = of_responses([binary_response(0.4, times=2), binary_response(1.1)], RATES)
    np.testing.assert_allclose(power, brute_force(product, RATES), rtol=1e-9, atol=1e-12)
    assert (power <= response_power(1.9, RATES) * (1 + 1e-9)).all()
    assert power[6] < 0.95 * response_power(1.9, RATES)[6]
    assert_is_a_bound_of_its_kind(RATES, power)


def test_too_many_responses_are_bounded_by_the_sum_of_their_epsilons() -> None:
    several = [binary_response(1e-4, times=2000), binary_response(2e-4, times=2000)]
    np.testing.assert_allclose(of_responses(several, RATES), response_power(0.6, RATES), rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("randomized-response", {}),
        ("rr-on-bins", {"prior": [0.8, 0.12, 0.05, 0.02, 0.01]}),
        ("unbiased-randomizer", {"prior": [0.8, 0.12, 0.05, 0.02, 0.01]}),
        ("additive-noise", {"shape": "discrete-laplace", "clamp": True}),
    ],
)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_no_built_in_kernel_exceeds_what_its_record_says(
    name: str, parameters: dict[str, Any], epsilon: float
) -> None:
    task, schedule = find_task("pconvs", 4), Schedule(1000, 100, 10, "shuffle")
    mechanism = find(name).build(parameters).calibrate(Budget(epsilon, 1e-4), schedule, task)
    kernel = mechanism.kernel(task)
    assert kernel is not None
    claim = vars(accounting.guarantee(mechanism.events(schedule), 1e-4, "zero-out"))
    said = of_guarantee(claim, RATES)
    assert (of_kernel(kernel, RATES) <= said.label_flip * (1 + 1e-9)).all()


# --- an epsilon and a delta ----------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 0.0), (1.0, 1e-5), (3.0, 0.05), (0.0, 0.2)])
def test_epsilon_and_delta_alone_equal_their_worst_mechanism(epsilon: float, delta: float) -> None:
    worst = from_privacy_parameters(
        DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=1e-3
    )
    grid = np.linspace(-6, 6, 12001)
    deltas = np.array(worst.get_delta_for_epsilon(grid))
    expected = np.min(deltas[:, None] + np.exp(grid)[:, None] * RATES, axis=0)
    power = of_epsilon_delta(epsilon, delta, RATES)
    np.testing.assert_allclose(power, np.minimum(1, expected), rtol=2e-3, atol=1e-9)
    assert power[0] == pytest.approx(delta)
    assert_is_a_bound_of_its_kind(RATES, power)


def test_no_epsilon_is_no_bound() -> None:
    assert (of_epsilon_delta(math.inf, 1e-6, RATES) == 1).all()
    assert of_epsilon_delta(900.0, 0.0, 1e-3)[0] == 1


# --- gradients -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("sigma", "steps"), [(0.5, 1), (2.0, 1), (8.0, 100), (60.0, 4000)])
@pytest.mark.parametrize(("neighboring", "distance"), [("zero-out", 1), ("replace-one", 2)])
def test_unsampled_gaussians_have_the_trade_off_of_two_normals(
    sigma: float, steps: int, neighboring: Neighboring, distance: int
) -> None:
    """G_mu of Dong, Roth, Su, at mu = distance * sqrt(steps) / sigma."""
    mu = distance * math.sqrt(steps) / sigma
    power = of_gaussians([SampledGaussian(sigma, 1.0, steps)], [], neighboring, RATES)
    exact = ndtr(ndtri(RATES) + mu)
    assert (power >= exact).all()
    np.testing.assert_allclose(power, exact, rtol=4e-3, atol=1e-9)
    assert_is_a_bound_of_its_kind(RATES, power)


def mixture(x: np.ndarray, sigma: float, q: float, mean: float) -> np.ndarray:
    """P(draw > x) of one sampled Gaussian."""
    return (1 - q) * ndtr(-x / sigma) + q * ndtr((mean - x) / sigma)


@pytest.mark.parametrize(("sigma", "q"), [(0.5, 0.1), (1.0, 0.5), (3.0, 0.01)])
def test_one_sampled_step_has_the_best_threshold_of_all(sigma: float, q: float) -> None:
    """Replaced rows: a mixture at 1 against one at -1, of which large draws speak for the first."""
    x = np.linspace(-1 - 9 * sigma, 1 + 9 * sigma, 400_001)[::-1]
    rates = RATES[1:]
    exact = np.interp(rates, mixture(x, sigma, q, -1.0), mixture(x, sigma, q, 1.0))
    power = of_gaussians([SampledGaussian(sigma, q, 1)], [], "replace-one-label", rates)
    assert (power >= exact * (1 - 1e-6)).all()
    np.testing.assert_allclose(power, exact, rtol=5e-3, atol=1e-9)


def test_zero_out_bounds_the_attacker_in_both_directions() -> None:
    sigma, q = 0.5, 0.1
    x = np.linspace(-10, 10, 400_001)[::-1]
    there, absent = mixture(x, sigma, q, 1.0), mixture(x, sigma, q, 0.0)
    removed = np.interp(RATES, absent, there)
    added = np.interp(RATES, 1 - there[::-1], 1 - absent[::-1])
    power = of_gaussians([SampledGaussian(sigma, q, 1)], [], "zero-out", RATES)
    worst = np.maximum(removed, added)
    assert (power >= worst * (1 - 1e-6)).all()
    small = RATES <= 0.05  # beyond, it is the concave hull of the two
    np.testing.assert_allclose(power[small], worst[small], rtol=5e-3, atol=1e-9)
    assert_is_a_bound_of_its_kind(RATES, power)


def library_power(
    events: list[dp.DpEvent], relation: NeighboringRelation, rates: np.ndarray
) -> np.ndarray:
    """The same from dp-accounting's own profile, by lines at a fine grid of epsilons."""
    accountant = PLDAccountant(relation, value_discretization_interval=1e-3)
    for event in events:
        accountant.compose(event)
    grid = np.linspace(0, 8, 81)
    deltas = np.array([accountant.get_delta(epsilon) for epsilon in grid])[:, None]
    factors = np.exp(grid)[:, None]
    rising, falling = deltas + factors * rates, 1 - (1 - deltas - rates) / factors
    return np.minimum(1, np.minimum(rising, falling).min(axis=0))


@pytest.mark.parametrize(
    ("neighboring", "sigma", "q", "steps"),
    [
        ("zero-out", 0.8, 0.03, 200),
        ("add-or-remove-one", 1.0, 0.01, 1000),
        ("replace-one", 1.0, 0.01, 1000),
    ],
)
def test_sampled_steps_agree_with_the_profile_of_the_library(
    neighboring: Neighboring, sigma: float, q: float, steps: int
) -> None:
    gaussian = SampledGaussian(sigma, q, steps)
    theirs = library_power([sampled_gaussian_event(gaussian)], RELATIONS[neighboring], RATES)
    power = of_gaussians([gaussian], [], neighboring, RATES)
    np.testing.assert_allclose(power[3:], theirs[3:], rtol=5e-3)


def test_labels_and_gradients_count_together() -> None:
    gaussian, response = SampledGaussian(2.0, 0.05, 200), binary_response(1.0)
    uniform = 2 / (1 + math.e)
    theirs = library_power(
        [sampled_gaussian_event(gaussian), dp.RandomizedResponseDpEvent(uniform, 2)],
        NeighboringRelation.REPLACE_ONE,
        RATES,
    )
    both = of_gaussians([gaussian], [response], "replace-one", RATES)
    np.testing.assert_allclose(both[3:], theirs[3:], rtol=5e-3)
    assert (both > of_gaussians([gaussian], [], "replace-one", RATES))[1:-1].all()
    assert (both > of_responses([response], RATES))[1:-1].all()


@pytest.mark.parametrize("sigma", [2.65, 0.7])
def test_the_coarse_grid_of_many_steps_is_larger_by_little(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    gaussian = [SampledGaussian(sigma, 0.00178706, 83937)]
    coarse = of_gaussians(gaussian, [], "replace-one", RATES[3:7])
    monkeypatch.setattr(attack_power, "COARSENING", 1.0)
    attack_power._of_losses.cache_clear()
    fine = of_gaussians(gaussian, [], "replace-one", RATES[3:7])
    attack_power._of_losses.cache_clear()
    assert (fine <= coarse).all()
    assert (coarse <= 1.015 * fine).all()


def test_power_falls_with_noise_and_rises_with_steps() -> None:
    def power(sigma: float, steps: int) -> np.ndarray:
        return of_gaussians([SampledGaussian(sigma, 0.02, steps)], [], "zero-out", RATES[1:-1])

    assert (power(1.0, 100) > power(1.5, 100)).all()
    assert (power(1.0, 200) > power(1.0, 100)).all()


@pytest.mark.parametrize("neighboring", ["zero-out", "replace-one"])
def test_next_to_no_noise_hides_nothing_and_endless_noise_everything(
    neighboring: Neighboring,
) -> None:
    assert (of_gaussians([SampledGaussian(0.05, 1.0, 1)], [], neighboring, RATES[1:]) == 1).all()
    hidden = of_gaussians([SampledGaussian(1e7, 0.04, 500)], [], neighboring, RATES[1:])
    np.testing.assert_allclose(hidden, RATES[1:], rtol=1e-5)


# --- what records claim --------------------------------------------------------------------------


def claim(*releases: Release, neighboring: Any = "zero-out", **changes: Any) -> dict[str, Any]:
    stated = vars(accounting.guarantee(releases, 1e-5, neighboring))
    return stated | {"events": list(stated["events"])} | changes


def dpsgd(sigma: float = 1.2, q: float = 0.03, steps: int = 300, group_size: int = 1) -> Release:
    event = sampled_gaussian_event(SampledGaussian(sigma, q, steps))
    return Release(event, "example", group_size)


@pytest.mark.parametrize("neighboring", ["zero-out", "replace-one", "add-or-remove-one"])
def test_bounds_of_rows_stay_below_what_each_epsilon_alone_implies(
    neighboring: Neighboring,
) -> None:
    stated = claim(dpsgd(), neighboring=neighboring)
    power = of_guarantee(stated, RATES)
    assert power.from_releases
    relations = {stated["neighboring"]: stated["epsilon"]} | stated["other_relations"]
    implied = of_epsilon_delta(relations["replace-one"], 1e-5, RATES)
    assert (power.label_flip <= implied * (1 + 1e-6)).all()
    assert (power.whole_row <= of_epsilon_delta(stated["epsilon"], 1e-5, RATES) * (1 + 1e-6)).all()
    if neighboring == "replace-one":
        np.testing.assert_array_equal(power.whole_row, power.label_flip)
    else:
        assert (power.whole_row[1:-1] < power.label_flip[1:-1]).all()


def test_a_row_that_vanishes_from_its_group_is_a_replaced_one() -> None:
    power = of_guarantee(claim(dpsgd(group_size=4)), RATES)
    np.testing.assert_array_equal(power.whole_row, power.label_flip)


def test_features_are_not_protected_by_labels() -> None:
    power = of_guarantee(claim(*pure_releases(1.0, "randomized labels")), RATES)
    np.testing.assert_allclose(power.label_flip, response_power(1.0, RATES), rtol=1e-6)
    assert (power.whole_row == 1).all()
    assert power.from_releases


def test_a_private_prior_and_labels_are_told_less_well_than_their_sum() -> None:
    stated = claim(
        *pure_releases(0.25, "label histogram"), *pure_releases(4.75, "randomized labels")
    )
    power = of_guarantee(stated, [0.01]).label_flip[0]
    assert power < response_power(5.0, np.array([0.01]))[0]
    assert power == pytest.approx(
        of_responses([binary_response(0.25), binary_response(4.75)], 0.01)[0], rel=1e-6
    )


def test_labels_and_gradients_of_a_record_protect_rows() -> None:
    power = of_guarantee(claim(*pure_releases(0.5, "labels"), dpsgd()), RATES)
    alone = of_guarantee(claim(dpsgd()), RATES)
    assert power.from_releases
    assert (power.label_flip[1:-1] > alone.label_flip[1:-1]).all()
    assert (power.whole_row[1:-1] > alone.whole_row[1:-1]).all()
    assert (power.whole_row < 1)[:-1].all()


def test_no_guarantee_hides_nothing() -> None:
    power = of_guarantee(claim(), RATES)
    assert (power.label_flip == 1).all()
    assert (power.whole_row == 1).all()


def test_unknown_releases_are_bounded_by_what_was_stated() -> None:
    stated = claim(dpsgd(), events=["1 x something else (unit: example)"])
    power = of_guarantee(stated, RATES)
    assert not power.from_releases
    np.testing.assert_array_equal(power.whole_row, of_epsilon_delta(stated["epsilon"], 1e-5, RATES))
    np.testing.assert_array_equal(
        power.label_flip, of_epsilon_delta(stated["other_relations"]["replace-one"], 1e-5, RATES)
    )
    assert (power.label_flip >= of_guarantee(claim(dpsgd()), RATES).label_flip).all()
    labels = claim(*pure_releases(1.0, "labels"), events=["RandomizedResponse"])
    np.testing.assert_allclose(of_guarantee(labels, RATES).label_flip, response_power(1.0, RATES))
    assert (of_guarantee(labels, RATES).whole_row == 1).all()
    unstated = stated | {"other_relations": {"replace-one": None}}
    assert (of_guarantee(unstated, RATES).label_flip == 1).all()


def test_the_committed_quickstart_can_be_read_side_by_side() -> None:
    folder = ResultsFolder(QUICKSTART)
    rows = of_records(folder.records(folder.plan()))
    assert list(rows.columns) == COLUMNS
    assert len(rows) == 2 * 9 * 2 * 2
    assert rows["from_releases"].all()
    assert rows["tpr"].between(rows["fpr"], 1).all()
    for _, curve in rows.groupby(["label", "attack", "fpr"]):
        assert (np.diff(curve.sort_values("epsilon")["tpr"]) >= 0).all()

    def at(label: str, epsilon: float, fpr: float, attack: str = "label flip") -> float:
        found = rows[
            rows["label"].eq(label)
            & rows["epsilon"].eq(epsilon)
            & rows["fpr"].eq(fpr)
            & rows["attack"].eq(attack)
        ]
        return float(found["tpr"].iloc[0])

    assert at("randomized-response", 1.0, 0.001) == pytest.approx(math.e / 1000, rel=1e-6)
    assert at("randomized-response", 1.0, 0.001) < at("dp-sgd", 1.0, 0.001)
    assert at("randomized-response", 5.0, 0.01) > 4 * at("dp-sgd", 5.0, 0.01)
    assert at("randomized-response", 0.1, 0.01, "whole row") == 1
    assert at("dp-sgd", 1.0, 0.01, "whole row") < at("dp-sgd", 1.0, 0.01)


def test_records_without_a_guarantee_have_no_row() -> None:
    records = [
        made.record("non-private", math.inf, 0),
        made.failed("dp-sgd", 1.0, 0, "diverged"),
        made.record("randomized-response", 1.0, 0),
    ]
    rows = of_records(records)
    assert set(rows["label"]) == {"randomized-response"}
    assert not rows["from_releases"].any()
    assert of_records([]).empty


def test_the_largest_bound_of_unlike_trials_counts() -> None:
    small, large = (
        made.record("dp-sgd", 1.0, seed, guarantee=claim(dpsgd(sigma)))
        for seed, sigma in enumerate((1.4, 1.0))
    )
    bounds = of_records([small, large])["tpr"].to_numpy()
    np.testing.assert_array_equal(bounds, of_records([large])["tpr"].to_numpy())
    assert (bounds > of_records([small])["tpr"].to_numpy()).all()
