"""The command line: thin commands, with heavy imports inside them so that help answers at once."""

import json
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dpcompare import __version__, catalog
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.privacy import ACCOUNTANTS, ROW_RELATIONS

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one message on standard error and an exit code.

    Exit codes: 0 success, 1 failure, 2 usage, 130 interrupted.
    """
    try:
        code = cli.main(args=arguments, prog_name="dpcompare", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted. What was finished is kept; the same command goes on.", err=True)
        sys.exit(INTERRUPTED)
    except DpcompareError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, MemoryError) as error:
        _fail(str(error) or type(error).__name__, 1)
    except Exception as error:
        if os.environ.get("DPCOMPARE_TRACEBACK"):
            raise
        _fail(
            f"{type(error).__name__}: {error}. This is a defect in dpcompare or in a plug-in; set "
            "DPCOMPARE_TRACEBACK=1 to see where",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


class Number(click.ParamType):
    """A finite number above a bound; click's own ranges let nan pass."""

    name = "number"

    def __init__(self, below: float = math.inf) -> None:
        self.below = below

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """Parse one number, refusing nan, infinity and what is out of range."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            self.fail(f"{value!r} is not a number", param, ctx)
        if not 0 < number < self.below:
            limit = f"between 0 and {self.below:g}" if self.below < math.inf else "above 0"
            self.fail(f"{value} must be a finite number {limit}", param, ctx)
        return number


class Names(click.ParamType):
    """A comma-separated list."""

    name = "list"

    def convert(self, value: Any, param: Any, ctx: Any) -> list[str]:
        """Split at commas; an empty list is refused."""
        if isinstance(value, list):
            return value
        names = [part.strip() for part in value.split(",") if part.strip()]
        if not names:
            self.fail("the list is empty", param, ctx)
        return names


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpcompare")
def cli() -> None:
    """What each way of being private costs an ads model.

    Trains one model under several privacy mechanisms at epsilons from 0.1 to 50 and draws the
    utility curves. Random numbers are reproducible from published seeds: good for research, not
    for a release whose noise must stay secret.

    Start with:  dpcompare run-study quickstart
    """


@cli.command("run-study")
@click.argument("study")
@click.option("--data", type=click.Path(path_type=Path), help="A folder made by `prepare`.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Results folder [default: results/STUDY]."
)
@click.option("--seeds", type=int, help="Runs per mechanism and epsilon.")
@click.option("--epsilons", type=Names(), metavar="LIST", help="E.g. 0.5,1,3.")
@click.option("--mechanisms", type=Names(), metavar="LIST", help="Curves of the study to run.")
@click.option(
    "--workers", type=int, help="Worker processes [default: one per core, as far as memory allows]."
)
@click.option(
    "--executor",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Where trials run: processes of this machine, or a Ray cluster.",
)
@click.option(
    "--ray-address",
    metavar="ADDRESS",
    help="Of a running cluster: auto or HOST:PORT [default: RAY_ADDRESS, or one of its own].",
)
@click.option("--retry-failed", is_flag=True, help="Run trials again that failed before.")
@click.option(
    "--devices", type=click.IntRange(1), default=1, show_default=True, help="Devices per trial."
)
@click.option(
    "--checkpoint-minutes",
    type=Number(),
    default=10,
    show_default=True,
    help="Time between two checkpoints of a trial.",
)
@click.option("--dry-run", is_flag=True, help="List the trials, with time and memory; run nothing.")
def run_study(
    study: str,
    data: Path | None,
    out: Path | None,
    seeds: int | None,
    epsilons: list[str] | None,
    mechanisms: list[str] | None,
    workers: int | None,
    executor: str,
    ray_address: str | None,
    retry_failed: bool,
    devices: int,
    checkpoint_minutes: float,
    dry_run: bool,
) -> None:
    """Run the trials of STUDY that are missing, then draw its figure and table.

    STUDY is a bundled name (see `dpcompare list studies`) or a TOML file.

    \b
    Example:
      dpcompare run-study quickstart --epsilons 0.5,1,5 --seeds 2
      dpcompare run-study pctr --data prepared/criteo
    """
    from dpcompare import conduct
    from dpcompare import study as studies

    if workers is not None and workers < 1:
        raise UsageError(f"--workers must be at least 1, got {workers}")
    if ray_address is not None and executor != "ray":
        raise UsageError("--ray-address goes with --executor ray")
    if devices > 1 and executor == "ray":
        raise UsageError("--devices does not go with --executor ray: a Ray worker has one device")
    chosen = studies.select(
        studies.load(study),
        data_path=data,
        seeds=seeds,
        epsilons=epsilons,
        mechanisms=mechanisms,
    )
    how = conduct.How(workers, retry_failed, devices, checkpoint_minutes)
    if dry_run:
        click.echo(conduct.dry_run(chosen, how))
        return
    how = replace(how, executor=_cluster(executor, workers, ray_address))
    folder = out or Path("results") / chosen.name
    failed = conduct.run(chosen, folder, how, click.echo)
    if failed:
        raise DpcompareError(
            f"failed trials: {failed}. The table names them with their reasons; the others are "
            "complete, and the same command with --retry-failed tries these again. Records: "
            f"{folder}/trials.jsonl"
        )


def _cluster(executor: str, workers: int | None, ray_address: str | None) -> Any:
    """What runs trials elsewhere than in processes of this machine."""
    if executor == "local":
        return None
    from dpcompare.ray_executor import RayExecutor

    return RayExecutor(workers, ray_address)


@cli.command()
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--figure", help="Draw this kind of figure [default: the one the study asks for].")
@click.option("--formats", type=Names(), default="png,svg", show_default=True, metavar="LIST")
def plot(results: Path, figure: str | None, formats: list[str]) -> None:
    """Redraw figures and tables of RESULTS from its records alone.

    --figure all draws every kind of figure that the records can give; --formats takes png, svg
    and pdf. Beside each figure a CSV file holds the numbers in it.

    \b
    Example:
      dpcompare plot results/quickstart
      dpcompare plot results/quickstart --figure utility --formats pdf
    """
    from dpcompare.redraw import show

    show(results, click.echo, figure, formats)


@cli.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The page to write [default: report.html in the first results folder].",
)
def report(results: tuple[Path, ...], out: Path | None) -> None:
    """Write one HTML page about RESULTS: the verdict, curves, tables, guarantees.

    The page is made from records alone, needs no network, and works without a mouse.

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
            click.echo(warning)
    click.echo(f"wrote {written}")


