"""Layers that record their inputs and let a gradient be taken of their outputs.

The gradient of a dense layer's kernel for one example is the outer product of the layer's input
and its output gradient. A layer that records the one (flax's `sow`) and exposes the other (flax's
`perturb`) has given all that a per-example norm and a clipped sum need, from the single backward
pass of ordinary training.
"""

import jax
from flax import linen as nn

INPUTS = "inputs"
OUTPUTS = "perturbations"


class RecordedDense(nn.Module):
    """A dense layer with bias, ``x @ kernel + bias``, on (batch, features) inputs."""

    features: int
    kernel_init: nn.initializers.Initializer = nn.initializers.he_normal()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Apply the layer: (batch, in) to (batch, features)."""
        kernel = self.param("kernel", self.kernel_init, (x.shape[-1], self.features))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.features,))
        self.sow(INPUTS, "value", x)
        return self.perturb("value", x @ kernel + bias)
