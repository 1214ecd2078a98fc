"""`dpcompare list`: what can be named."""

import click

from dpcompare import catalog


@click.command("list")
@click.argument("kind", type=click.Choice(["studies", "mechanisms", "schemas"]))
def list_names(kind: str) -> None:
    """The names of all studies, mechanisms or schemas.

    \b
    Example:
      dpcompare list mechanisms
    """
    for name in getattr(catalog, kind)():
        click.echo(name)
