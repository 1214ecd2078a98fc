"""The small print below a figure: what the points are, what epsilon protects, what is missing."""

import math
import textwrap

import pandas as pd

from dpcompare.crossover import crossovers
from dpcompare.metric_sets import METRICS
from dpcompare.summary import Records
from dpcompare.wording import (
    UNIT_NOTE,
    failure_counts,
    privacy_sentences,
    remark_sentences,
    seeds_sentence,
    tuning_sentence,
)


def utility_caption(
    records: Records, summary: pd.DataFrame, metric: str, columns: int
) -> list[str]:
    """The caption of a utility figure, in lines of at most `columns` characters.

    Args:
        records: of the study; where two curves are compared, their crossing is stated.
        summary: of the same records.
        metric: the metric of the upper panel.
        columns: where to break lines.
    """
    paragraphs = [
        points_sentence(summary, "Points, bands and bars"),
        "Equal epsilon is not equal privacy. "
        + " ".join(privacy_sentences(summary, with_relations=False))
        + f" {UNIT_NOTE}",
        tuning_sentence(summary, with_choices=False),
        *_crossing(records, metric),
        *gaps(summary),
    ]
    return wrapped(paragraphs, columns)


def sample_size_caption(
    summary: pd.DataFrame, numbers: pd.DataFrame, metric: str, columns: int
) -> list[str]:
    """The caption of an effective sample size figure, in lines of at most `columns` characters.

    Args:
        summary: of the study's records.
        numbers: in the figure.
        metric: the title of what is drawn.
        columns: where to break lines.
    """
    points = numbers[numbers["kind"] == "curve"]
    drawn = summary[summary["label"].isin(points["label"]) & (summary["epsilon"] < math.inf)]
    others = summary[(summary["epsilon"] < math.inf) & ~summary["label"].isin(points["label"])]
    paragraphs = [
        "Effective rows: the number of clean labels that hold as much Fisher information about the "
        "log-odds as the randomized labels do, at the true rates. If nothing else counts, points "
        f"lie on the curve. Label mechanisms train on {_rows(drawn['examples'])} rows.",
        _agreement(points, metric),
        points_sentence(summary, "Points and bars"),
        f"{' '.join(privacy_sentences(drawn, with_relations=False))} {UNIT_NOTE}",
        tuning_sentence(summary, with_choices=False),
        *gaps(summary),
    ]
    if not others.empty:
        names = ", ".join(dict.fromkeys(others["label"]))
        paragraphs.append(f"Not drawn, no effective sample size is known: {names}.")
    return wrapped(paragraphs, columns)


def rows_caption(summary: pd.DataFrame, columns: int) -> list[str]:
    """The caption of a figure over training rows, in lines of at most `columns` characters.

    Args:
        summary: of the study's records, with the names of the curves as labels.
        columns: where to break lines.
    """
    paragraphs = [
        points_sentence(summary, "Points, bands and bars"),
        f"{' '.join(privacy_sentences(summary, with_relations=False))} {UNIT_NOTE}",
        tuning_sentence(summary, with_choices=False),
        "Notes on the trials stand under the table.",
    ]
    if failures := failure_counts(summary):
        paragraphs.append(f"Failed: {'; '.join(failures)}; reasons in the table.")
    return wrapped(paragraphs, columns)


def _agreement(points: pd.DataFrame, metric: str) -> str:
    """How far the points are from the curve, across and up."""
    ratios, total = points["ratio"].dropna(), len(points)
    if ratios.empty:
        text = f"No point has a {metric} that exactly one size on the curve reaches."
    else:
        text = (
            f"The curve reaches the {metric} of a point at between {ratios.min():.2f} and "
            f"{ratios.max():.2f} times its effective rows"
        )
        if len(ratios) < total:
            text += f" ({len(ratios)} of {total} points; elsewhere none or several sizes do)"
        text += "."
    apart = (points["mean"] - points["curve_there"]).dropna()
    if not apart.empty:
        text += f" At the same rows, points are {apart.min():+.4f} to {apart.max():+.4f} from it."
    return text


def points_sentence(summary: pd.DataFrame, parts: str) -> str:
    """What the `parts` of a figure are, and over how many seeds and rows."""
    text = f"{parts}: {seeds_sentence(summary)}"
    if summary[["examples", "test_rows"]].notna().any().all():
        train, test = _rows(summary["examples"]), _rows(summary["test_rows"])
        text += f" {train} training rows, {test} test rows."
    return text + (" Hollow markers: a single seed." if (summary["n_seeds"] == 1).any() else "")


def wrapped(paragraphs: list[str], columns: int) -> list[str]:
    """The lines of a caption, at most `columns` characters each."""
    wrapper = textwrap.TextWrapper(columns, break_on_hyphens=False)
    return [line for text in paragraphs for line in wrapper.wrap(text)]


def _rows(counts: pd.Series) -> str:
    low, high = f"{counts.min():,.0f}", f"{counts.max():,.0f}"
    return low if low == high else f"{low}-{high}"


def _crossing(records: Records, metric: str) -> list[str]:
    """Said for two curves; among more the pairs are too many for a caption."""
    if METRICS[metric].better == "one":
        return []
    found = crossovers(records, metric)
    if len(found) != 1:
        return []
    return [f"Paired by seed (95% t intervals, one by one): {found[0].statement}"]


def gaps(summary: pd.DataFrame) -> list[str]:
    """What has no score, and what the trials have to say."""
    scored = summary.groupby("label", sort=False)["n_seeds"].max()
    nothing = [str(label) for label, seeds in scored.items() if seeds == 0]
    paragraphs = []
    if nothing:
        paragraphs.append(f"Not drawn, no trial has a score: {', '.join(nothing)}.")
    if failures := failure_counts(summary):
        paragraphs.append(f"Failed: {'; '.join(failures)}; reasons in the table.")
    return paragraphs + remark_sentences(summary)
