"""What each trial of a run does, told to the log."""

import logging
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from dpcompare.runner import Configuration, Executor, OnProgress, Results, WorkerFailure

LOG = logging.getLogger(__name__)


class Logged:
    """An executor that logs when trials start and how they end, and runs them on another one.

    Args:
        executor: where trials run.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def map(
        self,
        function: str,
        configurations: Iterable[Configuration],
        progress: OnProgress | None = None,
    ) -> Results:
        """See :meth:`dpcompare.runner.LocalExecutor.map`."""
        trials = list(configurations)
        started: set[int] = set()

        def tell(index: int, fraction: float) -> None:
            if index not in started:
                started.add(index)
                LOG.debug("%s: starts", trial_name(trials[index]))
            if progress is not None:
                progress(index, fraction)

        with closing(self._executor.map(function, trials, tell)) as results:
            for index, result in results:
                LOG.debug("%s: %s", trial_name(trials[index]), _ending(result))
                yield index, result


def trial_name(configuration: Mapping[str, Any]) -> str:
    """Curve, epsilon, seed and tuned settings of a trial."""
    about = configuration["about"]
    candidate = "".join(f" {key}={value}" for key, value in about["candidate"].items())
    epsilon = configuration["budget"]["epsilon"]
    return f"{about['label']} epsilon {epsilon} seed {configuration['seed']}{candidate}"


def _ending(result: Mapping[str, Any] | WorkerFailure) -> str:
    if isinstance(result, WorkerFailure):
        return "failed: " + "\n".join(filter(None, [result.reason, result.traceback.rstrip()]))
    seconds = {phase: value for phase, value in result["timings"].items() if value is not None}
    ending = str(result["status"])
    if seconds:
        parts = ", ".join(f"{phase} {value:.1f}" for phase, value in seconds.items())
        ending += f" in {sum(seconds.values()):.1f} s ({parts})"
    score = (result["test"] or result["validation"] or {}).get(result["metric"])
    return ending if score is None else f"{ending}, {result['metric']} {score:.4f}"
