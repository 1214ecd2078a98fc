"""The column writer: batches of rows go in, column files and facts about them come out."""

import hashlib
import math
from pathlib import Path
from typing import Any, Self

import numpy as np

from dpcompare.data.column_file import ColumnFile
from dpcompare.data.convert import exposures, numbers
from dpcompare.data.hashing import HASH_RULE, MISSING, hash_text
from dpcompare.data.journeys import Journeys, UInt64Array, journey_keys
from dpcompare.data.labels import label_writers
from dpcompare.data.manifest import (
    CATEGORIES_FILE,
    EXPOSURE_FILE,
    FORMAT,
    JOURNEYS_FILE,
    NUMERIC_FILE,
)
from dpcompare.data.numeric import NUMERIC_RULE, signed_log
from dpcompare.data.schema import Schema
from dpcompare.data.sources import Batch
from dpcompare.data.summary import DISTINCT_RULE, DistinctValues, RepeatedRows, RowHash
from dpcompare.data.value_range import ValueRange


class ColumnWriter:
    """Writes the column files of a prepared data set and gathers the facts for its manifest."""

    def __init__(self, folder: Path, schema: Schema) -> None:
        self.rows = 0
        self._schema = schema
        self._labels = label_writers(folder, schema)
        self._numeric = ColumnFile(folder / NUMERIC_FILE, np.float32, len(schema.numeric))
        self._categories = ColumnFile(folder / CATEGORIES_FILE, np.uint32, len(schema.categorical))
        self._exposure: ColumnFile | None = None
        if schema.exposure:
            self._exposure = ColumnFile(folder / EXPOSURE_FILE, np.float32)
        self._journey_numbers: ColumnFile | None = None
        if schema.journey:
            self._journey_numbers = ColumnFile(folder / JOURNEYS_FILE, np.int64)
        self._journey_keys: list[UInt64Array] = []
        self._ranges = {column.name: ValueRange() for column in schema.numeric}
        self._exposure_range = ValueRange()
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
        for label in self._labels.values():
            row_hash.add(label.add(batch))
        self._add_numeric(batch, rows, row_hash)
        self._add_categories(batch, rows, row_hash)
        self._add_exposure(batch, row_hash)
        self._add_journeys(batch, row_hash)
        self._repeated.add(row_hash.finish())
        self.rows += rows

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

    def _add_exposure(self, batch: Batch, row_hash: RowHash) -> None:
        column = self._schema.exposure
        if self._exposure is None or column is None:
            return
        values = exposures(batch, column.name, self._schema.missing)
        self._exposure_range.add(values)
        self._exposure.append(values)
        row_hash.add(values.view(np.uint32))

    def _add_journeys(self, batch: Batch, row_hash: RowHash) -> None:
        if self._journey_numbers is None:
            return
        keys = journey_keys(batch, self._schema.journey)
        self._journey_keys.append(keys)
        row_hash.add(keys.astype(np.uint32))  # rows of two journeys are never copies of one event

    def tasks_without_rows(self) -> list[str]:
        """The tasks to which no row belongs so far."""
        return [task for task, label in self._labels.items() if label.is_empty]

    def finish(self) -> dict[str, Any]:
        """Complete the files; what the manifest says about the rows, as its fields."""
        journeys = self._put_in_order()
        for label in self._labels.values():
            label.complete(journeys)
        files = {file.path.name: file.finish() for file in self._files()}
        return {
            "checksum": self._checksum(files),
            "rows": self.rows,
            "journeys": None if journeys is None else len(journeys.starts),
            "labels": {task: label.facts() for task, label in self._labels.items()},
            "exposure": self._exposure_facts(),
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

    def _put_in_order(self) -> Journeys | None:
        """Bring the rows of each journey together, if there are journeys."""
        if self._journey_numbers is None:
            return None
        journeys = Journeys.of(self._take_keys())
        self._journey_numbers.append(journeys.numbers)
        for file in (self._numeric, self._categories, self._exposure):
            if file is not None:
                file.reorder(journeys.order)
        return journeys

    def _take_keys(self) -> UInt64Array:
        """All keys; whoever asks holds the only copy, so that it can be freed."""
        keys = np.concatenate(self._journey_keys)
        self._journey_keys.clear()
        return keys

    def _exposure_facts(self) -> dict[str, float] | None:
        if self._exposure is None:
            return None
        return {"min": self._exposure_range.low, "max": self._exposure_range.high}

    def _checksum(self, files: dict[str, dict[str, Any]]) -> str:
        digest = hashlib.sha256(f"dpcompare prepared data, format {FORMAT}\n".encode())
        for columns in (self._schema.numeric, self._schema.categorical):
            digest.update(f"{[column.name for column in columns]}\n".encode())
        for name, facts in sorted(files.items()):
            digest.update(f"{name} {facts['sha256']}\n".encode())
        return digest.hexdigest()

    def _files(self) -> list[ColumnFile]:
        labels = [file for label in self._labels.values() for file in label.files]
        extra = [file for file in (self._exposure, self._journey_numbers) if file is not None]
        return [self._numeric, self._categories, *labels, *extra]
