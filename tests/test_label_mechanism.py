"""The base class of label mechanisms: caps, one draw, and releases whose epsilons add up."""

import math

import dp_accounting as dp
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpcompare import accounting, tasks
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_mechanism import LabelMechanism, pure_releases
from dpcompare.mechanism import is_private
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import PCTR

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
COUNTS = tasks.find("pconvs", 3)
EPSILONS = [1e-3, 0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0, 300.0, 700.0]


class Response(LabelMechanism):
    """A kernel whose outputs are no labels."""

    def kernel(self, task):
        probabilities = k_ary_randomized_response(self.calibrated_epsilon(), task.classes)
        return LabelKernel(probabilities.probabilities, 10.0 * np.arange(task.classes))


class Shift(LabelMechanism):
    """No kernel: shows the labels it was given, one higher."""

    def randomize(self, labels, rng, task):
        return self, labels + 1.0


class Nothing(LabelMechanism):
    """Answers neither question."""


def at(mechanism, epsilon, task=COUNTS):
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, task)


def released(mechanism, labels, task=COUNTS):
    return mechanism.release_labels(np.asarray(labels), NO_FEATURES, numpy_generator("test"), task)


def guarantee_of(releases, neighboring="zero-out"):
    return accounting.guarantee(releases, 1e-6, neighboring)


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", [Response(), Shift()])
def test_labels_above_the_cap_are_clipped_counted_and_reported(mechanism):
    before = at(mechanism, math.inf)
    after, _ = released(before, [0, 4, 3, 1200, 1, 5])
    assert before.clipped_labels is None
    assert after.clipped_labels == 3
    assert after.clipped_share == pytest.approx(1 - 13 / 1213)
    (note,) = after.notes()
    assert note.startswith("3 training labels were above the public cap and were clipped to it")
    assert "takes 98.9% off their sum" in note
    assert "counted from true labels, outside the guarantee" in note
    assert not released(before, [0, 1, 2, 3])[0].notes()


def test_randomize_sees_capped_classes_only():
    _, values = released(at(Shift(), 1.0), [0.0, 7.0, 3.0])
    np.testing.assert_array_equal(values, [1, 4, 4])
    assert values.dtype == jnp.float32


def test_by_default_the_outcomes_are_the_outputs_of_the_kernel():
    _, values = released(at(Response(), math.inf), [0, 3, 2, 9])
    np.testing.assert_array_equal(values, [0, 30, 20, 30])
    random = np.asarray(released(at(Response(), 0.1), np.zeros(1000))[1])
    assert set(random) == {0, 10, 20, 30}
    np.testing.assert_array_equal(random, released(at(Response(), 0.1), np.zeros(1000))[1])


@pytest.mark.parametrize(
    ("task", "labels", "allowed"),
    [
        (PCTR, [0, 1, 2], "0 or 1, got 2"),
        (PCTR, [0, 1, 0.5], "0 or 1, got 0.5"),
        (COUNTS, [0, 9, -1], "a whole number from 0 on, got -1"),
        (COUNTS, [0, 9, math.nan], "a whole number from 0 on, got nan"),
    ],
)
def test_labels_that_are_no_classes_are_refused_with_their_row(task, labels, allowed):
    with pytest.raises(UsageError, match=rf"{allowed} in training row 2"):
        released(at(Response(), 1.0, task), labels, task)


def test_a_subclass_answers_one_of_two_questions():
    with pytest.raises(NotImplementedError, match=r"kernel.. needs randomize"):
        released(at(Nothing(), 1.0), [0, 1])


def test_labels_are_not_released_before_calibration():
    with pytest.raises(ValueError, match="calibrate"):
        released(Response(), [0, 1])
    with pytest.raises(ValueError, match="calibrate"):
        Nothing().events(SCHEDULE)


def test_the_loss_is_that_of_the_task_and_gradients_are_plain():
    mechanism, logits = at(Shift(), 1.0), jnp.array([-1.0, 0.0, 2.0])
    noisy = jnp.array([-3.5, 0.25, 8.0])
    np.testing.assert_array_equal(mechanism.loss(COUNTS, logits, noisy), COUNTS.loss(logits, noisy))
    assert mechanism.gradient() is None
    assert is_private(Shift)


# --- releases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_release_is_accounted_and_named_with_its_epsilon(epsilon):
    releases = pure_releases(epsilon, "label histogram")
    made = guarantee_of(releases)
    assert made.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert made.events == (f"1 x label histogram eps={epsilon:.8g} (unit: label)",)
    assert guarantee_of(at(Nothing(), epsilon).events(SCHEDULE)).epsilon == made.epsilon


def test_infinite_epsilon_releases_nothing_under_a_guarantee():
    assert pure_releases(math.inf, "labels") == []
    assert at(Nothing(), math.inf).events(SCHEDULE) == []


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_epsilons_that_cannot_be_are_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon must be above 0"):
        pure_releases(epsilon, "labels")


@pytest.mark.parametrize(("first", "second"), [(0.05, 0.95), (1e-3, 50.0), (0.1, 0.1), (350, 350)])
@pytest.mark.parametrize("neighboring", ["zero-out", "add-or-remove-one", "replace-one"])
def test_releases_of_labels_add_up_exactly(first, second, neighboring):
    releases = [*pure_releases(first, "label histogram"), *pure_releases(second, "labels")]
    made = guarantee_of(releases, neighboring)
    assert made.epsilon == pytest.approx(first + second, rel=1e-9)
    assert (made.unit, made.delta, made.accountant) == ("label", 0.0, "exact")
    assert made.neighboring == "replace-one-label"
    assert set(made.other_relations.values()) == {None}
    assert len(made.events) == 2


@pytest.mark.parametrize("neighboring", ["zero-out", "replace-one"])
def test_labels_beside_gradients_count_for_whole_examples(neighboring):
    schedule = Schedule(100_000, 1000, 1000, "poisson")
    gradients = Release(accounting.dpsgd_event(1.0, schedule), "example")
    labels = pure_releases(0.5, "randomized labels")
    alone = guarantee_of([gradients], neighboring).epsilon
    made = guarantee_of([gradients, *labels], neighboring)
    assert (made.unit, made.delta, made.neighboring) == ("example", 1e-6, neighboring)
    assert alone + 0.4 < made.epsilon <= alone + 0.5 + 1e-6
    assert made.events[1] == "1 x randomized labels eps=0.5 (unit: label)"
    assert made.other_relations.get("add-or-remove-one") is None


def test_dp_accounting_loses_count_of_responses_and_this_package_does_not():
    """A defect of dp-accounting 0.6.0. If this fails, docs/accounting.md is to be corrected."""
    (release,) = pure_releases(1.0, "labels")
    assert release.event == dp.RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    five = dp.SelfComposedDpEvent(release.event, 5)
    theirs = PLDAccountant(dp.NeighboringRelation.REPLACE_ONE)
    theirs.compose(five)
    assert theirs.get_epsilon(1e-9) == pytest.approx(1.0, abs=1e-3)
    ours = guarantee_of([Release(five, "label", name="labels")])
    assert ours.epsilon == pytest.approx(5.0, rel=1e-9)
    assert ours.events == ("5 x labels eps=1 (unit: label)",)
