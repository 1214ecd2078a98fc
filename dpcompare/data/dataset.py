"""A data set in memory or memory-mapped, its split in time order, and its encoding for a model."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpcompare.data.hashing import HASH_RULE, MISSING
from dpcompare.data.manifest import (
    CATEGORIES_FILE,
    EXPOSURE_FILE,
    JOURNEYS_FILE,
    NUMERIC_FILE,
    Manifest,
    label_file,
    read_manifest,
    rows_file,
)
from dpcompare.data.numeric import NUMERIC_RULE
from dpcompare.data.schema import LABEL_KINDS, LABEL_TYPES, Schema
from dpcompare.data.splits import split_rows
from dpcompare.data.views import RowView, in_memory_if_small, select
from dpcompare.errors import DpcompareError, UsageError

MISSING_ID = 0
UNSEEN_ID = 1

_ENCODED_ROWS = 1 << 16  # rows encoded at a time, so that temporary arrays stay small


class Features(NamedTuple):
    """What a model reads.

    Attributes:
        numeric: (n, N) float32, transformed; NaN = missing.
        ids: (n, F) int32; column j holds 0 to sizes[j] - 1 of its encoder.
        offset: (n,) float32, added to the network's output (the log of an exposure), or None.

    All are numpy arrays here (or, of a large data set, mapped ones and views of them that encode
    the rows that are read), and jax arrays inside compiled code.
    """

    numeric: Any
    ids: Any
    offset: Any = None


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows in time order, before any encoding.

    Where a log has journeys (rows that belong together, such as all ads that one person saw of one
    campaign), the rows of each follow each other and the journeys are in the order of their first
    rows.

    Attributes:
        name: of the schema, or "synthetic".
        checksum: identifies the content; equal checksums mean equal arrays.
        numeric: (n, N) float32, transformed; NaN = missing.
        categories: (n, F) uint32 hashes of the category text; 0 = missing.
        labels: for each task a uint8 of 0 and 1, or a float32 count, for each row of the task.
        true_rates: for each task whose rates are known a float64 for each row of the task: the
            probability or the mean count behind its label.
        numeric_names: N names.
        categorical_names: F names.
        description: the rules that made the arrays, as plain values for a record.
        rows_of: for each task that has some of the rows only, their positions, int64, ascending.
        exposure: (n,) float32 above 0, what the counts are relative to; or None.
        journeys: (n,) int64, the journey of each row, from 0, never decreasing; or None.
    """

    name: str
    checksum: str
    numeric: npt.NDArray[np.float32]
    categories: npt.NDArray[np.uint32]
    labels: dict[str, npt.NDArray[Any]]
    true_rates: dict[str, npt.NDArray[np.float64]]
    numeric_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    description: dict[str, Any]
    rows_of: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    exposure: npt.NDArray[np.float32] | None = None
    journeys: npt.NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        """n."""
        return len(self.numeric)

    def for_task(self, task: str) -> "Dataset":
        """The rows of one task with its label alone; nothing large is copied.

        A task of 0/1 labels gets no exposure: it has no count to put in relation.

        Raises:
            DpcompareError: there is no such task.
        """
        self._require(task)
        exposure = self.exposure if LABEL_KINDS[task] == "count" else None
        rows = self.rows_of.get(task)
        chosen = self if rows is None else self._at(rows)
        if exposure is not None and rows is not None:
            exposure = exposure[rows]
        return replace(
            chosen,
            checksum=f"{self.checksum}:{task}",
            labels={task: self.labels[task]},
            true_rates={name: self.true_rates[name] for name in self.true_rates if name == task},
            rows_of={},
            exposure=exposure,
            description={**self.description, "rows": chosen.rows},
        )

    def parts(
        self, task: str, shares: Sequence[float] = (0.8, 0.1, 0.1)
    ) -> tuple[slice, slice, slice]:
        """Train, validation and test as positions within :meth:`for_task`, by :func:`split_rows`.

        No journey is in two parts.

        Raises:
            DpcompareError: there is no such task.
            UsageError: the shares are no shares, or a part would be empty.
        """
        self._require(task)
        journeys = self.journeys
        if journeys is not None and task in self.rows_of:
            journeys = journeys[self.rows_of[task]]
        return split_rows(len(self.labels[task]), shares, journeys)

    def head(self, rows: int) -> "Dataset":
        """The first `rows` rows, without copying; of each task those of its rows among them.

        The last journey may be cut; a label counted over a whole journey stays as it is.

        Raises:
            UsageError: there are fewer, or `rows` is below 1.
        """
        if not 1 <= rows <= self.rows:
            raise UsageError(f"{self.name} has {self.rows:,} rows, so rows cannot be {rows:,}")
        if rows == self.rows:
            return self
        kept = dict.fromkeys(self.labels, rows)
        kept |= {task: int(np.searchsorted(at, rows)) for task, at in self.rows_of.items()}
        return replace(
            self._at(slice(0, rows)),
            checksum=f"{self.checksum}:first-{rows}",
            labels={task: label[: kept[task]] for task, label in self.labels.items()},
            true_rates={task: rates[: kept[task]] for task, rates in self.true_rates.items()},
            rows_of={task: at[: kept[task]] for task, at in self.rows_of.items()},
            exposure=None if self.exposure is None else self.exposure[:rows],
            description={**self.description, "rows": rows},
        )

    def _require(self, task: str) -> None:
        if task not in self.labels:
            raise DpcompareError(
                f"the data set {self.name} has no label for task {task!r}; it has: "
                f"{', '.join(self.labels)}"
            )

    def _at(self, rows: slice | npt.NDArray[np.int64]) -> "Dataset":
        """The features and journeys of some rows."""

        def of(column: Any) -> Any:
            return column[rows] if isinstance(rows, slice) else select(column, rows)

        return replace(
            self,
            numeric=of(self.numeric),
            categories=of(self.categories),
            journeys=None if self.journeys is None else self.journeys[rows],
        )


