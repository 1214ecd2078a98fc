"""Column files: `.npy` files that grow by appended rows."""

import hashlib
import io
import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_MOVED_ROWS = 1 << 16  # rows put in order at a time


class OpenFile(Protocol):
    """Opens a column file by its name, or goes on with it."""

    def __call__(self, name: str, dtype: npt.DTypeLike, width: int | None = None) -> "ColumnFile":
        """The file; see :class:`ColumnFile`."""


class ColumnFile:
    """A `.npy` file that grows by appended rows; its header is completed at the end.

    Args:
        path: the file; anything there is replaced.
        dtype: of its values.
        width: values in a row; None: the rows are numbers.
        kept_rows: above 0: the file exists, and its first rows are kept; the others are cut off.

    Attributes:
        path: the file.
        rows: how many rows were appended.
    """

    def __init__(
        self, path: Path, dtype: npt.DTypeLike, width: int | None = None, kept_rows: int = 0
    ) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._row_shape = () if width is None else (width,)
        if kept_rows:
            self._go_on(kept_rows)
        else:
            self._start()

    def _start(self) -> None:
        self.rows = 0
        self.path.unlink(missing_ok=True)  # it may have another name, which keeps its content
        self._file = self.path.open("w+b")
        self._header_bytes = self._file.write(self._header())

    def _go_on(self, rows: int) -> None:
        self.rows = rows
        self._header_bytes = len(self._header())
        self._file = self.path.open("r+b")
        self._file.truncate(
            self._header_bytes + rows * self._dtype.itemsize * math.prod(self._row_shape)
        )
        self._file.seek(0, io.SEEK_END)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows of the file's type and width."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self.rows += len(rows)

    def mark(self) -> dict[str, int]:
        """Hand everything to the operating system; the rows and bytes so far."""
        self._file.flush()
        return {"rows": self.rows, "bytes": self._file.tell()}

    def sync(self) -> None:
        """Wait until what was handed to the operating system is on the disk."""
        os.fsync(self._file.fileno())

    def move_into(self, folder: Path) -> None:
        """Go on in another folder. The rows so far stay under the old name too, if disks allow."""
        place = folder / self.path.name
        self._file.flush()
        try:
            os.link(self.path, place)
        except OSError:  # a file system without hard links
            self.path.rename(place)
        self.path = place

    def content(self) -> npt.NDArray[Any]:
        """All rows so far, mapped into memory. Nothing more can be appended."""
        self._complete()
        if 0 in (self.rows, *self._row_shape):  # an empty array cannot be mapped
            return np.empty((self.rows, *self._row_shape), self._dtype)
        return np.asarray(np.load(self.path, mmap_mode="r"))

    def replace(self, rows: npt.NDArray[Any]) -> None:
        """Hold other rows instead."""
        self._file.close()
        self._start()
        self.append(rows)

    def reorder(self, order: npt.NDArray[np.int64]) -> None:
        """Hold row ``order[i]`` as row i, moved in parts, so that memory stays small."""
        old = self.path.with_name(f"{self.path.name}.unordered")
        rows = self.content()
        self.path.rename(old)
        self._start()
        for start in range(0, len(order), _MOVED_ROWS):
            self.append(rows[order[start : start + _MOVED_ROWS]])
        del rows
        old.unlink()

    def finish(self) -> dict[str, Any]:
        """Complete the file; its bytes and sha256."""
        self._complete()
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": self.path.stat().st_size, "sha256": digest}

    def close(self) -> None:
        """Close the file, complete or not."""
        with suppress(OSError):  # a full disk was reported before
            self._file.close()

    def _complete(self) -> None:
        header = self._header()
        assert len(header) == self._header_bytes  # numpy pads headers so that rows can grow
        if not self._file.closed:
            self._file.seek(0)
            self._file.write(header)
            self._file.close()

    def _header(self) -> bytes:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self.rows, *self._row_shape),
            },
        )
        return buffer.getvalue()
