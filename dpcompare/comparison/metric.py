"""The metric of two folders, for every curve and epsilon of either."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dpcompare.comparison.intervals import difference_interval, variance_of_mean
from dpcompare.comparison.sides import NOISE, Side, read_sides
from dpcompare.summary import Records, shown_trials
from dpcompare.tables.cells import absence

NOT_THERE = "not in the study"


def compare(a: Path, b: Path) -> pd.DataFrame:
    """The metric of the first folder's study in both, for every curve and epsilon of either.

    Trials of one seed are paired where both folders have trained and tested on the same rows and
    two seeds or more are shared; the interval is then the paired t interval over the shared seeds,
    else Welch's. Studies of kind "account" have no seeds: their noise multipliers are compared.
    Intervals hold one by one, and do not contain the error of the finite test sample.

    Args:
        a: a results folder.
        b: another of the same task.

    Returns:
        A frame, one row per label and epsilon, with `metric`, `mean_a`, `standard_error_a`, `n_a`
        and the same of b, `difference` (b - a), `low` and `high` (95%, nan where undefined),
        `interval` ("paired", "Welch" or ""), `n_pairs`, `decided` (the interval excludes 0),
        `same_trials`, and what stands in for a missing mean: `absent_a` and `absent_b` ("failed",
        "missing", "-", or "not in the study"). Where parameters are tuned, `candidate_a` and
        `candidate_b` were chosen by the validation rows.

    Raises:
        UsageError: the tasks differ, or only one of the studies trains.
        DpcompareError: a folder has no records.
    """
    return compared(*read_sides(a, b))


def compared(first: Side, second: Side) -> pd.DataFrame:
    """What :func:`compare` returns, of folders that are read already."""
    metric, paired = first.metric, _same_rows(first, second)
    places = {
        (row["label"], row["epsilon"]): None
        for side in (first, second)
        for _, row in side.summary.iterrows()
    }
    labels = list(dict.fromkeys(label for label, _ in places))
    ordered = sorted(places, key=lambda place: (labels.index(place[0]), place[1]))
    cells = [_cells(side, metric) for side in (first, second)]
    return pd.DataFrame(_row(place, metric, cells[0], cells[1], paired) for place in ordered)


@dataclass(frozen=True)
class _Cell:
    """One curve at one epsilon in one of the folders."""

    values: dict[int, float]
    ids: frozenset[str]
    candidate: str
    absence: str


def _cells(side: Side, metric: str) -> dict[tuple[str, float], _Cell]:
    trials = shown_trials(side.records)
    cells = {}
    for _, row in side.summary.iterrows():
        shown = trials[row["label"], row["epsilon"]]
        values = {trial["seed"]: _value(trial, metric) for trial in shown}
        defined = {seed: value for seed, value in values.items() if not math.isnan(value)}
        why = "-" if shown else absence(row)
        cells[row["label"], row["epsilon"]] = _Cell(
            defined,
            frozenset(trial["id"] for trial in shown),
            row["candidate"],
            "" if defined else why,
        )
    return cells


def _value(trial: Mapping[str, Any], metric: str) -> float:
    if metric == NOISE:
        value = (trial["diagnostics"].get("calibrated") or {}).get(NOISE)
    else:
        value = (trial["test"] or {}).get(metric)
    return math.nan if value is None else float(value)


def _row(
    place: tuple[str, float],
    metric: str,
    in_a: Mapping[tuple[str, float], _Cell],
    in_b: Mapping[tuple[str, float], _Cell],
    paired: bool,
) -> dict[str, Any]:
    nothing = _Cell({}, frozenset(), "", NOT_THERE)
    a, b = in_a.get(place, nothing), in_b.get(place, nothing)
    row: dict[str, Any] = {"label": place[0], "epsilon": place[1], "metric": metric}
    for name, cell in (("a", a), ("b", b)):
        values = np.array(list(cell.values.values()))
        row[f"mean_{name}"] = float(values.mean()) if values.size else math.nan
        row[f"standard_error_{name}"] = math.sqrt(variance_of_mean(values))
        row[f"n_{name}"] = values.size
    row |= difference_interval(a.values, b.values, paired)
    row["decided"] = row["low"] > 0 or row["high"] < 0
    row["same_trials"] = bool(a.ids) and a.ids == b.ids
    row |= {"candidate_a": a.candidate, "candidate_b": b.candidate}
    return row | {"absent_a": a.absence, "absent_b": b.absence}


def _same_rows(first: Side, second: Side) -> bool:
    """Whether both have trained and tested on the same rows, as far as the records tell."""
    return _data(first.records) == _data(second.records)


def _data(records: Records) -> set[str]:
    """The data sections of some records, without where the data lies."""
    sections = [record["configuration"].get("data") or {} for record in records]
    return {
        json.dumps({k: v for k, v in section.items() if k != "path"}, sort_keys=True)
        for section in sections
    }
