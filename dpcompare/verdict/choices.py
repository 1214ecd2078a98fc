"""Which mechanism to take at which budget."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from dpcompare.crossover import Comparison, Crossover
from dpcompare.metric_sets import METRICS, MetricSet
from dpcompare.verdict.units import unit_of
from dpcompare.verdict.words import joined, numbers, with_rows


@dataclass(frozen=True)
class Choice:
    """Which mechanism to take at one budget.

    Attributes:
        epsilon: the budget.
        examples: training rows of all that are compared; nan where all curves have equally many.
        label: the curve with the lowest mean validation loss among those that are not worse than
            the constant prediction there; None where there is none.
        whole_row: the same among the curves whose epsilon protects whole rows.
        behind: curves that are decidedly worse by test loss, paired by seed.
        level: curves that the seeds do not tell from it.
        ahead: curves that are decidedly better by test loss, though not by validation loss.
        open: curves that cannot be compared with it: fewer than two common seeds.
        useless: curves that are worse than the constant prediction on the validation rows.
        unscored: curves without a score there.
        fails_on_test: whether the one to take is worse than the constant prediction on the test
            rows all the same.
        sentence: all of this in words.
    """

    epsilon: float
    examples: float
    label: str | None
    whole_row: str | None
    behind: tuple[str, ...]
    level: tuple[str, ...]
    ahead: tuple[str, ...]
    open: tuple[str, ...]
    useless: tuple[str, ...]
    unscored: tuple[str, ...]
    fails_on_test: bool
    sentence: str


def find_choices(
    rows: pd.DataFrame, found: Sequence[Crossover], metrics: MetricSet, examples: float
) -> list[Choice]:
    """The choice at each epsilon.

    Args:
        rows: of the summary, private ones that are compared with each other.
        found: the comparisons of their curves by the loss that selects.
        metrics: of the task.
        examples: training rows to name; nan for none.
    """
    points: dict[tuple[str, str, float], Comparison] = {}
    for crossover in found:
        low, high = sorted((crossover.first, crossover.second))
        points |= {(low, high, point.epsilon): point for point in crossover.points}
    units = unit_of(rows)
    return [
        _choice(epsilon, at, points, units, metrics, examples)
        for epsilon, at in ((float(at["epsilon"].iloc[0]), at) for _, at in rows.groupby("epsilon"))
    ]


def _choice(
    epsilon: float,
    at: pd.DataFrame,
    points: Mapping[tuple[str, str, float], Comparison],
    units: Mapping[str, str],
    metrics: MetricSet,
    examples: float,
) -> Choice:
    """The choice among the rows at one epsilon."""
    losses = dict(zip(at["label"], at[f"validation_{metrics.selection}"], strict=True))
    relative = dict(zip(at["label"], at[f"validation_{metrics.relative}"], strict=True))
    unscored = [label for label, loss in losses.items() if math.isnan(loss)]
    useless = [label for label, value in relative.items() if metrics.worse_than_constant(value)]
    useful = [label for label in losses if label not in unscored + useless]
    whole = [label for label in useful if units.get(label) == "example"]
    label = min(useful, key=losses.__getitem__, default=None)
    standing: dict[str, list[str]] = {"behind": [], "level": [], "ahead": [], "open": []}
    for other in losses:
        if label is not None and other != label and other not in unscored:
            low, high = sorted((label, other))
            standing[_standing(points.get((low, high, epsilon)), label)].append(other)
    parts = {key: tuple(names) for key, names in standing.items()}
    parts |= {"useless": tuple(useless), "unscored": tuple(unscored)}
    best_whole = min(whole, key=losses.__getitem__, default=None)
    fails = bool(at.loc[at["label"] == label, "worse_than_constant"].any())
    start = f"Epsilon {epsilon:g}{with_rows(examples)}:"
    sentence = _choice_sentence(start, label, best_whole, units, metrics, parts)
    if fails:
        sentence += f" On the test rows {label} is worse than the {metrics.constant} all the same."
    return Choice(
        epsilon, examples, label, best_whole, **parts, fails_on_test=fails, sentence=sentence
    )


def _standing(point: Comparison | None, label: str) -> str:
    if point is None or point.n < 2:
        return "open"
    if point.ahead is None:
        return "level"
    return "behind" if point.ahead == label else "ahead"


def _choice_sentence(
    start: str,
    label: str | None,
    whole_row: str | None,
    units: Mapping[str, str],
    metrics: MetricSet,
    parts: Mapping[str, tuple[str, ...]],
) -> str:
    if label is None:
        if parts["useless"]:
            text = (
                f"{start} no mechanism beats always predicting the {metrics.constant} on the "
                "validation rows."
            )
        else:
            text = f"{start} no mechanism has a score."
    else:
        text = f"{start} take {label}, which protects {_protected(units.get(label))}."
        if whole_row != label:
            text += f" If whole rows have to be protected: {whole_row or 'none'}."
    told = {
        "behind": "Decidedly behind it",
        "level": "Not distinguishable from it",
        "ahead": "Decidedly ahead of it on the test rows, though not by validation loss",
        "open": "Not comparable with it, for want of common seeds",
        "useless": f"Worse than the {metrics.constant}",
        "unscored": "Without a score",
    }
    rest = [f"{title}: {', '.join(parts[key])}." for key, title in told.items() if parts[key]]
    return " ".join([text, *rest])


def _protected(unit: str | None) -> str:
    return {"example": "whole rows", "label": "labels only"}.get(unit or "", "an unknown unit")


def recommendation_sentences(choices: Sequence[Choice], metrics: MetricSet) -> list[str]:
    """All choices in a sentence for each number of training rows, and where nothing is worth it."""
    sentences = []
    for _, group in groupby(choices, key=lambda choice: str(choice.examples)):
        of_label: dict[str | None, list[float]] = {}
        for choice in (same := list(group)):
            of_label.setdefault(choice.label, []).append(choice.epsilon)
        taken = [
            f"{label} at epsilon {joined(numbers(places))}"
            for label, places in of_label.items()
            if label is not None
        ]
        rows = with_rows(same[0].examples)
        if taken:
            sentences.append(
                f"By validation {METRICS[metrics.selection].title}{rows}, take {'; '.join(taken)}."
            )
        vain = [choice.epsilon for choice in same if choice.label is None and choice.useless]
        if vain:
            sentences.append(
                f"Warning: at epsilon {joined(numbers(vain))}{rows} nothing beats always "
                f"predicting the {metrics.constant}; no private model is worth its training there."
            )
    return sentences
