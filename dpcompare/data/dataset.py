"""A data set in memory or memory-mapped, its split in time order, and its encoding for a model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpcompare.data.hashing import HASH_RULE, MISSING
from dpcompare.data.manifest import (
    CATEGORIES_FILE,
    NUMERIC_FILE,
    Manifest,
    label_file,
    read_manifest,
)
from dpcompare.data.numeric import NUMERIC_RULE
from dpcompare.data.schema import LABEL_TYPES, Schema
from dpcompare.errors import DpcompareError, UsageError

MISSING_ID = 0
UNSEEN_ID = 1

_ENCODED_ROWS = 1 << 16  # rows encoded at a time, so that temporary arrays stay small


class Features(NamedTuple):
    """What a model reads.

    Attributes:
        numeric: (n, N) float32, transformed; NaN = missing.
        ids: (n, F) int32; column j holds 0 to sizes[j] - 1 of its encoder.

    Both are numpy arrays here, and jax arrays inside compiled code.
    """

    numeric: Any
    ids: Any


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows in time order, before any encoding.

    Attributes:
        name: of the schema, or "synthetic".
        checksum: identifies the content; equal checksums mean equal arrays.
        numeric: (n, N) float32, transformed; NaN = missing.
        categories: (n, F) uint32 hashes of the category text; 0 = missing.
        labels: for each task (n,) uint8 of 0 and 1, or (n,) float32 counts.
        true_rates: (n,) float64, the probability behind each label, where it is known.
        numeric_names: N names.
        categorical_names: F names.
        description: the rules that made the arrays, as plain values for a record.
    """

    name: str
    checksum: str
    numeric: npt.NDArray[np.float32]
    categories: npt.NDArray[np.uint32]
    labels: dict[str, npt.NDArray[Any]]
    true_rates: npt.NDArray[np.float64] | None
    numeric_names: tuple[str, ...]
    categorical_names: tuple[str, ...]
    description: dict[str, Any]

    @property
    def rows(self) -> int:
        """n."""
        return len(self.numeric)

    def head(self, rows: int) -> "Dataset":
        """The first `rows` rows, without copying.

        Raises:
            UsageError: there are fewer, or `rows` is below 1.
        """
        if not 1 <= rows <= self.rows:
            raise UsageError(f"{self.name} has {self.rows:,} rows, so rows cannot be {rows:,}")
        if rows == self.rows:
            return self
        return Dataset(
            name=self.name,
            checksum=f"{self.checksum}:first-{rows}",
            numeric=self.numeric[:rows],
            categories=self.categories[:rows],
            labels={task: label[:rows] for task, label in self.labels.items()},
            true_rates=None if self.true_rates is None else self.true_rates[:rows],
            numeric_names=self.numeric_names,
            categorical_names=self.categorical_names,
            description={**self.description, "rows": rows},
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
    return Dataset(
        name=manifest.name,
        checksum=manifest.checksum,
        numeric=_map(path, NUMERIC_FILE, manifest, np.float32, len(schema.numeric)),
        categories=_map(path, CATEGORIES_FILE, manifest, np.uint32, len(schema.categorical)),
        labels={
            task: _map(path, label_file(task), manifest, LABEL_TYPES[label["kind"]])
            for task, label in manifest.labels.items()
        },
        true_rates=None,
        numeric_names=tuple(column.name for column in schema.numeric),
        categorical_names=tuple(column.name for column in schema.categorical),
        description={
            **describe(schema),
            "source": [entry["name"] for entry in manifest.sources],
            "rows": manifest.rows,
        },
    )


def _map(
    folder: Path, name: str, manifest: Manifest, dtype: Any, width: int | None = None
) -> npt.NDArray[Any]:
    path = folder / name
    shape = (manifest.rows,) if width is None else (manifest.rows, width)
    try:
        if path.stat().st_size != manifest.files[name]["bytes"]:
            raise ValueError(
                f"it has {path.stat().st_size:,} bytes instead of {manifest.files[name]['bytes']:,}"
            )
        if width == 0:  # an empty array cannot be mapped
            return np.empty(shape, dtype=dtype)
        array = np.lib.format.open_memmap(path, mode="r")
        if (array.shape, array.dtype) != (shape, np.dtype(dtype)):
            raise ValueError(f"it holds {array.dtype} {array.shape} instead of {shape}")
    except (OSError, ValueError, KeyError) as error:
        raise DpcompareError(f"{path} is damaged: {error}; prepare the data again") from error
    return np.asarray(array)


def split_rows(rows: int, shares: Sequence[float] = (0.8, 0.1, 0.1)) -> tuple[slice, slice, slice]:
    """Cut rows by position, so in time order: train first, then validation, then test.

    Args:
        rows: n.
        shares: three numbers above 0 that add up to 1.

    Raises:
        UsageError: the shares break that rule, or a part would be empty.
    """
    valid = len(shares) == 3 and all(math.isfinite(share) and share > 0 for share in shares)
    if not valid or abs(math.fsum(shares) - 1) > 1e-9:
        raise UsageError(
            "split must be three numbers above 0 that add up to 1 (train, validation, test), "
            f"got {list(shares)}"
        )
    first = round(rows * shares[0])
    second = round(rows * (shares[0] + shares[1]))
    if not 0 < first < second < rows:
        raise UsageError(
            f"{rows:,} rows are too few for the split {list(shares)}: "
            "train, validation and test need at least one row each"
        )
    return slice(0, first), slice(first, second), slice(second, rows)


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
    def learn(cls, dataset: Dataset, train_rows: slice, min_count: int = 10) -> "Vocabulary":
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
    another row of the table instead.

    Args:
        dataset: any data set.
        rows: which rows, as :func:`split_rows` gives them; step 1.
        encoder: :class:`HashBuckets` or :class:`Vocabulary`, or a class with the same two members.

    Raises:
        DpcompareError: the encoder does not fit the columns, or gave an id outside its table.
    """
    sizes = encoder.sizes
    columns = dataset.categories.shape[1]
    if len(sizes) != columns:
        raise DpcompareError(
            f"the encoder is made for {len(sizes)} categorical columns, but {dataset.name} has "
            f"{columns}"
        )
    categories = dataset.categories[rows]
    ids = np.empty(categories.shape, dtype=np.int32)
    for start in range(0, len(categories), _ENCODED_ROWS):
        part = slice(start, start + _ENCODED_ROWS)
        for column, size in enumerate(sizes):
            found = encoder.ids(column, categories[part, column])
            if found.min() < 0 or found.max() >= size:
                raise DpcompareError(
                    f"column {dataset.categorical_names[column]}: ids must lie between 0 and "
                    f"{size - 1}, but the encoder gave {found.min()} to {found.max()}"
                )
            ids[part, column] = found
    return Features(dataset.numeric[rows], ids)
