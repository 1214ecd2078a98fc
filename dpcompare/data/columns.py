"""Column files: batches of rows go in, `.npy` files and facts about them come out."""

import hashlib
import io
import math
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpcompare.data.convert import labels, numbers
from dpcompare.data.hashing import HASH_RULE, MISSING, hash_text
from dpcompare.data.manifest import CATEGORIES_FILE, FORMAT, NUMERIC_FILE, label_file
from dpcompare.data.numeric import NUMERIC_RULE, signed_log
from dpcompare.data.schema import LABEL_KINDS, LABEL_TYPES, LabelKind, Schema
from dpcompare.data.sources import Batch
from dpcompare.data.summary import DISTINCT_RULE, DistinctValues, RepeatedRows, RowHash


class ColumnFile:
    """A `.npy` file that grows by appended rows; its header is completed at the end."""

    def __init__(self, path: Path, dtype: Any, width: int | None = None) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._row_shape = () if width is None else (width,)
        self._file = path.open("wb")
        self._header_bytes = self._file.write(self._header(0))

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Add rows of the file's type and width."""
        self._file.write(np.ascontiguousarray(rows).data)

    def finish(self, rows: int) -> dict[str, Any]:
        """Complete the file; its bytes and sha256."""
        header = self._header(rows)
        assert len(header) == self._header_bytes  # numpy pads headers so that rows can grow
        self._file.seek(0)
        self._file.write(header)
        self.close()
        with self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": self.path.stat().st_size, "sha256": digest}

    def close(self) -> None:
        """Close the file, complete or not."""
        self._file.close()

    def _header(self, rows: int) -> bytes:
        buffer = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            buffer,
            {
                "descr": np.lib.format.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (rows, *self._row_shape),
            },
        )
        return buffer.getvalue()


class _Range:
    """Minimum, maximum and missing values of numbers that stream by."""

    def __init__(self) -> None:
        self.low = math.inf
        self.high = -math.inf
        self.missing = 0
        self.total = 0.0
        self.fractions = False

    def add(self, values: npt.NDArray[Any]) -> None:
        self.missing += int(np.count_nonzero(values != values))
        self.low = min(self.low, float(np.fmin.reduce(values)))  # min keeps the old value if NaN
        self.high = max(self.high, float(np.fmax.reduce(values)))


class ColumnWriter:
    """Writes the column files of a prepared data set and gathers the facts for its manifest."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._kinds: dict[str, LabelKind] = {task: LABEL_KINDS[task] for task in schema.tasks}
        self._numeric = ColumnFile(folder / NUMERIC_FILE, np.float32, len(schema.numeric))
        self._categories = ColumnFile(folder / CATEGORIES_FILE, np.uint32, len(schema.categorical))
        self._labels = {
            task: ColumnFile(folder / label_file(task), LABEL_TYPES[kind])
            for task, kind in self._kinds.items()
        }
        self._ranges = {column.name: _Range() for column in schema.numeric}
        self._label_ranges = {task: _Range() for task in schema.tasks}
        self._distinct = {column.name: DistinctValues() for column in schema.categorical}
        self._missing = {column.name: 0 for column in schema.categorical}
        self._repeated = RepeatedRows()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in self._files():
            file.close()

    def add(self, batch: Batch) -> None:
        """Check and append the rows of a batch.

        Raises:
            DpcompareError: a value does not fit the schema.
        """
        rows = len(next(iter(batch.columns.values())))
        row_hash = RowHash(rows)
        self._add_labels(batch, row_hash)
        self._add_numeric(batch, rows, row_hash)
        self._add_categories(batch, rows, row_hash)
        self._repeated.add(row_hash.finish())
        self.rows += rows

    def _add_labels(self, batch: Batch, row_hash: RowHash) -> None:
        for task, name in self._schema.tasks.items():
            label = labels(batch, name, self._kinds[task])
            span = self._label_ranges[task]
            span.add(label)
            span.total += float(label.sum(dtype=np.float64))
            span.fractions |= bool((label % 1).any())
            self._labels[task].append(label)
            row_hash.add(label.astype(np.float32).view(np.uint32))

    def _add_numeric(self, batch: Batch, rows: int, row_hash: RowHash) -> None:
        numeric = np.empty((rows, len(self._schema.numeric)), dtype=np.float32)
        for index, column in enumerate(self._schema.numeric):
            values = numbers(batch, column, self._schema.missing)
            self._ranges[column.name].add(values)
            transformed = signed_log(values, column.scale)
            numeric[:, index] = transformed
            row_hash.add(transformed.view(np.uint32))
        self._numeric.append(numeric)

    def _add_categories(self, batch: Batch, rows: int, row_hash: RowHash) -> None:
        categories = np.empty((rows, len(self._schema.categorical)), dtype=np.uint32)
        for index, column in enumerate(self._schema.categorical):
            hashes = hash_text(batch.columns[column.name])
            self._missing[column.name] += int(np.count_nonzero(hashes == MISSING))
            self._distinct[column.name].add(hashes)
            categories[:, index] = hashes
            row_hash.add(hashes)
        self._categories.append(categories)

    def finish(self) -> dict[str, Any]:
        """Complete the files; what the manifest says about the rows, as its fields."""
        files = {file.path.name: file.finish(self.rows) for file in self._files()}
        return {
            "checksum": self._checksum(files),
            "rows": self.rows,
            "labels": {task: self._label_facts(task) for task in self._kinds},
            "numeric": {
                name: {
                    "missing": span.missing / self.rows,
                    "min": span.low if math.isfinite(span.low) else None,
                    "max": span.high if math.isfinite(span.high) else None,
                }
                for name, span in self._ranges.items()
            },
            "categorical": {
                name: {"missing": missing / self.rows, "distinct": self._distinct[name].estimate()}
                for name, missing in self._missing.items()
            },
            "repeated_share": self._repeated.share(),
            "rules": {
                "numeric": NUMERIC_RULE,
                "categories": HASH_RULE,
                "estimates": DISTINCT_RULE,
            },
            "files": files,
        }

    def _label_facts(self, task: str) -> dict[str, Any]:
        span = self._label_ranges[task]
        return {
            "column": self._schema.tasks[task],
            "kind": self._kinds[task],
            "total": span.total,
            "mean": span.total / self.rows,
            "min": span.low,
            "max": span.high,
            "fractions": span.fractions,
        }

    def _checksum(self, files: dict[str, dict[str, Any]]) -> str:
        digest = hashlib.sha256(f"dpcompare prepared data, format {FORMAT}\n".encode())
        for columns in (self._schema.numeric, self._schema.categorical):
            digest.update(f"{[column.name for column in columns]}\n".encode())
        for name, facts in sorted(files.items()):
            digest.update(f"{name} {facts['sha256']}\n".encode())
        return digest.hexdigest()

    def _files(self) -> list[ColumnFile]:
        return [self._numeric, self._categories, *self._labels.values()]
