"""Columns of a batch as numbers and labels, with every value checked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcompare.data.arrow import fixed_width, nulls
from dpcompare.data.schema import LABEL_TYPES, Column, LabelKind
from dpcompare.data.sources import Batch
from dpcompare.data.text_errors import shown
from dpcompare.errors import DpcompareError

Float64Array = npt.NDArray[np.float64]

_MISSING_HINT = "; if it means missing, add it to missing under [file] of the schema"


def numbers(batch: Batch, column: Column, missing: tuple[str, ...]) -> Float64Array:
    """A numeric feature: (n,) finite numbers, NaN where the value is missing.

    Args:
        batch: the rows.
        column: the column.
        missing: the schema's missing marks; a number equal to one of them is missing.

    Raises:
        DpcompareError: a value is not a finite number, or a fraction in an integer column.
    """
    values, absent = _cast(batch, column.name, _MISSING_HINT)
    for mark in _numeric_marks(missing):
        absent |= values == mark
    values[absent] = np.nan
    if column.integer:
        _check(
            batch,
            column.name,
            absent | (values == np.trunc(values)),
            lambda value: (
                f"{value} is not a whole number, which the schema requires (integer = true)"
            ),
        )
    return values


def labels(batch: Batch, name: str, kind: LabelKind) -> npt.NDArray[Any]:
    """A label: (n,) uint8 of 0 and 1, or (n,) float32 counts >= 0.

    Raises:
        DpcompareError: a label is missing, not a number, or outside that range.
    """
    values, absent = _cast(batch, name, "")
    if absent.any():
        index = int(np.flatnonzero(absent)[0])
        raise batch.error(index, name, "the label is missing")
    if kind == "binary":
        valid = (values == 0) | (values == 1)
        _check(batch, name, valid, lambda value: f"the label must be 0 or 1, got {value}")
    else:
        valid = values >= 0
        _check(batch, name, valid, lambda value: f"a count must be 0 or more, got {value}")
    return values.astype(LABEL_TYPES[kind])


def _cast(batch: Batch, name: str, hint: str) -> tuple[Float64Array, npt.NDArray[np.bool_]]:
    """The values as float64 and where they are missing; everything else is finite."""
    array = batch.columns[name]
    is_text = pa.types.is_string(array.type)
    absent = nulls(array)
    try:
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        values = fixed_width(array.cast(pa.float64(), safe=False), np.float64).copy()
    except pa.ArrowInvalid:
        raise _not_a_number(batch, name, hint) from None
    values[absent] = np.nan
    if not is_text:
        absent = absent | np.isnan(values)  # NaN is how pandas stores a missing number
    _check(
        batch,
        name,
        absent | np.isfinite(values),
        lambda value: f"{value} is not a finite number{hint}",
    )
    return values, absent


def _not_a_number(batch: Batch, name: str, hint: str) -> DpcompareError:
    """The first text that does not read as a number."""
    for index, value in enumerate(batch.columns[name].to_pylist()):
        if value is None:
            continue
        try:
            pa.scalar(value).cast(pa.float64())
        except pa.ArrowInvalid:
            return batch.error(index, name, f"{shown(value)} is not a number{hint}")
    raise AssertionError("a cast failed, but each of its values can be cast")


def _check(
    batch: Batch, name: str, valid: npt.NDArray[np.bool_], problem: Callable[[str], str]
) -> None:
    if not valid.all():
        index = int(np.flatnonzero(~valid)[0])
        raise batch.error(index, name, problem(shown(str(batch.columns[name][index].as_py()))))


def _numeric_marks(missing: tuple[str, ...]) -> list[float]:
    marks = []
    for mark in missing:
        try:
            marks.append(float(mark))
        except ValueError:
            continue
    return [mark for mark in marks if np.isfinite(mark)]
