"""Choosing between candidates by the validation rows, the only way in which anything is chosen.

Trials that compare candidates do not look at the test rows: their configuration has ``withheld =
"test"``. The chosen candidate is then run again with the test rows, once per seed; that is its
final trial. A private selection is chosen seed by seed, among that seed's random draws.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from dpcompare.metric_sets import metric_set

Trial = Mapping[str, Any]


def is_compared(trial: Trial) -> bool:
    """Whether a record is of a trial that only compares candidates."""
    return "withheld" in trial["configuration"]


def is_privately_selected(trial: Trial) -> bool:
    """Whether the choice is counted in the epsilon of a record."""
    return "selection" in trial["configuration"]


def distinct_candidates(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The candidates of some records, in order of appearance."""
    found: list[dict[str, Any]] = []
    for trial in trials:
        if trial["candidate"] not in found:
            found.append(trial["candidate"])
    return found


def scores(trials: Sequence[Trial], part: str, metric: str) -> np.ndarray:
    """The defined values of a metric, (k,) with k <= number of trials; older records lack some."""
    values = [(trial[part] or {}).get(metric) for trial in trials]
    return np.array([v for v in values if v is not None and not math.isnan(v)], dtype=float)


def shown(trials: Sequence[Trial]) -> list[Trial]:
    """The done trials of one curve at one epsilon that its results are made of, by seed.

    Where candidates were compared, the final trials of the chosen ones; else all.
    """
    finals = [trial for trial in trials if trial["status"] == "done" and not is_compared(trial)]
    compared = [trial for trial in trials if is_compared(trial)]
    if compared or len(distinct_candidates(finals)) > 1:
        chosen = list(_chosen(compared or finals))
        finals = [
            trial
            for trial in finals
            if any(
                trial["candidate"] == best["candidate"]
                and (not is_privately_selected(best) or trial["seed"] == best["seed"])
                for best in chosen
            )
        ]
    return sorted(finals, key=lambda trial: trial["seed"])


def chosen_candidates(compared: Sequence[Trial]) -> list[Trial]:
    """One record of every chosen candidate: per curve and epsilon, in a private selection per seed.

    Args:
        compared: records of trials that compare candidates, of one study.
    """
    cells: dict[tuple[str, float], list[Trial]] = {}
    for trial in compared:
        cells.setdefault((trial["label"], trial["epsilon"]), []).append(trial)
    return [best for trials in cells.values() for best in _chosen(trials)]


def _chosen(trials: Sequence[Trial]) -> Iterator[Trial]:
    """A record of the candidate with the lowest mean validation loss, for each choice made.

    A candidate that diverged on some seeds must not win by the seeds it survived, so those with
    fewer scores come last. Where none has a score, none is chosen.
    """
    choices: dict[Any, list[Trial]] = {}
    for trial in trials:
        choice = trial["seed"] if is_privately_selected(trial) else None
        choices.setdefault(choice, []).append(trial)
    for among in choices.values():
        loss = metric_set(among[0]["task"]).selection
        done = [trial for trial in among if trial["status"] == "done"]
        groups = [[t for t in done if t["candidate"] == c] for c in distinct_candidates(done)]
        best = min(groups, key=lambda group: _rank(scores(group, "validation", loss)), default=[])
        if best and scores(best, "validation", loss).size:
            yield best[0]


def _rank(values: np.ndarray) -> tuple[int, float]:
    return -values.size, fmean(values) if values.size else math.inf
