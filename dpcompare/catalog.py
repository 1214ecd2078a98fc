"""The names of everything that can be named, read without importing any of it."""

from collections.abc import Iterable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable

from dpcompare.errors import UsageError

MECHANISMS = "dpcompare.mechanisms"
"""The entry-point group in which packages announce their mechanisms."""


def mechanisms() -> dict[str, EntryPoint]:
    """The installed mechanisms, by name.

    Raises:
        UsageError: two packages announce different mechanisms of one name.
    """
    found: dict[str, EntryPoint] = {}
    for point in sorted(entry_points(group=MECHANISMS)):
        other = found.setdefault(point.name, point)
        if other.value != point.value:
            raise UsageError(
                f"two installed mechanisms are called {point.name!r}: {other.value} and "
                f"{point.value}; uninstall the package of one of them"
            )
    return found


def studies() -> dict[str, Traversable]:
    """The bundled study files, by name."""
    return _toml_files(files("dpcompare_studies"))


def schemas() -> dict[str, Traversable]:
    """The bundled schema files, by name."""
    return _toml_files(files("dpcompare").joinpath("data", "schemas"))


def near_miss(name: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` for a known name close to `name`, else nothing."""
    close = get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _toml_files(folder: Traversable) -> dict[str, Traversable]:
    found = {file.name.removesuffix(".toml"): file for file in folder.iterdir()}
    return {name: file for name, file in sorted(found.items()) if file.name.endswith(".toml")}
