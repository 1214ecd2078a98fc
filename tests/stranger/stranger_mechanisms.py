"""Two mechanisms of somebody who has only read the documentation."""

import jax
import jax.numpy as jnp
import numpy as np
from dpcompare_mechanisms.dp_sgd import DPSGD

from dpcompare.label_kernel import LabelKernel
from dpcompare.label_mechanism import LabelMechanism
from dpcompare.tasks import Task


class TruncatedGeometric(LabelMechanism):
    """Two-sided geometric noise on a count, cut to 0..cap, then read as its unbiased estimate.

    Ghosh, Roughgarden, Sundararajan (arXiv 0811.2841), with scale cap / epsilon.
    """

    def kernel(self, task: Task) -> LabelKernel:
        """Distances weigh exp(-epsilon / cap) each; the ends take what lies beyond them."""
        labels = np.arange(task.classes)
        step = np.exp(-float(self.calibrated_epsilon()) / (task.classes - 1))
        weights = step ** np.abs(labels[:, None] - labels[None, :]) * (1 - step) / (1 + step)
        weights[:, [0, -1]] /= 1 - step
        cut = LabelKernel(weights / weights.sum(axis=1, keepdims=True), labels)
        return LabelKernel(cut.probabilities, cut.unbiased_estimates())


class SmoothClipping(DPSGD):
    """DP-SGD whose weights bend instead of cutting: C / (norm + C), below C / norm for any norm."""

    def weights(self, norms: jax.Array) -> jax.Array:
        """Automatic clipping (Bu et al., arXiv 2206.07136)."""
        return self.clip_norm / (norms + self.clip_norm) * jnp.ones_like(norms)
