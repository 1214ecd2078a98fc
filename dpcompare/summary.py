"""The records of a study as one tidy frame, from which table, figures and CSV are all made."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from dpcompare.candidates import (
    distinct_candidates,
    is_compared,
    is_privately_selected,
    scores,
    shown,
)
from dpcompare.errors import DpcompareError
from dpcompare.metric_sets import MetricSet, constant_scores, metric_set
from dpcompare.privacy import ROW_RELATIONS
from dpcompare.results import ResultsFolder, write_atomically
from dpcompare.sweeps import split_label, walks_numbers

Records = Sequence[Mapping[str, Any]]

DIAGNOSTICS = (
    "effective_examples",
    "noise_on_mean",
    "candidate_epsilon",
    "shuffled_epsilon_at_least",
)
"""The diagnostics of trials that the summary holds the means of."""


@dataclass(frozen=True)
class _Cell:
    """All trials of one curve at one epsilon.

    Attributes:
        trials: done and failed, of all candidates.
        candidates: the distinct candidates, in order of appearance.
        chosen: the done trials that are shown, by seed.
        seeds: the seeds that the study runs.
    """

    label: str
    epsilon: float
    trials: list[Mapping[str, Any]]
    candidates: list[dict[str, Any]]
    chosen: list[Mapping[str, Any]]
    seeds: list[int]


def summarize(records: Records) -> pd.DataFrame:
    """One row per curve and epsilon: everything that the table and the figures show.

    Means and standard errors (ddof = 1, nan for one seed) are over the seeds of the test metrics;
    undefined values are left out and ``<metric>_n`` counts the rest. Where parameters were tuned,
    the final trials of the candidate with the lowest mean loss on the **validation** rows are shown
    (:mod:`dpcompare.candidates`); test metrics never select. Trials that failed or have no record
    yet are named in the columns ``failed`` and ``missing``, so a curve and epsilon of which
    nothing is left still has a row. `docs/results.md` lists the columns.

    Args:
        records: of one study, as :meth:`ResultsFolder.records` returns them.

    Raises:
        DpcompareError: there are no records.
        UsageError: their task is unknown.
    """
    if not records:
        raise DpcompareError(
            "there are no records to summarize; run a study first: dpcompare run-study <study>"
        )
    metrics = metric_set(records[-1]["task"])
    cells, superseded = _cells(records)
    best, constant = _best_possible(records), _constant(records, metrics)
    mechanisms = {record["label"]: record["mechanism"] for record in records}
    shared = {key: records[-1][key] for key in ("study", "title", "task", "metric")}
    rows = []
    for cell in cells:
        row = shared | {"mechanism": mechanisms[cell.label], "label": cell.label}
        row |= {"curve": split_label(cell.label)[0], "kind": _kind(cell)}
        row |= {"epsilon": cell.epsilon} | _selection(cell)
        for name in metrics.names:
            row |= _moments(name, scores(cell.chosen, "test", name))
            row[f"validation_{name}"] = _mean(scores(cell.chosen, "validation", name))
            row[f"best_possible_{name}"] = _mean(scores(best, "scores", name))
            row[f"constant_{name}"] = _mean(scores(constant, "scores", name))
        row["worse_than_constant"] = metrics.worse_than_constant(row[metrics.relative])
        for name in DIAGNOSTICS:
            row[name] = _mean(scores(cell.chosen, "diagnostics", name))
        row["noise_multiplier"] = _mean(_noise_multipliers(cell.chosen))
        rows.append(row | _privacy(cell) | _bookkeeping(cell, superseded))
    return pd.DataFrame(rows)


def is_swept(summary: pd.DataFrame) -> bool:
    """Whether labels name places on a numeric axis, as those of a sweep do."""
    return any(map(walks_numbers, summary["label"]))


def shown_trials(records: Records) -> dict[tuple[str, float], list[Mapping[str, Any]]]:
    """The trials behind each row of :func:`summarize`, by seed, keyed by (label, epsilon)."""
    return {(cell.label, cell.epsilon): cell.chosen for cell in _cells(records)[0]}


def write_summary(folder: ResultsFolder, ids: Iterable[str] | None = None) -> pd.DataFrame:
    """Write ``summary.csv`` of a results folder from its records, atomically, and return it.

    Args:
        folder: the results folder.
        ids: the trials of the present study, see :meth:`ResultsFolder.records`.

    Raises:
        DpcompareError: there are no records, or the file cannot be written.
    """
    summary = summarize(folder.records(ids))
    write_atomically(folder.summary, summary.to_csv(index=False).encode())
    return summary


def _cells(records: Records) -> tuple[list[_Cell], int]:
    """The trials by curve (in order of appearance) and epsilon (ascending)."""
    newest = {_coordinates(record): record for record in records}
    grouped: dict[str, dict[float, list[Mapping[str, Any]]]] = {}
    for record in newest.values():
        grouped.setdefault(record["label"], {}).setdefault(record["epsilon"], []).append(record)
    seeds = sorted({record["seed"] for record in records})
    swept = {record["epsilon"] for record in records if math.isfinite(record["epsilon"])}
    cells = []
    for label, by_epsilon in grouped.items():
        private = any(math.isfinite(epsilon) for epsilon in by_epsilon)
        for epsilon in sorted(set(by_epsilon) | (swept if private else set())):
            trials = by_epsilon.get(epsilon, [])
            cells.append(
                _Cell(label, epsilon, trials, distinct_candidates(trials), shown(trials), seeds)
            )
    return cells, len(records) - len(newest)


def _coordinates(record: Mapping[str, Any]) -> tuple[str, float, int, str, bool]:
    candidate = json.dumps(record["candidate"], sort_keys=True)
    return record["label"], record["epsilon"], record["seed"], candidate, is_compared(record)


def _noise_multipliers(trials: Records) -> np.ndarray:
    found = [
        (trial["diagnostics"].get("calibrated") or {}).get("noise_multiplier") for trial in trials
    ]
    return np.array([value for value in found if value is not None], dtype=float)


def _mean(values: np.ndarray) -> float:
    return fmean(values) if values.size else math.nan


def _kind(cell: _Cell) -> str:
    kinds = [trial["configuration"].get("kind", "train") for trial in cell.trials]
    return kinds[0] if kinds else "train"


def _moments(name: str, values: np.ndarray) -> dict[str, float]:
    mean, n, error = _mean(values), values.size, math.nan
    if n > 1 and math.isfinite(mean):
        error = math.sqrt(float(np.square(values - mean).sum()) / (n - 1) / n)
    return {name: mean, f"{name}_se": error, f"{name}_n": n}


def _best_possible(records: Records) -> list[dict[str, Any]]:
    """The scores of the true rates, once per seed, since all curves share the seed's test rows."""
    of_seed = {r["seed"]: r["best_possible"] for r in records if r["best_possible"]}
    return [{"scores": scores} for scores in of_seed.values()]


