"""`dpcompare prepare`: a raw log becomes a data set."""

from dataclasses import asdict
from pathlib import Path

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.commands.name_types import SCHEMA


@click.command()
@click.argument("schema", type=SCHEMA)
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Pad rows whose empty last fields were cut off.")
@json_option("the manifest as one JSON object")
def prepare(
    schema: str, sources: tuple[Path, ...], destination: Path, repair: bool, as_json: bool
) -> None:
    """Turn a raw log into a memory-mapped data set.

    SOURCES are text, gzip or Parquet, and DESTINATION is a new folder. SCHEMA is a bundled name
    (see `dpcompare list schemas`) or a TOML file of your own; `dpcompare show
    criteo-sponsored-search` prints one to start from. SOURCES come in time order; a quoted pattern
    stands for the files it matches. If it is interrupted, the same command goes on. Studies then
    take the folder by --data DESTINATION.

    \b
    Example:
      dpcompare prepare criteo-kaggle train.txt prepared/criteo
      dpcompare prepare criteo-kaggle 'day_*.gz' prepared/days
    """
    from dpcompare.data import prepare as prepare_rows
    from dpcompare.data.row_progress import RowProgress

    terminal.only_results_on_output()
    with RowProgress() as progress:
        manifest = prepare_rows(
            schema,
            list(sources),
            destination,
            repair=repair,
            progress=None if terminal.is_quiet() else progress,
            say=terminal.say,
        )
    if as_json:
        print_json(asdict(manifest))
    else:
        terminal.result(manifest.report())
