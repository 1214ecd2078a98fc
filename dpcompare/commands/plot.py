"""`dpcompare plot`: figures and tables from records."""

from pathlib import Path

import click

from dpcompare import terminal
from dpcompare.commands.parameter_types import Names


@click.command()
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--figure", help="Draw this kind of figure [default: the one the study asks for].")
@click.option("--formats", type=Names(), default="png,svg", show_default=True, metavar="LIST")
def plot(results: Path, figure: str | None, formats: list[str]) -> None:
    """Redraw figures and tables from the records of RESULTS.

    --figure all draws every kind of figure that the records can give; --formats takes png, svg
    and pdf. Beside each figure a CSV file holds the numbers in it.

    \b
    Example:
      dpcompare plot results/quickstart
      dpcompare plot results/quickstart --figure utility --formats pdf
    """
    from dpcompare.redraw import show

    show(results, terminal.say, figure, formats)
    if terminal.is_quiet():
        print_table(results)


def print_table(results: Path) -> None:
    """The table of a results folder, for those who get no messages."""
    from dpcompare import wording
    from dpcompare.results import ResultsFolder
    from dpcompare.summary import summarize

    folder = ResultsFolder(results)
    terminal.result(wording.table(summarize(folder.records(folder.plan()))))
