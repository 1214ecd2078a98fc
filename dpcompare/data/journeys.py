"""Journeys: rows that belong together, told by equal values in some columns, wherever they stand.

A journey is recognized by a 64-bit hash of its values. Among ten million journeys the chance that
any two share a hash is 3 in a million.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcompare.data.arrow import nulls, text_and_offsets
from dpcompare.data.hashing import fnv1a_64, mix_64
from dpcompare.data.sources import Batch

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]

ABSENT = 0  # the hash of a missing value; no text has it

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, eq=False)
class Journeys:
    """Rows put in order: journey by journey, in the order of their first rows in the files.

    Attributes:
        order: (n,) the row of the files that stands at each position.
        numbers: (n,) the journey of each position, from 0, never decreasing.
        starts: (J,) the first position of each journey.
    """

    order: Int64Array
    numbers: Int64Array
    starts: Int64Array

    @classmethod
    def of(cls, keys: UInt64Array) -> "Journeys":
        """The journeys of (n,) keys, equal where rows belong together; about 35 bytes a row."""
        by_key = np.argsort(keys)
        sorted_keys = keys[by_key]
        del keys
        starts = np.flatnonzero(np.concatenate(([True], sorted_keys[1:] != sorted_keys[:-1])))
        del sorted_keys
        sizes = np.diff(starts, append=len(by_key))
        by_first_row = np.argsort(np.minimum.reduceat(by_key, starts))
        ranks = np.empty(len(starts), dtype=np.int64)
        ranks[by_first_row] = np.arange(len(starts))
        journey_of = np.empty(len(by_key), dtype=np.int64)
        journey_of[by_key] = np.repeat(ranks, sizes)
        del by_key
        order = np.argsort(journey_of, kind="stable")
        del journey_of
        sizes = sizes[by_first_row]
        return cls(order, np.repeat(np.arange(len(sizes)), sizes), np.cumsum(sizes) - sizes)

    def distinct(self, values: UInt64Array) -> Int64Array:
        """How many distinct present values each journey has, (J,).

        Args:
            values: (n,) hashes in the order of the files; 0 = missing.
        """
        in_order = values[self.order]
        present = in_order != ABSENT
        numbers, found = self.numbers[present], in_order[present]
        by_journey = np.lexsort((found, numbers))
        numbers, found = numbers[by_journey], found[by_journey]
        new = np.ones(len(numbers), dtype=np.bool_)
        new[1:] = (numbers[1:] != numbers[:-1]) | (found[1:] != found[:-1])
        return np.bincount(numbers[new], minlength=len(self.starts))


def journey_keys(batch: Batch, columns: tuple[str, ...]) -> UInt64Array:
    """A hash of the values of some columns, taken together: (n,).

    Raises:
        DpcompareError: a value is missing.
    """
    keys = np.zeros(len(batch.columns[columns[0]]), dtype=np.uint64)
    for name in columns:
        for index in np.flatnonzero(nulls(batch.columns[name]))[:1]:
            problem = "the value is missing, so the row has no journey; leave the row out"
            raise batch.error(int(index), name, problem)
        keys = mix_64(keys * _MULTIPLIER + hash_64(batch.columns[name]))
    return keys


def hash_64(values: pa.Array) -> UInt64Array:
    """64-bit hashes of an Arrow array of text: (n,), 0 for nulls and for nothing else."""
    text, offsets = text_and_offsets(values)
    hashes = fnv1a_64(text, offsets[:-1], offsets[1:])
    hashes[hashes == ABSENT] = 1
    hashes[nulls(values)] = ABSENT
    return hashes