def describe(schema: Schema) -> dict[str, Any]:
    """The rules by which a schema's columns become arrays, as plain values."""
    return {
        "schema": schema.name,
        "numeric_rule": NUMERIC_RULE,
        "scales": {column.name: column.scale for column in schema.numeric},
        "category_rule": HASH_RULE,
        "missing": list(schema.missing),
        "left_out_as_leaks": [column.name for column in schema.with_role("leak")],
        "rows_in_time_order": schema.rows_in_time_order,
    }


def load_prepared(path: Path) -> Dataset:
    """Map a prepared folder into memory: nothing is copied, rows are read when they are used.

    Raises:
        DpcompareError: the folder is not a prepared data set, or its files do not fit its manifest.
    """
    manifest = read_manifest(path)
    schema = manifest.restored_schema()
    n, labels = manifest.rows, manifest.labels
    own_rows = [task for task, target in schema.tasks.items() if target.has_own_rows]
    return Dataset(
        name=manifest.name,
        checksum=manifest.checksum,
        numeric=_map(path, NUMERIC_FILE, manifest, np.float32, (n, len(schema.numeric))),
        categories=_map(path, CATEGORIES_FILE, manifest, np.uint32, (n, len(schema.categorical))),
        labels={
            task: _map(path, label_file(task), manifest, LABEL_TYPES[facts["kind"]], facts["rows"])
            for task, facts in labels.items()
        },
        true_rates={},
        numeric_names=tuple(column.name for column in schema.numeric),
        categorical_names=tuple(column.name for column in schema.categorical),
        description={
            **describe(schema),
            "labels": {task: target.rule() for task, target in schema.tasks.items()},
            "journey": list(schema.journey),
            "exposure": schema.exposure.name if schema.exposure else None,
            "source": [entry["name"] for entry in manifest.sources],
            "rows": n,
        },
        rows_of={
            task: _map(path, rows_file(task), manifest, np.int64, labels[task]["rows"])
            for task in own_rows
        },
        exposure=_map(path, EXPOSURE_FILE, manifest, np.float32, n) if schema.exposure else None,
        journeys=_map(path, JOURNEYS_FILE, manifest, np.int64, n) if schema.journey else None,
    )


