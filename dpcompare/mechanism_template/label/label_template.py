"""A label mechanism to start from: labels move a little more often than they move far.

As it stands it works, and it keeps its promise. Each method below answers one question of
``dpcompare.mechanism.Mechanism``, in the order in which a trial asks them. Change one at a time.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import jax
import numpy as np
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_mechanism import LabelMechanism, pure_releases
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.tasks import BinaryTask, Task
from numpy.typing import NDArray


class LabelTemplate(LabelMechanism):
    """Each label moves by a distance d with a probability that falls with d, once.

    Label y becomes output o with probability proportional to ``exp(-sharpness * distance)``, where
    ``distance = (|y - o| / cap) ** power``. An output is read as the unbiased estimate of the
    label. For labels 0 and 1 this is randomized response. Features are not protected.

    Attributes:
        power: how distances count: 1 makes near outputs likelier, close to 0 all others are alike.
        sharpness: how fast probabilities fall; found by calibration.
    """

    # Fields with a default are parameters that a study can set; what calibration finds is None.
    # Numbers stay plain; a text, a true or false, or a count needs
    # ``flax.struct.field(pytree_node=False, default=...)``.
    power: float = 1.0
    sharpness: float | None = None

    def check(self) -> None:
        """Are the parameters possible? Asked before a study starts."""
        if not 0 < self.power <= 1:
            raise UsageError(f"power must be above 0 and at most 1, got {self.power}")

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """How much noise fits the budget? The largest sharpness whose kernel keeps epsilon.

        Labels 0 and cap show that a kernel has at least the ratio exp(sharpness), and each row's
        sum at most doubles the exponent: so the answer lies between epsilon / 2 and epsilon.
        """
        calibrated = super().calibrate(budget, schedule, task)
        keeps, too_much = budget.epsilon / 2, budget.epsilon
        while math.isfinite(too_much) and too_much - keeps > 1e-12 * too_much:
            middle = (keeps + too_much) / 2
            if _moves(middle, self.power, task).epsilon() <= budget.epsilon:
                keeps = middle
            else:
                too_much = middle
        return calibrated.replace(sharpness=keeps)

    def kernel(self, task: Task) -> LabelKernel:
        """How probable is each output for each label? All that the draw depends on.

        Trials with equal kernels share one draw. Only its ratio decides what is private: `dpcompare
        show` prints it, and a trial refuses a kernel that exceeds its epsilon.
        """
        if self.sharpness is None:
            raise ValueError("calibrate() was not called, so there is no sharpness")
        moves = _moves(float(self.sharpness), float(self.power), task)
        return LabelKernel(moves.probabilities, moves.unbiased_estimates())

    def randomize(
        self, labels: NDArray[np.int64], rng: np.random.Generator, task: Task
    ) -> tuple[Self, NDArray[np.float64]]:
        """What does training see of the labels? Drawn once; drawing again would cost epsilon again.

        The base class's ``release_labels`` asks this after it has clipped labels to the public cap.
        """
        kernel = self.kernel(task)
        return self, kernel.outputs[kernel.sample(labels, rng)]

    def loss(self, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        """What is minimized? The task's loss is linear in the label, so unbiased labels fit it."""
        return task.loss(logits, released)

    def predict(self, task: Task, logits: jax.Array) -> jax.Array:
        """What is predicted? With an unbiased loss there is nothing to undo."""
        return task.predict(logits)

    def effective_sample_size_fraction(self, task: Task, rates: np.ndarray) -> float | None:
        """How many clean labels is a released one worth? Known for labels 0 and 1."""
        if not isinstance(task, BinaryTask):
            return None
        return self.kernel(task).effective_sample_size_fraction(rates, "backward")

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """What was released? Every label once, under pure epsilon-DP; training costs no more.

        Name everything that depends on a label. Only dpcompare turns this into an epsilon.
        """
        return pure_releases(self.calibrated_epsilon(), "moved labels")

    def notes(self) -> Sequence[str]:
        """What must a reader of the results know? One sentence each."""
        own = "released labels are unbiased estimates; single ones lie below 0 or above the cap"
        return [*super().notes(), own]

    # Questions that are left to the base class, for label mechanisms do not differ in them:
    # - sampling: batches are shuffled, since no guarantee counts on how they are drawn.
    # - release_labels: see randomize.
    # - label_noise: for noise without a finite kernel. Then delete kernel, draw in randomize, and
    #   return the dpcompare.label_noise.LabelNoise that is drawn: `show --epsilon` prints it.
    # - gradient, weights: for mechanisms that add noise to gradients. Overriding gradient, even
    #   with None, would make this one of them.


def _moves(sharpness: float, power: float, task: Task) -> LabelKernel:
    """How labels move to labels; at infinite sharpness they stay."""
    labels = np.arange(task.classes, dtype=np.float64)
    distance = (abs(labels[:, None] - labels[None, :]) / (task.classes - 1)) ** power
    weights = np.exp(-sharpness) ** distance
    return LabelKernel(weights / weights.sum(axis=1, keepdims=True), labels)
