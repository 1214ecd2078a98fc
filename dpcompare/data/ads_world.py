"""The tables that the synthetic ads log is drawn from.

A column is cut into 2**14 equally likely slots of consecutive values: most slots of a small column
hold one value, the last slots of a heavy tail hold thousands, spread evenly. So a draw is one
look-up with 14 random bits, an integer step inside the slot with others, and nothing in between
depends on floating point. The effect of a slot's value on the log-odds is a look-up too.
"""

import functools
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpcompare.data import ads_shape
from dpcompare.data.ads_shape import CategoryShape, NumericShape, Points
from dpcompare.data.hashing import MISSING, hash_hex, mix_64
from dpcompare.data.numeric import signed_log
from dpcompare.data.schema import load_schema

Float64Array = npt.NDArray[np.float64]
UInt32Array = npt.NDArray[np.uint32]
UInt64Array = npt.NDArray[np.uint64]

SLOT_BITS = 14
SLOTS = 1 << SLOT_BITS
MISSING_SLOT = SLOTS

_CONVERSION_STRENGTHS = (ads_shape.CONVERSION_EFFECTS, ads_shape.COUNT_EFFECTS)
_CONVERSION_SALTS = (2000, 3000)  # added to the column's own


class NumericTable(NamedTuple):
    """A numeric column by slot; the last of SLOTS + 1 entries is "missing".

    Attributes:
        missing: the missing group, or "".
        base: float64, the first value of the slot, NaN when missing.
        width: uint64, how many values the slot spans.
        effect: float64, what the slot adds to the log-odds.
        second_effect: float64, its factor in products of two columns, or None.
        conversions: (SLOTS + 1, 2) float64, what the slot adds to the log-odds of a conversion
            and to the log of the mean count, or None.
    """

    missing: str
    base: Float64Array
    width: UInt64Array
    effect: Float64Array
    second_effect: Float64Array | None
    conversions: Float64Array | None


class CategoryTable(NamedTuple):
    """A categorical column by slot; the last of SLOTS + 1 entries is "missing".

    Attributes:
        missing: the missing group, or "".
        salt: makes the values and effects of this column its own.
        base: uint64, the first rank of the slot (0 = the most frequent value).
        width: uint64, how many ranks the slot spans.
        values: uint32, the value of the first rank.
        hashes: uint32, the hash of its text.
        first_wide: the first slot that spans several ranks; SLOTS if none does.
        effect: float64, the log-odds of the slot's value, 0 from `first_wide` on.
        spread: float64, the standard deviation of the log-odds of the slot's values.
        second_effect: float64, its factor in products of two columns, or None.
        conversions: as in :class:`NumericTable`; 0 from `first_wide` on.
    """

    missing: str
    salt: int
    base: UInt64Array
    width: UInt64Array
    values: UInt32Array
    hashes: UInt32Array
    first_wide: int
    effect: Float64Array
    spread: Float64Array
    second_effect: Float64Array | None
    conversions: Float64Array | None

    def value_of(self, ranks: UInt64Array) -> UInt32Array:
        """The value of each rank: different ranks of a column have different values."""
        return scramble(ranks, self.salt)


class World(NamedTuple):
    """All columns, by name, in the order of the file."""

    numeric: dict[str, NumericTable]
    categories: dict[str, CategoryTable]


@functools.cache
def world() -> World:
    """The tables of :mod:`dpcompare.data.ads_shape`; built once per process."""
    paired = {name for pair in ads_shape.PAIRS for name in pair[:2]}
    scales = {column.name: column.scale for column in load_schema("criteo-kaggle").numeric}
    return World(
        {
            name: _numeric_table(name, shape, scales[name], name in paired)
            for name, shape in ads_shape.NUMERIC.items()
        },
        {
            name: _category_table(name, shape, salt, name in paired)
            for salt, (name, shape) in enumerate(ads_shape.CATEGORIES.items(), start=1)
        },
    )


def effects(values: UInt32Array, salt: int) -> Float64Array:
    """A fixed effect per value, of mean 0 and standard deviation 1: four hashed uniforms added."""
    bits = mix_64(values + np.uint64(salt << 32))
    total = np.zeros(len(values))
    for shift in (0, 16, 32, 48):
        total += (bits >> np.uint64(shift)) & np.uint64(0xFFFF)
    return (total - 2 * 0xFFFF) / (65536 * np.sqrt(4 / 12))


