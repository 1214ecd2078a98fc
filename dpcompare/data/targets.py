"""Targets: what the label of a task is, and which rows belong to the task."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dpcompare.data.toml_table import Table, shown

LabelKind = Literal["binary", "count"]

LABEL_KINDS: dict[str, LabelKind] = {"pctr": "binary", "pcvr": "binary", "pconvs": "count"}
LABEL_TYPES: dict[LabelKind, type[Any]] = {"binary": np.uint8, "count": np.float32}
LARGEST_COUNT = 2**24  # float32 holds every whole number up to here, and not the next one


@dataclass(frozen=True)
class Target:
    """The label of a task. Either `label` or `distinct` is given.

    Attributes:
        label: the column that holds the label.
        distinct: the column whose distinct present values are counted over each journey. The task
            then has one row per journey: its first.
        rows: a column of 0 and 1; rows where it is 0 do not belong to the task. None: all rows do.
        missing: what a missing label counts as, 0; None: a missing label is an error.
        at_least: the label is 1 where the column, a count, is at least this.
        max: the largest count possible, from public knowledge; a count above it is an error.
    """

    label: str | None = None
    distinct: str | None = None
    rows: str | None = None
    missing: int | None = None
    at_least: int | None = None
    max: int | None = None

    @property
    def column(self) -> str:
        """The column that the label is made of."""
        return self.label or self.distinct or ""

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that the target reads."""
        return tuple(name for name in (self.label, self.distinct, self.rows) if name)

    @property
    def has_own_rows(self) -> bool:
        """Whether the task may have fewer rows than the log."""
        return bool(self.rows or self.distinct)

    def rule(self) -> str:
        """The label in words, for records."""
        if self.distinct:
            return f"distinct {self.distinct} per journey"
        at_least = "" if self.at_least is None else f" >= {self.at_least}"
        missing = "" if self.missing is None else f", missing = {self.missing}"
        rows = f", where {self.rows} is 1" if self.rows else ""
        return f"{self.label}{at_least}{missing}{rows}"


def read_targets(tasks: Table) -> dict[str, Target]:
    """The targets under `[tasks]`, each checked by itself.

    Raises:
        UsageError: a rule is broken; the message names the file, the key and what is allowed.
    """
    tasks.allow(*LABEL_KINDS)
    return {task: _read(tasks, task) for task in tasks.content}


def _read(tasks: Table, task: str) -> Target:
    value = tasks.content[task]
    if isinstance(value, str):
        return Target(label=value)
    if not isinstance(value, dict):
        raise tasks.error(
            task,
            "must be the name of a column with role label, or a table such as "
            f'{{ label = "sales", missing = 0 }}, got {shown(value)}',
        )
    entry = Table(value, tasks.source, f"tasks.{task}")
    entry.allow("label", "distinct", "rows", "missing", "at_least", "max")
    target = Target(
        label=entry.get("label", str, None),
        distinct=entry.get("distinct", str, None),
        rows=entry.get("rows", str, None),
        missing=entry.get("missing", int, None),
        at_least=entry.get("at_least", int, None),
        max=entry.get("max", int, None),
    )
    _check_keys(target, entry, task)
    _check_numbers(target, entry)
    return target


def _check_keys(target: Target, entry: Table, task: str) -> None:
    kind = LABEL_KINDS[task]
    if bool(target.label) == bool(target.distinct):
        raise entry.error(
            "label",
            "a task needs either label (a column), or distinct (a column whose distinct values are "
            "counted over each journey)",
        )
    if target.distinct and kind != "count":
        raise entry.error("distinct", f"makes a count, but the labels of {task} are 0 and 1")
    if target.distinct and len(entry.content) > 1:
        other = next(key for key in entry.content if key != "distinct")
        raise entry.error(other, "does not go with distinct, which stands alone")
    if target.rows is not None and target.rows == target.label:
        raise entry.error("rows", "is the label itself, which would be 1 in every row of the task")
    if target.at_least is not None and kind == "count":
        raise entry.error("at_least", f"makes labels 0 and 1, but {task} predicts the count itself")
    if target.max is not None and kind == "binary" and target.at_least is None:
        raise entry.error("max", f"is for counts, but the labels of {task} are 0 and 1")


def _check_numbers(target: Target, entry: Table) -> None:
    if target.missing not in (None, 0):
        raise entry.error(
            "missing", f"must be 0 (what a missing label means), got {target.missing}"
        )
    for key, number in (("at_least", target.at_least), ("max", target.max)):
        if number is not None and not 1 <= number <= LARGEST_COUNT:
            raise entry.error(key, f"must lie between 1 and {LARGEST_COUNT:,}, got {number:,}")
    if target.at_least and target.max and target.at_least > target.max:
        raise entry.error(
            "at_least", f"must not be above max ({target.max}), got {target.at_least}"
        )
