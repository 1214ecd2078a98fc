"""Gaussian noise for sums of clipped gradients, in float32, independent for every number."""

from itertools import accumulate
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax

# The flag changes which normals a key gives, so it is fixed here and not left to the environment.
# Off is about twice as fast on one device.
jax.config.update("jax_threefry_partitionable", False)

BLOCK = 1 << 16
"""Normals drawn at a time for a large array: they stay in the cache of a core."""

Tree = TypeVar("Tree")


def add_gaussian(key: jax.Array, tree: Tree, standard_deviation: jax.Array) -> Tree:
    """Add independent Gaussian noise to every entry of every leaf.

    Args:
        key: a key that is used for nothing else.
        tree: float32 leaves: the sum over a batch, before any division.
        standard_deviation: of each entry: noise multiplier times sensitivity.

    Returns:
        The same tree, noised. float32 normals stop at about 5.4 standard deviations.
    """
    leaves, structure = jax.tree.flatten(tree)
    small_key, *keys = jax.random.split(key, len(leaves) + 1)
    # Every draw costs a third of a second to compile, so small leaves share one.
    small = [leaf for leaf in leaves if leaf.size < BLOCK]
    shared = jax.random.normal(small_key, (sum(leaf.size for leaf in small),), jnp.float32)
    parts = iter(jnp.split(lax.optimization_barrier(shared), _ends(small)))
    noised = []
    for leaf, leaf_key in zip(leaves, keys, strict=True):
        if leaf.size < BLOCK:
            normals = next(parts).reshape(leaf.shape)
        else:
            normals = jax.random.normal(leaf_key, leaf.shape, jnp.float32)
        noised.append(leaf + standard_deviation * normals)
    return jax.tree.unflatten(structure, noised)


def _ends(leaves: list[jax.Array]) -> list[int]:
    """Where each leaf's numbers end, the last one's left out, if all are laid end to end."""
    return list(accumulate(leaf.size for leaf in leaves))[:-1]


def add_gaussian_in_place(
    key: jax.Array,
    buffer: jax.Array,
    standard_deviation: jax.Array,
    decay: jax.Array | float = 1.0,
) -> jax.Array:
    """``decay * buffer + noise``, block by block, so that no second array of its size is made.

    Args:
        key: a key that is used for nothing else.
        buffer: (n,) float32.
        standard_deviation: of each entry's noise.
        decay: what the buffer is multiplied with.

    Returns:
        The new buffer; compiled code writes it over the old one, if that is not used again.
    """

    def noised(part: jax.Array, index: jax.Array | int) -> jax.Array:
        normals = jax.random.normal(jax.random.fold_in(key, index), part.shape, jnp.float32)
        return decay * part + standard_deviation * normals

    def block(index: jax.Array, buffer: jax.Array) -> jax.Array:
        part = lax.dynamic_slice(buffer, (index * BLOCK,), (BLOCK,))
        return lax.dynamic_update_slice(buffer, noised(part, index), (index * BLOCK,))

    blocks = buffer.size // BLOCK
    if blocks > 0:
        buffer = lax.fori_loop(0, blocks, block, buffer)
    rest = buffer.size - blocks * BLOCK
    if rest > 0:
        end = noised(buffer[blocks * BLOCK :], blocks)
        buffer = lax.dynamic_update_slice(buffer, end, (blocks * BLOCK,))
    return buffer
