"""Views of rows: arrays that stay where they are, of which a few rows at a time are read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST_COPY = 256 << 20
"""Bytes up to which selected or encoded rows are kept in memory: then they are read faster."""

Encode = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


class RowView:
    """Some rows of an array, encoded when they are read; usable where an array of rows is read.

    Attributes:
        shape: (n, ...).
        dtype: of the encoded values.
    """

    def __init__(
        self,
        source: npt.NDArray[Any],
        positions: npt.NDArray[np.int64] | None = None,
        encode: Encode | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> None:
        """See the class.

        Args:
            source: (N, ...) in memory or mapped.
            positions: (n,) rows of the source; None: all of them.
            encode: turns (m, ...) rows into (m, ...) encoded ones; None leaves them as they are.
            dtype: what `encode` gives.
        """
        self._source, self._positions, self._encode = source, positions, encode
        self.dtype = np.dtype(source.dtype if dtype is None else dtype)
        self.shape = (len(source) if positions is None else len(positions), *source.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> npt.NDArray[Any]:
        """The rows of a slice or of an array of numbers; of a pair, also the columns of those."""
        rows, *columns = key if isinstance(key, tuple) else (key,)
        if np.ndim(rows) == 0 and not isinstance(rows, slice):
            return self[np.array([rows])][(0, *columns)]
        rows = rows if self._positions is None else self._positions[rows]
        if self._encode is None and all(isinstance(c, int | slice) for c in columns):
            return np.asarray(self._source[(rows, *columns)])  # not all columns, to keep one
        found = self._source[rows]
        found = found if self._encode is None else self._encode(found)
        return np.asarray(found[(slice(None), *columns)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self[:], dtype)

    def select(self, positions: npt.NDArray[np.int64]) -> "RowView":
        """A view of (n,) rows of this one."""
        chosen = positions if self._positions is None else self._positions[positions]
        return RowView(self._source, chosen, self._encode, self.dtype)


def select(rows: Any, positions: npt.NDArray[np.int64]) -> Any:
    """The given rows of an array or view: a copy if that is small, else a view."""
    view = rows if isinstance(rows, RowView) else RowView(rows)
    return in_memory_if_small(view.select(positions))


def in_memory_if_small(view: RowView) -> npt.NDArray[Any] | RowView:
    """The rows themselves, if a copy of them may be kept in memory."""
    width = int(np.prod(view.shape[1:]))
    return view[:] if len(view) * width * view.dtype.itemsize <= LARGEST_COPY else view
