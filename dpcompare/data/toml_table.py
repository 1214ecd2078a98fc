"""TOML tables that know where they stand, so that every error can say so."""

import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError

DEEPEST = 20
"""How deeply tables and lists may be nested: far more than any file needs."""

SMALLEST_WHOLE, LARGEST_WHOLE = -(2**63), 2**64 - 1
"""Whole numbers have 64 bits, with or without a sign: larger ones fit no array and no table."""

_SHOWN = 200  # characters of a value or a key in a message
_REQUIRED = object()
_KIND_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def parse_toml(text: str, source: str) -> dict[str, Any]:
    """The content of a TOML file, whose values can be shown, compared and converted safely.

    Args:
        text: of the file.
        source: the file, for messages.

    Raises:
        UsageError: it is not TOML, is nested more than 20 levels deep, or holds a whole number that
            64 bits do not.
    """
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source} is not valid TOML: {error}") from error
    except ValueError as error:  # Python converts no more digits than that
        raise UsageError(f"{source} holds a number with thousands of digits") from error
    except RecursionError as error:
        raise _too_deep(source) from error
    for key, value in _leaves(content, source):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if whole and not SMALLEST_WHOLE <= value <= LARGEST_WHOLE:
            raise UsageError(
                f"{source}: {key}: a whole number must lie between -2**63 and 2**64 - 1; this one "
                f"has {value.bit_length():,} bits"
            )
    return content


def _leaves(content: dict[str, Any], source: str) -> Iterator[tuple[str, Any]]:
    """Every value that is neither table nor list, with the key under which it stands."""
    found: list[tuple[str, Any, int]] = [(shown_key(key), content[key], 1) for key in content]
    while found:
        place, value, depth = found.pop()
        if not isinstance(value, dict | list):
            yield place, value
        elif depth == DEEPEST:
            raise _too_deep(source)
        elif isinstance(value, dict):
            found.extend((f"{place}.{shown_key(key)}", value[key], depth + 1) for key in value)
        else:
            items = enumerate(value, start=1)
            found.extend((f"{place}[{index}]", item, depth + 1) for index, item in items)


def _too_deep(source: str) -> UsageError:
    return UsageError(f"{source} is nested more than {DEEPEST} levels deep")


def shown(value: Any) -> str:
    """A value as a message quotes it: in one line, shortened."""
    return _shortened(repr(value))


def shown_key(key: str) -> str:
    """A key as a message names it: in one line, shortened."""
    return _shortened(key if key.isprintable() else repr(key))


def shown_names(names: Iterable[str]) -> str:
    """Names as a message lists them: in one line, shortened."""
    return _shortened(", ".join(map(shown_key, names)))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


class Table:
    """One table of a TOML file.

    Attributes:
        content: its keys and values.
        source: the file, for messages.
        key: where the table stands in the file, for messages; "" at the top.
    """

    def __init__(self, content: Any, source: str, key: str) -> None:
        self.source = source
        self.key = key
        if not isinstance(content, dict):
            raise UsageError(f"{source}: {key} must be a table, got {shown(content)}")
        self.content: dict[str, Any] = content

    def error(self, key: str, problem: str) -> UsageError:
        """An error about one key."""
        full_key = f"{self.key}.{shown_key(key)}" if self.key else shown_key(key)
        return UsageError(f"{self.source}: {full_key}: {problem}")

    def allow(self, *keys: str) -> None:
        """Refuse every other key."""
        for key in self.content:
            if key not in keys:
                raise self.error(
                    key, f"unknown key{near_miss(key, keys)}; allowed: {', '.join(keys)}"
                )

    def get(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """The value of a key, of the given kind; a whole number may stand for a float."""
        if key not in self.content:
            if default is _REQUIRED:
                raise self.error(key, f"is required: {_KIND_NAMES[kind]}")
            return default
        value = self.content[key]
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.error(key, f"must be {_KIND_NAMES[kind]}, got {shown(value)}")
        return value

    def texts(self, key: str, default: list[str], example: str) -> tuple[str, ...]:
        """The value of a key that is a list of texts."""
        value = self.get(key, list, default)
        if not all(isinstance(text, str) for text in value):
            raise self.error(key, f"must be a list of texts such as {example}")
        return tuple(value)
