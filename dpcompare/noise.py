"""Gaussian noise for sums of clipped gradients, in float32, independent for every number."""

from itertools import accumulate
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

# The flag changes which normals a key gives, so it is fixed here and not left to the environment.
# Off is about twice as fast on one device.
jax.config.update("jax_threefry_partitionable", False)

BLOCK = 1 << 16
"""Normals drawn at a time for a large array: they stay in the cache of a core."""

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Of Threefry-2x32, by turns of four rounds."""

SECRET_DRAWS = 4
"""Where the seed is secret, so many float32 normals are summed, each scaled by 1/2.

One float32 normal stops at about 5.4 standard deviations and takes only 2^23 values, whose gaps
could tell what it was added to (Mironov, "On significance of the least significant bits for
differential privacy", 2012). Of four the sum reaches 10.8, and its values lie far closer
(the sum of several normals against such attacks: Holohan and Braghin, arXiv 2107.10138).
"""

Tree = TypeVar("Tree")


def normal(key: jax.Array, size: int, draws: int = 1) -> jax.Array:
    """(size,) standard normals; one draw is bit for bit ``jax.random.normal(key, (size,))``.

    On a CPU JAX runs the 20 rounds of its generator as loops over arrays, which takes most of the
    time of a draw. Written out, they are one pass. (Threefry-2x32: Salmon et al., "Parallel random
    numbers: as easy as 1, 2, 3", 2011; halves and rounding are JAX's.)

    Args:
        key: a key that is used for nothing else.
        size: how many.
        draws: so many independent normals are summed, with standard deviation 1 in total.
    """
    normals = jnp.concatenate(_normal_halves(key, draws * size))[: draws * size]
    return _summed(normals, draws)


def _summed(normals: jax.Array, draws: int) -> jax.Array:
    """Sums of `draws` normals each, scaled to standard deviation 1."""
    if draws == 1:
        return normals
    return np.float32(1 / np.sqrt(draws)) * normals.reshape(draws, -1).sum(axis=0)


def _normal_halves(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """The first and the second half of the normals; the second has one too many if odd."""
    first, second = _threefry(key, size)
    return _to_normal(first), _to_normal(second)


def _threefry(key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
    """The random 32-bit words of a key, in two halves."""
    k0, k1 = jax.random.key_data(key)
    schedule = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    half = -(-size // 2)
    x0 = lax.iota(jnp.uint32, half)
    x1 = x0 + np.uint32(half)
    if size % 2:
        x1 = jnp.where(x1 == np.uint32(size), np.uint32(0), x1)  # JAX's padding
    x0, x1 = x0 + schedule[0], x1 + schedule[1]
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def _to_normal(words: jax.Array) -> jax.Array:
    """Normals by inversion, from 23 bits of each word."""
    above_one = lax.bitcast_convert_type(words >> np.uint32(9) | np.uint32(0x3F800000), jnp.float32)
    lowest = np.nextafter(np.float32(-1), np.float32(0))
    uniform = jnp.maximum(lowest, (above_one - 1) * (np.float32(1) - lowest) + lowest)
    return np.float32(np.sqrt(2)) * lax.erf_inv(uniform)


def add_gaussian(key: jax.Array, tree: Tree, standard_deviation: jax.Array, draws: int = 1) -> Tree:
    """Add independent Gaussian noise to every entry of every leaf.

    Args:
        key: a key that is used for nothing else.
        tree: float32 leaves: the sum over a batch, before any division.
        standard_deviation: of each entry: noise multiplier times sensitivity.
        draws: float32 normals that are summed for one of the noise.

    Returns:
        The same tree, noised. A float32 normal stops at about 5.4 standard deviations.
    """
    leaves, structure = jax.tree.flatten(tree)
    small_key, *keys = jax.random.split(key, len(leaves) + 1)
    # Every draw costs a third of a second to compile, so small leaves share one.
    small = [leaf for leaf in leaves if leaf.size < BLOCK]
    shared = normal(small_key, sum(leaf.size for leaf in small), draws)
    parts = iter(jnp.split(lax.optimization_barrier(shared), _ends(small)))
    noised = []
    for leaf, leaf_key in zip(leaves, keys, strict=True):
        if leaf.size < BLOCK:
            normals = next(parts).reshape(leaf.shape)
        else:
            normals = normal(leaf_key, leaf.size, draws).reshape(leaf.shape)
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
    draws: int = 1,
) -> jax.Array:
    """``decay * buffer + noise``, block by block, so that no second array of its size is made.

    Args:
        key: a key that is used for nothing else.
        buffer: (n,) float32.
        standard_deviation: of each entry's noise.
        decay: what the buffer is multiplied with.
        draws: float32 normals that are summed for one of the noise.

    Returns:
        The new buffer; compiled code writes it over the old one, if that is not used again.
    """

    def block(index: jax.Array, buffer: jax.Array) -> jax.Array:
        # By halves, as they are made: written as one array they would be made twice.
        halves = _normal_halves(jax.random.fold_in(key, index), draws * BLOCK)
        for place, half in enumerate(halves):
            normals = _summed(half, draws)
            start = (index * BLOCK + place * BLOCK // 2,)
            part = lax.dynamic_slice(buffer, start, normals.shape)
            part = decay * part + standard_deviation * normals
            buffer = lax.dynamic_update_slice(buffer, part, start)
        return buffer

    blocks = buffer.size // BLOCK
    if blocks > 0:
        buffer = lax.fori_loop(0, blocks, block, buffer)
    rest = buffer[blocks * BLOCK :]
    if rest.size > 0:
        normals = normal(jax.random.fold_in(key, blocks), rest.size, draws)
        rest = decay * rest + standard_deviation * normals
        buffer = lax.dynamic_update_slice(buffer, rest, (blocks * BLOCK,))
    return buffer
