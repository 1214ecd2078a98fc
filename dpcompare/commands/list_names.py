"""`dpcompare list`: what can be named."""

import tomllib
from collections.abc import Iterator
from typing import Any

import click

from dpcompare import catalog, terminal
from dpcompare.commands.common_options import json_option, print_json


@click.command("list")
@click.argument("kind", type=click.Choice(["studies", "mechanisms", "schemas"]))
@json_option("one JSON array of objects")
def list_names(kind: str, as_json: bool) -> None:
    """The names of all studies, mechanisms or schemas.

    With --json also what is known without loading anything: titles, tasks and kinds of studies,
    titles of schemas, packages of mechanisms.

    \b
    Example:
      dpcompare list mechanisms
      dpcompare list studies --json
    """
    if as_json:
        print_json(list(_described(kind)))
        return
    for name in getattr(catalog, kind)():
        terminal.result(name)


def _described(kind: str) -> Iterator[dict[str, Any]]:
    if kind == "mechanisms":
        for name, point in catalog.mechanisms().items():
            package = point.dist
            yield {
                "name": name,
                "object": point.value,
                "package": package and package.name,
                "version": package and package.version,
            }
        return
    texts = catalog.studies() if kind == "studies" else catalog.schemas()
    keys = ("title", "task", "kind") if kind == "studies" else ("title",)
    for name, file in texts.items():
        content = {"kind": "train", **tomllib.loads(file.read_text(encoding="utf-8"))}
        yield {"name": name} | {key: content.get(key) for key in keys}
