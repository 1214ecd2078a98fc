"""The search for a norm at which a weight is too large, over the numbers of float32.

float32 numbers from 0 on have the order of their bits, so neighbors are found by counting.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.mechanism import Mechanism
from dpcompare.testing.plain_step import weigh

BINADE = 1 << 23
"""How many float32 numbers lie between one power of two and the next."""

STRIDE = 1 << 12
"""Every so many numbers one is tried everywhere."""

NEAR = 8.0
"""Every number is tried within this factor of the sensitivity."""

AROUND = 8
"""The neighborhoods of so many of the worst numbers are tried in full."""

BLOCK = 1 << 21


class Worst(NamedTuple):
    """The worst norm that was found.

    Attributes:
        norm: a float32 number.
        weight: what the mechanism answers.
        product: of both in float64, without its sign; infinite where the weight is not finite.
        tried: how many norms were tried.
    """

    norm: float
    weight: float
    product: float
    tried: int


def worst_norm(mechanism: Mechanism, sensitivity: float) -> Worst:
    """Where the weight times the norm is largest, of all that were tried.

    Args:
        mechanism: with float32 numbers.
        sensitivity: above 0 and finite.
    """
    last = _bits(float(np.finfo(np.float32).max))
    coarse = np.arange(0, last, STRIDE, dtype=np.uint32)
    coarse = np.append(coarse, np.uint32(last))
    products = _products(mechanism, coarse)
    candidates = [int(coarse[place]) for place in np.argsort(-products, kind="stable")[:AROUND]]
    candidates += [_bits(sensitivity), _worst_near(mechanism, sensitivity)]
    tried = [coarse]
    for center in candidates:
        low, high = max(0, center - STRIDE), min(last, center + STRIDE)
        tried.append(np.arange(low, high + 1, dtype=np.uint32))
    bits = np.concatenate(tried)
    products = _products(mechanism, bits)
    place = int(np.argmax(products))
    norm = bits[place : place + 1].view(np.float32)
    weight = float(weigh(mechanism, norm)[0])
    count = len(bits) + round(2 * np.log2(NEAR)) * BINADE
    return Worst(float(norm[0]), weight, float(products[place]), count)


def _products(mechanism: Mechanism, bits: np.ndarray) -> np.ndarray:
    """What each norm adds at most, in float64; infinite where the weight is no weight."""
    found = []
    for start in range(0, len(bits), BLOCK):
        norms = np.zeros(min(BLOCK, len(bits)), np.float32)
        part = bits[start : start + BLOCK].view(np.float32)
        norms[: len(part)] = part  # of one length, so that it is compiled once
        weights = np.abs(weigh(mechanism, norms)[: len(part)])
        possible = np.isfinite(weights)
        # A weight below all normal numbers is rounded to a whole number of the smallest one.
        exact = np.maximum(weights.astype(np.float64) - 2.0**-149, 0.0)
        rounded = np.where(weights < np.finfo(np.float32).tiny, exact, weights)
        rounded = np.where(possible, rounded, np.inf)
        with np.errstate(invalid="ignore"):  # infinity times 0
            products = rounded * part.astype(np.float64)
        found.append(np.where(possible, products, np.inf))
    return np.concatenate(found)


def _worst_near(mechanism: Mechanism, sensitivity: float) -> int:
    """The bits of the worst of all numbers within a factor NEAR of the sensitivity."""
    first, end = _bits(sensitivity / NEAR), _bits(sensitivity * NEAR)
    starts = np.arange(first, end, BLOCK)
    found = [_worst_of_block(type(mechanism), mechanism, jnp.uint32(start)) for start in starts]
    products, bits = (np.array(values) for values in zip(*found, strict=True))
    return int(bits[np.argmax(products)])


@partial(jax.jit, static_argnames="kind")
def _worst_of_block(
    kind: type[Mechanism], mechanism: Mechanism, start: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The largest product and the bits of its norm."""
    bits = start + jax.lax.iota(jnp.uint32, BLOCK)
    norms = jax.lax.bitcast_convert_type(bits, jnp.float32)
    weights = jnp.abs(mechanism.weights(norms))
    products = jnp.where(jnp.isfinite(weights), weights * norms, jnp.inf)
    largest = jnp.max(products)
    return largest, jnp.max(jnp.where(products == largest, bits, 0))


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))
