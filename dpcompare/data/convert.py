"""Columns of a batch as numbers and labels, with every value checked."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcompare.data.arrow import fixed_width, nulls
from dpcompare.data.schema import Column
from dpcompare.data.sources import Batch
from dpcompare.data.targets import LABEL_TYPES, LARGEST_COUNT, LabelKind, Target
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
    values, absent = _cast(batch, column.name, missing, _MISSING_HINT)
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


def labels(
    batch: Batch,
    target: Target,
    kind: LabelKind,
    missing: tuple[str, ...],
    belongs: npt.NDArray[np.bool_] | None = None,
) -> npt.NDArray[Any]:
    """A label: (n,) uint8 of 0 and 1, or (n,) float32 counts >= 0.

    Args:
        batch: the rows.
        target: the label of a task, read from a column.
        kind: of the task.
        missing: the schema's missing marks.
        belongs: (n,) the rows of the task, where a label may be required; None: all of them. A
            missing label of another row is 0.

    Raises:
        DpcompareError: a label is missing, not a number, or outside that range.
    """
    name = target.column
    values, absent = _cast(batch, name, missing, "")
    if target.missing is None:
        _check_present(batch, name, kind, absent if belongs is None else absent & belongs)
    values[absent] = 0
    if kind == "binary" and target.at_least is None:
        valid = (values == 0) | (values == 1)
        _check(batch, name, valid, lambda value: f"the label must be 0 or 1, got {value}")
    else:
        _check_counts(batch, target, values)
    if target.at_least is not None:
        return (values >= target.at_least).astype(LABEL_TYPES[kind])
    return values.astype(LABEL_TYPES[kind])


def flags(batch: Batch, name: str, missing: tuple[str, ...]) -> npt.NDArray[np.bool_]:
    """A column that says which rows belong to a task: (n,) of true (1) and false (0).

    Raises:
        DpcompareError: a value is missing, or neither 0 nor 1.
    """
    values, absent = _cast(batch, name, missing, "")
    for index in np.flatnonzero(absent)[:1]:
        raise batch.error(int(index), name, "the value is missing; it must be 0 or 1 in every row")
    valid = (values == 0) | (values == 1)
    _check(batch, name, valid, lambda value: f"the value must be 0 or 1, got {value}")
    return values == 1


def exposures(batch: Batch, name: str, missing: tuple[str, ...]) -> npt.NDArray[np.float32]:
    """What the counts are relative to: (n,) float32, finite and above 0.

    Raises:
        DpcompareError: a value is missing, not a number, or outside that range.
    """
    values, absent = _cast(batch, name, missing, "")
    advice = "the model adds its logarithm, so leave the row out, or choose another exposure"
    for index in np.flatnonzero(absent)[:1]:
        raise batch.error(int(index), name, f"the exposure is missing; {advice}")
    with np.errstate(over="ignore"):
        exposure = values.astype(np.float32)
    valid = (exposure > 0) & np.isfinite(exposure)
    _check(
        batch,
        name,
        valid,
        lambda value: f"the exposure must be above 0 and fit into float32, got {value}; {advice}",
    )
    return exposure


def _check_present(
    batch: Batch, name: str, kind: LabelKind, missing: npt.NDArray[np.bool_]
) -> None:
    hint = "" if kind == "binary" else "; if that means 0, set missing = 0 for the task"
    for index in np.flatnonzero(missing)[:1]:
        raise batch.error(int(index), name, f"the label is missing{hint}")


def _check_counts(batch: Batch, target: Target, values: Float64Array) -> None:
    name, whole = target.column, values == np.trunc(values)
    largest = target.max or LARGEST_COUNT
    rule = "max in the schema" if target.max else "2**24, beyond which float32 skips numbers"
    _check(batch, name, values >= 0, lambda value: f"a count must be 0 or more, got {value}")
    _check(batch, name, whole, lambda value: f"a count must be a whole number, got {value}")
    _check(
        batch,
        name,
        values <= largest,
        lambda value: f"a count must be at most {largest:,} ({rule}), got {value}",
    )


def _cast(
    batch: Batch, name: str, missing: tuple[str, ...], hint: str
) -> tuple[Float64Array, npt.NDArray[np.bool_]]:
    """The values as float64, NaN where they are missing, and where that is; the rest is finite."""
    array = batch.columns[name]
    is_text = pa.types.is_string(array.type)
    absent = nulls(array)
    try:
        if pa.types.is_boolean(array.type):
            array = array.cast(pa.uint8())
        values = fixed_width(array.cast(pa.float64(), safe=False), np.float64).copy()
    except pa.ArrowInvalid:
        raise _not_a_number(batch, name, hint) from None
    np.copyto(values, np.nan, where=absent)
    if not is_text:
        absent = absent | np.isnan(values)  # NaN is how pandas stores a missing number
    _check(
        batch,
        name,
        absent | np.isfinite(values),
        lambda value: f"{value} is not a finite number{hint}",
    )
    marks = _numeric_marks(missing)
    for mark in marks:
        absent |= values == mark
    if marks or not is_text:
        values[absent] = np.nan
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
    """The marks that a file's own notation reads as numbers; Python's float reads more."""
    marks = []
    for mark in missing:
        try:
            marks.append(pa.scalar(mark, pa.string()).cast(pa.float64()).as_py())
        except pa.ArrowInvalid:
            continue
    return [mark for mark in marks if np.isfinite(mark)]