def _constant(records: Records, metrics: MetricSet) -> list[dict[str, Any]]:
    """The scores of the best constant prediction, once per seed.

    Told from the trial with the lowest loss: from that of a diverged one it would not be exact.
    """
    best: dict[int, Mapping[str, Any]] = {}
    for record in records:
        test, seed = record["test"] or {}, record["seed"]
        if None in (test.get(metrics.selection), test.get(metrics.relative)):
            continue
        if seed not in best or test[metrics.selection] < best[seed][metrics.selection]:
            best[seed] = test
    return [{"scores": constant_scores(scores, metrics)} for scores in best.values()]


def _selection(cell: _Cell) -> dict[str, Any]:
    chosen = distinct_candidates(cell.chosen)
    private = [trial for trial in cell.trials if is_privately_selected(trial)]
    means = [trial["configuration"]["selection"]["mean"] for trial in private]
    tried: float = means[0] if means else len(cell.candidates)
    return {
        "candidate": " | ".join(_settings(candidate) for candidate in chosen),
        "n_candidates": tried,
        "tuned": len(cell.candidates) > 1,
        "private_selection": means[0] if means else math.nan,
        "n_seeds": len(cell.chosen),
        "seeds": " ".join(str(trial["seed"]) for trial in cell.chosen),
    }


