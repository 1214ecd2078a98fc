"""Two results folders side by side: which settings differ, and what that changes."""

import json
import math
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dpcompare.crossover import CONFIDENCE
from dpcompare.errors import UsageError
from dpcompare.frame import trains, versions
from dpcompare.metric_sets import METRICS
from dpcompare.results import ResultsFolder
from dpcompare.summary import Records, shown_trials, summarize
from dpcompare.tables.cells import absence, digits, with_error

WIDTH = 100
_GAP = 2
_NOISE = "noise_multiplier"
_NOT_THERE = "not in the study"


@dataclass(frozen=True)
class Difference:
    """A setting that is not the same in two folders.

    Attributes:
        setting: its name, with section and label.
        a, b: its values as text; "-" where a folder has none.
    """

    setting: str
    a: str
    b: str


@dataclass(frozen=True)
class _Side:
    """One of the two folders."""

    path: Path
    study: Mapping[str, Any] | None
    records: list[dict[str, Any]]
    summary: pd.DataFrame
    warnings: list[str]

    @property
    def metric(self) -> str:
        """What is compared: the study's metric, or the noise if nothing is trained."""
        return str(self.summary["metric"].iloc[0]) if trains(self.records) else _NOISE


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
        One row per label and epsilon: `metric`, `mean_a`, `standard_error_a`, `n_a` and the same of
        b, `difference` (b - a), `low` and `high` (95%, nan where undefined), `interval` ("paired",
        "Welch" or ""), `n_pairs`, `decided` (the interval excludes 0), `same_trials`, and what
        stands in for a missing mean: `absent_a` and `absent_b` ("failed", "missing", "-", or
        "not in the study"). Where parameters are tuned, `candidate_a` and `candidate_b` were
        chosen by the validation rows.

    Raises:
        UsageError: the tasks differ, or only one of the studies trains.
        DpcompareError: a folder has no records.
    """
    return _compared(*_sides(a, b))


def differing_settings(a: Path, b: Path) -> list[Difference]:
    """What differs between the studies, the data, the code and the libraries of two folders.

    Settings of a mechanism are compared where both have a curve of the same label; those that
    differ in the same way in several curves are named once.

    Args:
        a: a results folder.
        b: another.

    Raises:
        DpcompareError: a folder has no records.
    """
    return _differing(_side(a), _side(b))


def comparison_text(a: Path, b: Path) -> str:
    """Both folders in words, at most 100 columns wide.

    Args:
        a: a results folder.
        b: another of the same task.

    Raises:
        UsageError: the tasks differ, or only one of the studies trains.
        DpcompareError: a folder has no records.
    """
    first, second = _sides(a, b)
    frame = _compared(first, second)
    both = frame[(frame["absent_a"] != _NOT_THERE) & (frame["absent_b"] != _NOT_THERE)]
    blocks = [
        _wrapped([f"A: {_about(first)}", f"B: {_about(second)}"]),
        _wrapped([*first.warnings, *second.warnings, *_sameness(first, second)]),
        _wrapped(_difference_lines(first, second), "  "),
        _grid(both) if not both.empty else "No curve has the same label and epsilon in both.",
        _wrapped(_legend(both)) if not both.empty else "",
        _wrapped([*_only(frame, "A"), *_only(frame, "B")]),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _sides(a: Path, b: Path) -> tuple[_Side, _Side]:
    first, second = _side(a), _side(b)
    tasks = [side.records[-1]["task"] for side in (first, second)]
    if tasks[0] != tasks[1]:
        raise UsageError(
            f"{a} is of task {tasks[0]} and {b} of task {tasks[1]}; compare results of one task"
        )
    if trains(first.records) != trains(second.records):
        names = (a, b) if trains(first.records) else (b, a)
        raise UsageError(
            f"{names[0]} has trained models and {names[1]} only noise; compare two of one kind"
        )
    return first, second


def _side(path: Path) -> _Side:
    folder = ResultsFolder(path)
    records = folder.records(folder.plan())
    try:
        study = tomllib.loads(folder.study.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        study = None
    return _Side(Path(path), study, records, summarize(records), folder.warnings)


def _compared(first: _Side, second: _Side) -> pd.DataFrame:
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


def _cells(side: _Side, metric: str) -> dict[tuple[str, float], _Cell]:
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
    if metric == _NOISE:
        value = (trial["diagnostics"].get("calibrated") or {}).get(_NOISE)
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
    nothing = _Cell({}, frozenset(), "", _NOT_THERE)
    a, b = in_a.get(place, nothing), in_b.get(place, nothing)
    row: dict[str, Any] = {"label": place[0], "epsilon": place[1], "metric": metric}
    for name, cell in (("a", a), ("b", b)):
        values = np.array(list(cell.values.values()))
        row[f"mean_{name}"] = float(values.mean()) if values.size else math.nan
        row[f"standard_error_{name}"] = math.sqrt(_variance_of_mean(values))
        row[f"n_{name}"] = values.size
    row |= _interval(a.values, b.values, paired)
    row["decided"] = row["low"] > 0 or row["high"] < 0
    row["same_trials"] = bool(a.ids) and a.ids == b.ids
    row |= {"candidate_a": a.candidate, "candidate_b": b.candidate}
    return row | {"absent_a": a.absence, "absent_b": b.absence}


def _variance_of_mean(values: np.ndarray) -> float:
    """Its estimate with ddof = 1; nan for fewer than two values."""
    if values.size < 2 or not np.isfinite(values).all():
        return math.nan
    return float(values.var(ddof=1)) / values.size


def _interval(a: dict[int, float], b: dict[int, float], paired: bool) -> dict[str, Any]:
    """The difference b - a with its t interval: over shared seeds, or by Welch (1947)."""
    shared = sorted(a.keys() & b.keys())
    first, second = np.array(list(a.values())), np.array(list(b.values()))
    if paired and len(shared) > 1:
        changes = np.array([b[seed] - a[seed] for seed in shared])
        difference, freedom = float(changes.mean()), float(len(shared) - 1)
        variance, kind = _variance_of_mean(changes), "paired"
    else:
        difference = float(second.mean()) - float(first.mean()) if a and b else math.nan
        parts = _variance_of_mean(first), _variance_of_mean(second)
        variance, kind = sum(parts), "Welch"
        freedom = _welch_freedom(parts, (first.size, second.size))
    margin = math.nan
    if not math.isnan(variance):
        margin = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(variance)
    return {
        "difference": difference,
        "low": difference - margin,
        "high": difference + margin,
        "interval": "" if math.isnan(margin) else kind,
        "n_pairs": len(shared) if kind == "paired" else 0,
    }


def _welch_freedom(parts: tuple[float, float], counts: tuple[int, int]) -> float:
    """Degrees of freedom after Welch and Satterthwaite; the smaller ones where nothing varies."""
    spread = sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True) if n > 1)
    return sum(parts) ** 2 / spread if spread else float(max(min(counts) - 1, 1))


def _same_rows(first: _Side, second: _Side) -> bool:
    """Whether both have trained and tested on the same rows, as far as the records tell."""
    return _data(first.records) == _data(second.records)


def _data(records: Records) -> set[str]:
    """The data sections of some records, without where the data lies."""
    sections = [record["configuration"].get("data") or {} for record in records]
    return {
        json.dumps({k: v for k, v in section.items() if k != "path"}, sort_keys=True)
        for section in sections
    }


def _differing(first: _Side, second: _Side) -> list[Difference]:
    found = []
    if first.study is not None and second.study is not None:
        of_curves = [_curves(side.study or {}) for side in (first, second)]
        rest = [
            {key: value for key, value in (side.study or {}).items() if key != "mechanisms"}
            for side in (first, second)
        ]
        found += _pairs(dict(_flat(rest[0])), dict(_flat(rest[1])))
        found += _of_shared_curves(of_curves[0], of_curves[1])
    said = [_provenance(side.records) for side in (first, second)]
    shared = said[0].keys() & said[1].keys()
    return found + _pairs(*({k: v for k, v in of.items() if k in shared} for of in said))


def _pairs(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    return [
        Difference(key, _text(a.get(key)), _text(b.get(key)))
        for key in {**a, **b}
        if a.get(key) != b.get(key)
    ]


def _of_shared_curves(
    a: Mapping[str, Mapping[str, Any]], b: Mapping[str, Mapping[str, Any]]
) -> list[Difference]:
    """The settings of curves that are in both, those with the same change together."""
    curves: dict[Difference, list[str]] = {}
    for label in a:
        if label in b:
            for difference in _pairs(dict(_flat(a[label])), dict(_flat(b[label]))):
                curves.setdefault(difference, []).append(label)
    return [
        Difference(f"{', '.join(labels)}: {change.setting}", change.a, change.b)
        for change, labels in curves.items()
    ]


def _curves(study: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The entries of a study by label."""
    entries = study.get("mechanisms", [])
    return {str(entry.get("label", entry.get("name"))): entry for entry in entries}


