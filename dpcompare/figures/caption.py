"""The small print below a figure: what the points are, what epsilon protects, what is missing."""

import textwrap

import pandas as pd

from dpcompare.crossover import crossovers
from dpcompare.report import (
    UNIT_NOTE,
    failure_counts,
    privacy_sentences,
    remark_sentences,
    seeds_sentence,
    tuning_sentence,
)
from dpcompare.summary import METRICS, Records


def caption(records: Records, summary: pd.DataFrame, metric: str, columns: int) -> list[str]:
    """The caption of a utility figure, in lines of at most `columns` characters.

    Args:
        records: of the study; where two curves are compared, their crossing is stated.
        summary: of the same records.
        metric: the metric of the upper panel.
        columns: where to break lines.
    """
    points = f"Points, bands and bars: {seeds_sentence(summary)}"
    rows = summary[["examples", "test_rows"]].dropna()
    if not rows.empty:
        train, test = rows.iloc[0]
        points += f" {int(train):,} training rows, {int(test):,} test rows."
    if (summary["n_seeds"] == 1).any():
        points += " Hollow markers: a single seed."
    paragraphs = [
        points,
        "Equal epsilon is not equal privacy. "
        + " ".join(privacy_sentences(summary, with_relations=False))
        + f" {UNIT_NOTE}",
        tuning_sentence(summary, with_choices=False),
        *_crossing(records, metric),
        *_gaps(summary),
    ]
    wrapper = textwrap.TextWrapper(columns, break_on_hyphens=False)
    return [line for text in paragraphs for line in wrapper.wrap(text)]


def _crossing(records: Records, metric: str) -> list[str]:
    """Said for two curves; among more the pairs are too many for a caption."""
    if METRICS[metric].better == "one":
        return []
    found = crossovers(records, metric)
    if len(found) != 1:
        return []
    return [f"Paired by seed (95% t intervals, one by one): {found[0].statement}"]


def _gaps(summary: pd.DataFrame) -> list[str]:
    scored = summary.groupby("label", sort=False)["n_seeds"].max()
    nothing = [str(label) for label, seeds in scored.items() if seeds == 0]
    paragraphs = []
    if nothing:
        paragraphs.append(f"Not drawn, no trial has a score: {', '.join(nothing)}.")
    if failures := failure_counts(summary):
        paragraphs.append(f"Failed: {'; '.join(failures)}; reasons in the table.")
    return paragraphs + remark_sentences(summary)
