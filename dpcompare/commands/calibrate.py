"""`dpcompare calibrate`: the noise that fits a budget."""

from typing import Any

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.commands.parameter_types import Number
from dpcompare.errors import UsageError
from dpcompare.privacy import ACCOUNTANTS, ROW_RELATIONS


@click.command()
@click.option("--epsilon", type=Number(), required=True)
@click.option("--delta", type=Number(below=1), help="[default: examples^-1.1]")
@click.option(
    "--mechanism",
    type=click.Choice(["dp-sgd", "randomized-response"]),
    default="dp-sgd",
    show_default=True,
)
@click.option("--base-rate", type=Number(below=1), help="Public rate of ones, for labels.")
@click.option("--examples", type=click.IntRange(1), help="Training rows, n.")
@click.option("--batch-size", type=click.IntRange(1), help="Expected rows a step.")
@click.option("--epochs", type=Number(), help="Expected passes over the data.")
@click.option("--steps", type=click.IntRange(1), help="Updates, in place of epochs.")
@click.option("--group-size", type=click.IntRange(1), default=1, show_default=True)
@click.option("--accountant", type=click.Choice(ACCOUNTANTS), default="pld", show_default=True)
@click.option(
    "--neighboring", type=click.Choice(ROW_RELATIONS), default="zero-out", show_default=True
)
@click.option("--allow-large-delta", is_flag=True, help="Accept a delta above 1/n.")
@json_option()
def calibrate(
    epsilon: float,
    delta: float | None,
    mechanism: str,
    base_rate: float | None,
    examples: int | None,
    batch_size: int | None,
    epochs: float | None,
    steps: int | None,
    group_size: int,
    accountant: Any,
    neighboring: Any,
    allow_large_delta: bool,
    as_json: bool,
) -> None:
    """The noise that fits a budget.

    For DP-SGD the noise multiplier, never below what is needed. For randomized-response, which
    flips binary labels, the chance of a flip and, with the public --base-rate, how many clean
    labels the random ones are worth.

    \b
    Example:
      dpcompare calibrate --epsilon 1 --examples 100000 --batch-size 4096 --epochs 30
      dpcompare calibrate --mechanism randomized-response --epsilon 1 --base-rate 0.03
    """
    from dpcompare import calibration
    from dpcompare.privacy import Budget, Schedule, check_delta, default_delta

    if mechanism == "randomized-response":
        of_steps = (batch_size, epochs, steps, delta)
        of_gradients = (group_size, neighboring, accountant, allow_large_delta)
        if of_steps != (None,) * 4 or of_gradients != (1, "zero-out", "pld", False):
            raise UsageError(
                "randomized-response has no steps, groups, row relation or delta; give --epsilon, "
                "--base-rate and --examples only"
            )
        if base_rate is None and examples is not None:
            raise UsageError("--examples of randomized-response go with --base-rate")
        _print_report(calibration.response_report(epsilon, base_rate, examples), as_json)
        return
    if base_rate is not None:
        raise UsageError("--base-rate is for --mechanism randomized-response")
    if examples is None or batch_size is None:
        raise UsageError("give --examples and --batch-size")
    if (epochs is None) == (steps is None):
        raise UsageError("give either --epochs or --steps")
    delta = default_delta(examples) if delta is None else delta
    check_delta(delta, examples, allow_large_delta=allow_large_delta)
    schedule = (
        Schedule(examples, batch_size, steps, "poisson")
        if steps is not None
        else Schedule.from_epochs(examples, batch_size, epochs or 0, "poisson")
    )
    budget = Budget(epsilon, delta, neighboring, accountant)
    _print_report(calibration.calibration_report(budget, schedule, group_size), as_json)


def _print_report(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(report)
        return
    width = max(map(len, report))
    for key, value in report.items():
        terminal.result(f"{key.replace('_', ' '):<{width}}  {_readable(value)}")


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(item)}" for key, item in value.items())
    if value is None:
        return "not defined"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
