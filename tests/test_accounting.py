"""Epsilons against closed forms, integration by brute force, other accountants, known values."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from scipy.stats import norm

from dpcompare.accounting import (
    SampledGaussian,
    delta_of,
    directions,
    dpsgd_event,
    epsilon,
    group_relation,
    guarantee,
    sampled_gaussian_event,
)
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.privacy import ROW_RELATIONS, Release, Schedule
from dpcompare.privacy_loss import PrivacyLoss
from dpcompare.saddle_point import estimated_log_delta


def spent(sigma, q, steps, delta, neighboring="add-or-remove-one", accountant="pld"):
    event = sampled_gaussian_event(SampledGaussian(sigma, q, steps))
    return epsilon(event, delta, neighboring, accountant)


# (sigma, q, steps, delta), PLD, RDP under add-or-remove-one: values found by others.
KNOWN = [
    ((1.1, 256 / 60_000, 14_063, 1e-5), 2.382, 2.597),
    ((1.1, 256 / 60_000, 14_063, 1e-7), 2.984, 3.185),
    ((1.1, 0.01, 1000, 1e-2), 0.61, None),
    ((1.1, 0.01, 1000, 1e-6), 1.753, None),
    ((1.0, 1.0, 1, 1e-5), 4.3772, 4.7285),
    ((1.0, 1.0, 10, 1e-5), 17.857, None),
    ((3.0, 0.2, 50, 1 / 48_000), 1.961, 2.169),
    ((1.0, 0.01, 500, 1e-6), 1.5803, None),
    ((1.0, 0.01, 1000, 1e-6), 2.1245, 2.437),
    ((1.0, 1.6e-4, 8, 1e-5), 0.00185, None),
    ((1.0, 0.125, 8, 1e-5), 3.175, None),
    ((1.0, 0.08, 100, 1e-5), 5.613, None),
    ((0.1, 250 / 60_000, 480, 1e-5), 479.0, 2322.0),
    ((1.1, 250 / 60_000, 480, 1e-5), 0.411, 0.796),
    ((4.0, 0.01, 10_000, 1e-5), 0.947, 1.035),
    ((4.0, 0.01, 40_000, 1e-5), 2.033, 2.210),
    ((2.0, 1.0, 1, 1e-5), 1.993, 2.166),
]


@pytest.mark.parametrize(("run", "pld", "rdp"), KNOWN)
def test_known_values(run, pld, rdp):
    assert spent(*run) == pytest.approx(pld, rel=0.006)
    if rdp is not None:
        assert spent(*run, accountant="rdp") == pytest.approx(rdp, rel=0.006)


def test_replaced_rows_are_known_to_cost_more():
    assert spent(1.0, 0.01, 1000, 1e-6, "replace-one") == pytest.approx(3.214, abs=0.002)
    assert spent(2.0, 1.0, 1, 1e-5, "replace-one") == pytest.approx(4.377, abs=0.002)
    # dp-accounting's own RDP says 2.166 here, as if a replaced row moved the sum by one norm.
    assert spent(2.0, 1.0, 1, 1e-5, "replace-one", "rdp") == pytest.approx(4.7285, abs=0.002)


@pytest.mark.parametrize("relation", ROW_RELATIONS)
@pytest.mark.parametrize(("sigma", "q"), [(0.8, 0.05), (1.5, 0.3), (3.0, 0.01)])
@pytest.mark.parametrize("e", [0.05, 0.5, 1.5])
def test_one_step_against_integration_by_brute_force(relation, sigma, q, e):
    x = np.linspace(-60, 60, 2_000_001)
    up = (1 - q) * norm.pdf(x, 0, sigma) + q * norm.pdf(x, 1, sigma)
    down = (1 - q) * norm.pdf(x, 0, sigma) + q * norm.pdf(x, -1, sigma)
    rest = norm.pdf(x, 0, sigma)
    pairs = [(up, down)] if relation == "replace-one" else [(up, rest), (rest, up)]
    step = x[1] - x[0]
    exact = max(float(np.maximum(p - math.exp(e) * r, 0).sum() * step) for p, r in pairs)
    bound = delta_of(SampledGaussian(sigma, q, 1), e, relation)
    assert exact - 1e-10 <= bound <= exact * 1.02 + 1e-6


@pytest.mark.parametrize(("sigma", "delta"), [(0.5, 1e-5), (1.0, 1e-6), (5.0, 1e-8)])
def test_unsampled_gaussian_is_the_analytic_one(sigma, delta):
    exact = gaussian_mechanism.get_epsilon_gaussian(sigma, delta)
    assert exact <= spent(sigma, 1.0, 1, delta) <= exact * 1.001 + 1e-6
    many = gaussian_mechanism.get_epsilon_gaussian(sigma / math.sqrt(50), delta)
    assert many <= spent(sigma, 1.0, 50, delta) <= many * 1.001
    # A replaced row moves the sum by two norms.
    replaced = gaussian_mechanism.get_epsilon_gaussian(sigma / 2, delta)
    assert replaced <= spent(sigma, 1.0, 1, delta, "replace-one") <= replaced * 1.001


@pytest.mark.parametrize("neighboring", ["zero-out", "replace-one"])
def test_never_below_a_finer_grid_of_dp_accounting_and_close_to_it(neighboring):
    from dpcompare.accounting import RELATIONS

    rng = np.random.default_rng(0)
    for _ in range(3):
        sigma, q = rng.uniform(0.6, 3.0), 10 ** rng.uniform(-3, -1)
        steps, delta = int(10 ** rng.uniform(0, 3)), 10 ** rng.uniform(-7, -4)
        event = sampled_gaussian_event(SampledGaussian(sigma, q, steps))
        fine = dp.pld.PLDAccountant(RELATIONS[neighboring], 2e-5).compose(event)
        reference = fine.get_epsilon(delta)
        ours = spent(sigma, q, steps, delta, neighboring)
        assert reference * 0.999 - 1e-5 <= ours <= reference * 1.002 + 1e-4


@pytest.mark.parametrize("neighboring", ["add-or-remove-one", "replace-one"])
def test_rdp_is_never_below_pld(neighboring):
    rng = np.random.default_rng(1)
    for _ in range(8):
        sigma, q = rng.uniform(0.5, 4.0), 10 ** rng.uniform(-3, 0)
        steps, delta = int(10 ** rng.uniform(0, 3)), 10 ** rng.uniform(-8, -4)
        tight = spent(sigma, q, steps, delta, neighboring)
        assert spent(sigma, q, steps, delta, neighboring, "rdp") >= tight - 1e-6


def test_replace_one_divergence_of_an_unsampled_gaussian_is_the_closed_form():
    from dpcompare.accounting import _replace_one_divergences

    orders = np.array([1.5, 2.0, 8.0, 64.0])
    for sigma in (0.5, 1.0, 10.0):
        divergences = _replace_one_divergences(SampledGaussian(sigma, 1.0, 1), orders)
        np.testing.assert_allclose(divergences, orders * 2**2 / (2 * sigma**2), rtol=1e-9)


def test_many_steps_do_not_drown_in_rounding():
    """5.4 million steps: the true epsilon is .5 (an independent contour integral)."""
    value = spent(0.88041, 1024 / 36_672_493, 5_371_945, 1 / 36_672_493)
    assert 0.4995 < value < 0.51


def test_reading_epsilon_changes_nothing_and_pieces_add_up():
    half = sampled_gaussian_event(SampledGaussian(1.0, 0.01, 500))
    first = epsilon(half, 1e-6, "zero-out")
    assert first == epsilon(half, 1e-6, "zero-out") == pytest.approx(1.5803, abs=1e-3)
    both = dp.ComposedDpEvent([half, half])
    nested = dp.SelfComposedDpEvent(half, 2)
    whole = spent(1.0, 0.01, 1000, 1e-6)
    assert epsilon(both, 1e-6, "zero-out") == pytest.approx(whole, rel=1e-3)
    assert epsilon(nested, 1e-6, "zero-out") == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("count", [1, 3])
def test_randomized_responses_add_up_however_they_are_composed(count):
    response = dp.RandomizedResponseDpEvent(0.5, 2)  # keeps the label with probability 3/4
    expected = count * math.log(3)
    repeated = dp.SelfComposedDpEvent(response, count)
    listed = dp.ComposedDpEvent([response] * count)
    for event in (repeated, listed):
        for accountant in ("pld", "rdp"):
            value = epsilon(event, 1e-6, "replace-one", accountant)
            assert value == pytest.approx(expected, rel=1e-12)


def test_a_response_beside_gaussians_is_counted_as_often_as_it_was_given():
    response = dp.RandomizedResponseDpEvent(0.5, 2)
    gaussian = sampled_gaussian_event(SampledGaussian(4.0, 0.01, 10))
    for accountant in ("pld", "rdp"):
        alone = epsilon(gaussian, 1e-6, "replace-one", accountant)
        values = [
            epsilon(
                dp.ComposedDpEvent([gaussian, dp.SelfComposedDpEvent(response, count)]),
                1e-6,
                "replace-one",
                accountant,
            )
            for count in (1, 2)
        ]
        assert values[0] <= alone + math.log(3) + 1e-6
        assert values[1] - values[0] == pytest.approx(math.log(3), abs=0.02)


def test_no_noise_is_no_privacy():
    schedule = Schedule(1000, 10, 5, "poisson")
    assert math.isinf(epsilon(dpsgd_event(0.0, schedule), 1e-6, "zero-out"))
    assert math.isinf(epsilon(dp.GaussianDpEvent(0.0), 1e-6, "zero-out"))
    assert math.isinf(epsilon(dp.NonPrivateDpEvent(), 1e-6, "zero-out"))
    assert epsilon(dp.NoOpDpEvent(), 1e-6, "zero-out") == 0


def test_shuffled_batches_get_no_poisson_guarantee():
    with pytest.raises(UsageError, match="shuffled"):
        dpsgd_event(1.0, Schedule(1000, 10, 5, "shuffle"))
    # What 60 epochs of shuffled batches could claim without amplification, beside 2.38 claimed.
    assert spent(1.1, 1.0, 60, 1e-5) == pytest.approx(54.05, rel=0.01)


def test_events_that_cannot_be_accounted_are_refused_by_name():
    with pytest.raises(UsageError, match="Laplace"):
        epsilon(dp.LaplaceDpEvent(1.0), 1e-6, "replace-one", "rdp")
    with pytest.raises(UsageError, match="Unsupported"):
        epsilon(dp.UnsupportedDpEvent(), 1e-6, "zero-out")
    assert epsilon(dp.LaplaceDpEvent(1.0), 1e-9, "zero-out") == pytest.approx(1.0, abs=1e-3)


def test_a_tiny_delta_is_accounted_as_long_as_cut_tails_allow():
    gaussian = SampledGaussian(1.0, 0.01, 1000)
    value = spent(*gaussian, 1e-17)
    assert estimated_log_delta(gaussian, value, "remove") == pytest.approx(
        math.log(1e-17), abs=0.05
    )
    with pytest.raises(DpcompareError, match=r"rounding.*10% of delta 1\.0e-22; take fewer"):
        spent(*gaussian, 1e-22)


def test_steps_are_those_that_were_run():
    """60 epochs of 60,000 rows in batches of 256: 14,063 steps, or 14,100 of rounded-up epochs."""
    assert spent(1.1, 256 / 60_000, 14_063, 1e-5) == pytest.approx(2.3818, rel=2e-3)
    assert spent(1.1, 256 / 60_000, 14_100, 1e-5) == pytest.approx(2.3852, rel=2e-3)
    assert spent(1.1, 256 / 60_000, 14_063, 1e-5) < spent(1.1, 256 / 60_000, 14_100, 1e-5)


def test_delta_and_epsilon_say_the_same():
    gaussian = SampledGaussian(1.1, 0.01, 1000)
    for neighboring in ("zero-out", "replace-one"):
        value = spent(*gaussian, 1e-6, neighboring)
        assert delta_of(gaussian, value, neighboring) == pytest.approx(1e-6, rel=1e-5)


def test_the_direction_of_adding_counts_where_it_decides():
    """Few steps of much noise: adding and removing cost nearly the same, and the larger is told."""
    gaussian = SampledGaussian(20.0, 0.5, 10)
    value = spent(*gaussian, 1e-5)
    for direction in directions("zero-out", 0.5):
        loss = PrivacyLoss([gaussian], [], direction)
        assert loss.composed(loss.order_at_delta(1e-5)).epsilon(1e-5) <= value * (1 + 1e-6)
        assert estimated_log_delta(gaussian, value, direction) <= math.log(1e-5)


def test_parts_of_very_different_size_add_up():
    small = sampled_gaussian_event(SampledGaussian(2.0, 1e-4, 10_000))
    large = dp.GaussianDpEvent(2.0)
    together = epsilon(dp.ComposedDpEvent([small, large]), 1e-6, "zero-out")
    alone = epsilon(large, 1e-6, "zero-out")
    assert alone < together < alone + epsilon(small, 1e-6, "zero-out")
    finer = dp.pld.PLDAccountant(value_discretization_interval=2e-5)
    finer.compose(dp.ComposedDpEvent([small, large]))
    assert together == pytest.approx(finer.get_epsilon(1e-6), rel=1e-3)


def test_a_response_without_randomness_guarantees_nothing():
    gaussian = sampled_gaussian_event(SampledGaussian(4.0, 0.01, 10))
    both = dp.ComposedDpEvent([gaussian, dp.RandomizedResponseDpEvent(0.0, 2)])
    assert math.isinf(epsilon(both, 1e-6, "replace-one"))


class TestGuarantee:
    schedule = Schedule(100_000, 1000, 1000, "poisson")

    def of(self, releases, neighboring="zero-out", accountant="pld"):
        return guarantee(releases, 1e-6, neighboring, accountant)

    def test_single_examples(self):
        made = self.of([Release(dpsgd_event(1.0, self.schedule), "example")])
        assert made.epsilon == pytest.approx(2.125, abs=0.002)
        assert made.other_relations["add-or-remove-one"] == pytest.approx(made.epsilon)
        assert made.other_relations["replace-one"] == pytest.approx(3.21, abs=0.01)
        assert (made.unit, made.neighboring, made.accountant) == ("example", "zero-out", "pld")
        assert made.events == ("1000 x Poisson sample q=0.01 of Gaussian sigma=1 (unit: example)",)

    def test_groups_cost_what_replacing_costs(self):
        release = Release(dpsgd_event(1.0, self.schedule), "example", group_size=4)
        made = self.of([release])
        assert made.epsilon == pytest.approx(3.21, abs=0.01)
        assert made.other_relations["replace-one"] == pytest.approx(made.epsilon)
        assert made.other_relations["add-or-remove-one"] is None
        # Half the noise multiplier under zero-out is valid too, and far looser.
        looser = spent(0.5, 0.01, 1000, 1e-6)
        assert looser == pytest.approx(15.48, rel=0.005)
        with pytest.raises(UsageError, match="groups are fixed"):
            self.of([release], "add-or-remove-one")

    def test_labels_only(self):
        made = self.of([Release(dp.RandomizedResponseDpEvent(0.5, 2), "label")])
        assert made.epsilon == pytest.approx(math.log(3))
        assert (made.delta, made.unit, made.accountant) == (0.0, "label", "exact")
        assert made.neighboring == "replace-one-label"
        assert made.other_relations == dict.fromkeys(ROW_RELATIONS)

    def test_labels_and_gradients_together_protect_examples_and_add_up(self):
        gradients = Release(dpsgd_event(1.0, self.schedule), "example")
        labels = Release(dp.RandomizedResponseDpEvent(0.5, 2), "label")
        made = self.of([labels, gradients], "replace-one")
        assert made.other_relations["add-or-remove-one"] is None
        with pytest.raises(UsageError, match="how many rows"):
            self.of([labels, gradients], "add-or-remove-one")
        assert made.unit == "example"
        assert 3.21 < made.epsilon <= 3.215 + math.log(3) + 0.01

    @pytest.mark.parametrize("event", [None, dp.NoOpDpEvent(), dp.ComposedDpEvent([])])
    @pytest.mark.parametrize("unit", ["example", "label"])
    def test_nothing_released_guarantees_nothing(self, event, unit):
        made = self.of([] if event is None else [Release(event, unit)])
        assert math.isinf(made.epsilon)
        assert set(made.other_relations.values()) == {math.inf}


def test_group_relation():
    assert group_relation("add-or-remove-one", 1) == "add-or-remove-one"
    assert group_relation("zero-out", 4) == "replace-one"
