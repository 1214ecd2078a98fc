"""A run of a study as plain data, for programs: what is planned, and how it ended."""

from pathlib import Path
from typing import Any

from dpcompare import conduct, estimate
from dpcompare.expansion import expand
from dpcompare.results import ResultsFolder
from dpcompare.study import Study


def planned(study: Study, how: conduct.How) -> dict[str, Any]:
    """The trials of a study, each with the seconds and bytes of memory it is expected to take.

    Args:
        study: what to ask.
        how: how many workers are wanted.

    Returns:
        `study`, `title`, `trials`, `final_trials` (how many chosen candidates will run again, with
        the test rows), `workers`, and a `warning` where memory is short.
    """
    trials = expand(study)
    workers, shortage = conduct.worker_count(trials, how.workers)
    speed = estimate.measured_speed()
    shown = [
        {
            "label": trial["about"]["label"],
            "epsilon": float(trial["budget"]["epsilon"]),
            "seed": trial["seed"],
            "candidate": trial["about"]["candidate"],
            "batch_size": trial["training"]["batch_size"],
            "epochs": trial["training"]["epochs"],
            "seconds": estimate.seconds(trial, speed),
            "memory_bytes": estimate.memory(trial),
        }
        for trial in trials
    ]
    return {
        "study": study.name,
        "title": study.title,
        "trials": shown,
        "final_trials": len(conduct.likely_finals(study, trials)),
        "workers": workers,
        "warning": shortage,
    }


def outcome(path: Path, done_before: set[str]) -> dict[str, Any]:
    """What has become of the trials of a run that has ended, and where everything lies.

    Args:
        path: the results folder.
        done_before: identities of the trials that were done before the run.

    Returns:
        Counts of `trials` (`done` in this run, `failed` now or before, `skipped`: done before),
        the `failures` with their reasons, and the paths of what was written.
    """
    folder = ResultsFolder(path)
    plan = folder.plan()
    records = folder.records(plan)
    done = [record["id"] for record in records if record["status"] == "done"]
    failures = [record for record in records if record["status"] == "failed"]
    return {
        "study": records[-1]["study"],
        "results": str(path),
        "trials": {
            "done": len(set(done) - done_before),
            "failed": len(failures),
            "skipped": len(set(done) & done_before),
        },
        "failures": [
            {key: record[key] for key in ("id", "label", "epsilon", "seed", "error")}
            for record in failures
        ],
        "records": str(folder.trials),
        "summary": str(folder.summary),
        "figures": sorted(map(str, folder.figures.glob("*.*"))),
        "tables": sorted(map(str, (folder.path / "tables").glob("*.*"))),
        "warnings": folder.warnings,
    }
