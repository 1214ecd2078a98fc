"""Attack power in words: what a newcomer can take from it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from dpcompare.attack_power import LABEL_FLIP, WHOLE_ROW

MOST_NAMED = 6
"""So many curves, or fewer, are named one by one in a sentence."""

LONGEST_NAME = 44
"""Characters of a name that stands for several curves."""

MEANING = (
    "The attacker sees everything that a trial released, knows all of the data but one label (or "
    "one row), and says which of two it was. No attack does better than these bounds; they are for "
    "the worst case, as epsilon is."
)
ROWS_ARE_REPLACED = (
    "To a mechanism that protects rows a flipped label is a replaced row, which can move a sum "
    "twice as far as a row that vanishes: under zero-out and add-or-remove-one, with rows clipped "
    "one by one, a label is easier to tell than whether the row is there."
)
FEATURES = "Label mechanisms use features as they are, so that whole rows are not protected: 100%."


def sentences(rows: pd.DataFrame) -> list[str]:
    """All that has to be said beside bounds.

    Args:
        rows: of :func:`dpcompare.attack_power.of_records`, at least one.
    """
    notes = [*relation_sentences(rows), *equal_sentences(equal_curves(rows), "line")]
    return [example_sentence(rows), MEANING, *notes, *looser_sentences(rows)]


def percent(share: float) -> str:
    """A bound with three digits, rounded up."""
    if share <= 0:
        return "0%"
    digits = max(0, 2 - math.floor(math.log10(100 * share)))
    text = f"{math.ceil(100 * share * 10**digits - 1e-7) / 10**digits:.{digits}f}%"
    return "100%" if text == "100.0%" else text


def example_sentence(rows: pd.DataFrame) -> str:
    """What the bounds say at the epsilon nearest to 1 and the smallest false positive rate.

    Args:
        rows: of :func:`dpcompare.attack_power.of_records`, at least one.
    """
    epsilon = min(rows["epsilon"], key=lambda e: (abs(math.log(e)), e))
    rate = rows["fpr"].min()
    shown = rows[rows["attack"].eq(LABEL_FLIP) & rows["epsilon"].eq(epsilon) & rows["fpr"].eq(rate)]
    found: dict[str, list[str]] = {}
    for _, row in shown.sort_values("tpr", kind="stable").iterrows():
        found.setdefault(percent(row["tpr"]), []).append(str(row["label"]))
    several = short_name if len(shown) > MOST_NAMED else listed
    texts = [f"{bound} under {several(labels)}" for bound, labels in found.items()]
    if len(shown) > MOST_NAMED and len(texts) > 2:
        texts = [f"{bound} (under {labels[0]})" for bound, labels in found.items()]
        texts = [f"from {texts[0]} to {texts[-1]}"]
    return (
        f"At epsilon {epsilon:g}, an attacker who may be wrong about 1 in {1 / rate:,.0f} rows "
        "that do not have the label in question recognizes at most this share of those that have "
        f"it: {', '.join(texts)}. Guessing recognizes {100 * rate:g}%."
    )


def looser_sentences(rows: pd.DataFrame) -> list[str]:
    """Which bounds follow from a stated epsilon and delta alone."""
    labels = list(dict.fromkeys(rows.loc[~rows["from_releases"].astype(bool), "label"]))
    if not labels:
        return []
    return [f"Bounds of the stated epsilon and delta alone, which are looser: {', '.join(labels)}."]


def relation_sentences(rows: pd.DataFrame) -> list[str]:
    """What a whole row means, as far as there are rows of that kind."""
    whole = set(rows.loc[rows["attack"] == WHOLE_ROW, "relation"])
    sentences = [ROWS_ARE_REPLACED] if whole & {"zero-out", "add-or-remove-one"} else []
    return sentences + [FEATURES] * ("none" in whole)


def equal_curves(rows: pd.DataFrame) -> dict[str, list[str]]:
    """The labels of which all bounds are equal, and equally well known, by the first of them."""
    found: dict[tuple[Any, ...], list[str]] = {}
    for label, own in rows.groupby("label", sort=False):
        bounds = tuple(f"{bound:.6g}" for bound in own["tpr"])
        rest = own.drop(columns=["label", "tpr"]).itertuples(index=False, name=None)
        found.setdefault((bounds, *rest), []).append(str(label))
    return {labels[0]: labels for labels in found.values()}


def short_name(labels: Sequence[str]) -> str:
    """The labels of one line, if they are not too long; else the first, and how many more."""
    whole = ", ".join(labels)
    if len(whole) <= LONGEST_NAME or len(labels) == 1:
        return whole
    return f"{labels[0]} and {len(labels) - 1} more"


def equal_sentences(lines: Mapping[str, Sequence[str]], one: str) -> list[str]:
    """Which labels a :func:`short_name` stands for; one is "line" or "row"."""
    several = [labels for labels in lines.values() if short_name(labels) != ", ".join(labels)]
    return [f"In one {one}, since their bounds are equal: {listed(labels)}." for labels in several]


def listed(names: Iterable[str]) -> str:
    """Names as they stand in a sentence."""
    *before, last = names
    return f"{', '.join(before)} and {last}" if before else last
