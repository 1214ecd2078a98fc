"""`dpcompare report`: one page about results."""

from pathlib import Path

import click

from dpcompare import terminal


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The page to write [default: report.html in the first results folder].",
)
def report(results: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about RESULTS to decide from.

    It holds the verdict, curves, tables and guarantees. The page is made from records alone, needs
    no network, and works without a mouse.

    \b
    Example:
      dpcompare report results/quickstart
      dpcompare report results/pctr results/pcvr results/pconvs --out report.html
    """
    from dpcompare import report as page
    from dpcompare.results import ResultsFolder

    written = page.write(results, out or results[0] / "report.html")
    for path in results:
        folder = ResultsFolder(path)
        folder.records(folder.plan())
        for warning in folder.warning_lines():
            terminal.say(warning)
    terminal.say(f"wrote {written}")