def _flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _provenance(records: Records) -> dict[str, str]:
    """What the records say of data, code and libraries, which no study file holds."""
    found: dict[str, dict[str, None]] = {}
    for record in records:
        configuration = record["configuration"]
        data, mechanism = configuration.get("data") or {}, configuration.get("mechanism") or {}
        said = {
            "checksum of the data": data.get("checksum") and data["checksum"][:12],
            f"code of {record['mechanism']}": mechanism.get("version"),
            "random numbers": record["prng"],
        }
        for key, value in said.items():
            if value is not None:
                found.setdefault(key, {})[str(value)] = None
    libraries = {f"version of {name}": version for name, version in versions(records).items()}
    return {key: ", ".join(sorted(values)) for key, values in found.items()} | libraries


def _text(value: Any) -> str:
    """A setting in a few words; what changes with epsilon as epsilon ranges."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        if value.keys() == {"epsilon_up_to", "value"}:
            up_to = value["epsilon_up_to"]
            where = "above" if up_to == math.inf else f"up to epsilon {up_to:g}"
            return f"{_text(value['value'])} {where}"
        return ", ".join(f"{key}={_text(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value)) or "none"
    return str(value)


def _about(side: _Side) -> str:
    first = side.records[-1]
    done = sum(record["status"] == "done" for record in side.records)
    return (
        f"{side.path} (study {first['study']}, task {first['task']}): {done} of "
        f"{len(side.records)} trials done"
    )


def _sameness(first: _Side, second: _Side) -> list[str]:
    """How many trials are the same, told by their identity, and whether they agree."""
    a, b = ({record["id"]: record for record in side.records} for side in (first, second))
    shared = a.keys() & b.keys()
    if not shared:
        return []
    agree = all(_outcome(a[key]) == _outcome(b[key]) for key in shared)
    outcome = "with the same results" if agree else "but their results are not the same"
    if len(shared) == len(a) == len(b):
        return [f"These are the same trials, {outcome}."]
    return [f"{len(shared)} trials are the same in both, {outcome}."]


def _outcome(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["status"], record["test"], record["diagnostics"].get("calibrated")


def _difference_lines(first: _Side, second: _Side) -> list[str]:
    unread = [str(side.path) for side in (first, second) if side.study is None]
    lines = [f"{path} has no study.toml that can be read." for path in unread]
    found = _differing(first, second)
    if not found:
        return [*lines, "No setting differs."]
    lines.append("What differs, A → B:")
    return lines + [f"{found.setting}: {found.a} → {found.b}" for found in found]


def _grid(frame: pd.DataFrame) -> str:
    """One line per label and epsilon, with an empty line between labels."""
    noise = frame["metric"].iloc[0] == _NOISE
    head = ["curve", "epsilon", "A", "B", *(["B / A"] if noise else ["B - A", "95% interval", ""])]
    groups = [
        [_line_cells(row, noise) for _, row in rows.iterrows()]
        for _, rows in frame.groupby("label", sort=False)
    ]
    everything = [head, *(cells for group in groups for cells in group)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    rest = WIDTH - sum(widths[1:]) - _GAP * (len(widths) - 1)
    widths[0] = max(min(widths[0], rest), 5)
    blocks = ["\n".join(_line(cells, widths) for cells in group) for group in groups]
    dashes = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    return f"{_line(head, widths)}\n{dashes}\n" + "\n\n".join(blocks)


def _line_cells(row: pd.Series, noise: bool) -> list[str]:
    cells = [row["label"], f"{row['epsilon']:g}"]
    for side in ("a", "b"):
        mean, error = row[f"mean_{side}"], row[f"standard_error_{side}"]
        cells.append(row[f"absent_{side}"] or with_error(mean, error))
    if noise:
        return [*cells, digits(row["mean_b"] / row["mean_a"]) if row["mean_a"] else "-"]
    change = row["difference"]
    cells.append(
        "-" if math.isnan(change) else f"{change:+.4g}" if abs(change) >= 1000 else f"{change:+.4f}"
    )
    if not row["interval"]:
        return [*cells, "", ""]
    bounds = f"{digits(row['low'])} to {digits(row['high'])}"
    return [*cells, bounds, "*" if row["decided"] else ""]


def _line(cells: list[str], widths: list[int]) -> str:
    label, width = cells[0], widths[0]
    if len(label) > width:  # variants of one mechanism tend to differ at the end
        label = f"{label[: width // 2 - 1]}…{label[len(label) - (width - width // 2) :]}"
    aligned = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return (" " * _GAP).join([label.ljust(width), *aligned]).rstrip()


def _legend(frame: pd.DataFrame) -> list[str]:
    metric = str(frame["metric"].iloc[0])
    if metric == _NOISE:
        return [
            "Noise multipliers: standard deviation of the noise on the sum of a batch, in units of "
            "its sensitivity."
        ]
    title, better = METRICS[metric].title, METRICS[metric].better
    direction = "1 is right" if better == "one" else f"{better} is better"
    return [
        f"{title[0].upper()}{title[1:]} on the test rows ({direction}), mean ± standard error over "
        "seeds.",
        *_intervals(frame),
    ]


def _intervals(frame: pd.DataFrame) -> list[str]:
    pairs = sorted(set(frame.loc[frame["interval"] == "paired", "n_pairs"]))
    lines = []
    if pairs:
        n = "-".join(map(str, dict.fromkeys([pairs[0], pairs[-1]])))
        lines.append(f"Paired by seed (n = {n} pairs): B - A is over the seeds of both.")
    if (frame["interval"] == "Welch").any():
        lines.append("Not paired: Welch's interval, for data or seeds are not the same in both.")
    if (frame["difference"].notna() & (frame["interval"] == "")).any():
        lines.append("No interval where a folder has one seed only.")
    if (frame["interval"] != "").any():
        lines.append(
            "* the interval excludes 0. Intervals hold one by one, and do not contain the error of "
            "the test sample."
        )
    return lines


def _only(frame: pd.DataFrame, name: str) -> list[str]:
    """The labels and epsilons that only one folder has."""
    absent = {"A": "absent_b", "B": "absent_a"}[name]
    rows = frame[frame[absent] == _NOT_THERE]
    labels: dict[str, list[str]] = {}
    for label, of_label in rows.groupby("label", sort=False):
        epsilons = ", ".join(f"{epsilon:g}" for epsilon in of_label["epsilon"])
        labels.setdefault(epsilons, []).append(str(label))
    places = [f"{', '.join(names)} at epsilon {epsilons}" for epsilons, names in labels.items()]
    return [f"Only in {name}: {'; '.join(places)}."] if places else []


def _wrapped(sentences: list[str], indent: str = "") -> str:
    """Each sentence on its own lines; `indent` applies to all but the first sentence."""
    lines = []
    for number, sentence in enumerate(sentences):
        start = indent if number else ""
        wrapper = textwrap.TextWrapper(
            WIDTH,
            initial_indent=start,
            subsequent_indent=start + "  ",
            break_on_hyphens=False,
        )
        lines.append(wrapper.fill(sentence))
    return "\n".join(lines)