def _map(
    folder: Path, name: str, manifest: Manifest, dtype: Any, rows: int | tuple[int, int]
) -> npt.NDArray[Any]:
    path = folder / name
    shape = (rows,) if isinstance(rows, int) else rows
    try:
        if path.stat().st_size != manifest.files[name]["bytes"]:
            raise ValueError(
                f"it has {path.stat().st_size:,} bytes instead of {manifest.files[name]['bytes']:,}"
            )
        if 0 in shape:  # an empty array cannot be mapped
            return np.empty(shape, dtype=dtype)
        array = np.lib.format.open_memmap(path, mode="r")
        if (array.shape, array.dtype) != (shape, np.dtype(dtype)):
            raise ValueError(f"it holds {array.dtype} {array.shape} instead of {shape}")
    except PermissionError as error:
        raise DpcompareError(f"{path} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, KeyError) as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
    return np.asarray(array)


class Encoder(Protocol):
    """Turns the category hashes of a column into ids of an embedding table."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of ids of each column."""

    @property
    def learnt(self) -> bool:
        """Whether it looked at rows, and so is private data under a guarantee for whole rows."""

    def ids(self, column: int, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[Any]:
        """The ids of (n,) hashes of one column."""


@dataclass(frozen=True)
class HashBuckets:
    """Ids by public hashing: 0 = missing, else ``1 + (hash - 1) % (buckets - 1)``.

    Nothing is learnt, and a value never seen before shares the id of its bucket.

    Attributes:
        buckets: the size of every column's table, >= 2.
        columns: the number of categorical columns.
    """

    buckets: int
    columns: int
    learnt = False

    def __post_init__(self) -> None:
        if not 2 <= self.buckets < 2**31:
            raise UsageError(f"buckets must lie between 2 and 2**31 - 1, got {self.buckets}")

    @classmethod
    def for_columns(cls, buckets: int, dataset: Dataset) -> "HashBuckets":
        """Buckets for the categorical columns of a data set."""
        return cls(buckets, len(dataset.categorical_names))

    @property
    def sizes(self) -> tuple[int, ...]:
        """`buckets`, for each column."""
        return (self.buckets,) * self.columns

    def ids(self, column: int, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """See :class:`HashBuckets`; the same for each column."""
        ids = (hashes - np.uint32(1)) % np.uint32(self.buckets - 1)
        ids += np.uint32(1)
        ids[hashes == MISSING] = MISSING_ID
        return ids.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Ids learnt from rows: 0 = missing, 1 = unseen or rare, from 2 on one id per value.

    Which values exist is private information about the rows it was learnt from: a guarantee for
    whole rows does not cover it.

    Attributes:
        values: for each column the sorted hashes that have an id of their own.
    """

    values: tuple[npt.NDArray[np.uint32], ...]
    learnt = True

    @classmethod
    def learn(
        cls, dataset: Dataset, train_rows: slice | npt.NDArray[Any], min_count: int = 10
    ) -> "Vocabulary":
        """The values that occur at least `min_count` times in the train rows, and in no others.

        Raises:
            UsageError: `min_count` is below 1.
        """
        if min_count < 1:
            raise UsageError(f"min_count must be at least 1, got {min_count}")
        learnt = []
        for column in range(dataset.categories.shape[1]):
            found, counts = np.unique(dataset.categories[train_rows, column], return_counts=True)
            learnt.append(found[(counts >= min_count) & (found != MISSING)])
        return cls(tuple(learnt))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The values of each column plus two."""
        return tuple(len(values) + 2 for values in self.values)

    def ids(self, column: int, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        """See :class:`Vocabulary`."""
        known = self.values[column]
        ids = np.full(len(hashes), UNSEEN_ID, dtype=np.int32)
        if len(known):
            places = np.minimum(np.searchsorted(known, hashes), len(known) - 1)
            found = known[places] == hashes
            ids[found] = places[found] + 2
        ids[hashes == MISSING] = MISSING_ID
        return ids


def encode(dataset: Dataset, rows: slice, encoder: Encoder) -> Features:
    """What a model reads of the given rows.

    Every id is checked against its table here, on the host: an accelerator would silently read
    another row of the table instead. The ids of a large data set are encoded when they are read.

    Args:
        dataset: any data set.
        rows: which rows, as :meth:`Dataset.parts` gives them; step 1.
        encoder: :class:`HashBuckets` or :class:`Vocabulary`, or a class with the same two members.

    Raises:
        DpcompareError: the encoder does not fit the columns, or gave an id outside its table (of a
            large data set, when the row is read).
    """
    sizes = encoder.sizes
    columns = dataset.categories.shape[1]
    if len(sizes) != columns:
        raise DpcompareError(
            f"the encoder is made for {len(sizes)} categorical columns, but {dataset.name} has "
            f"{columns}"
        )
    names = dataset.categorical_names

    def ids(categories: npt.NDArray[np.uint32]) -> npt.NDArray[np.int32]:
        return _ids(categories, encoder, names)

    view = RowView(_part(dataset.categories, rows), encode=ids, dtype=np.int32)
    numeric = _part(dataset.numeric, rows)
    return Features(numeric, in_memory_if_small(view), _offset(dataset, rows))


def _part(column: Any, rows: slice) -> Any:
    """A part of a column that is not copied."""
    if isinstance(column, RowView):
        return column.select(np.arange(*rows.indices(len(column))))
    return column[rows]


def _ids(
    categories: npt.NDArray[np.uint32], encoder: Encoder, names: tuple[str, ...]
) -> npt.NDArray[np.int32]:
    """The ids of (n, F) hashes, (n, F), each checked against its table."""
    ids = np.empty(categories.shape, dtype=np.int32)
    for start in range(0, len(categories), _ENCODED_ROWS):
        part = slice(start, start + _ENCODED_ROWS)
        for column, size in enumerate(encoder.sizes):
            found = encoder.ids(column, categories[part, column])
            if found.min() < 0 or found.max() >= size:
                raise DpcompareError(
                    f"column {names[column]}: ids must lie between 0 and {size - 1}, but the "
                    f"encoder gave {found.min()} to {found.max()}"
                )
            ids[part, column] = found
    return ids


def _offset(dataset: Dataset, rows: slice) -> npt.NDArray[np.float32] | None:
    """The log of the exposure, so that a rate per unit of exposure is what a network learns."""
    if dataset.exposure is None:
        return None
    return np.log(dataset.exposure[rows].astype(np.float64)).astype(np.float32)
