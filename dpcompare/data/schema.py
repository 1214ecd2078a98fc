"""What a data set is: a TOML file that names its columns and their roles.

Known logs are bundled; an own log is one more TOML file. `docs/data.md` explains how to write one.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from dpcompare.catalog import near_miss
from dpcompare.data.leaks import refuse_known_leaks
from dpcompare.data.targets import LABEL_KINDS, LABEL_TYPES, LabelKind, Target, read_targets
from dpcompare.data.toml_table import Table, parse_toml, shown, shown_names
from dpcompare.errors import UsageError

__all__ = [
    "LABEL_KINDS",
    "LABEL_TYPES",
    "ROLES",
    "Column",
    "LabelKind",
    "Role",
    "Schema",
    "Target",
    "bundled_schemas",
    "load_schema",
]

Role = Literal["numeric", "categorical", "label", "exposure", "leak", "ignore"]

ROLES: tuple[Role, ...] = get_args(Role)
ANY_TEXT = "*"
SMALLEST_SCALE, LARGEST_SCALE = 1e-30, 1e30
"""Beyond these the transformed values of usual numbers leave the range of float32."""


@dataclass(frozen=True)
class Column:
    """One column of a log.

    Attributes:
        name: as in the header, or as the user likes where the file has none. With a "*", which
            stands for any text, it is a pattern: it stands for every column of a Parquet file that
            matches it and has no entry of its own.
        role: "numeric" and "categorical" columns are features; a "label" is what a task predicts,
            or says which rows belong to a task; the "exposure" is what a count is relative to; a
            "leak" tells the label (a column that is filled after the fact) and an "ignore" tells
            nothing: both are left out, and the manifest lists the leaks.
        integer: refuse numbers that are not whole. Numeric columns only.
        scale: public divisor of the transformed value, 1e-30 to 1e30. Numeric columns only.
    """

    name: str
    role: Role
    integer: bool = False
    scale: float = 1.0

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for several columns."""
        return ANY_TEXT in self.name

    @property
    def is_feature(self) -> bool:
        """Whether a model may read it."""
        return self.role in ("numeric", "categorical")


