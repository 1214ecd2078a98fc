"""Whether the mechanism keeps its promise: all checks of dpcompare, and what only it promises."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from dpcompare import accounting, tasks
from dpcompare.label_kernel import binary_randomized_response
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import PCTR, Task
from dpcompare.testing import parametrize_with_checks

from label_template import LabelTemplate

SCHEDULE = Schedule(examples=1000, batch_size=100, steps=10, sampling="shuffle")
COUNTS = tasks.find("pconvs", cap=3)


def calibrated(epsilon: float, task: Task, power: float = 1.0) -> LabelTemplate:
    mechanism = LabelTemplate(power=power)
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, task)


@parametrize_with_checks(LabelTemplate)
def test_it_keeps_the_contract(run_check: Callable[[], None]) -> None:
    run_check()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_binary_labels_are_flipped_by_randomized_response(epsilon: float) -> None:
    found = calibrated(epsilon, PCTR).kernel(PCTR).probabilities
    expected = binary_randomized_response(epsilon).probabilities
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("power", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_kernel_keeps_epsilon_and_uses_it_up(epsilon: float, power: float) -> None:
    mechanism = calibrated(epsilon, COUNTS, power)
    worst = mechanism.kernel(COUNTS).epsilon()
    assert epsilon * (1 - 1e-9) <= worst <= epsilon
    claim = accounting.guarantee(mechanism.events(SCHEDULE), 1e-6, "zero-out")
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (claim.unit, claim.delta) == ("label", 0.0)


@pytest.mark.parametrize("power", [0.3, 1.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_outputs_have_the_label_as_their_mean(epsilon: float, power: float) -> None:
    kernel = calibrated(epsilon, COUNTS, power).kernel(COUNTS)
    np.testing.assert_allclose(kernel.bias(kernel.outputs), 0, atol=1e-9)


def test_the_labels_drawn_have_the_label_as_their_mean() -> None:
    mechanism, rng = calibrated(1.0, COUNTS), np.random.default_rng(0)
    labels = np.repeat(np.arange(COUNTS.classes), 20_000)
    drawn = mechanism.randomize(labels, rng, COUNTS)[1].reshape(COUNTS.classes, -1)
    kernel = mechanism.kernel(COUNTS)
    errors = (drawn.mean(axis=1) - np.arange(COUNTS.classes)) * math.sqrt(20_000)
    assert np.all(np.abs(errors) < 4.5 * np.sqrt(kernel.variance(kernel.outputs)))
