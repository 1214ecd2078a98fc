"""All metrics of a study, a row for every curve and epsilon."""

import math

import pandas as pd

from dpcompare.metric_sets import METRICS, MetricSet, metric_set
from dpcompare.summary import Records, summarize
from dpcompare.tables.captions import constant_caption, gaps_caption, privacy_caption
from dpcompare.tables.cells import NOTHING, absence, digits, marked, score, short
from dpcompare.tables.relative_loss import absence_of_relative_losses
from dpcompare.tables.table import Table
from dpcompare.wording import seeds_sentence


def metrics_table(records: Records) -> Table:
    """One row per curve and epsilon with every metric of the task that has a value.

    Args:
        records: of one study.
    """
    summary = summarize(records)
    metrics = metric_set(summary["task"].iloc[0])
    names = [name for name in metrics.names if summary[name].notna().any()]
    tuned = bool(summary["tuned"].any())
    blocks = [_references(summary, metrics, names, tuned)]
    for _, rows in summary.groupby("label", sort=False):
        blocks.append([_row(row, metrics, names, tuned) for _, row in rows.iterrows()])
    valueless = [METRICS[name].title for name in metrics.names if name not in names]
    return Table(
        study=str(summary["study"].iloc[0]),
        title=str(summary["title"].iloc[0]),
        head=[
            *("curve", "epsilon"),
            *(METRICS[name].title for name in names),
            *("seeds", "epsilon spent"),
            *["candidate"] * tuned,
        ],
        alignment="l" + "r" * (len(names) + 3) + "l" * tuned,
        blocks=[block for block in blocks if block],
        caption=[
            seeds_sentence(summary),
            *constant_caption(summary),
            *([f"No trial has a value of {', '.join(valueless)}."] if valueless else []),
            *privacy_caption(summary),
            *absence_of_relative_losses(records),
            *gaps_caption(summary),
        ],
        numbers=_numbers(summary, metrics),
    )


def _references(
    summary: pd.DataFrame, metrics: MetricSet, names: list[str], tuned: bool
) -> list[list[str]]:
    """The best possible model and the best constant prediction, where they are known."""
    rows = []
    for label, column in (("best possible", "best_possible"), (metrics.constant, "constant")):
        values = [float(summary[f"{column}_{name}"].iloc[0]) for name in names]
        if not all(map(math.isnan, values)):
            rows.append([label, "", *map(digits, values), "", "", *[""] * tuned])
    return rows


def _row(row: pd.Series, metrics: MetricSet, names: list[str], tuned: bool) -> list[str]:
    private = math.isfinite(row["epsilon"])
    cells = [row["label"], f"{row['epsilon']:g}" if private else "no privacy"]
    if row["n_seeds"] == 0:
        cells += [absence(row)] * len(names)
    else:
        scores = {name: score(row, name) for name in names}
        if metrics.relative in scores:
            scores[metrics.relative] = marked(scores[metrics.relative], row)
        cells += scores.values()
    cells += [str(row["n_seeds"]), short(row["guarantee_epsilon"]) if private else NOTHING]
    return cells + [row["candidate"] or NOTHING] * tuned


def _numbers(summary: pd.DataFrame, metrics: MetricSet) -> pd.DataFrame:
    columns = ["label", "mechanism", "epsilon"]
    for name in metrics.names:
        columns += [name, f"{name}_se", f"{name}_n", f"best_possible_{name}", f"constant_{name}"]
    columns += ["worse_than_constant", "n_seeds", "candidate", "n_candidates"]
    columns += ["guarantee_epsilon", "delta", "unit", "neighboring", "failed", "missing"]
    return summary[columns]
