"""What mechanisms share that randomize each label once and train on the outcome.

Features are public here. Subclass :class:`LabelMechanism`, and for a prior of the labels
:class:`dpcompare.label_prior.PriorMechanism`.
"""

import math
from collections.abc import Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
from dp_accounting import RandomizedResponseDpEvent
from numpy.typing import NDArray

from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import check_label_epsilon
from dpcompare.mechanism import Mechanism, diagnostic
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.tasks import Task


class LabelMechanism(Mechanism):
    """Label DP by randomizing each label on its own, once.

    What is released depends on the labels, the task, the mechanism's own fields and the random
    stream, and on nothing else: trials that agree in those share one release.

    Training reads the randomized labels as often as it likes, by ordinary gradients: that costs
    nothing more. A subclass with finitely many outcomes overrides :meth:`.Mechanism.kernel`;
    another one overrides :meth:`randomize`. Labels above the task's public cap are clipped to it,
    counted, and reported in :meth:`notes`.

    Attributes:
        epsilon: of one label, all releases together; from the budget.
        clipped_labels: how many labels were clipped to the cap.
        clipped_share: what that takes off the sum of the labels, as a share. Both are found by
            looking at the labels, so they are diagnostics outside the guarantee.
    """

    epsilon: float | None = None
    clipped_labels: int | None = diagnostic()
    clipped_share: float | None = diagnostic()

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """All of epsilon goes to the labels; delta is not used.

        Raises:
            UsageError: epsilon is finite and too large to be told from no privacy.
        """
        check_label_epsilon(budget.epsilon)
        return self.replace(epsilon=budget.epsilon)

    def release_labels(
        self, labels: np.ndarray, features: Features, rng: np.random.Generator, task: Task
    ) -> tuple[Self, Any]:
        """One randomized label per row, (n,) float32.

        Raises:
            UsageError: a label is negative, fractional or missing, with its row.
        """
        capped, clipped = task.capped(labels)
        mechanism, values = self.randomize(capped, rng, task)
        share = 1 - float(capped.sum()) / float(np.sum(labels)) if clipped else 0.0
        found = mechanism.replace(clipped_labels=clipped, clipped_share=share)
        return found, jnp.asarray(values, jnp.float32)

    def randomize(
        self, labels: NDArray[np.int64], rng: np.random.Generator, task: Task
    ) -> tuple[Self, NDArray[np.float64]]:
        """The mechanism, which may carry what it learnt, and an outcome per label.

        Args:
            labels: (n,) from 0 to ``task.classes - 1``.
            rng: a generator that nothing else uses.
            task: whose labels they are.
        """
        kernel = self.kernel(task)
        if kernel is None:
            raise NotImplementedError("a label mechanism without kernel() needs randomize()")
        return self, kernel.outputs[kernel.sample(labels, rng)]

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """One release per label, however often training reads it."""
        return pure_releases(self.calibrated_epsilon(), "randomized labels")

    def notes(self) -> Sequence[str]:
        """How many labels were clipped, and what that does to predictions."""
        if not self.clipped_labels:
            return []
        share = float(self.clipped_share or 0.0)
        return [
            f"{int(self.clipped_labels):,} training labels were above the public cap and were "
            f"clipped to it, which takes {share:.1%} off their sum: predictions of clipped labels "
            "are too low by about as much (counted from true labels, outside the guarantee)"
        ]

    def calibrated_epsilon(self) -> Any:
        """Epsilon.

        Raises:
            ValueError: :meth:`calibrate` was not called.
        """
        if self.epsilon is None:
            raise ValueError("a label mechanism needs calibrate() to set its epsilon")
        return self.epsilon


def pure_releases(epsilon: Any, name: str) -> list[Release]:
    """One release of every label under pure epsilon-DP, or none if epsilon is infinite.

    Any such release is a post-processing of binary randomized response with the same epsilon, as
    far as two given labels are concerned (Kairouz, Oh, Viswanath, arXiv 1311.0776), so
    it is accounted as that event.

    Raises:
        UsageError: epsilon is not above 0.
    """
    value = float(epsilon)
    if not value > 0:
        raise UsageError(f"epsilon must be above 0, got {value}; write inf for no privacy")
    if math.isinf(value):
        return []
    uniform = 2 * math.exp(-np.logaddexp(0.0, value))
    return [Release(RandomizedResponseDpEvent(uniform, 2), "label", name=name)]