@dataclass(frozen=True)
class Schema:
    """The layout of a log and what its columns mean.

    Attributes:
        name: the file name without ".toml".
        title: one line for people.
        rows_in_time_order: whether earlier rows happened earlier; splits are by position.
        columns: in the order of the file; a file with a header may have them in another order.
        tasks: the target of each task ("pctr", "pcvr" or "pconvs").
        separator: one character between fields. This and the next two are for text files.
        header: whether the first line holds the column names.
        quoting: whether a field may be wrapped in double quotes.
        missing: texts that mean "no value" in every column. A number equal to one of them
            ("-1.0" where "-1" is listed) is missing too.
        journey: the columns whose equal values make rows one journey; empty: there are none.
    """

    name: str
    title: str
    rows_in_time_order: bool
    columns: tuple[Column, ...]
    tasks: dict[str, Target]
    separator: str = ","
    header: bool = True
    quoting: bool = True
    missing: tuple[str, ...] = ("",)
    journey: tuple[str, ...] = ()

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

    @property
    def features(self) -> tuple[str, ...]:
        """The names of all features, in order."""
        return tuple(column.name for column in self.columns if column.is_feature)

    @property
    def exposure(self) -> Column | None:
        """The exposure of each row, if the log has one."""
        return next(iter(self.with_role("exposure")), None)

    @property
    def distinct(self) -> tuple[str, ...]:
        """The columns whose distinct values are counted over journeys."""
        return tuple(target.distinct for target in self.tasks.values() if target.distinct)

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns that are read besides features, and that a row cannot do without."""
        sources = [name for target in self.tasks.values() for name in target.sources]
        exposure = [self.exposure.name] if self.exposure else []
        return tuple(dict.fromkeys([*sources, *exposure, *self.journey]))

    @property
    def wanted(self) -> tuple[str, ...]:
        """All columns that are read, each once, features first."""
        return tuple(dict.fromkeys([*self.features, *self.needed]))

    def content(self) -> dict[str, Any]:
        """Everything above as plain values, for a manifest."""
        lists = ("columns", "missing", "journey")
        return {key: list(value) if key in lists else value for key, value in asdict(self).items()}

    @classmethod
    def restored(cls, content: dict[str, Any]) -> "Schema":
        """The schema of which `content` are the plain values."""
        return cls(
            **{
                **content,
                "columns": tuple(Column(**column) for column in content["columns"]),
                "tasks": {task: Target(**target) for task, target in content["tasks"].items()},
                "missing": tuple(content["missing"]),
                "journey": tuple(content["journey"]),
            }
        )


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
                f"there is no bundled schema {schema!r}{near_miss(schema, known)}; bundled: "
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
        content = parse_toml(text.decode("utf-8-sig"), source)
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: it is not text in UTF-8: {error}") from error
    top = Table(content, source, "")
    top.allow("title", "rows_in_time_order", "journey", "columns", "file", "tasks")
    columns = tuple(
        _column(Table(entry, source, f"columns[{number}]"))
        for number, entry in enumerate(top.get("columns", list), start=1)
    )
    file = Table(top.get("file", dict, {}), source, "file")
    file.allow("separator", "header", "quoting", "missing")
    schema = Schema(
        name=name,
        title=top.get("title", str, name),
        rows_in_time_order=top.get("rows_in_time_order", bool),
        columns=columns,
        tasks=read_targets(Table(top.get("tasks", dict), source, "tasks")),
        separator=file.get("separator", str, ","),
        header=file.get("header", bool, True),
        quoting=file.get("quoting", bool, True),
        missing=file.texts("missing", [""], '["", "-1"]'),
        journey=top.texts("journey", [], '["user", "campaign"]'),
    )
    _check(schema, top, file)
    return schema


def _column(entry: Table) -> Column:
    entry.allow("name", "role", "integer", "scale")
    name = entry.get("name", str)
    role = entry.get("role", str)
    if not name:
        raise entry.error("name", "must not be empty")
    if role not in ROLES:
        raise entry.error(
            "role",
            f"must be one of {', '.join(ROLES)}, got {shown(role)} for {shown(name)}"
            f"{near_miss(role, ROLES)}",
        )
    for key in ("integer", "scale"):
        if key in entry.content and role != "numeric":
            raise entry.error(key, f"is for numeric columns, but {shown(name)} is {role!r}")
    scale = entry.get("scale", float, 1.0)
    if not SMALLEST_SCALE <= scale <= LARGEST_SCALE:  # also refuses nan
        raise entry.error(
            "scale",
            f"must be a number above 0, got {scale} for {shown(name)}; allowed are "
            f"{SMALLEST_SCALE:g} to {LARGEST_SCALE:g}",
        )
    column = Column(name, role, entry.get("integer", bool, False), scale)
    if column.is_pattern and role in ("label", "exposure"):
        raise entry.error(
            "name", f"a {role} is one column, so {shown(name)} must not hold {ANY_TEXT!r}"
        )
    return column


def _check(schema: Schema, top: Table, file: Table) -> None:
    times = Counter(column.name for column in schema.columns)
    repeated = sorted(name for name in times if times[name] > 1)
    if repeated:
        raise top.error(
            "columns", f"each name may occur once, but {shown(repeated[0])} is repeated"
        )
    if not any(column.is_feature for column in schema.columns):
        raise top.error("columns", "needs at least one column with role numeric or categorical")
    if len(schema.separator) != 1 or not schema.separator.isascii() or schema.separator in '"\r\n':
        raise file.error("separator", f"must be one character, got {shown(schema.separator)}")
    refuse_known_leaks(schema.features, top.source)
    _check_journey(schema, top)
    _check_targets(schema, top)
    _check_exposure(schema, top)


def _check_journey(schema: Schema, top: Table) -> None:
    names = {column.name for column in schema.columns if not column.is_pattern}
    for name in schema.journey:
        if name not in names:
            raise top.error(
                "journey", f"{shown(name)} is not among the columns{near_miss(name, names)}"
            )
    if len(set(schema.journey)) < len(schema.journey):
        raise top.error("journey", f"names a column more than once: {shown_names(schema.journey)}")


def _check_targets(schema: Schema, top: Table) -> None:
    if not schema.tasks:
        raise top.error("tasks", f"needs at least one of {', '.join(LABEL_KINDS)}")
    for task, target in schema.tasks.items():
        _check_source(schema, top, f"tasks.{task}", target.label, "label")
        _check_source(schema, top, f"tasks.{task}.rows", target.rows, "label", "leak")
        _check_source(schema, top, f"tasks.{task}.distinct", target.distinct, "label", "leak")
        if target.distinct and not schema.journey:
            raise top.error(
                f"tasks.{task}.distinct",
                "counts over journeys, so the schema needs a list of the columns whose equal "
                'values make rows one journey, such as journey = ["user", "campaign"]',
            )
    used = {name for target in schema.tasks.values() for name in target.sources}
    unused = [column.name for column in schema.with_role("label") if column.name not in used]
    if unused:
        raise top.error(
            "columns",
            f"{shown(unused[0])} has role label, but no task under [tasks] predicts it: "
            "give it a task, or the role leak",
        )


def _check_source(schema: Schema, top: Table, key: str, name: str | None, *roles: Role) -> None:
    """A column that makes a label must not be a feature as well."""
    allowed = [column.name for column in schema.with_role(*roles) if not column.is_pattern]
    if name is not None and name not in allowed:
        raise top.error(
            key,
            f"must be a column with role {' or '.join(roles)} "
            f"({shown_names(allowed) or 'there is none'}), got {shown(name)}"
            f"{near_miss(name, allowed)}",
        )


def _check_exposure(schema: Schema, top: Table) -> None:
    exposures = schema.with_role("exposure")
    if not exposures:
        return
    if len(exposures) > 1:
        names = shown_names(column.name for column in exposures)
        raise top.error("columns", f"one column may have role exposure, but {names} have it")
    if "pconvs" not in schema.tasks:
        raise top.error(
            "columns",
            f"{shown(exposures[0].name)} has role exposure, which is for counts, but there is no "
            "task pconvs under [tasks]: give it another role",
        )
    if schema.distinct:
        raise top.error(
            "columns",
            f"{shown(exposures[0].name)} has role exposure, which is for counts in single rows; a "
            "count over journeys (distinct) has none: give it another role",
        )
