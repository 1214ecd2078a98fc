"""Arguments that name something, completed by a shell from names that are read without imports."""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import click
from click.shell_completion import CompletionItem

from dpcompare import catalog


class Named(click.ParamType):
    """A name or the path of a file; what it names is looked up by the command.

    Args:
        kinds: functions that give the known names.
    """

    name = "text"

    def __init__(self, *kinds: Callable[[], Iterable[str]]) -> None:
        self._kinds = kinds

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        """The text as it stands."""
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The known names that start with what is there; files where none does."""
        known = chain.from_iterable(kind() for kind in self._kinds)
        names = [CompletionItem(name) for name in known if name.startswith(incomplete)]
        return names or [CompletionItem(incomplete, type="file")]


STUDY = Named(catalog.studies)
SCHEMA = Named(catalog.schemas)
MECHANISM = Named(catalog.mechanisms)
ANYTHING = Named(catalog.mechanisms, catalog.studies, catalog.schemas)
