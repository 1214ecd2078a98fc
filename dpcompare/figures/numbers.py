"""The numbers of one panel as a tidy frame: what is drawn is what stands in the CSV."""

import math
from collections.abc import Iterator

import pandas as pd

from dpcompare.metric_sets import METRICS, metric_set


def scores(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    """Mean, standard error, the band and its n for a metric, one row per row of the summary."""
    error = summary[f"{name}_se"]
    return pd.DataFrame(
        {
            "label": summary["label"],
            "epsilon": summary["epsilon"],
            "mean": summary[name],
            "standard_error": error,
            "low": summary[name] - error,
            "high": summary[name] + error,
            "n_seeds": summary[f"{name}_n"],
            "n_candidates": summary["n_candidates"],
        }
    )


def lines(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    """The horizontal lines that have no trial: the best possible model and the constant prediction.

    The constant is left out where it lies far below all curves of a metric that ranks: it would
    only press them together.
    """
    metric = METRICS[name]
    found = {"best possible": ("best possible", float(summary[f"best_possible_{name}"].iloc[0]))}
    constant = float(summary[f"constant_{name}"].iloc[0])
    low, high = summary[name].min(), summary[name].max()
    relative = name == metric_set(summary["task"].iloc[0]).relative
    if metric.better != "higher" or relative or low - constant < 0.5 * (high - low):
        found["uninformed"] = (metric.reference, constant)
    rows = [
        {"kind": kind, "label": label, "mean": value}
        for kind, (label, value) in found.items()
        if not math.isnan(value)
    ]
    return pd.DataFrame(rows, columns=["kind", "label", "mean"]).astype({"mean": float})


def entries(numbers: pd.DataFrame) -> Iterator[tuple[str, str, str]]:
    """Kind and label of everything in a figure, and a note where it is the best of several."""
    for _, first in numbers.drop_duplicates(["kind", "label"]).iterrows():
        kind, label = str(first["kind"]), str(first["label"])
        same = (numbers["kind"] == kind) & (numbers["label"] == label)
        tried = numbers.loc[same, "n_candidates"].max()
        yield kind, label, f" (best of {tried:.0f})" if tried > 1 else ""
