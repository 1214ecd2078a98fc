"""Additive noise: each label gets noise once, and training uses the sums as they are."""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from flax import struct
from numpy.typing import NDArray

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_mechanism import LabelMechanism
from dpcompare.label_noise import SHAPES, LabelNoise, Shape
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import Task


class AdditiveNoise(LabelMechanism):
    """Label DP by unbiased noise of scale cap / epsilon on every label.

    The losses of counts and of binary labels are linear in the label, so noise that is 0 on
    average leaves the expected loss and its gradient what they are. Noisy labels below 0 and
    above the cap belong to that. `clamp` cuts them off and so shows what bias costs: it shrinks
    the noise and ruins the model.

    Attributes:
        shape: "laplace", "discrete-laplace" or "staircase"; see
            :class:`dpcompare.label_noise.LabelNoise`.
        clamp: cut noisy labels to [0, cap].
    """

    shape: Shape = struct.field(pytree_node=False, default="laplace")
    clamp: bool = struct.field(pytree_node=False, default=False)

    def check(self) -> None:
        """The shape is one that exists."""
        if self.shape not in SHAPES:
            raise UsageError(
                f"additive-noise: shape must be one of {', '.join(SHAPES)}, got {self.shape!r}"
            )

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """All of epsilon goes to the noise; delta is not used.

        Raises:
            UsageError: epsilon is beyond what noise can be drawn for, with the range that is not.
        """
        calibrated = super().calibrate(budget, schedule, task)
        calibrated.label_noise(task)
        return calibrated

    def label_noise(self, task: Task) -> LabelNoise:
        """What is added to each label.

        Raises:
            ValueError: the mechanism has not been calibrated.
        """
        epsilon = float(self.calibrated_epsilon())
        return LabelNoise(self.shape, epsilon, task.classes - 1, self.clamp)

    def randomize(
        self, labels: NDArray[np.int64], rng: np.random.Generator, task: Task
    ) -> tuple[Self, NDArray[np.float64]]:
        """Labels plus noise, (n,); clamped if asked for."""
        if self.kernel(task) is not None:
            return super().randomize(labels, rng, task)
        noisy = labels + self.label_noise(task).sample(len(labels), rng)
        return self, np.clip(noisy, 0, task.classes - 1) if self.clamp else noisy

    def kernel(self, task: Task) -> LabelKernel | None:
        """Of discrete noise that is clamped; anything else has infinitely many outputs."""
        if self.clamp and self.shape == "discrete-laplace":
            return self.label_noise(task).clamped_kernel()
        return None

    def notes(self) -> Sequence[str]:
        """Clamped labels are marked as biased."""
        notes = list(super().notes())
        if self.clamp and self.epsilon != math.inf:
            notes.append(
                "noisy labels were clamped to the range of true ones: they are biased towards its "
                "middle, and predictions are not calibrated"
            )
        return notes
