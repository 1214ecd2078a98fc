"""Ghost clipping in two backward passes, the Fast-DP-SGD of arXiv 2211.11896.

The first pass yields each example's gradient norm from layer inputs and output gradients, the
second the gradient of the loss with each example weighted by how much of it may remain.
(Goodfellow, "Efficient per-example gradient computations", arXiv 1510.01799.)
"""

from functools import partial

import jax
import jax.numpy as jnp
from workload import NUMERIC, Batch

from references.model import (
    Parameters,
    embed,
    forward,
    logistic,
    losses,
    private_variant,
)


def squared_norms(parameters: Parameters, batch: Batch) -> jax.Array:
    """Squared gradient norm of each example, (batch,).

    |g|^2 for an embedding row, (|a|^2 + 1) |g|^2 for a dense layer with input a. Every column has a
    table of its own, so no example hits a row twice.
    """

    def total(values: jax.Array, offsets: list[jax.Array]) -> tuple[jax.Array, list[jax.Array]]:
        logits, inputs = forward(parameters.layers, values, offsets)
        return jnp.sum(logistic(logits, batch.labels)), inputs

    embedded = embed(parameters.tables, batch.ids)
    values = jnp.concatenate([batch.numeric, embedded], axis=1)
    offsets = [jnp.zeros((len(batch.labels), bias.size)) for _, bias in parameters.layers]
    (value_gradient, gradients), inputs = jax.grad(total, (0, 1), has_aux=True)(values, offsets)
    dense = [
        (jnp.sum(a**2, axis=1) + 1) * jnp.sum(g**2, axis=1)
        for a, g in zip(inputs, gradients, strict=True)
    ]
    return sum(dense, jnp.sum(value_gradient[:, NUMERIC:] ** 2, axis=1))


def clipped_sum(parameters: Parameters, batch: Batch, clip_norm: float) -> Parameters:
    """The sum of the clipped gradients."""
    weights = jnp.minimum(1.0, clip_norm / jnp.sqrt(squared_norms(parameters, batch)))
    return jax.grad(lambda p: jnp.sum(weights * losses(p, batch)))(parameters)


VARIANTS = {
    "two_pass_ghost": partial(private_variant, clipped_sum=clipped_sum, noisy=True),
    "two_pass_ghost_without_noise": partial(private_variant, clipped_sum=clipped_sum, noisy=False),
}
