"""A batch of rows as the arrays that are stored, and the facts about them.

Nothing here depends on other batches, so that batches may be converted at the same time.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcompare.data.convert import exposures, numbers
from dpcompare.data.hashing import MISSING, hash_text
from dpcompare.data.journeys import UInt64Array, journey_keys
from dpcompare.data.labels import LabelPart, convert_labels
from dpcompare.data.numeric import signed_log
from dpcompare.data.schema import Schema
from dpcompare.data.sources import Batch
from dpcompare.data.summary import RowHash
from dpcompare.data.value_range import ValueRange


@dataclass(frozen=True, eq=False)
class Converted:
    """Consecutive rows, n of them, as they are stored.

    Attributes:
        labels: the label of each task.
        numeric: (n, N) float32, transformed.
        ranges: N ranges of the numbers before the transform.
        categories: (n, F) uint32 hashes.
        missing: F counts of missing categories.
        exposure: (n,) float32, or None.
        journey_keys: (n,) uint64, equal where rows belong together, or None.
        row_hashes: (n,) uint64, equal where whole rows are equal.
        padded_rows: rows that a repair filled up with missing fields.
        first_padded: where the first of them is, or "".
    """

    labels: dict[str, LabelPart]
    numeric: npt.NDArray[np.float32]
    ranges: list[ValueRange]
    categories: npt.NDArray[np.uint32]
    missing: list[int]
    exposure: npt.NDArray[np.float32] | None
    journey_keys: UInt64Array | None
    row_hashes: UInt64Array
    padded_rows: int
    first_padded: str

    @property
    def rows(self) -> int:
        """n."""
        return len(self.row_hashes)


def converted(batch: Batch, schema: Schema) -> Converted:
    """Check and convert the rows of a batch.

    Raises:
        DpcompareError: a value does not fit the schema; the message names its place.
    """
    rows = len(next(iter(batch.columns.values())))
    row_hash = RowHash(rows)
    labels = convert_labels(batch, schema)
    for part in labels.values():
        row_hash.add(part.bits)
    numeric, ranges = _numeric(batch, schema, row_hash)
    categories, missing = _categories(batch, schema, row_hash)
    exposure = None
    if schema.exposure:
        exposure = exposures(batch, schema.exposure.name, schema.missing)
        row_hash.add(exposure.view(np.uint32))
    keys = None
    if schema.journey:
        keys = journey_keys(batch, schema.journey)
        row_hash.add(keys.astype(np.uint32))  # rows of two journeys are never copies of one event
    return Converted(
        labels=labels,
        numeric=numeric,
        ranges=ranges,
        categories=categories,
        missing=missing,
        exposure=exposure,
        journey_keys=keys,
        row_hashes=row_hash.finish(),
        padded_rows=batch.padded_rows,
        first_padded=batch.place(batch.first_padded) if batch.padded_rows else "",
    )


def _numeric(
    batch: Batch, schema: Schema, row_hash: RowHash
) -> tuple[npt.NDArray[np.float32], list[ValueRange]]:
    numeric = np.empty((row_hash.rows, len(schema.numeric)), dtype=np.float32)
    ranges = []
    for index, column in enumerate(schema.numeric):
        values = numbers(batch, column, schema.missing)
        ranges.append(ValueRange())
        ranges[-1].add(values)
        transformed = signed_log(values, column.scale)
        numeric[:, index] = transformed
        row_hash.add(transformed.view(np.uint32))
    return numeric, ranges


def _categories(
    batch: Batch, schema: Schema, row_hash: RowHash
) -> tuple[npt.NDArray[np.uint32], list[int]]:
    categories = np.empty((row_hash.rows, len(schema.categorical)), dtype=np.uint32)
    missing = []
    for index, column in enumerate(schema.categorical):
        hashes = hash_text(batch.columns[column.name])
        missing.append(int(np.count_nonzero(hashes == MISSING)))
        categories[:, index] = hashes
        row_hash.add(hashes)
    return categories, missing
