"""The column writer: converted rows go in, column files and facts about them come out."""

import hashlib
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from dpcompare.data.column_file import ColumnFile
from dpcompare.data.converted import Converted
from dpcompare.data.hashing import HASH_RULE
from dpcompare.data.journeys import Journeys
from dpcompare.data.labels import label_writers
from dpcompare.data.manifest import (
    CATEGORIES_FILE,
    EXPOSURE_FILE,
    FORMAT,
    JOURNEYS_FILE,
    NUMERIC_FILE,
)
from dpcompare.data.numeric import NUMERIC_RULE
from dpcompare.data.schema import Schema
from dpcompare.data.summary import DISTINCT_RULE, DistinctValues, RepeatedRows
from dpcompare.data.value_range import ValueRange

_KEYS_FILE = "journey_keys.scratch"


class ColumnWriter:
    """Writes the column files of a prepared data set and gathers the facts for its manifest."""

    def __init__(self, folder: Path, schema: Schema, state: dict[str, Any] | None = None) -> None:
        """Start in an empty folder, or go on from a :meth:`state`."""
        self.folder = folder
        self.rows = 0
        self._schema = schema
        self._kept = state["files"] if state else {}
        self._labels = label_writers(schema, self._open)
        self._numeric = self._open(NUMERIC_FILE, np.float32, len(schema.numeric))
        self._categories = self._open(CATEGORIES_FILE, np.uint32, len(schema.categorical))
        self._exposure = self._open(EXPOSURE_FILE, np.float32) if schema.exposure else None
        self._journey_numbers = self._open(JOURNEYS_FILE, np.int64) if schema.journey else None
        self._journey_keys = self._open(_KEYS_FILE, np.uint64) if schema.journey else None
        self._ranges = {column.name: ValueRange() for column in schema.numeric}
        self._exposure_range = ValueRange()
        self._distinct = {column.name: DistinctValues() for column in schema.categorical}
        self._missing = {column.name: 0 for column in schema.categorical}
        self._repeated = RepeatedRows()
        if state:
            self._restore(state)

    def _open(self, name: str, dtype: npt.DTypeLike, width: int | None = None) -> ColumnFile:
        kept = self._kept.get(name, {"rows": 0})
        return ColumnFile(self.folder / name, dtype, width, kept["rows"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for file in [*self._files(), *self._scratch()]:
            file.close()

    def add(self, part: Converted) -> None:
        """Append the next rows."""
        for task, label in self._labels.items():
            label.add(part.labels[task])
        self._numeric.append(part.numeric)
        for span, found in zip(self._ranges.values(), part.ranges, strict=True):
            span.merge(found)
        self._categories.append(part.categories)
        for index, name in enumerate(self._distinct):
            self._distinct[name].add(part.categories[:, index])
            self._missing[name] += part.missing[index]
        if self._exposure is not None and part.exposure is not None:
            self._exposure.append(part.exposure)
            self._exposure_range.add(part.exposure)
        if self._journey_keys is not None and part.journey_keys is not None:
            self._journey_keys.append(part.journey_keys)
        self._repeated.add(part.row_hashes)
        self.rows += part.rows

    def state(self) -> dict[str, Any]:
        """All that is needed to go on from here with the files as they are.

        Nothing in it changes when more rows are added.
        """
        files = [*self._files(), *self._scratch()]
        return {
            "rows": self.rows,
            "files": {file.path.name: file.mark() for file in files},
            "labels": {task: label.state() for task, label in self._labels.items()},
            "ranges": [span.state() for span in self._ranges.values()],
            "exposure": self._exposure_range.state(),
            "distinct": [values.state() for values in self._distinct.values()],
            "missing": list(self._missing.values()),
            "repeated": self._repeated.state(),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.rows = state["rows"]
        for task, label in self._labels.items():
            label.restore(state["labels"][task])
        for span, kept in zip(self._ranges.values(), state["ranges"], strict=True):
            span.restore(kept)
        self._exposure_range.restore(state["exposure"])
        for values, kept in zip(self._distinct.values(), state["distinct"], strict=True):
            values.restore(kept)
        self._missing = dict(zip(self._missing, state["missing"], strict=True))
        self._repeated.restore(state["repeated"])

    def sync(self) -> None:
        """Wait until the rows of the last :meth:`state` are on the disk; may run beside `add`."""
        for file in [*self._files(), *self._scratch()]:
            file.sync()

    def tasks_without_rows(self) -> list[str]:
        """The tasks to which no row belongs so far."""
        return [task for task, label in self._labels.items() if label.is_empty]

    def finish(self, ordered: Path) -> dict[str, Any]:
        """Complete the files; what the manifest says about the rows, as its fields.

        Args:
            ordered: an empty folder, where rows are put in the order of journeys if there are any.
                They stay unordered in the old one, so that the state holds to the end.
        """
        journeys = self._put_in_order(ordered)
        for label in self._labels.values():
            label.complete(journeys)
        with ThreadPoolExecutor() as pool:  # most of it is hashing, a thread for each file
            facts = list(pool.map(ColumnFile.finish, self._files()))
        files = {file.path.name: found for file, found in zip(self._files(), facts, strict=True)}
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

    def _put_in_order(self, ordered: Path) -> Journeys | None:
        """Bring the rows of each journey together, if there are journeys."""
        if self._journey_numbers is None or self._journey_keys is None:
            return None
        journeys = Journeys.of(self._journey_keys.content())
        for file in self._files():
            file.move_into(ordered)
        self.folder = ordered
        self._journey_numbers.append(journeys.numbers)
        exposure = [] if self._exposure is None else [self._exposure]
        for file in [self._numeric, self._categories, *exposure]:
            file.reorder(journeys.order)
        return journeys

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

    def _scratch(self) -> list[ColumnFile]:
        keys = [] if self._journey_keys is None else [self._journey_keys]
        return [*keys, *(file for label in self._labels.values() for file in label.scratch)]
