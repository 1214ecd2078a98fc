"""Label files: the label of each task, and which rows belong to it."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from dpcompare.data.column_file import ColumnFile
from dpcompare.data.convert import flags, labels
from dpcompare.data.journeys import Journeys, UInt64Array, hash_64
from dpcompare.data.manifest import label_file, rows_file
from dpcompare.data.schema import Schema
from dpcompare.data.sources import Batch
from dpcompare.data.targets import LABEL_KINDS, LABEL_TYPES, Target
from dpcompare.data.value_range import ValueRange


class LabelWriter(Protocol):
    """Writes the label of a task."""

    files: list[ColumnFile]
    """The column files of the task."""

    @property
    def is_empty(self) -> bool:
        """Whether no row read so far belongs to the task."""

    def add(self, batch: Batch) -> npt.NDArray[np.uint32]:
        """Take in a batch; 32 bits of each row that tell labels apart, (n,)."""

    def complete(self, journeys: Journeys | None) -> None:
        """Put the rows in the order of the journeys, if there are any."""

    def facts(self) -> dict[str, Any]:
        """What the manifest says about the label."""


def label_writers(folder: Path, schema: Schema) -> dict[str, LabelWriter]:
    """The writer of each task."""
    return {
        task: JourneyLabels(folder, task, target)
        if target.distinct
        else RowLabels(folder, task, target, schema.missing)
        for task, target in schema.tasks.items()
    }


class RowLabels:
    """The label of each row, or of each row where a column of 0 and 1 is 1."""

    def __init__(self, folder: Path, task: str, target: Target, missing: tuple[str, ...]) -> None:
        self._task, self._target, self._missing = task, target, missing
        self._kind = LABEL_KINDS[task]
        self._labels = ColumnFile(folder / label_file(task), LABEL_TYPES[self._kind])
        self.files = [self._labels]
        if target.rows:
            self._rows = ColumnFile(folder / rows_file(task), np.int64)
            self.files.append(self._rows)
        self._read = 0
        self._outside = 0
        self._first_outside = ""
        self._total = 0.0
        self._range = ValueRange()

    @property
    def is_empty(self) -> bool:
        """See :class:`LabelWriter`."""
        return not self._labels.rows

    def add(self, batch: Batch) -> npt.NDArray[np.uint32]:
        """See :class:`LabelWriter`.

        Raises:
            DpcompareError: a label is missing or out of range.
        """
        target = self._target
        belongs = flags(batch, target.rows, self._missing) if target.rows else None
        label = labels(batch, target, self._kind, self._missing, belongs)
        bits = label.astype(np.float32).view(np.uint32)
        if belongs is not None:
            self._rows.append(self._read + np.flatnonzero(belongs))
            self._count_outside(batch, ~belongs & (label > 0))
            bits = np.where(belongs, bits, ~bits)
            label = label[belongs]
        self._labels.append(label)
        self._range.add(label)
        self._total += float(label.sum(dtype=np.float64))
        self._read += len(bits)
        return bits

    def _count_outside(self, batch: Batch, outside: npt.NDArray[np.bool_]) -> None:
        if not self._outside:
            for index in np.flatnonzero(outside)[:1]:
                self._first_outside = batch.place(int(index))
        self._outside += int(np.count_nonzero(outside))

    def complete(self, journeys: Journeys | None) -> None:
        """See :class:`LabelWriter`."""
        if journeys is None:
            return
        if not self._target.rows:
            self._labels.reorder(journeys.order)
            return
        rows, label = self._rows.content(), self._labels.content()
        everywhere = np.full(self._read, -1, dtype=np.float32)
        everywhere[rows] = label
        in_order = everywhere[journeys.order]
        positions = np.flatnonzero(in_order >= 0)
        self._rows.replace(positions)
        self._labels.replace(in_order[positions])

    def facts(self) -> dict[str, Any]:
        """See :class:`LabelWriter`."""
        outside = {"outside": self._outside, "first_outside": self._first_outside}
        return _facts(self._task, self._target, self._range, self._total) | outside


class JourneyLabels:
    """The number of distinct values of a column in each journey, at the first row of each."""

    def __init__(self, folder: Path, task: str, target: Target) -> None:
        self._task, self._target = task, target
        self._labels = ColumnFile(folder / label_file(task), LABEL_TYPES[LABEL_KINDS[task]])
        self._rows = ColumnFile(folder / rows_file(task), np.int64)
        self.files = [self._labels, self._rows]
        self._hashes: list[UInt64Array] = []
        self._total = 0.0
        self._range = ValueRange()

    @property
    def is_empty(self) -> bool:
        """See :class:`LabelWriter`."""
        return not self._hashes

    def add(self, batch: Batch) -> npt.NDArray[np.uint32]:
        """See :class:`LabelWriter`; 8 bytes a row stay in memory."""
        hashes = hash_64(batch.columns[self._target.column])
        self._hashes.append(hashes)
        return hashes.astype(np.uint32)

    def complete(self, journeys: Journeys | None) -> None:
        """See :class:`LabelWriter`."""
        assert journeys is not None  # the schema was checked
        hashes = np.concatenate(self._hashes)
        self._hashes.clear()
        counts = journeys.distinct(hashes).astype(np.float32)
        self._labels.append(counts)
        self._rows.append(journeys.starts)
        self._range.add(counts)
        self._total = float(counts.sum(dtype=np.float64))

    def facts(self) -> dict[str, Any]:
        """See :class:`LabelWriter`."""
        return _facts(self._task, self._target, self._range, self._total)


def _facts(task: str, target: Target, found: ValueRange, total: float) -> dict[str, Any]:
    return {
        "column": target.column,
        "rule": target.rule(),
        "kind": LABEL_KINDS[task],
        "rows": found.rows,
        "total": total,
        "mean": total / found.rows,
        "min": found.low,
        "max": found.high,
        "outside": 0,
        "first_outside": "",
    }
