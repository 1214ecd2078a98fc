"""`dpcompare train`: one model under one mechanism, exported with its guarantee."""

from pathlib import Path

import click

from dpcompare import terminal
from dpcompare.commands.parameter_types import Number
from dpcompare.errors import UsageError


@click.command()
@click.argument("study")
@click.option("--mechanism", metavar="CURVE", help="Curve of the study [default: its only one].")
@click.option("--epsilon", type=Number(), help="The budget [default: the study's only one].")
@click.option("--data", type=click.Path(path_type=Path), help="A folder made by `prepare`.")
@click.option("--seed", type=click.IntRange(0), help="Names the random streams [default: 0].")
@click.option("--secret-seed", is_flag=True, help="For release: streams that nobody can repeat.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="A new folder for the model."
)
@click.option(
    "--checkpoint-minutes",
    type=Number(),
    default=10,
    show_default=True,
    help="Time between two checkpoints.",
)
def train(
    study: str,
    mechanism: str | None,
    epsilon: float | None,
    data: Path | None,
    seed: int | None,
    secret_seed: bool,
    out: Path,
    checkpoint_minutes: float,
) -> None:
    """Train one model of STUDY and export it with its guarantee.

    OUT gets `parameters/` (orbax) and `model.json`: settings and guarantee, no metrics. Until the
    run has ended OUT.private holds checkpoints and the secret; after a kill the same command goes
    on.

    \b
    Example:
      dpcompare train quickstart --mechanism dp-sgd --epsilon 1 --secret-seed --out model
      dpcompare predict model synthetic --out predictions.csv
    """
    if secret_seed and seed is not None:
        raise UsageError("give either --seed or --secret-seed")
    from dpcompare import api
    from dpcompare.progress import ProgressBar

    with ProgressBar([1.0], "training") as bar:
        model = api.train(
            study,
            mechanism,
            epsilon,
            data=data,
            seed=seed or 0,
            secret_seed=secret_seed,
            out=out,
            checkpoint_minutes=checkpoint_minutes,
            report=lambda fraction: bar.update(0, fraction),
        )
        bar.finish(0)
    terminal.result(f"guarantee  {model.claim()}")
    for line in model.settings["notes"]:
        terminal.result(f"note       {line}")
    metrics = (model.record or {})["test"]
    scores = ", ".join(
        f"{name} {value:.5g}" for name, value in metrics.items() if value is not None
    )
    terminal.result(f"test rows  {scores} (from true labels, outside the guarantee; not exported)")
    terminal.result(f"wrote {out}")
