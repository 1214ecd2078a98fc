"""TOML tables that know where they stand, so that every error can say so."""

from typing import Any

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError

_REQUIRED = object()
_KIND_NAMES = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


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
            raise UsageError(f"{source}: {key} must be a table, got {content!r}")
        self.content: dict[str, Any] = content

    def error(self, key: str, problem: str) -> UsageError:
        """An error about one key."""
        full_key = f"{self.key}.{key}" if self.key else key
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
            raise self.error(key, f"must be {_KIND_NAMES[kind]}, got {value!r}")
        return value

    def texts(self, key: str, default: list[str], example: str) -> tuple[str, ...]:
        """The value of a key that is a list of texts."""
        value = self.get(key, list, default)
        if not all(isinstance(text, str) for text in value):
            raise self.error(key, f"must be a list of texts such as {example}")
        return tuple(value)
