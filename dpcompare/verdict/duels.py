"""A mechanism that protects whole rows against one that protects labels: who is ahead where."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from dpcompare.crossover import Comparison, Crossover
from dpcompare.metric_sets import METRICS
from dpcompare.verdict.units import UNITS, unit_of
from dpcompare.verdict.words import joined, numbers, with_rows


@dataclass(frozen=True)
class Duel:
    """A mechanism that protects whole rows against one that protects labels.

    Attributes:
        examples: training rows of both; nan where all curves have equally many.
        crossover: their paired comparison.
        sentence: where which of them is ahead, and where they cross.
    """

    examples: float
    crossover: Crossover
    sentence: str


def across_units(found: Sequence[Crossover], rows: pd.DataFrame) -> Iterator[Crossover]:
    """The comparisons of a whole-row mechanism with a label mechanism."""
    units = unit_of(rows)
    for crossover in found:
        if {units.get(crossover.first), units.get(crossover.second)} == set(UNITS):
            yield crossover


def as_duel(crossover: Crossover, examples: float) -> Duel:
    """A comparison with its sentence."""
    return Duel(examples, crossover, duel_sentence(crossover, examples))


def duel_sentence(crossover: Crossover, examples: float = math.nan) -> str:
    """Who is ahead where, in one or two sentences.

    Args:
        crossover: of :func:`dpcompare.crossover.crossovers`.
        examples: training rows to name; nan for none.
    """
    title, points = METRICS[crossover.metric].title + with_rows(examples), crossover.points
    pair = f"{crossover.first} and {crossover.second}"
    if not points:
        return f"By {title}: {pair} have no epsilon at which both have a value for the same seed."
    if max(point.n for point in points) < 2:
        return f"By {title}: one seed cannot decide between {pair}."
    span = _span([point.epsilon for point in points])
    if not any(point.ahead for point in points):
        return f"By {title}: {pair} are not told apart {span}. {_undecided(points)}"
    ahead = [
        f"{name} is ahead {joined(places)}" if number == 0 else f"{name} {joined(places)}"
        for number, (name, places) in enumerate(_leads(points))
    ]
    crossings = [f"between epsilon {low:g} and {high:g}" for low, high in crossover.intervals]
    if crossings:
        end = f"So the curves cross {joined(crossings)}."
    elif all(point.ahead for point in points):
        end = f"The curves do not cross {span}."
    else:
        end = f"No crossing is decided {span}."
    return " ".join(filter(None, [f"By {title}: {', '.join(ahead)}.", _undecided(points), end]))


def _leads(points: Sequence[Comparison]) -> list[tuple[str, list[str]]]:
    """Who is ahead in which stretches of neighboring epsilons, from small to large epsilon."""
    leads: list[tuple[str, list[str]]] = []
    ends = points[0].epsilon, points[-1].epsilon
    for name, stretch in groupby(points, key=lambda point: point.ahead):
        places = [point.epsilon for point in stretch]
        if name and leads and leads[-1][0] == name:
            leads[-1][1].append(_place(places, *ends))
        elif name:
            leads.append((name, [_place(places, *ends)]))
    return leads


def _place(places: Sequence[float], first: float, last: float) -> str:
    low, high = places[0], places[-1]
    if low == high:
        return f"at epsilon {low:g}"
    if (low, high) == (first, last):
        return f"at every epsilon from {low:g} to {high:g}"
    if low == first:
        return f"up to epsilon {high:g}"
    return f"from epsilon {low:g} on" if high == last else f"from epsilon {low:g} to {high:g}"


def _undecided(points: Sequence[Comparison]) -> str:
    """Where the seeds do not decide, and how large a difference they leave possible there."""
    several = [point for point in points if point.ahead is None and point.n > 1]
    single = [point for point in points if point.ahead is None and point.n < 2]
    sentences = []
    if several:
        counts = sorted({point.n for point in several})
        seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
        most = max(max(abs(point.low), abs(point.high)) for point in several)
        where = joined(numbers(point.epsilon for point in several))
        sentences.append(
            f"At {where} these {seeds} seeds do not decide; the difference there may be up to "
            f"{most:.2g}."
        )
    if single:
        where = joined(numbers(point.epsilon for point in single))
        sentences.append(f"At {where} there is one common seed, which cannot decide.")
    return " ".join(sentences)


def _span(epsilons: Sequence[float]) -> str:
    if len(epsilons) == 1:
        return f"at epsilon {epsilons[0]:g}"
    return f"within epsilon {epsilons[0]:g}-{epsilons[-1]:g}"
