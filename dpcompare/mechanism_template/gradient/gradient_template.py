"""A gradient mechanism to start from: DP-SGD that bends long gradients and cuts none.

As it stands it works, and it keeps its promise. Each method below answers one question of
``dpcompare.mechanism.Mechanism``, in the order in which a trial asks them. Change one at a time.
"""

from collections.abc import Sequence
from typing import Self

import jax
import jax.numpy as jnp
from dpcompare.accounting import dpsgd_event
from dpcompare.calibration import noise_multiplier
from dpcompare.errors import UsageError
from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.privacy import Budget, Release, Sampling, Schedule
from dpcompare.tasks import Task
from flax import struct


class GradientTemplate(Mechanism):
    """Gradients weigh C / sqrt(norm^2 + C^2), and their noisy sum is released at every step.

    A weighted gradient has norm ``C * norm / sqrt(norm^2 + C^2)``, which is below C: so the
    accounting is that of DP-SGD with clip norm C. Whole examples are protected.

    Attributes:
        clip_norm: C, which no example's gradient exceeds in the sum.
        noise_multiplier: standard deviation of the noise, in units of C; found by calibration.
    """

    # Fields with a default are parameters that a study can set; what calibration finds is None.
    # Numbers stay plain; a text, a true or false, or a count needs
    # ``struct.field(pytree_node=False, default=...)``, as here: how batches are drawn.
    # Poisson-drawn batches are what `dpsgd_event` describes; it refuses shuffled ones.
    sampling: Sampling = struct.field(pytree_node=False, default="poisson")
    clip_norm: float = 10.0
    noise_multiplier: float | None = None

    def check(self) -> None:
        """Are the parameters possible? Asked before a study starts."""
        if not 1e-6 <= self.clip_norm <= 1e6:
            raise UsageError(f"clip_norm must lie between 1e-6 and 1e6, got {self.clip_norm}")

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """How much noise fits the budget? The least that does, found for the schedule as it is."""
        return self.replace(noise_multiplier=noise_multiplier(budget, schedule))

    def gradient(self) -> GradientRelease:
        """How is a sum of gradients released? With Gaussian noise, sensitivity times multiplier."""
        return GradientRelease(self.clip_norm, self._calibrated_noise())

    def weights(self, norms: jax.Array) -> jax.Array:
        """How much may each gradient weigh? ``weights * norms`` must never exceed the sensitivity.

        Nothing else bounds what one example adds to the sum. Any weight that keeps the bound is as
        private as any other.
        """
        return self.clip_norm / jnp.hypot(norms, self.clip_norm)

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """What was released? A noisy sum at every step, with the noise that training used.

        Name everything that depends on a row. Only dpcompare turns this into an epsilon.
        """
        event = dpsgd_event(float(self._calibrated_noise()), schedule)
        return [Release(event, "example", name="gradients")]

    def notes(self) -> Sequence[str]:
        """What must a reader of the results know? One sentence each."""
        return [f"every gradient is bent: one of norm {float(self.clip_norm):g} weighs 0.71"]

    # Questions that are left to the base class, for gradient mechanisms do not differ in them:
    # - release_labels, loss, predict: training sees the true labels and minimizes the task's loss;
    #   the noise on gradients is what protects the labels too.
    # - kernel, label_noise, effective_sample_size_fraction: labels are not randomized.

    def _calibrated_noise(self) -> float:
        if self.noise_multiplier is None:
            raise ValueError("calibrate() was not called, so there is no noise multiplier")
        return self.noise_multiplier
