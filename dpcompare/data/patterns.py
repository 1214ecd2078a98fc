"""Patterns: one entry of a schema for many columns of a Parquet file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dpcompare.data.schema import ANY_TEXT, Column, Schema
from dpcompare.data.sources import kind_of, natural_order
from dpcompare.errors import DpcompareError, UsageError


def resolve(schema: Schema, files: Sequence[Path]) -> Schema:
    """The schema with every pattern replaced by the columns of the first file that match it.

    The columns of a pattern are sorted by name, numbers as numbers. A column that has an entry of
    its own is left to that entry.

    Raises:
        UsageError: the file is not Parquet, no column matches a pattern of features, or a column
            matches two patterns.
        DpcompareError: the file is damaged.
    """
    patterns = [column for column in schema.columns if column.is_pattern]
    if not patterns:
        return schema
    named = {column.name for column in schema.columns}
    free = sorted(set(_names(schema, files[0])) - named, key=natural_order)
    matches = {pattern: [name for name in free if _fits(name, pattern)] for pattern in patterns}
    _check(schema, files[0], matches)
    columns: list[Column] = []
    for column in schema.columns:
        names = matches[column] if column.is_pattern else [column.name]
        columns.extend(replace(column, name=name) for name in names)
    return replace(schema, columns=tuple(columns))


def _names(schema: Schema, file: Path) -> list[str]:
    if kind_of(file) != "parquet":
        raise UsageError(
            f"schema {schema.name} holds names with {ANY_TEXT!r}, which stand for columns of a "
            f"Parquet file, but {file} is text; list its columns in a copy of the schema"
        )
    try:
        return list(pq.read_schema(file).names)
    except (pa.ArrowException, OSError) as error:
        raise DpcompareError(f"{file}: damaged Parquet file: {error}") from error


def _fits(name: str, pattern: Column) -> bool:
    first, *middle, last = pattern.name.split(ANY_TEXT)
    if not (name.startswith(first) and name.endswith(last)):
        return False
    position, end = len(first), len(name) - len(last)
    for part in middle:  # the earliest place of each leaves the most room for the others
        found = name.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return position <= end


def _check(schema: Schema, file: Path, matches: dict[Column, list[str]]) -> None:
    seen: dict[str, str] = {}
    for pattern, names in matches.items():
        if not names and pattern.is_feature:
            raise UsageError(
                f"schema {schema.name}: no column of {file} is called like {pattern.name!r}; "
                "it has columns such as "
                f"{', '.join(_names(schema, file)[:10])}. Correct the name in a copy of the schema"
            )
        for name in names:
            if name in seen:
                raise UsageError(
                    f"schema {schema.name}: column {name!r} of {file} is called like "
                    f"{seen[name]!r} and like {pattern.name!r}; give it an entry of its own"
                )
            seen[name] = pattern.name
