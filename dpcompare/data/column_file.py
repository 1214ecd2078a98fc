"""Column files: `.npy` files that grow by appended rows."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_MOVED_ROWS = 1 << 16  # rows put in order at a time


class ColumnFile:
    """A `.npy` file that grows by appended rows; its header is completed at the end.

    Attributes:
        path: the file.
        rows: how many rows were appended.
    """

    def __init__(self, path: Path, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._row_shape = () if width is None else (width,)
        self._start()

    def _start(self) -> None:
        self.rows = 0
        self._file = self.path.open("wb")
        self._header_bytes = self._file.write(self._header())

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows of the file's type and width."""
        self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self.rows += len(rows)

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
