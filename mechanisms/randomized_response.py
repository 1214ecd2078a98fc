"""Randomized response: each label is replaced once by a random one with a known probability."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_mechanism import LabelMechanism, pure_releases
from dpcompare.privacy import Release, Schedule
from dpcompare.tasks import BinaryTask, Task

Correction = Literal["forward", "backward", "post-hoc", "none"]


class RandomizedResponse(LabelMechanism):
    """Label DP for K labels (Warner 1965; for deep models Ghazi et al., arXiv 2102.06062).

    A label is kept with probability ``e^epsilon / (e^epsilon + K - 1)`` and is each of the others
    with ``r = 1 / (e^epsilon + K - 1)``, once, and remembered. A count has K = cap + 1 labels, of
    which the last stands for "cap or more". Features are not protected. What is done about the
    random labels, with ``g = (e^epsilon - 1) r``:

    - "forward": they are part of the likelihood: the released label y has probability
      ``r + g P(y)``, where P is what the model says (for a count the Poisson probability, with the
      tail in the last label). Bounded below. Predictions of rates are calibrated; those of counts
      only if counts are Poisson, too low if they are over-dispersed.
    - "backward": the released label is replaced by its unbiased estimate
      ``(y - r K (K - 1) / 2) / g``, so that the expected loss is that of the true (capped) labels.
      Not bounded below for a single row.
    - "post-hoc": the released labels are fitted as they are and the inverse of that map is applied
      to predictions, which are cut to what can be.
    - "none": the released labels are fitted as they are; predictions are not calibrated.

    Attributes:
        correction: one of the above.
    """

    correction: Correction = struct.field(pytree_node=False, default="forward")

    def check(self) -> None:
        """The correction is one that exists."""
        if self.correction not in get_args(Correction):
            raise UsageError(
                f"randomized-response: correction must be one of "
                f"{', '.join(get_args(Correction))}, got {self.correction!r}"
            )

    def loss(self, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        """The corrected loss per row, (batch,)."""
        if self.correction == "forward":
            log_random, log_gap = self._log_random_and_gap(task)
            of_model = task.log_probability(logits, released)
            return task.penalty(logits) - jnp.logaddexp(log_random, log_gap + of_model)
        if self.correction == "backward":
            return task.loss(logits, self._unbiased(task, released))
        return task.loss(logits, released)

    def predict(self, task: Task, logits: jax.Array) -> jax.Array:
        """Calibrated predictions, except under correction "none"."""
        prediction = task.predict(logits)
        if self.correction != "post-hoc":
            return prediction
        return task.possible(self._unbiased(task, prediction))

    def kernel(self, task: Task) -> LabelKernel:
        """All labels of the task, each replaced by each other one with equal probability."""
        return k_ary_randomized_response(float(self.calibrated_epsilon()), task.classes)

    def effective_sample_size_fraction(self, task: Task, rates: np.ndarray) -> float | None:
        """Known for binary labels under the corrections "forward" and "backward"."""
        if not isinstance(task, BinaryTask) or self.correction not in ("forward", "backward"):
            return None
        return self.kernel(task).effective_sample_size_fraction(rates, self.correction)

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """One randomized response per label, however often training reads it."""
        return pure_releases(self.calibrated_epsilon(), "randomized response")

    def notes(self) -> Sequence[str]:
        """Correction "none" is marked as uncalibrated."""
        notes = list(super().notes())
        if self.correction == "none":
            notes.append("predictions of randomized-response without correction are not calibrated")
        return notes

    def _log_random_and_gap(self, task: Task) -> tuple[jax.Array, jax.Array]:
        """log r and log g, exact for small and large epsilon."""
        epsilon = jnp.float32(self.calibrated_epsilon())
        log_total = jnp.log1p((task.classes - 1) * jnp.exp(-epsilon))
        return -epsilon - log_total, jnp.log(-jnp.expm1(-epsilon)) - log_total

    def _unbiased(self, task: Task, released: jax.Array) -> jax.Array:
        log_random, log_gap = self._log_random_and_gap(task)
        others = task.classes * (task.classes - 1) / 2
        return (released - jnp.exp(log_random) * others) / jnp.exp(log_gap)
