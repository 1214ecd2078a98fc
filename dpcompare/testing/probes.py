"""A mechanism around the one under check that lets a part of it be looked at alone."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.tasks import Task


class Probe(Mechanism):
    """Passes the answers of another mechanism on, so that they go through the real trainer.

    All switches are numbers that compiled code reads, so one program serves all checks. What is
    released for a row is a pair: what the mechanism released, and whether the row counts.

    Attributes:
        kind: the class of the mechanism under check.
        inner: the mechanism.
        noise: a factor on its noise; 0 removes it.
        footprint: 1 gives every row a slope of one and some weight, whatever the mechanism says:
            what a row looks up moves if, and only if, the row was drawn.
    """

    # JAX takes two classes with equal fields for one and could use the program of the other.
    kind: type[Mechanism] = struct.field(pytree_node=False, default=Mechanism)
    inner: Any = None
    noise: float = 1.0
    footprint: float = 0.0

    def loss(self, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        """The mechanism's, and a constant where the row does not count."""
        of_mechanism, counts = released
        loss = self.inner.loss(task, logits, of_mechanism)
        return jnp.where(counts, jnp.where(self.footprint > 0, logits, loss), 0.0)

    def gradient(self) -> GradientRelease | None:
        """The mechanism's, with the noise scaled."""
        release = self.inner.gradient()
        if release is None:
            return None
        return release.replace(noise_multiplier=self.noise * release.noise_multiplier)

    def weights(self, norms: jax.Array) -> jax.Array:
        """The mechanism's; or what keeps its sensitivity, for footprints."""
        of_footprint = self.inner.gradient().sensitivity / jnp.maximum(norms, 1.0)
        return jnp.where(self.footprint > 0, of_footprint, self.inner.weights(norms))
