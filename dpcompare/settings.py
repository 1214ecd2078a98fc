"""The values of a study file: single ones, candidates to choose from, and tables over epsilon.

Every check raises a UsageError that names the file, the key and what is allowed.
"""

import math
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dpcompare.catalog import near_miss
from dpcompare.data.toml_table import shown, shown_key
from dpcompare.errors import UsageError

LISTS: dict[str, type] = {"tower": int}
"""What those keys hold whose single value is a list, if not numbers."""

KINDS = {
    int: "a whole number",
    float: "a finite number",
    str: "text",
    list: "a list",
    dict: "a table",
    bool: "true or false",
}


@contextmanager
def located(where: str) -> Iterator[None]:
    """Put `where` in front of the message of a UsageError."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error


def setting(value: Any, default: Any, key: str, where: str) -> Any:
    """A value in the type of its default; a table over epsilon or candidates keep their shape.

    Args:
        value: as TOML gave it.
        default: whose type counts.
        key: for messages.
        where: file and place, for messages.

    Raises:
        UsageError: the value, a candidate or a row of the table is of another type.
    """
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return _epsilon_table(value, default, key, where)
    return _candidates(value, default, key, where)


def _epsilon_table(rows: list[dict[str, Any]], default: Any, key: str, where: str) -> Any:
    table = []
    reached = 0.0
    for row in rows:
        if not ("value" in row and set(row) <= {"value", "epsilon_up_to"}):
            raise UsageError(
                f"{where}: {key}: a table over epsilon has rows {{epsilon_up_to = ..., value = "
                f"...}}, the last without epsilon_up_to; got {shown(row)}"
            )
        limit = row.get("epsilon_up_to", math.inf)
        number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if not (number and float(limit) > reached):
            raise UsageError(
                f"{where}: {key}: epsilon_up_to must be above 0 and grow from row to row, "
                f"got {shown(limit)} after {reached:g}"
            )
        reached = float(limit)
        value = _candidates(row["value"], default, key, where)
        table.append({"epsilon_up_to": reached, "value": value})
    return table


def _candidates(value: Any, default: Any, key: str, where: str) -> Any:
    if not isinstance(value, list) or isinstance(default, list):
        return scalar(value, default, key, where)
    if not value:
        raise UsageError(f"{where}: {key} is an empty list of candidates")
    return [scalar(item, default, key, where) for item in value]


def at_epsilon(value: Any, epsilon: float, key: str) -> Any:
    """What a setting is at an epsilon: a table gives the value of its first row that reaches it.

    Raises:
        UsageError: the table ends before `epsilon`.
    """
    if not (isinstance(value, list) and value and isinstance(value[0], dict)):
        return value
    for row in value:
        if epsilon <= row["epsilon_up_to"]:
            return row["value"]
    raise UsageError(
        f"{key}: the table over epsilon ends at {value[-1]['epsilon_up_to']:g}, below epsilon "
        f"{epsilon:g}; give its last row no epsilon_up_to"
    )


def scalar(value: Any, default: Any, key: str, where: str) -> Any:
    """A single value in the type of its default.

    Raises:
        UsageError: it is of another type.
    """
    check_kind(value, type(default), f"{where}: {key}")
    if isinstance(value, list):
        kind = LISTS.get(key.rpartition(".")[2], float)
        for item in value:
            check_kind(item, kind, f"{where}: {key}: each item")
        return [kind(item) for item in value]
    return float(value) if isinstance(default, float) else value


def check_kind(value: Any, kind: type, where: str) -> None:
    """Refuse a value of another type; a bool is no number, and numbers are finite.

    Raises:
        UsageError: it is.
    """
    fits = isinstance(value, int | float if kind is float else kind)
    if isinstance(value, bool) and kind is not bool:
        fits = False
    if fits and kind is float and not abs(value) <= sys.float_info.max:  # also catches nan
        fits = False
    if not fits:
        raise UsageError(f"{where} must be {KINDS.get(kind, kind.__name__)}, got {shown(value)}")


def check_choice(value: Any, allowed: Sequence[str], where: str) -> None:
    """Refuse a value that is not one of the texts `allowed`.

    Raises:
        UsageError: it is not, with the nearest one that is.
    """
    check_kind(value, str, where)
    if value not in allowed:
        raise UsageError(
            f"{where} must be one of {', '.join(allowed)}, got {shown(value)}"
            f"{near_miss(value, allowed)}"
        )


def check_line(text: str, where: str) -> None:
    """Refuse a text that tables and figures cannot show in one line.

    Raises:
        UsageError: it holds a line break or another control character.
    """
    if any(unicodedata.category(character) in ("Cc", "Zl", "Zp") for character in text):
        raise UsageError(f"{where} must be one line without control characters, got {shown(text)}")


def check_keys(content: Any, allowed: Iterable[str], where: str, prefix: str) -> None:
    """Refuse what is no table, or a table with keys that are not `allowed`.

    Raises:
        UsageError: naming the key, the nearest allowed one and all that are.
    """
    known = list(allowed)
    if not isinstance(content, dict):
        raise UsageError(f"{where}: {prefix.rstrip('.')} must be a table, got {shown(content)}")
    for key in content:
        if key not in known:
            raise UsageError(
                f"{where}: unknown key {prefix}{shown_key(key)}{near_miss(key, known)}; "
                f"allowed are: {', '.join(known)}"
            )
