"""A small study whose trials take a tenth of a second, to be killed by the tests of faults.

python -m tests.faulty_run RESULTS TRIALS
"""

import sys
from pathlib import Path
from typing import Any

from dpcompare.cli import main
from dpcompare.progress import ProgressBar
from dpcompare.results import FIELDS, FORMAT, ResultsFolder
from dpcompare.runner import LocalExecutor, WorkerFailure, run_missing


def failed(configuration: dict[str, Any], name: str, failure: WorkerFailure) -> dict[str, Any]:
    made = {"format": FORMAT, "id": name, "status": "failed", "error": failure.reason}
    return dict.fromkeys(FIELDS) | made


def run(path: str, trials: int) -> None:
    """What `dpcompare run-study --retry-failed` does with its trials."""
    folder = ResultsFolder(path)
    names = [f"trial {number}" for number in range(trials)]
    with folder.lock(), ProgressBar([1.0] * trials, "faults") as bar:
        run_missing(
            [{"name": name} for name in names],
            names,
            folder.done_ids(),
            folder.append,
            LocalExecutor(2),
            "tests.runner_functions:made_up",
            failed,
            bar,
        )


if __name__ == "__main__":
    import dpcompare.cli as cli

    sys.path.insert(0, str(Path(__file__).parents[1]))
    # Interrupts and failures end as those of the command line do.
    cli.cli.main = lambda **how: run(sys.argv[1], int(sys.argv[2]))
    main([])
