"""Facts about rows that stream by, in fixed memory: distinct values and repeated rows."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcompare.data.hashing import mix_64

UInt64Array = npt.NDArray[np.uint64]

DISTINCT_RULE = (
    "distinct values: linear counting in 2**20 cells a column (Whang et al. 1990), an estimate "
    "within about 1% up to 5 million values; repeated rows: all copies of 32,768 to 65,536 "
    "distinct rows sampled by hash, exact below that"
)

_CELLS = 1 << 20
_SAMPLED_ROWS = 1 << 16
_ROW_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class DistinctValues:
    """Counts distinct hashes by linear counting (Whang, Vander-Zanden, Taylor 1990)."""

    def __init__(self) -> None:
        self._cells = np.zeros(_CELLS, dtype=np.bool_)

    def add(self, hashes: npt.NDArray[np.uint32]) -> None:
        """Take in (n,) hashes; 0, a missing category, is not counted."""
        cells = hashes & np.uint32(_CELLS - 1)
        self._cells[cells.astype(np.intp)] = True  # numpy is slower with indices of other types

    def state(self) -> npt.NDArray[np.uint8]:
        """What :meth:`restore` needs: one bit a cell."""
        return np.packbits(self._cells)

    def restore(self, state: npt.NDArray[np.uint8]) -> None:
        """Go on from a :meth:`state`."""
        self._cells = np.unpackbits(state).view(np.bool_)

    def estimate(self) -> int:
        """How many distinct hashes were added, about."""
        cells = self._cells[1:]  # the first one holds the missing values
        empty = len(cells) - int(np.count_nonzero(cells))
        return round(-len(cells) * math.log(max(empty, 0.5) / len(cells)))


class RepeatedRows:
    """Estimates how many rows are exact copies of an earlier row.

    Rows are sampled by their hash, so that all copies of a row are in the sample or none is. When
    the sample is full, half of the hashes are given up. The sample does not depend on how the rows
    were divided into batches.
    """

    def __init__(self) -> None:
        self._threshold = np.uint64(2**64 - 1)
        self._hashes = np.zeros(0, dtype=np.uint64)
        self._copies = np.zeros(0, dtype=np.int64)
        self._new: list[UInt64Array] = []  # sorting costs, so many batches are taken in at once
        self._new_rows = 0

    def add(self, hashes: UInt64Array) -> None:
        """Take in (n,) hashes of whole rows."""
        kept = hashes[hashes <= self._threshold]
        self._new.append(kept)
        self._new_rows += len(kept)
        if self._new_rows >= _SAMPLED_ROWS:
            self._take_in()

    def _take_in(self) -> None:
        if not self._new:
            return
        found, copies = np.unique(np.concatenate(self._new), return_counts=True)
        self._new, self._new_rows = [], 0
        merged, inverse = np.unique(np.concatenate([self._hashes, found]), return_inverse=True)
        counts = np.zeros(len(merged), dtype=np.int64)
        np.add.at(counts, inverse, np.concatenate([self._copies, copies]))
        while len(merged) > _SAMPLED_ROWS:
            self._threshold >>= np.uint64(1)
            inside = merged <= self._threshold
            merged, counts = merged[inside], counts[inside]
        self._hashes, self._copies = merged, counts

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs."""
        self._take_in()
        return {
            "threshold": int(self._threshold),
            "hashes": self._hashes,
            "copies": self._copies,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self._threshold = np.uint64(state["threshold"])
        self._hashes, self._copies = state["hashes"], state["copies"]

    def share(self) -> float:
        """The share of rows that repeat an earlier row."""
        self._take_in()
        rows = int(self._copies.sum())
        return 1.0 - len(self._hashes) / rows if rows else 0.0

    def copies(self) -> float:
        """How often a row occurs on average."""
        self._take_in()
        return float(self._copies.mean()) if len(self._copies) else 1.0


class RowHash:
    """A 64-bit hash of rows that are handed over column by column."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self._hashes = np.zeros(rows, dtype=np.uint64)

    def add(self, column: npt.NDArray[np.uint32]) -> None:
        """Mix in the next column, (rows,) of 32 bits."""
        self._hashes *= _ROW_MULTIPLIER
        self._hashes += column

    def finish(self) -> UInt64Array:
        """The hashes, mixed so that their size is as good as random."""
        return mix_64(self._hashes)
