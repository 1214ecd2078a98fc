"""Additive noise: unbiased labels, the guarantee, and what clamping does."""

import math

import numpy as np
import pytest
from dpcompare_mechanisms.additive_noise import AdditiveNoise

from dpcompare import accounting
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_noise import GRID, SHAPES
from dpcompare.mechanism import find
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import PCTR
from dpcompare.tasks import find as find_task

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
COUNTS = find_task("pconvs", cap=3)
DRAWS = 200_000
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_task = pytest.mark.parametrize("task", [PCTR, COUNTS], ids=lambda task: task.name)
clamped_or_not = pytest.mark.parametrize("clamp", [False, True])


def at(epsilon, task, **parameters):
    return AdditiveNoise(**parameters).calibrate(Budget(epsilon, 1e-6), SCHEDULE, task)


def released(mechanism, labels, task, *words):
    stream = numpy_generator("test", mechanism.shape, str(mechanism.epsilon), *words)
    return mechanism.release_labels(np.asarray(labels), NO_FEATURES, stream, task)


@every_shape
@every_task
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_released_labels_are_right_on_average(shape, task, epsilon):
    mechanism = at(epsilon, task, shape=shape)
    error = math.sqrt(mechanism.label_noise(task).variance() / DRAWS)
    for label in range(task.classes):
        _, values = released(mechanism, np.full(DRAWS, label), task, label)
        values = np.asarray(values)
        assert values.shape == (DRAWS,)
        assert values.dtype == np.float32
        assert abs(values.astype(np.float64).mean() - label) <= 4 * error
        assert values.min() < 0
        assert values.max() > task.classes - 1


@every_shape
@every_task
def test_clamped_labels_have_the_stated_moments(shape, task):
    mechanism = at(1.0, task, shape=shape, clamp=True)
    bias, variance = mechanism.label_noise(task).clamped_moments()
    for label in range(task.classes):
        _, values = released(mechanism, np.full(DRAWS, label), task, label)
        values = np.asarray(values, np.float64)
        assert (values.min(), values.max()) == (0, task.classes - 1)
        assert abs(values.mean() - label - bias[label]) <= 4 * math.sqrt(variance[label] / DRAWS)


@every_shape
def test_released_labels_lie_on_a_grid_that_does_not_depend_on_the_label(shape):
    mechanism, stream = at(1.0, COUNTS, shape=shape), numpy_generator("test")
    _, values = mechanism.randomize(np.arange(1000) % 4, stream, COUNTS)
    np.testing.assert_array_equal(values / GRID, np.rint(values / GRID))


@every_shape
@clamped_or_not
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0, 88.0])
def test_the_guarantee_is_epsilon_exactly_and_covers_labels_only(shape, clamp, epsilon):
    mechanism = at(epsilon, COUNTS, shape=shape, clamp=clamp)
    guarantee = accounting.guarantee(mechanism.events(SCHEDULE), 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (guarantee.delta, guarantee.unit) == (0.0, "label")
    assert guarantee.neighboring == "replace-one-label"
    assert mechanism.label_noise(COUNTS).worst_log_ratio() == pytest.approx(epsilon, rel=1e-9)


@every_task
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_clamped_discrete_noise_has_a_kernel_that_attains_epsilon(task, epsilon):
    kernel = at(epsilon, task, shape="discrete-laplace", clamp=True).kernel(task)
    np.testing.assert_array_equal(kernel.outputs, np.arange(task.classes))
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)
    assert kernel.bias(kernel.outputs)[0] > 0


@pytest.mark.parametrize("shape", ["laplace", "staircase"])
@clamped_or_not
def test_other_noise_has_no_kernel(shape, clamp):
    assert at(1.0, PCTR, shape=shape, clamp=clamp).kernel(PCTR) is None
    assert at(1.0, PCTR, shape="discrete-laplace").kernel(PCTR) is None


@every_shape
@clamped_or_not
def test_infinite_epsilon_returns_the_labels_and_promises_nothing(shape, clamp):
    mechanism, labels = at(math.inf, COUNTS, shape=shape, clamp=clamp), np.arange(1000) % 4
    mechanism, values = released(mechanism, labels, COUNTS)
    np.testing.assert_array_equal(values, labels)
    assert not mechanism.events(SCHEDULE)
    assert not mechanism.notes()


def test_labels_above_the_cap_are_clipped_before_noise_and_counted():
    mechanism, values = released(at(math.inf, COUNTS), [0, 3, 4, 9], COUNTS)
    np.testing.assert_array_equal(values, [0, 3, 3, 3])
    assert any("2 training labels" in note for note in mechanism.notes())


def test_clamped_labels_are_marked_as_biased():
    notes = at(1.0, COUNTS, clamp=True).notes()
    assert len(notes) == 1
    assert "biased" in notes[0]
    assert not at(1.0, COUNTS).notes()


def test_wrong_requests_are_refused():
    with pytest.raises(UsageError, match="additive-noise: shape must be one of laplace, disc"):
        AdditiveNoise(shape="gaussian").check()
    with pytest.raises(UsageError, match="take at least 3e-05"):
        at(1e-7, COUNTS)
    with pytest.raises(UsageError, match="at most 700, or inf"):
        at(1e4, PCTR)
    with pytest.raises(UsageError, match=r"got 0\.5 in training row 1"):
        released(at(1.0, COUNTS), [1, 0.5], COUNTS)
    with pytest.raises(ValueError, match="calibrate"):
        AdditiveNoise().label_noise(PCTR)


def test_it_is_installed_by_name():
    plugin = find("additive-noise")
    assert plugin.factory is AdditiveNoise
    assert plugin.build({"shape": "staircase", "clamp": True}).clamp