def scramble(ranks: UInt64Array, salt: int) -> UInt32Array:
    """A one-to-one map of ranks below 2**32 to 32-bit values, different for each salt."""
    bits = ranks.astype(np.uint32) * np.uint32(0x9E3779B1)
    bits += np.uint32(salt * 0x3C6EF372 & 0xFFFFFFFF)
    # The finalizer of MurmurHash3 (Appleby, public domain).
    bits = (bits ^ (bits >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    bits = (bits ^ (bits >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return bits ^ (bits >> np.uint32(16))


def slot_ranges(lowest: int, at_most: Points) -> tuple[npt.NDArray[np.int64], UInt64Array]:
    """Cut a distribution into equally likely slots.

    Between two points the distribution is uniform in log(value - lowest + 1).

    Args:
        lowest: the smallest value.
        at_most: (value, share at or below it), both growing; the last share is 1.

    Returns:
        (SLOTS,) first value and (SLOTS,) number of values of each slot.
    """
    edges = np.log([1.0] + [value - lowest + 2.0 for value, _ in at_most])
    shares = [0.0] + [share for _, share in at_most]
    quantiles = np.exp(np.interp(np.arange(SLOTS + 1) / SLOTS, shares, edges)) - 1.0
    bounds = np.floor(quantiles + 1e-6).astype(np.int64) + lowest
    return bounds[:-1], np.maximum(np.diff(bounds), 1).astype(np.uint64)


def _numeric_table(name: str, shape: NumericShape, scale: float, paired: bool) -> NumericTable:
    first, width = slot_ranges(shape.lowest, shape.at_most)
    distance = signed_log(first + (width - 1) / 2, scale).astype(np.float64) - 1.0
    effect = shape.slope * distance + shape.bend * distance**2
    return NumericTable(
        missing=shape.missing,
        base=np.append(first.astype(np.float64), np.nan),
        width=np.append(width, np.uint64(1)),
        effect=np.append(effect, shape.absent),
        second_effect=np.append(np.tanh(2 * distance), 0.0) if paired else None,
        conversions=_conversions(name, [np.append(distance, -1.0)] * 2),
    )


def _category_table(name: str, shape: CategoryShape, salt: int, paired: bool) -> CategoryTable:
    first, width = slot_ranges(0, tuple((rank - 1, share) for rank, share in shape.covered))
    base = np.append(first.astype(np.uint64), np.uint64(0))
    values = scramble(base, salt)
    hashes = hash_hex(values)
    hashes[MISSING_SLOT] = MISSING
    # Values of several slots are as frequent as all these slots together.
    _, inverse, slots_of_value = np.unique(first, return_inverse=True, return_counts=True)
    share = slots_of_value[inverse] / width / SLOTS
    decay = np.append(np.minimum(share / ads_shape.FREQUENT, 1.0) ** ads_shape.RARE_DECAY, 1.0)
    wide = np.flatnonzero(width > 1)
    first_wide = int(wide[0]) if len(wide) else SLOTS
    # A missing value has an effect of its own, as if it were one more value.
    effect_of = np.append(values[:SLOTS], np.uint32(0xFFFFFFFF))
    effect = shape.strength * decay * effects(effect_of, salt)
    effect[first_wide:MISSING_SLOT] = 0.0
    own = [decay * effects(effect_of, salt + offset) for offset in _CONVERSION_SALTS]
    for each in own:
        each[first_wide:MISSING_SLOT] = 0.0
    return CategoryTable(
        missing=shape.missing,
        salt=salt,
        base=base,
        width=np.append(width, np.uint64(1)),
        values=values,
        hashes=hashes,
        first_wide=first_wide,
        effect=effect,
        spread=shape.strength * decay,
        second_effect=decay * effects(effect_of, salt + 1000) if paired else None,
        conversions=_conversions(name, own),
    )


def _conversions(name: str, own: list[Float64Array]) -> Float64Array | None:
    """Scale the effects of a column on a conversion and on the count to their strengths."""
    strengths = [table.get(name, 0.0) for table in _CONVERSION_STRENGTHS]
    return np.stack(own, axis=1) * strengths if any(strengths) else None