@cli.command()
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


@cli.command()
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


@cli.command()
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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
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
    """The noise that fits a budget: of DP-SGD, or of randomized binary labels.

    For DP-SGD the noise multiplier, never below what is needed. For randomized-response the chance
    of a flip and, with the public --base-rate, how many clean labels the random ones are worth.

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
        click.echo(json.dumps(report, allow_nan=False))
        return
    width = max(map(len, report))
    for key, value in report.items():
        click.echo(f"{key.replace('_', ' '):<{width}}  {_readable(value)}")


def _readable(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_readable(item)}" for key, item in value.items())
    if value is None:
        return "not defined"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@cli.command("list")
@click.argument("kind", type=click.Choice(["studies", "mechanisms", "schemas"]))
def list_names(kind: str) -> None:
    """The names of all studies, mechanisms or schemas.

    \b
    Example:
      dpcompare list mechanisms
    """
    for name in getattr(catalog, kind)():
        click.echo(name)


@cli.command()
@click.argument("name")
@click.option("--epsilon", type=Number(), help="Print the label kernel at this epsilon instead.")
@click.option("--task", default="pctr", show_default=True, help="Whose labels: pctr, pcvr, pconvs.")
@click.option("--cap", type=click.IntRange(1), help="Largest count of pconvs that is kept.")
@click.option(
    "--base-rate", type=Number(), help="Mean label of the prior to show, if it needs one."
)
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
def show(
    name: str,
    epsilon: float | None,
    task: str,
    cap: int | None,
    base_rate: float | None,
    parameters: tuple[str, ...],
) -> None:
    """A mechanism's description and parameters, or the text of a study or schema.

    With --epsilon, what a label mechanism does to each label: the chance of every output, its bias
    and variance, and the worst likelihood ratio.

    \b
    Example:
      dpcompare show dp-sgd
      dpcompare show randomized-response --epsilon 1
      dpcompare show unbiased-randomizer --epsilon 1 --task pconvs --cap 2 -p prior=[0.9,0.07,0.03]
    """
    if epsilon is None and (task != "pctr" or cap or base_rate or parameters):
        raise UsageError("--task, --cap, --base-rate and -p go with --epsilon")
    for text in (catalog.studies(), catalog.schemas()):
        if name in text:
            if epsilon is not None:
                raise UsageError(f"--epsilon is for mechanisms, and {name!r} is none")
            click.echo(text[name].read_text(), nl=False)
            return
    known = [*catalog.mechanisms(), *catalog.studies(), *catalog.schemas()]
    if name not in known and ":" not in name:
        raise UsageError(
            f"{name!r} is no mechanism, study or schema{catalog.near_miss(name, known)}; "
            f"there are: {', '.join(known)}"
        )
    from dpcompare import mechanism, tasks

    plugin = mechanism.find(name)
    if epsilon is None:
        click.echo(mechanism.describe(plugin), nl=False)
        return
    from dpcompare.label_table import label_table, parse_parameters

    chosen = tasks.find(task, cap)
    click.echo(
        label_table(plugin, epsilon, chosen, parse_parameters(parameters), base_rate), nl=False
    )
