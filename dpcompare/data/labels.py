"""Label files: the label of each task, and which rows belong to it."""

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpcompare.data.column_file import ColumnFile, OpenFile
from dpcompare.data.convert import flags, labels
from dpcompare.data.journeys import Journeys, hash_64
from dpcompare.data.manifest import label_file, rows_file
from dpcompare.data.schema import Schema
from dpcompare.data.sources import Batch
from dpcompare.data.targets import LABEL_KINDS, LABEL_TYPES, LabelKind, Target
from dpcompare.data.value_range import ValueRange


class LabelPart(NamedTuple):
    """The label of a task in a batch of n rows.

    Attributes:
        bits: (n,) uint32 that tell labels apart, and rows of the task from others.
        values: (m,) the labels of the rows of the task; for a label that is counted over journeys
            (n,) uint64 hashes of what is counted.
        rows: (m,) those rows, from 0 in the batch; None: all of them.
        outside: how many rows do not belong to the task although their label is above 0.
        first_outside: where the first of them is, or "".
    """

    bits: npt.NDArray[np.uint32]
    values: npt.NDArray[Any]
    rows: npt.NDArray[np.int64] | None = None
    outside: int = 0
    first_outside: str = ""


def convert_labels(batch: Batch, schema: Schema) -> dict[str, LabelPart]:
    """The label of each task.

    Raises:
        DpcompareError: a label is missing or out of range.
    """
    return {
        task: _journey_part(batch, target)
        if target.distinct
        else _row_part(batch, target, LABEL_KINDS[task], schema.missing)
        for task, target in schema.tasks.items()
    }


def _journey_part(batch: Batch, target: Target) -> LabelPart:
    hashes = hash_64(batch.columns[target.column])
    return LabelPart(hashes.astype(np.uint32), hashes)


def _row_part(batch: Batch, target: Target, kind: LabelKind, missing: tuple[str, ...]) -> LabelPart:
    belongs = flags(batch, target.rows, missing) if target.rows else None
    label = labels(batch, target, kind, missing, belongs)
    bits = label.astype(np.float32).view(np.uint32)
    if belongs is None:
        return LabelPart(bits, label)
    outside = np.flatnonzero(~belongs & (label > 0))
    return LabelPart(
        np.where(belongs, bits, ~bits),
        label[belongs],
        np.flatnonzero(belongs),
        len(outside),
        batch.place(int(outside[0])) if len(outside) else "",
    )


class LabelWriter(Protocol):
    """Writes the label of a task."""

    files: list[ColumnFile]
    """The column files of the task."""

    scratch: list[ColumnFile]
    """Files that are no part of the prepared data."""

    @property
    def is_empty(self) -> bool:
        """Whether no row read so far belongs to the task."""

    def add(self, part: LabelPart) -> None:
        """Append the labels of the next rows."""

    def complete(self, journeys: Journeys | None) -> None:
        """Put the rows in the order of the journeys, if there are any."""

    def facts(self) -> dict[str, Any]:
        """What the manifest says about the label."""

    def state(self) -> dict[str, Any]:
        """What :meth:`restore` needs, besides the files."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""


def label_writers(schema: Schema, open_file: OpenFile) -> dict[str, LabelWriter]:
    """The writer of each task."""
    return {
        task: JourneyLabels(task, target, open_file)
        if target.distinct
        else RowLabels(task, target, open_file)
        for task, target in schema.tasks.items()
    }


class RowLabels:
    """The label of each row, or of each row where a column of 0 and 1 is 1."""

    def __init__(self, task: str, target: Target, open_file: OpenFile) -> None:
        self._task, self._target = task, target
        self._labels = open_file(label_file(task), LABEL_TYPES[LABEL_KINDS[task]])
        self.files = [self._labels]
        self.scratch: list[ColumnFile] = []
        if target.rows:
            self._rows = open_file(rows_file(task), np.int64)
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

    def add(self, part: LabelPart) -> None:
        """See :class:`LabelWriter`."""
        if part.rows is not None:
            self._rows.append(self._read + part.rows)
        self._outside += part.outside
        self._first_outside = self._first_outside or part.first_outside
        self._labels.append(part.values)
        self._range.add(part.values)
        self._total += float(part.values.sum(dtype=np.float64))
        self._read += len(part.bits)

    def state(self) -> dict[str, Any]:
        """See :class:`LabelWriter`."""
        return {
            "read": self._read,
            "outside": self._outside,
            "first_outside": self._first_outside,
            "total": self._total,
            "range": self._range.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """See :class:`LabelWriter`."""
        self._read = state["read"]
        self._outside, self._first_outside = state["outside"], state["first_outside"]
        self._total = state["total"]
        self._range.restore(state["range"])

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

    def __init__(self, task: str, target: Target, open_file: OpenFile) -> None:
        self._task, self._target = task, target
        self._labels = open_file(label_file(task), LABEL_TYPES[LABEL_KINDS[task]])
        self._rows = open_file(rows_file(task), np.int64)
        self.files = [self._labels, self._rows]
        self._hashes = open_file(f"{task}_hashes.scratch", np.uint64)
        self.scratch = [self._hashes]
        self._total = 0.0
        self._range = ValueRange()

    @property
    def is_empty(self) -> bool:
        """See :class:`LabelWriter`."""
        return not self._hashes.rows

    def add(self, part: LabelPart) -> None:
        """See :class:`LabelWriter`."""
        self._hashes.append(part.values)

    def state(self) -> dict[str, Any]:
        """See :class:`LabelWriter`."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """See :class:`LabelWriter`."""

    def complete(self, journeys: Journeys | None) -> None:
        """See :class:`LabelWriter`."""
        assert journeys is not None  # the schema was checked
        hashes = self._hashes.content()
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
