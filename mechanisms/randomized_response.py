"""Randomized response: each label is flipped once with a known probability."""

import math
from collections.abc import Sequence
from typing import Any, Literal, Self, get_args

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import RandomizedResponseDpEvent
from flax import struct

from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, binary_randomized_response
from dpcompare.mechanism import Mechanism
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.tasks import Task

Correction = Literal["forward", "backward", "post-hoc", "none"]


class RandomizedResponse(Mechanism):
    """Label DP for binary labels (Warner 1965; for deep models Ghazi et al., arXiv 2102.06062).

    A label is flipped with probability ``q = sigmoid(-epsilon)``, once, and remembered. Features
    are not protected. What is done about the flips:

    - "forward": the flips are part of the likelihood: the flipped label has probability
      ``q + (1 - 2q) sigmoid(z)``. Bounded below, and ``sigmoid(z)`` is the calibrated prediction.
    - "backward": the flipped label is replaced by its unbiased estimate ``(y - q) / (1 - 2q)``,
      so that the expected loss is that of the true labels. Not bounded below for a single row.
    - "post-hoc": the flipped labels are fitted as they are and the inverse map
      ``(p - q) / (1 - 2q)``, cut to [0, 1], is applied to predictions.
    - "none": the flipped labels are fitted as they are; predictions are not calibrated.

    Attributes:
        correction: one of the above.
        epsilon: of each label, from the budget; found by :meth:`calibrate`.
    """

    correction: Correction = struct.field(pytree_node=False, default="forward")
    epsilon: float | None = None

    def check(self) -> None:
        """The correction is one that exists."""
        if self.correction not in get_args(Correction):
            raise UsageError(
                f"randomized-response: correction must be one of "
                f"{', '.join(get_args(Correction))}, got {self.correction!r}"
            )

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """All of epsilon goes to the one flip per label; delta is not used."""
        if task.classes != 2:
            raise UsageError(f"randomized-response needs binary labels; {task.name} has others")
        return self.replace(epsilon=budget.epsilon)

    def release_labels(
        self, labels: np.ndarray, features: Features, rng: np.random.Generator, task: Task
    ) -> tuple[Self, Any]:
        """The flipped labels, (n,) float32."""
        flipped = self.kernel(task).sample(np.asarray(labels).astype(np.int64), rng)
        return self, task.training_labels(flipped)

    def loss(self, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        """The corrected loss per row, (batch,)."""
        if self.correction == "forward":
            return -(
                released * self._log_probability(logits)
                + (1 - released) * self._log_probability(-logits)
            )
        if self.correction == "backward":
            flip, contrast = self._flip_and_contrast()
            return task.loss(logits, (released - flip) / contrast)
        return task.loss(logits, released)

    def predict(self, task: Task, logits: jax.Array) -> jax.Array:
        """Calibrated probabilities, except under correction "none"."""
        probability = task.predict(logits)
        if self.correction != "post-hoc":
            return probability
        flip, contrast = self._flip_and_contrast()
        return jnp.clip((probability - flip) / contrast, 0.0, 1.0)

    def kernel(self, task: Task) -> LabelKernel:
        """Both labels, flipped with probability sigmoid(-epsilon)."""
        return binary_randomized_response(float(self._calibrated_epsilon()))

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """One randomized response per label, however often training reads it."""
        epsilon = float(self._calibrated_epsilon())
        if math.isinf(epsilon):
            return []
        uniform = 2 * math.exp(-np.logaddexp(0.0, epsilon))
        return [Release(RandomizedResponseDpEvent(uniform, 2), "label")]

    def notes(self) -> Sequence[str]:
        """Correction "none" is marked as uncalibrated."""
        if self.correction == "none":
            return ["predictions of randomized-response without correction are not calibrated"]
        return []

    def _log_probability(self, logits: jax.Array) -> jax.Array:
        """log(q sigmoid(-z) + (1 - q) sigmoid(z)), exact where either sigmoid saturates."""
        epsilon = self._calibrated_epsilon()
        log_flip, log_keep = -jax.nn.softplus(epsilon), -jax.nn.softplus(-epsilon)
        return jnp.logaddexp(
            log_flip - jax.nn.softplus(logits), log_keep - jax.nn.softplus(-logits)
        )

    def _flip_and_contrast(self) -> tuple[jax.Array, jax.Array]:
        """q and 1 - 2q = tanh(epsilon / 2)."""
        epsilon = self._calibrated_epsilon()
        return jax.nn.sigmoid(-epsilon), jnp.tanh(epsilon / 2)

    def _calibrated_epsilon(self) -> Any:
        if self.epsilon is None:
            raise ValueError("randomized-response needs calibrate() to set its epsilon")
        return self.epsilon
