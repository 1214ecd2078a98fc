"""`dpcompare run-study`: run what is missing of a study."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.commands.name_types import STUDY
from dpcompare.commands.parameter_types import Names, Number
from dpcompare.commands.plot import print_table
from dpcompare.errors import DpcompareError, UsageError


@click.command("run-study")
@click.argument("study", type=STUDY)
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
@json_option("the outcome, or the trials of a dry run, as one JSON object")
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
    as_json: bool,
) -> None:
    """Run what is missing of STUDY; draw its figure and table.

    STUDY is a bundled name (see `dpcompare list studies`) or a TOML file.

    \b
    Example:
      dpcompare run-study quickstart --epsilons 0.5,1,5 --seeds 2
      dpcompare run-study pctr --data prepared/criteo
    """
    from dpcompare import conduct, run_report
    from dpcompare import study as studies
    from dpcompare.results import ResultsFolder

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
        if as_json:
            print_json(run_report.planned(chosen, how))
        else:
            terminal.result(conduct.dry_run(chosen, how))
        return
    how = replace(how, executor=_cluster(executor, workers, ray_address))
    folder = out or Path("results") / chosen.name
    before = ResultsFolder(folder).done_ids()
    failed = conduct.run(chosen, folder, how, terminal.say)
    if as_json:
        print_json(run_report.outcome(folder, before))
    elif terminal.is_quiet():
        print_table(folder)
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
