"""Running a study from end to end: what is missing, the records, the figure and the table."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tomli_w

from dpcompare import estimate, figures, report, runner
from dpcompare.expansion import expand
from dpcompare.progress import ProgressBar, duration
from dpcompare.results import ResultsFolder, write_atomically
from dpcompare.study import Study, resolved
from dpcompare.summary import summarize, write_summary
from dpcompare.trial import Configuration, failed_record, identity

Say = Callable[[str], Any]


def run(study: Study, path: Path, workers: int | None, say: Say) -> int:
    """Run what is missing of a study in the results folder `path`, then show it.

    Args:
        study: what to ask.
        path: the results folder, created if needed.
        workers: worker processes; None for one per usable core.
        say: receives lines for the user.

    Returns:
        How many trials failed.

    Raises:
        UsageError: the study cannot work with its data.
        DpcompareError: the folder cannot be written, or another run is writing to it.
    """
    configurations = sorted(expand(study), key=estimate.cost, reverse=True)
    configurations.sort(key=lambda c: c["seed"])  # stable: the longest first within each seed
    folder = ResultsFolder(path)
    with folder.lock():
        for line in reasons_to_run_again(folder, configurations):
            say(line)
        identities = [identity(c) for c in configurations]
        write_atomically(folder.study, tomli_w.dumps(resolved(study)).encode())
        folder.write_plan([identity(c) for c in expand(study)])
        costs = [estimate.cost(c) for c in configurations]
        with ProgressBar(costs, study.name) as bar:
            outcome = runner.run_missing(
                configurations,
                identities,
                folder,
                runner.LocalExecutor(workers),
                "dpcompare.trial:run_trial",
                _failed,
                bar,
            )
    say(f"{outcome.done} trials run, {outcome.skipped} already there, {outcome.failed} failed.")
    show(path, say)
    return outcome.failed


def show(path: Path, say: Say) -> None:
    """Redraw figures, summary.csv and the table of a results folder from its records alone.

    Raises:
        DpcompareError: there are no records, or they cannot be read.
    """
    folder = ResultsFolder(path)
    ids = folder.plan()
    records = folder.records(ids)
    for warning in folder.warnings:
        say(f"Warning: {warning}")
    summary = write_summary(folder, ids)
    drawn = figures.draw(folder, ids) if not summary.empty else []
    say(report.table(summarize(records)))
    say(report.crossing_sentences(records))
    for file in [*drawn, folder.summary]:
        say(f"wrote {file}")


def dry_run(study: Study, workers: int | None) -> str:
    """The trials of a study with the time and memory that they are expected to take."""
    configurations = expand(study)
    count = workers or len(runner.usable_cores())
    rate = estimate.measured_speed()
    lines = [f"{study.title}: {len(configurations)} trials on {count} workers", ""]
    lines += [_describe(c, estimate.seconds(c, rate)) for c in configurations]
    seconds = sum(estimate.seconds(c, rate) for c in configurations)
    memory = max(estimate.memory(c) for c in configurations)
    lines += [
        "",
        f"about {duration(seconds / min(count, len(configurations)))} on {count} workers, "
        f"{memory / 2**30:.1f} GiB of memory for each (rough estimates)",
    ]
    return "\n".join(lines)


def reasons_to_run_again(folder: ResultsFolder, configurations: list[Configuration]) -> list[str]:
    """Which trials have records made with other settings, and what has changed since."""
    if not folder.trials.exists():
        return []
    done = folder.done_ids()
    previous = {_place(r, r["configuration"]): r for r in folder.records()} if done else {}
    changes: Counter[tuple[str, str]] = Counter()
    for configuration in configurations:
        about = configuration["about"]
        record = previous.get(_place(about, configuration))
        if identity(configuration) not in done and record and record["status"] == "done":
            changed = ", ".join(_differences(record["configuration"], configuration)) or "nothing"
            changes[about["label"], changed] += 1
    return [
        f"{count} trials of {label} run again, for these have changed: {changed}"
        for (label, changed), count in changes.items()
    ]


def _place(about: Any, configuration: Any) -> tuple[Any, ...]:
    epsilon = float(configuration["budget"]["epsilon"])
    return about["label"], epsilon, configuration["seed"], str(about["candidate"])


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    found = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if key in ("about", "path") or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found += _differences(before, after, f"{prefix}{key}.")
        elif str(before) != str(after):
            found.append(f"{prefix}{key}")
    return found


def _describe(configuration: Configuration, seconds: float) -> str:
    about, training = configuration["about"], configuration["training"]
    candidate = "".join(f" {k}={v}" for k, v in about["candidate"].items())
    return (
        f"{about['label']:<24} epsilon {configuration['budget']['epsilon']!s:<6} "
        f"seed {configuration['seed']:<3} batch {training['batch_size']:<6} "
        f"epochs {training['epochs']:<6g} {duration(seconds):>8}{candidate}"
    )


def _failed(configuration: Any, identity: str, failure: runner.WorkerFailure) -> dict[str, Any]:
    return failed_record(configuration, failure.reason)
