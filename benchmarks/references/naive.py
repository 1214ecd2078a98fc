"""Per-example gradients by vmap, a chunk at a time: each as large as the whole model."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax_variant import JaxVariant
from workload import Batch, Cell

from references.model import Parameters, losses, private_variant

CHUNK_BYTES = 512e6
LARGEST_CHUNK = 64


def chunk_of(cell: Cell) -> int:
    """Examples per chunk: a power of two whose gradients fit into CHUNK_BYTES."""
    chunk = LARGEST_CHUNK
    while chunk > 1 and (chunk * cell.parameters * 4 > CHUNK_BYTES or cell.batch % chunk):
        chunk //= 2
    return chunk


def clipped_sum(parameters: Parameters, batch: Batch, clip_norm: float, chunk: int) -> Parameters:
    """The sum of the clipped gradients; `chunk` must divide the batch."""

    def clipped(example: Batch) -> Parameters:
        single = jax.tree.map(lambda a: a[None], example)
        gradient = jax.grad(lambda p: jnp.sum(losses(p, single)))(parameters)
        norm = jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(gradient)))
        return jax.tree.map(lambda leaf: jnp.minimum(1.0, clip_norm / norm) * leaf, gradient)

    def add_chunk(total: Parameters, part: Batch) -> tuple[Parameters, None]:
        gradients = jax.vmap(clipped)(part)
        return jax.tree.map(lambda t, g: t + jnp.sum(g, axis=0), total, gradients), None

    parts = jax.tree.map(lambda a: a.reshape(-1, chunk, *a.shape[1:]), batch)
    return lax.scan(add_chunk, jax.tree.map(jnp.zeros_like, parameters), parts)[0]


def in_chunks(cell: Cell, noisy: bool) -> JaxVariant:
    """Chunk by chunk, so that any batch fits."""
    return private_variant(cell, partial(clipped_sum, chunk=chunk_of(cell)), noisy)


def at_once(cell: Cell) -> JaxVariant:
    """The whole batch in one vmap, as the paper's baseline that is compiled."""
    return private_variant(cell, partial(clipped_sum, chunk=cell.batch), noisy=False)


VARIANTS = {
    "naive": partial(in_chunks, noisy=True),
    "naive_without_noise": partial(in_chunks, noisy=False),
    "naive_at_once_without_noise": at_once,
}
