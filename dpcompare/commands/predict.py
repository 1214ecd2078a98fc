"""`dpcompare predict`: what an exported model says of rows."""

import warnings
from pathlib import Path

import click

from dpcompare import terminal
from dpcompare.errors import UsageError


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("data")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="A file that ends in .csv or .parquet.",
)
@click.option("--mechanism", metavar="FILE:CLASS", help="Of a model trained by a mechanism file.")
def predict(model: Path, data: str, out: Path, mechanism: str | None) -> None:
    """Write the predictions of MODEL for every row of DATA, in their order.

    MODEL is a folder made by `train`, DATA one made by `prepare`, or "synthetic". The file has one
    column, `prediction`.

    \b
    Example:
      dpcompare predict model prepared/new-rows --out predictions.parquet
    """
    if out.suffix not in (".csv", ".parquet"):
        raise UsageError(f"--out must end in .csv or .parquet, got {out}")
    from dpcompare.trained_model import load_model, write_predictions

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        loaded = load_model(model, mechanism)
    for warning in caught:
        terminal.say(f"Warning: {warning.message}")
    predictions = loaded.predict(data)
    write_predictions(predictions, out)
    terminal.result(f"wrote {out}: {len(predictions):,} predictions, mean {predictions.mean():.6g}")