def _privacy(cell: _Cell) -> dict[str, Any]:
    """The guarantee of the trials shown, or of failed ones that got as far as stating it."""
    stated = [t["guarantee"] for t in cell.chosen or cell.trials if t["guarantee"]]
    first: Mapping[str, Any] = max(stated, key=lambda g: g["epsilon"], default={})
    relations = {first["neighboring"]: first["epsilon"]} | first["other_relations"] if first else {}
    return {
        "guarantee_epsilon": first.get("epsilon", math.nan),
        **{key: first.get(key) for key in ("unit", "neighboring", "accountant")},
        "delta": first.get("delta", math.nan),
        **{relation_column(name): _number(relations.get(name)) for name in ROW_RELATIONS},
        "events": "; ".join(first.get("events", ())),
    }


def _bookkeeping(cell: _Cell, superseded: int) -> dict[str, Any]:
    trials = cell.chosen or cell.trials
    first = trials[0] if trials else {}
    schedule, rows = first.get("schedule") or {}, first.get("rows") or {}
    failed = [trial for trial in cell.trials if trial["status"] == "failed"]
    return {
        **{key: schedule.get(key) for key in ("examples", "batch_size", "steps", "sampling")},
        "test_rows": rows.get("test"),
        "n_failed": len(failed),
        "failed": _reasons(failed),
        "missing": ", ".join(_trial(*trial) for trial in _missing(cell)),
        "superseded": superseded,
        "notes": "; ".join(dict.fromkeys(note for t in cell.chosen for note in t["notes"])),
    }


def _missing(cell: _Cell) -> list[tuple[int, dict[str, Any]]]:
    """Seed and candidate of the trials that were planned and have no record.

    How many draws a private selection has is random, so of it only final trials can be missed.
    """
    finals = [trial for trial in cell.trials if not is_compared(trial)]
    compared = [trial for trial in cell.trials if is_compared(trial)]
    if not compared:
        return _without_record(finals, cell.candidates or [{}], cell.seeds)
    if is_privately_selected(compared[0]):
        done = {trial["seed"] for trial in finals}
        return [(seed, {}) for seed in cell.seeds if seed not in done]
    seeds = sorted({trial["seed"] for trial in compared})
    chosen = distinct_candidates(finals) or [{}]
    return _without_record(compared, cell.candidates, seeds) + _without_record(
        finals, chosen, cell.seeds
    )


def _without_record(
    trials: Records, candidates: list[dict[str, Any]], seeds: list[int]
) -> list[tuple[int, dict[str, Any]]]:
    run = [(trial["seed"], trial["candidate"]) for trial in trials]
    return [(seed, c) for c in candidates for seed in seeds if (seed, c) not in run]


def _reasons(failed: Records) -> str:
    """Failed trials, those of one reason together."""
    trials: dict[str, list[str]] = {}
    for trial in failed:
        reason = trial["error"] or "no reason given"
        trials.setdefault(reason, []).append(_trial(trial["seed"], trial["candidate"]))
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in trials.items())


def _settings(candidate: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value}" for key, value in candidate.items())


def _trial(seed: int, candidate: Mapping[str, Any]) -> str:
    return f"seed {seed}" + (f" ({_settings(candidate)})" if candidate else "")


def relation_column(relation: str) -> str:
    """The column that holds the epsilon of a row's trials under a row relation."""
    return f"epsilon_{relation.replace('-', '_')}"


def _number(value: float | None) -> float:
    return math.nan if value is None else value
