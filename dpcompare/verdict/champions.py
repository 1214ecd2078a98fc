"""The best mechanism of a unit at each epsilon, as one curve."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dpcompare.metric_sets import METRICS, MetricSet
from dpcompare.summary import Records
from dpcompare.verdict.units import UNITS, unit_of
from dpcompare.verdict.words import joined, numbers, with_rows


def champion(
    rows: pd.DataFrame,
    unit: str,
    trials: Mapping[tuple[str, float], Sequence[Mapping[str, Any]]],
    metrics: MetricSet,
    examples: float,
) -> tuple[Records, str]:
    """The trials of the best curve of a unit at each epsilon as one curve, and which that is."""
    loss = f"validation_{metrics.selection}"
    units = unit_of(rows)
    scored = rows[(rows["label"].map(units) == unit) & rows[loss].notna()]
    labels = list(dict.fromkeys(scored["label"]))
    if len(labels) < 2:
        return [trial for cell in cells(scored) for trial in trials[cell]], ""
    name = f"the best {UNITS[unit]} mechanism"
    winners = scored.loc[scored.groupby("epsilon")[loss].idxmin()]
    found = [{**t, "label": name} for cell in cells(winners) for t in trials[cell]]
    told = "; ".join(
        f"{label} at {joined(numbers(group['epsilon']))}"
        for label, group in winners.groupby("label", sort=False)
    )
    title = METRICS[metrics.selection].title
    return found, f"{name.capitalize()} by validation {title}{with_rows(examples)}: {told}."


def cells(rows: pd.DataFrame) -> list[tuple[str, float]]:
    """Label and epsilon of each row."""
    return list(zip(rows["label"], rows["epsilon"], strict=True))
