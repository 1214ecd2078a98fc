"""The trials of a study as one tidy frame, for whoever goes on in Python."""

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any

import pandas as pd

from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.privacy import ROW_RELATIONS
from dpcompare.results import ResultsFolder
from dpcompare.summary import Records, relation_column, shown_trials
from dpcompare.sweeps import split_label

PARTS = {
    "test": "on the test rows",
    "validation": "on the validation rows",
    "best_possible": "of the true rates on the test rows, where they are known",
}
"""The parts of a record that hold metrics, and what the metrics are of."""

_UNITS = {"log_loss": "nats", "poisson_loss": "nats", "deviance": "nats"}

COLUMNS: dict[str, tuple[str, str]] = {
    "id": ("text", "identity of the trial"),
    "study": ("text", "name of the study"),
    "title": ("text", "title of the study"),
    "task": ("text", "pctr, pcvr or pconvs"),
    "kind": ("text", "train, or account where nothing is trained"),
    "metric": ("text", "the metric that the study draws first"),
    "mechanism": ("text", "name of the mechanism"),
    "label": ("text", "name of the curve with its swept values"),
    "curve": ("text", "name of the curve without its swept values"),
    "swept_<setting>": ("of the setting", "value of a swept setting; missing where not swept"),
    "epsilon": ("epsilon", "asked for; inf for no privacy"),
    "seed": ("count", "trials of one seed are paired over mechanisms"),
    "candidate": ("text", "all tuned settings; empty where nothing is tuned"),
    "tuned_<setting>": ("of the setting", "value of a tuned setting; missing where not tuned"),
    "shown": ("true or false", "whether tables and figures show this trial"),
    "withheld": ("true or false", "whether it only compared candidates, without the test rows"),
    "selection_mean": ("count", "mean number of candidates of a private selection"),
    "selection_draw": ("count", "which of these candidates it is, from 0"),
    "status": ("text", "done or failed"),
    "error": ("text", "why it failed"),
    "guarantee_epsilon": ("epsilon", "what may be claimed"),
    "delta": ("probability", "of the guarantee"),
    "unit": ("text", "what is protected: one example, which is one row, or its label"),
    "neighboring": ("text", "the neighboring relation of the guarantee"),
    "accountant": ("text", "pld, rdp, or exact where no accountant is needed"),
    **{
        relation_column(relation): ("epsilon", f"of the same run under {relation}")
        for relation in ROW_RELATIONS
    },
    "events": ("text", "what was accounted, separated by ; "),
    "examples": ("rows", "trained on"),
    "batch_size": ("rows", "expected rows per batch"),
    "steps": ("count", "steps of the optimizer"),
    "sampling": ("text", "how batches are drawn: poisson or shuffle"),
    "train_rows": ("rows", "of the training part"),
    "validation_rows": ("rows", "of the validation part"),
    "test_rows": ("rows", "of the test part"),
    **{
        f"{part}_{name}": (_UNITS.get(name, "1"), f"{metric.title} {of}")
        for part, of in PARTS.items()
        for name, metric in METRICS.items()
    },
    "noise_multiplier": ("sensitivity", "standard deviation of the noise on the sum of a batch"),
    "noise_on_mean": ("gradient", "standard deviation of the noise on the mean gradient"),
    "effective_examples": ("rows", "clean labels that the randomized ones are worth"),
    "candidate_epsilon": ("epsilon", "of one candidate of a private selection"),
    "shuffled_epsilon_at_least": ("epsilon", "what the same noise costs if batches are shuffled"),
    "mean_prediction": ("of the label", "mean of the predictions"),
    "parameters": ("count", "of the network"),
    "lazy_tables": ("count", "embedding tables with lazy noise"),
    "seconds_<phase>": ("seconds", "wall-clock time of a phase of the trial"),
    "notes": ("text", "remarks on the trial, separated by ; "),
}
"""Every column of :func:`dpcompare.load` with its unit and its meaning, in order.

The names in <> stand for what a study sweeps and tunes (without the prefix "training."), and for
the phases of its trials. Metrics are those of the study's task.

:meta hide-value:
"""

_WHOLE = (
    *("selection_draw", "examples", "batch_size", "steps"),
    *("train_rows", "validation_rows", "test_rows", "parameters", "lazy_tables"),
)


def load(results: str | os.PathLike[str]) -> pd.DataFrame:
    """All trials of a study, one row each, failed ones too.

    Args:
        results: a results folder, as ``dpcompare run-study`` writes it.

    Returns:
        A frame with the columns of :data:`COLUMNS`, in the order of the study's plan. Missing
        numbers are nan (``<NA>`` in columns of whole numbers). Its ``attrs`` hold `versions`, from
        each library to its versions.

    Raises:
        DpcompareError: the folder holds no records, or they cannot be read.
    """
    folder = ResultsFolder(results)
    records = folder.records(folder.plan())
    for warning in folder.warnings:
        warnings.warn(warning, stacklevel=2)
    frame = trial_frame(records)
    frame.attrs["versions"] = versions(records)
    return frame


