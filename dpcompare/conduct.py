"""Running a study from end to end: what is missing, the records, the figure and the table."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from dpcompare import checkpoints, estimate, memory, runner
from dpcompare.configuration import Configuration, Run, counted, identity
from dpcompare.devices import check_devices
from dpcompare.expansion import expand, final_trials
from dpcompare.progress import ProgressBar, duration
from dpcompare.results import ResultsFolder, Say, write_atomically
from dpcompare.study import Study, resolved
from dpcompare.trial import failed_record
from dpcompare.trial_log import Logged

FUNCTIONS = {"train": "dpcompare.trial:run_trial", "account": "dpcompare.account:run_account"}
"""What runs the trials of each kind of study."""


@dataclass(frozen=True)
class How:
    """How a study is run; nothing here changes what its trials are.

    Attributes:
        workers: worker processes; None for one per usable core, or fewer where memory is short.
        retry_failed: run trials again that failed before.
        devices: that share each trial.
        checkpoint_minutes: the time between two checkpoints of a trial.
        executor: where trials run; None for worker processes of this machine.
    """

    workers: int | None = None
    retry_failed: bool = False
    devices: int = 1
    checkpoint_minutes: float = 10.0
    executor: runner.Executor | None = None


def run(study: Study, path: Path, how: How, say: Say) -> int:
    """Run what is missing of a study in the results folder `path`, then show it.

    A trial that failed before stays as it is, unless `how` asks for another try.

    Args:
        study: what to ask.
        path: the results folder, created if needed.
        how: workers and the like.
        say: receives lines for the user.

    Returns:
        How many trials of the study have failed, now or before.

    Raises:
        UsageError: the study cannot work with its data.
        DpcompareError: the folder cannot be written, or another run is writing to it.
    """
    planned = expand(study)
    if how.executor is None:
        check_devices(how.devices)
    folder = ResultsFolder(path)
    with folder.lock():
        done = _done_records(folder)
        for line in [*folder.warning_lines(), *reasons_to_run_again(done, planned)]:
            say(line)
        write_atomically(folder.study, tomli_w.dumps(resolved(study)).encode())
        finals = final_trials(study, planned, done)
        folder.write_plan([identity(c) for c in [*planned, *finals]])
        _rename(folder, done, [*planned, *finals])
        failed = _run_missing(study, planned, folder, how, say)
        if any("withheld" in c for c in planned):
            finals = final_trials(study, planned, _done_records(folder))
            folder.write_plan([identity(c) for c in [*planned, *finals]])
            say("The chosen candidates run again, with the test rows.")
            failed += _run_missing(study, finals, folder, how, say)
        _tidy_checkpoints(folder, say)
    # Imported here, so that workers start before their parent has loaded what draws.
    from dpcompare.redraw import show

    show(path, say)
    return failed


def _run_missing(
    study: Study,
    configurations: list[Configuration],
    folder: ResultsFolder,
    how: How,
    say: Say,
) -> int:
    """Run the trials that have no record, and return how many have failed."""
    configurations = in_running_order(configurations)
    identities = [identity(c) for c in configurations]
    done, failed_before = folder.done_ids(), set[str]()
    if not how.retry_failed:
        failed_before = folder.failed_ids() & set(identities)
    settled = done | failed_before
    missing = [c for c, i in zip(configurations, identities, strict=True) if i not in settled]
    executor = how.executor
    if executor is None:
        count, shortage = worker_count(missing, how.workers)
        if shortage:
            say(shortage)
        executor = runner.LocalExecutor(count)
    checkpoints.remove(folder.checkpoints, done)  # a kill may have come before it was removed

    def store(record: dict[str, Any]) -> None:
        folder.append(record)
        if record["status"] == "done":
            checkpoints.remove(folder.checkpoints, [record["id"]])

    costs = [estimate.cost(c) for c in configurations]
    with ProgressBar(costs, study.name) as bar:
        outcome = runner.run_missing(
            [dict(c) | {"run": _run_section(folder, how)} for c in configurations],
            identities,
            settled,
            store,
            Logged(executor),
            FUNCTIONS[study.kind],
            _failed,
            bar,
        )
    there = outcome.skipped - len(failed_before)
    counts = f"{outcome.done} done, {outcome.failed} failed, {there} already there"
    if failed_before:
        counts += f", {len(failed_before)} failed before (--retry-failed runs them again)"
    say(f"Trials: {counts}.")
    return outcome.failed + len(failed_before)


def _run_section(folder: ResultsFolder, how: How) -> Run:
    return {
        "devices": how.devices,
        "checkpoints": str(folder.checkpoints.resolve()),
        "checkpoint_seconds": 60 * how.checkpoint_minutes,
        "token": folder.token,
    }


def _tidy_checkpoints(folder: ResultsFolder, say: Say) -> None:
    """Remove the folder of checkpoints if it is empty, and name what nobody will go on from."""
    checkpoints.remove_empty(folder.checkpoints)
    others = checkpoints.trials_in(folder.checkpoints) - set(folder.plan() or ())
    if others:
        say(
            f"Warning: {folder.checkpoints} holds private state of {len(others)} trials that the "
            f"study no longer has ({', '.join(sorted(others))}); delete what is not needed"
        )


def dry_run(study: Study, how: How) -> str:
    """The trials of a study with the time and memory that they are expected to take."""
    configurations = expand(study)
    workers = how.workers
    count, shortage = worker_count(configurations, workers)
    rate = estimate.measured_speed()
    lines = [f"{study.title}: {len(configurations)} trials on {count} workers", ""]
    lines += [_describe(c, estimate.seconds(c, rate)) for c in configurations]
    seconds = sum(estimate.seconds(c, rate) for c in configurations)
    finals = likely_finals(study, configurations)
    if finals:
        lines += [
            "",
            f"and {len(finals)} trials of the chosen candidates, with the test rows",
        ]
        seconds += sum(estimate.seconds(c, rate) for c in finals)
    need = max(estimate.memory(c) for c in configurations)
    lines += [
        "",
        f"about {duration(seconds / min(count, len(configurations)))} on {count} workers, "
        f"{need / 2**30:.1f} GiB of memory for each (rough estimates)",
        *_checkpoint_lines(configurations, count, seconds, how),
        *([shortage] if shortage else []),
    ]
    return "\n".join(lines)


def _checkpoint_lines(
    configurations: list[Configuration], workers: int, seconds: float, how: How
) -> list[str]:
    """What checkpoints may take on the disk, if trials are long enough to have any."""
    share = seconds / sum(map(estimate.cost, configurations))
    long = [c for c in configurations if share * estimate.cost(c) >= 60 * how.checkpoint_minutes]
    if not long:
        return []
    # A new one is written before the old one is removed.
    size = 2 * min(workers, len(long)) * max(map(estimate.checkpoint, long)) / 2**30
    return [f"checkpoints of running trials: up to {size:.1f} GiB on disk"]


def likely_finals(study: Study, compared: list[Configuration]) -> list[Configuration]:
    """As many final trials as there will be: of the costliest candidate of each choice."""
    costliest: dict[Any, Configuration] = {}
    for c in sorted((c for c in compared if "withheld" in c), key=estimate.cost):
        own_seed = c["seed"] if "selection" in c else None
        costliest[c["about"]["label"], c["budget"]["epsilon"], own_seed] = c
    return [c for c in costliest.values() for _ in range(1 if "selection" in c else study.seeds)]


def in_running_order(configurations: list[Configuration]) -> list[Configuration]:
    """The order in which trials should start.

    Seed by seed, and the longest first, so that workers end together. Two kinds come earlier, for
    the sake of what workers share on disk: one trial of each curve, so that curves are compiled by
    different workers; then one trial of each budget, so that budgets are calibrated by different
    workers and found by the other candidates.
    """
    ordered = sorted(configurations, key=estimate.cost, reverse=True)
    budgets: Counter[tuple[Any, ...]] = Counter()
    curves: Counter[str] = Counter()
    keys = {}
    for c in sorted(ordered, key=lambda c: c["seed"]):
        label = c["about"]["label"]
        budget = label, c["budget"]["epsilon"], c["seed"]
        keys[id(c)] = (curves[label] > 0, c["seed"], budgets[budget])
        curves[label] += 1
        budgets[budget] += 1
    return sorted(ordered, key=lambda c: keys[id(c)])


def worker_count(configurations: list[Configuration], wanted: int | None) -> tuple[int, str | None]:
    """How many workers to start for trials, and what to say if memory is too short for them.

    A number that the user wants is obeyed. Otherwise there is one worker per usable core, or as
    many as memory allows.
    """
    count = wanted or len(runner.usable_cores())
    need = max((estimate.memory(c) for c in configurations), default=0.0)
    started = min(count, len(configurations))
    free = memory.available()
    if started * need <= free:
        return count, None
    shortage = (
        f"{started} x {need / 2**30:.1f} GiB of memory may be needed by workers, and "
        f"{free / 2**30:.1f} GiB is available"
    )
    if wanted is not None:
        return count, f"Warning: {shortage}. The trial of a worker that is killed for it fails."
    fewer = max(1, int(free // need))
    return fewer, f"Workers: {fewer}, for {shortage}. --workers N overrules this."


def reasons_to_run_again(
    done: list[dict[str, Any]], configurations: list[Configuration]
) -> list[str]:
    """Which trials were done with other settings, and what has changed since."""
    identities = {record["id"] for record in done}
    previous = {_place(r, r["configuration"]): r["configuration"] for r in done}
    changes: Counter[tuple[str, str]] = Counter()
    for configuration in configurations:
        about = configuration["about"]
        before = previous.get(_place(about, configuration))
        if before and identity(configuration) not in identities:
            changed = ", ".join(_differences(before, counted(configuration)))
            changes[about["label"], changed] += 1
    return [
        f"{label}: {count} of its trials run again, because these settings have changed: {changed}"
        for (label, changed), count in changes.items()
    ]


def _done_records(folder: ResultsFolder) -> list[dict[str, Any]]:
    """The newest record of each trial that is done, oldest first; none for a new folder."""
    done = folder.done_ids()
    return [record for record in folder.records() if record["id"] in done] if done else []


def _rename(
    folder: ResultsFolder, done: list[dict[str, Any]], configurations: list[Configuration]
) -> None:
    """A trial that was done under another label or title gets a record with the present one."""
    records = {record["id"]: record for record in done}
    for configuration in configurations:
        record = records.get(identity(configuration))
        if record and not configuration["about"].items() <= record.items():
            folder.append(record | configuration["about"])


def _place(about: Any, configuration: Any) -> tuple[Any, ...]:
    epsilon = float(configuration["budget"]["epsilon"])
    withheld = configuration.get("withheld")
    return about["label"], epsilon, configuration["seed"], str(about["candidate"]), withheld


def _differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    found = []
    for key in {**old, **new}:
        before, after = old.get(key), new.get(key)
        if before == after:
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
        f"epochs {training['epochs']:<6g} lazy tables {estimate.lazy_tables(configuration):<3} "
        f"{duration(seconds):>8}{candidate}"
    )


def _failed(configuration: Any, identity: str, failure: runner.WorkerFailure) -> dict[str, Any]:
    kind, _, message = failure.reason.partition(": ")
    if kind in ("UsageError", "DpcompareError"):  # written for people
        return failed_record(configuration, message)
    return failed_record(configuration, failure.reason, failure.traceback)
