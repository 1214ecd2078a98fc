"""`dpcompare compare`: two results folders side by side."""

from pathlib import Path

import click


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
def compare(a: Path, b: Path) -> None:
    """Lay two results folders side by side: what differs in settings, and in results.

    \b
    Example:
      dpcompare compare results/quickstart results/pctr
    """
    from dpcompare.comparison import comparison_text

    click.echo(comparison_text(a, b), nl=False)
