"""`dpcompare prepare`: a raw log becomes a data set."""

from pathlib import Path

import click


@click.command()
@click.argument("schema")
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.argument("destination", type=click.Path(path_type=Path))
@click.option("--repair", is_flag=True, help="Pad rows whose empty last fields were cut off.")
def prepare(schema: str, sources: tuple[Path, ...], destination: Path, repair: bool) -> None:
    """Turn raw SOURCES (text, gzip or Parquet) into the memory-mapped data set DESTINATION.

    SCHEMA is a bundled name (see `dpcompare list schemas`) or a TOML file. SOURCES come in time
    order; a quoted pattern stands for the files it matches. If it is interrupted, the same command
    goes on.

    \b
    Example:
      dpcompare prepare criteo-kaggle train.txt prepared/criteo
      dpcompare prepare criteo-kaggle 'day_*.gz' prepared/days
    """
    from dpcompare.data import prepare as prepare_rows
    from dpcompare.data.row_progress import RowProgress

    with RowProgress() as progress:
        manifest = prepare_rows(
            schema,
            list(sources),
            destination,
            repair=repair,
            progress=progress,
            say=lambda message: click.echo(message, err=True),
        )
    click.echo(manifest.report())
