"""Parquet files as batches of rows, in bounded memory; columns are found by name."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dpcompare.catalog import near_miss
from dpcompare.data.arrow import fixed_width, nulls
from dpcompare.data.schema import Schema
from dpcompare.data.sources import START, Batch, Notes, Piece, Position
from dpcompare.errors import DpcompareError

BATCH_ROWS = 1 << 14

_EXACT_IN_FLOAT = 2.0**53


def read_parquet(
    path: Path, schema: Schema, notes: Notes, start: Position = START
) -> Iterator[Piece]:
    """The rows of a Parquet file from a place on, in order; a file may have no rows.

    Categories become text: whole numbers as their digits, also where a nullable column was stored
    as floats, as pandas does. Other columns stay as they are.

    Raises:
        DpcompareError: the file is damaged or does not fit the schema; the message names the row.
    """
    try:
        with pq.ParquetFile(path) as file:
            wanted = _wanted(path, file.schema_arrow, schema, notes)
            size = path.stat().st_size
            total = max(1, file.metadata.num_rows)
            groups, row = _groups_from(file.metadata, start.number)
            for batch in file.iter_batches(BATCH_ROWS, groups, wanted, use_threads=False):
                end = row + batch.num_rows
                batch = batch.slice(max(0, start.number - row))
                if batch.num_rows:
                    arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
                    raw = Batch(arrays, path, "row", end - batch.num_rows)
                    done = size * (end - 1) // total
                    yield Piece(partial(_converted, raw, schema), Position(end), done)
                row = end
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> DpcompareError:
    return DpcompareError(f"{path}: damaged Parquet file: {error}")


def _groups_from(metadata: pq.FileMetaData, row: int) -> tuple[list[int], int]:
    """The row groups that hold a row or come after it, and the number of their first row."""
    first = 1
    for group in range(metadata.num_row_groups):
        behind = first + metadata.row_group(group).num_rows
        if row < behind:
            return list(range(group, metadata.num_row_groups)), first
        first = behind
    return [], first


def _wanted(path: Path, found: pa.Schema, schema: Schema, notes: Notes) -> list[str]:
    wanted = list(schema.wanted)
    missing = [name for name in wanted if name not in found.names]
    if missing:
        raise DpcompareError(
            f"{path}: there is no column {missing[0]!r}{near_miss(missing[0], found.names)}; "
            f"it has {', '.join(found.names)}"
        )
    notes.extra_columns.update(set(found.names) - {column.name for column in schema.columns})
    return wanted


def _converted(batch: Batch, schema: Schema) -> Batch:
    try:
        return _with_text(batch, schema)
    except pa.ArrowException as error:
        raise _damaged(batch.path, error) from error


def _with_text(batch: Batch, schema: Schema) -> Batch:
    as_text = {column.name for column in schema.categorical} | {*schema.journey, *schema.distinct}
    marks = pa.array(schema.missing, pa.string())
    columns = {}
    for name, array in batch.columns.items():
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if name in as_text or _is_text(array.type):
            array = _as_text(batch, name, array)
            array = pc.if_else(pc.is_in(array, value_set=marks), None, array)
        elif not _is_number(array.type):
            raise DpcompareError(
                f"{batch.path}: column {name} has the Parquet type {array.type}; a number or text "
                "is needed"
            )
        columns[name] = array
    return batch._replace(columns=columns)


def _as_text(batch: Batch, name: str, array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_floating(kind):
        array = _as_whole(batch, name, array.cast(pa.float64()))
    elif not (_is_text(kind) or _is_number(kind) or pa.types.is_decimal(kind)):
        raise DpcompareError(
            f"{batch.path}: column {name} has the Parquet type {kind}; a category must be text or "
            "a whole number"
        )
    return array.cast(pa.string())


def _as_whole(batch: Batch, name: str, array: pa.Array) -> pa.Array:
    numbers = fixed_width(array, np.float64)
    absent = nulls(array) | np.isnan(numbers)  # NaN is how pandas stores a missing number
    for index in np.flatnonzero(~absent & ~(np.abs(numbers) <= _EXACT_IN_FLOAT)):
        raise batch.error(
            int(index),
            name,
            f"the category {numbers[index]} is stored as a float, which cannot hold every whole "
            "number of that size; store it as text or as an integer",
        )
    for index in np.flatnonzero(~absent & (numbers % 1 != 0)):
        raise batch.error(
            int(index), name, f"the category {numbers[index]} is a fraction; store it as text"
        )
    return pa.array(np.where(absent, 0, numbers).astype(np.int64), mask=absent)


def _is_text(kind: pa.DataType) -> bool:
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )
