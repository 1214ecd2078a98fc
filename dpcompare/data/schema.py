"""What a data set is: a TOML file that names its columns and their roles.

Known logs are bundled; an own log is one more TOML file. `docs/data.md` explains how to write one.
"""

import difflib
import tomllib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from dpcompare.errors import UsageError

Role = Literal["numeric", "categorical", "label", "leak", "ignore"]
LabelKind = Literal["binary", "count"]

ROLES: tuple[Role, ...] = get_args(Role)
LABEL_KINDS: dict[str, LabelKind] = {"pctr": "binary", "pcvr": "binary", "pconvs": "count"}


LABEL_TYPES: dict[LabelKind, type[Any]] = {"binary": np.uint8, "count": np.float32}


@dataclass(frozen=True)
class Column:
    """One column of a log.

    Attributes:
        name: as in the header, or as the user likes where the file has none.
        role: "numeric" and "categorical" columns are features; a "label" is what a task predicts;
            a "leak" tells the label (a column that is filled after the fact) and an "ignore" tells
            nothing: both are left out, and the manifest lists the leaks.
        integer: refuse numbers that are not whole. Numeric columns only.
        scale: public divisor of the transformed value, > 0. Numeric columns only.
    """

    name: str
    role: Role
    integer: bool = False
    scale: float = 1.0


@dataclass(frozen=True)
class Schema:
    """The layout of a log and what its columns mean.

    Attributes:
        name: the file name without ".toml".
        title: one line for people.
        rows_in_time_order: whether earlier rows happened earlier; splits are by position.
        columns: in the order of the file; a file with a header may have them in another order.
        tasks: the label column of each task ("pctr", "pcvr" or "pconvs").
        separator: one character between fields. This and the next two are for text files.
        header: whether the first line holds the column names.
        quoting: whether a field may be wrapped in double quotes.
        missing: texts that mean "no value" in feature columns. A number equal to one of them
            ("-1.0" where "-1" is listed) is missing too.
    """

    name: str
    title: str
    rows_in_time_order: bool
    columns: tuple[Column, ...]
    tasks: dict[str, str]
    separator: str = ","
    header: bool = True
    quoting: bool = True
    missing: tuple[str, ...] = ("",)

    def with_role(self, *roles: Role) -> tuple[Column, ...]:
        """The columns that have one of `roles`, in order."""
        return tuple(column for column in self.columns if column.role in roles)

    @property
    def numeric(self) -> tuple[Column, ...]:
        """The numeric features, in order."""
        return self.with_role("numeric")

    @property
    def categorical(self) -> tuple[Column, ...]:
        """The categorical features, in order."""
        return self.with_role("categorical")

    def content(self) -> dict[str, Any]:
        """Everything above as plain values, for a manifest."""
        content = asdict(self)
        return {**content, "columns": list(content["columns"]), "missing": list(self.missing)}


def bundled_schemas() -> list[str]:
    """The names of the bundled schemas, sorted."""
    folder = resources.files("dpcompare.data").joinpath("schemas")
    return sorted(
        entry.name.removesuffix(".toml")
        for entry in folder.iterdir()
        if entry.name.endswith(".toml")
    )


def load_schema(schema: str | Path) -> Schema:
    """Read a schema.

    Args:
        schema: the name of a bundled schema, or the path of a .toml file.

    Raises:
        UsageError: there is no such schema, or the file breaks a rule; the message names the file,
            the key and what is allowed.
    """
    if isinstance(schema, str) and not schema.endswith(".toml"):
        known = bundled_schemas()
        if schema not in known:
            raise UsageError(
                f"there is no bundled schema {schema!r}{_near_miss(schema, known)}; bundled: "
                f"{', '.join(known)}. For an own log give the path of its schema, ending in .toml"
            )
        text = resources.files("dpcompare.data").joinpath(f"schemas/{schema}.toml").read_bytes()
        return _parse(text, schema, f"{schema}.toml")
    path = Path(schema)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the schema {path}: {error.strerror}") from error
    return _parse(text, path.stem, str(path))


def _parse(text: bytes, name: str, source: str) -> Schema:
    try:
        content = tomllib.loads(text.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from error
    top = _Table(content, source, "")
    top.allow("title", "rows_in_time_order", "columns", "file", "tasks")
    columns = tuple(
        _column(_Table(entry, source, f"columns[{number}]"))
        for number, entry in enumerate(top.get("columns", list), start=1)
    )
    file = _Table(top.get("file", dict, {}), source, "file")
    file.allow("separator", "header", "quoting", "missing")
    missing = file.get("missing", list, [""])
    if not all(isinstance(mark, str) for mark in missing):
        raise file.error("missing", 'must be a list of texts such as ["", "-1"]')
    schema = Schema(
        name=name,
        title=top.get("title", str, name),
        rows_in_time_order=top.get("rows_in_time_order", bool),
        columns=columns,
        tasks=top.get("tasks", dict),
        separator=file.get("separator", str, ","),
        header=file.get("header", bool, True),
        quoting=file.get("quoting", bool, True),
        missing=tuple(missing),
    )
    _check(schema, top, file)
    return schema


def _column(entry: "_Table") -> Column:
    entry.allow("name", "role", "integer", "scale")
    name = entry.get("name", str)
    role = entry.get("role", str)
    if not name:
        raise entry.error("name", "must not be empty")
    if role not in ROLES:
        raise entry.error("role", f"must be one of {', '.join(ROLES)}, got {role!r} for {name!r}")
    for key in ("integer", "scale"):
        if key in entry.content and role != "numeric":
            raise entry.error(key, f"is for numeric columns, but {name!r} is {role!r}")
    scale = entry.get("scale", float, 1.0)
    if not 0 < scale < float("inf"):
        raise entry.error("scale", f"must be a number above 0, got {scale} for {name!r}")
    return Column(name, role, entry.get("integer", bool, False), scale)


def _check(schema: Schema, top: "_Table", file: "_Table") -> None:
    names = [column.name for column in schema.columns]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise top.error("columns", f"each name may occur once, but {repeated[0]!r} is repeated")
    if not schema.with_role("numeric", "categorical"):
        raise top.error("columns", "needs at least one column with role numeric or categorical")
    if len(schema.separator) != 1 or not schema.separator.isascii() or schema.separator in '"\r\n':
        raise file.error("separator", f"must be one character, got {schema.separator!r}")
    tasks = _Table(schema.tasks, top.source, "tasks")
    tasks.allow(*LABEL_KINDS)
    labels = [column.name for column in schema.with_role("label")]
    if not schema.tasks:
        raise top.error("tasks", f"needs at least one of {', '.join(LABEL_KINDS)}")
    for task in schema.tasks:
        label = tasks.get(task, str)
        if label not in labels:
            raise tasks.error(
                task,
                f"must be a column with role label ({', '.join(labels) or 'there is none'}), "
                f"got {label!r}",
            )
    unused = sorted(set(labels) - set(schema.tasks.values()))
    if unused:
        raise top.error(
            "columns",
            f"{unused[0]!r} has role label, but no task under [tasks] predicts it: "
            "give it a task, or the role leak",
        )


_REQUIRED = object()
_KIND_NAMES = {
    str: "a text",
    bool: "true or false",
    float: "a number",
    list: "a list",
    dict: "a table",
}


class _Table:
    """A TOML table that knows where it stands, so that its errors can say so."""

    def __init__(self, content: Any, source: str, key: str) -> None:
        self.source = source
        self.key = key
        if not isinstance(content, dict):
            raise UsageError(f"{source}: {key} must be a table, got {content!r}")
        self.content: dict[str, Any] = content

    def error(self, key: str, problem: str) -> UsageError:
        full_key = f"{self.key}.{key}" if self.key else key
        return UsageError(f"{self.source}: {full_key}: {problem}")

    def allow(self, *keys: str) -> None:
        for key in self.content:
            if key not in keys:
                raise self.error(
                    key, f"unknown key{_near_miss(key, keys)}; allowed: {', '.join(keys)}"
                )

    def get(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        if key not in self.content:
            if default is _REQUIRED:
                raise self.error(key, f"is required: {_KIND_NAMES[kind]}")
            return default
        value = self.content[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind):
            raise self.error(key, f"must be {_KIND_NAMES[kind]}, got {value!r}")
        return value


def _near_miss(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
