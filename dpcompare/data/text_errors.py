"""What is wrong with a text file, in words: the line, what was found, what is allowed."""

import contextlib
import csv
from pathlib import Path
from typing import NamedTuple

from dpcompare.catalog import near_miss
from dpcompare.data.schema import Schema
from dpcompare.errors import DpcompareError

_SEPARATORS = {",": "commas", "\t": "TABs", ";": "semicolons", "|": "vertical bars"}
_SHOWN = 40  # characters of a value in a message


class Layout(NamedTuple):
    """The columns of one text file.

    Attributes:
        names: all columns of the file, in its order.
        wanted: those that are read.
        labels: those that are labels.
        numeric: those that must be numbers, labels not included.
        last_needed: position from 0 of the last column that a row cannot do without, so that
            repairs stop there; -1 if there is none.
        separator: the character between fields.
        quoting: whether double quotes may wrap a field.
        missing: the missing marks.
    """

    names: list[str]
    wanted: list[str]
    labels: list[str]
    numeric: list[str]
    last_needed: int
    separator: str
    quoting: bool
    missing: list[str]

    @classmethod
    def of(cls, schema: Schema, names: list[str]) -> "Layout":
        """The layout of a file whose columns are `names`."""
        return cls(
            names=names,
            wanted=list(schema.wanted),
            labels=[column.name for column in schema.with_role("label")],
            numeric=[column.name for column in schema.with_role("numeric", "exposure")],
            last_needed=max(
                (names.index(name) for name in schema.needed if name in names), default=-1
            ),
            separator=schema.separator,
            quoting=schema.quoting,
            missing=list(schema.missing),
        )


def shown(value: str) -> str:
    """A value as a message quotes it: shortened."""
    return repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "...")


def split(line: bytes, separator: str, quoting: bool) -> list[str]:
    """The fields of one line without its newline."""
    text = line.decode("utf-8").removesuffix("\r")
    if quoting:
        with contextlib.suppress(csv.Error):  # it refuses a carriage return inside, for one
            return next(csv.reader([text], delimiter=separator), [""])
    return text.split(separator)


def first_row(line: bytes, layout: Layout, repair: bool) -> str:
    """What makes line 1 of a file without header suspicious, or ""."""
    fields = split(line, layout.separator, layout.quoting)
    if len(fields) != len(layout.names):
        paddable = layout.last_needed < len(fields) < len(layout.names) and line.strip(b"\r")
        hint = _separator_hint(line, len(fields), len(layout.names), layout.separator)
        if repair and paddable and not hint and not _unlabelled(fields, layout):
            return ""
        return _count_problem(1, line, fields, layout)
    if _holds_no_number(fields, layout):
        return (
            f"line 1 looks like a header (it starts with {_beginning(fields)}), but the schema "
            "expects none: set header = true under [file] of the schema, or remove the line"
        )
    return ""


def header(line: bytes, layout: Layout) -> str:
    """Why line 1 is not the header that the schema expects, or ""."""
    names = layout.names
    missing = [name for name in layout.wanted if name not in names]
    repeated = [name for name in layout.wanted if names.count(name) > 1]
    if repeated:
        return f"line 1, the header, names column {repeated[0]!r} more than once"
    if not missing:
        return ""
    hint = _separator_hint(line, len(names), len(layout.wanted), layout.separator)
    if len(missing) == len(layout.wanted):
        return (
            f"line 1 is not the expected header: it starts with {_beginning(names)}, expected "
            f"{', '.join(layout.wanted[:5])}, ..."
            + (hint or "; if the file has no header, set header = false under [file] of the schema")
        )
    unknown = [name for name in names if name not in layout.wanted]
    return (
        f"line 1, the header, lacks column {missing[0]!r}{near_miss(missing[0], unknown)}; "
        f"it has {', '.join(map(shown, names))}{hint}"
    )


def bad_block(path: Path, block: bytes, line: int, layout: Layout, reason: str) -> DpcompareError:
    """The error of a block that could not be parsed.

    Args:
        path: the file.
        block: whole lines.
        line: the number of the first of them.
        layout: how they should look.
        reason: what the parser said, for the rare case that no single line is to blame.
    """
    lines = block.removesuffix(b"\n").split(b"\n")
    for number, content in enumerate(lines, start=line):
        fields = split(content, layout.separator, layout.quoting)
        if len(fields) != len(layout.names):
            return DpcompareError(f"{path}: {_count_problem(number, content, fields, layout)}")
        if b"\r" in content.removesuffix(b"\r"):
            return DpcompareError(
                f"{path}: line {number} has a carriage return inside; lines must end in a newline, "
                "or in a carriage return and a newline"
            )
    problem = reason or "a quoted field is not closed on its line; fields must not hold line breaks"
    return DpcompareError(f"{path}: lines {line} to {line + len(lines) - 1}: {problem}")


def _count_problem(number: int, line: bytes, fields: list[str], layout: Layout) -> str:
    if not line.strip(b"\r"):
        return f"line {number} is empty; remove it"
    found, expected = len(fields), len(layout.names)
    problem = f"line {number} has {found} field{'s' * (found != 1)}, expected {expected}"
    hint = _separator_hint(line, found, expected, layout.separator)
    if hint:
        return problem + hint + (_header_hint(line, layout) if number == 1 else "")
    if b"\r" in line.removesuffix(b"\r"):
        return problem + "; it has a carriage return inside: lines must end in a newline"
    if number == 1 and _unlabelled(fields, layout):
        return f"{problem}; this looks like unlabelled test data"
    if found > expected:
        extra = "is there an index column? List every column in the schema, with the role ignore"
        return f"{problem}; {extra}"
    if found > layout.last_needed + 1:
        return (
            f"{problem}; if trailing empty fields were stripped, prepare with repair "
            "(dpcompare prepare --repair), which pads such rows and counts them"
        )
    return f"{problem}; the line may be cut off"


def _separator_hint(line: bytes, found: int, expected: int, separator: str) -> str:
    counts = {other: line.count(other.encode()) + 1 for other in _SEPARATORS if other != separator}
    best = max(counts, key=lambda other: counts[other])
    if counts[best] <= found or counts[best] < expected / 2:
        return ""
    return (
        f", but {counts[best]} when split at {_SEPARATORS[best]}: "
        f"set separator = {best!r} under [file] of a schema for this file"
    ).replace("'", '"')


def _header_hint(line: bytes, layout: Layout) -> str:
    text = line.decode("utf-8").casefold()
    named = sum(name.casefold() in text for name in layout.wanted)
    if named < len(layout.wanted) / 2:
        return ""
    return "; it looks like a header, so set header = true there as well"


def _unlabelled(fields: list[str], layout: Layout) -> bool:
    """Whether a row fits the columns without the labels, as far as its numbers tell."""
    names = [name for name in layout.names if name not in layout.labels]
    if len(fields) != len(names) or not layout.numeric:
        return False
    values = dict(zip(names, fields, strict=True))
    return all(
        values[name] in layout.missing or _is_number(values[name]) for name in layout.numeric
    )


def _holds_no_number(fields: list[str], layout: Layout) -> bool:
    """Whether every field that should be a number is there and is none."""
    values = dict(zip(layout.names, fields, strict=True))
    numbers = [values[name] for name in layout.numeric + layout.labels]
    return all(value not in layout.missing and not _is_number(value) for value in numbers)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _beginning(fields: list[str]) -> str:
    return ", ".join(map(shown, fields[:3]))