def trial_frame(records: Records) -> pd.DataFrame:
    """One row per record, see :func:`dpcompare.load`."""
    shown = {trial["id"] for trials in shown_trials(records).values() for trial in trials}
    rows = [_row(record, record["id"] in shown) for record in records]
    columns = _ordered({column: None for row in rows for column in row})
    return pd.DataFrame({column: _series(column, rows) for column in columns})


def documentation(column: str) -> tuple[str, str]:
    """The unit and the meaning of a column of :func:`dpcompare.load`.

    Raises:
        KeyError: there is no such column.
    """
    return COLUMNS[_documented_as(column)]


def kind_of(record: Mapping[str, Any]) -> str:
    """Whether a record is of a trial that trains: "train", or "account"."""
    if kind := record["configuration"].get("kind"):
        return str(kind)
    return "account" if record["status"] == "done" and record["validation"] is None else "train"


def trains(records: Records) -> bool:
    """Whether the trials of a study train models; those of kind "account" do not."""
    done = [record for record in records if record["status"] == "done"]
    return not records or any(kind_of(record) == "train" for record in done or records)


def versions(records: Records) -> dict[str, str]:
    """The versions of each library that took part, separated by commas."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        for library, version in record["versions"].items():
            found.setdefault(library, {})[str(version)] = None
    return {library: ", ".join(used) for library, used in sorted(found.items())}


def number_or_text(value: Any) -> Any:
    """A setting as a number where it is one."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


def _documented_as(column: str) -> str:
    for pattern in ("swept_<setting>", "tuned_<setting>", "seconds_<phase>"):
        if column.startswith(pattern.partition("<")[0]):
            return pattern
    return column


def _ordered(columns: Mapping[str, None]) -> list[str]:
    places = {column: place for place, column in enumerate(COLUMNS)}
    return sorted(columns, key=lambda column: places[_documented_as(column)])


def _row(record: Mapping[str, Any], shown: bool) -> dict[str, Any]:
    curve, swept = split_label(record["label"])
    candidate = record["candidate"]
    own = ("id", "study", "title", "task", "metric", "mechanism", "label", "epsilon", "seed")
    row = {key: record[key] for key in (*own, "status", "error")}
    row |= {"kind": kind_of(record), "curve": curve, "shown": shown}
    row |= {f"swept_{name}": number_or_text(value) for name, value in swept.items()}
    row["candidate"] = ", ".join(f"{name}={value}" for name, value in candidate.items())
    row |= {
        f"tuned_{name.removeprefix('training.')}": number_or_text(value)
        for name, value in candidate.items()
    }
    row["notes"] = "; ".join(record["notes"])
    row |= _selection(record) | _guarantee(record) | _schedule(record)
    row |= _metrics(record) | _diagnostics(record)
    return row | {f"seconds_{phase}": value for phase, value in record["timings"].items()}


def _selection(record: Mapping[str, Any]) -> dict[str, Any]:
    configuration = record["configuration"]
    selection = configuration.get("selection") or {}
    return {
        "withheld": "withheld" in configuration,
        "selection_mean": selection.get("mean"),
        "selection_draw": selection.get("draw"),
    }


def _guarantee(record: Mapping[str, Any]) -> dict[str, Any]:
    stated = record["guarantee"] or {}
    relations = dict(stated.get("other_relations", {}))
    if stated:
        relations[stated["neighboring"]] = stated["epsilon"]
    return {
        "guarantee_epsilon": stated.get("epsilon"),
        **{key: stated.get(key) for key in ("delta", "unit", "neighboring", "accountant")},
        **{relation_column(relation): relations.get(relation) for relation in ROW_RELATIONS},
        "events": "; ".join(stated.get("events", ())),
    }


def _schedule(record: Mapping[str, Any]) -> dict[str, Any]:
    schedule, rows = record["schedule"] or {}, record["rows"] or {}
    return {
        **{key: schedule.get(key) for key in ("examples", "batch_size", "steps", "sampling")},
        **{f"{part}_rows": rows.get(part) for part in ("train", "validation", "test")},
    }


def _metrics(record: Mapping[str, Any]) -> dict[str, Any]:
    names = metric_set(record["task"]).names
    return {f"{part}_{name}": (record[part] or {}).get(name) for part in PARTS for name in names}


def _diagnostics(record: Mapping[str, Any]) -> dict[str, Any]:
    diagnostics = record["diagnostics"]
    found = {
        name: diagnostics.get(name)
        for name in (
            *("noise_on_mean", "effective_examples", "candidate_epsilon"),
            *("shuffled_epsilon_at_least", "mean_prediction", "parameters", "lazy_tables"),
        )
    }
    calibrated = diagnostics.get("calibrated") or {}
    return found | {"noise_multiplier": calibrated.get("noise_multiplier")}


def _series(column: str, rows: list[dict[str, Any]]) -> pd.Series:
    values = [row.get(column) for row in rows]
    if column in _WHOLE:
        return pd.Series(values, dtype="Int64")
    if COLUMNS[_documented_as(column)][0] == "text":
        return pd.Series(values, dtype="str")
    if any(isinstance(value, str) for value in values):  # a setting that is no number everywhere
        return pd.Series([None if v is None else str(v) for v in values], dtype="str")
    if column in ("seed", "shown", "withheld"):
        return pd.Series(values)
    return pd.Series([math.nan if v is None else v for v in values], dtype="float64")
