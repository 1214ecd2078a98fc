"""Where two utility curves cross, as far as the seeds can decide it."""

import math
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
from scipy import stats

from dpcompare.errors import UsageError
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.summary import Records, shown_trials
from dpcompare.sweeps import walks_numbers

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Comparison:
    """Two curves at one epsilon.

    Attributes:
        epsilon: where.
        n: seeds that both have a value for.
        difference: mean over those seeds of first - second, in units of the metric.
        low, high: its t interval at 95% confidence; nan for fewer than two seeds.
        ahead: the curve that is better at 95% confidence; None while the sign is undecided.
    """

    epsilon: float
    n: int
    difference: float
    low: float
    high: float
    ahead: str | None


@dataclass(frozen=True)
class Crossover:
    """Two curves over all epsilons they share.

    Attributes:
        first, second: their labels.
        metric: what they are compared by.
        points: the comparisons, by ascending epsilon.
        intervals: (a, b) for every crossing: one curve is decidedly ahead at a, the other at b,
            and nothing is decided in between.
        statement: the same as a sentence.
    """

    first: str
    second: str
    metric: str
    points: tuple[Comparison, ...]
    intervals: tuple[tuple[float, float], ...]
    statement: str


def crossovers(records: Records, metric: str | None = None) -> list[Crossover]:
    """Compare every pair of curves that have finite epsilons, except those of swept settings.

    Trials of one seed share split, initial weights and, where they can, batch order, so the
    difference is taken seed by seed; at each epsilon the sign is decided when the paired t
    interval excludes 0. Intervals hold one by one, not for all epsilons at once, and do not
    contain the error of the finite test sample.

    Args:
        records: of one study.
        metric: of the study's task, with a better direction; None takes the study's own, or the
            main one of the task where that has no better direction.

    Raises:
        UsageError: the metric is not one of the task or has no better direction.
    """
    if not records:
        return []
    metrics, own = metric_set(records[-1]["task"]), records[-1]["metric"]
    directed = [name for name in metrics.names if METRICS[name].better != "one"]
    if metric is None:
        metric = own if own in directed else metrics.main
    if metric not in directed:
        raise UsageError(f"curves can be compared by {', '.join(directed)}, not by {metric!r}")
    values: dict[str, dict[float, dict[int, float]]] = {}
    for (label, epsilon), trials in shown_trials(records).items():
        if math.isfinite(epsilon) and not walks_numbers(label):
            scores = {trial["seed"]: (trial["test"] or {}).get(metric) for trial in trials}
            defined = {seed: score for seed, score in scores.items() if score is not None}
            values.setdefault(label, {})[epsilon] = defined
    return [_compare(pair, values, metric) for pair in combinations(values, 2)]


def _compare(
    pair: tuple[str, str], values: dict[str, dict[float, dict[int, float]]], metric: str
) -> Crossover:
    first, second = (values[label] for label in pair)
    points = []
    for epsilon in sorted(first.keys() & second.keys()):
        seeds = sorted(first[epsilon].keys() & second[epsilon].keys())
        if seeds:
            a, b = (np.array([curve[epsilon][seed] for seed in seeds]) for curve in (first, second))
            points.append(_comparison(epsilon, a - b, pair, METRICS[metric].better == "higher"))
    decided = [point for point in points if point.ahead]
    intervals = tuple((a.epsilon, b.epsilon) for a, b in pairwise(decided) if a.ahead != b.ahead)
    statement = _statement(pair, METRICS[metric].title, points, decided)
    return Crossover(*pair, metric, tuple(points), intervals, statement)


def _comparison(
    epsilon: float, differences: np.ndarray, pair: tuple[str, str], higher_is_better: bool
) -> Comparison:
    n, mean = differences.size, float(differences.mean())
    margin = math.nan
    if n > 1 and math.isfinite(mean):
        error = float(differences.std(ddof=1)) / math.sqrt(n)
        margin = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * error
    ahead = None
    if abs(mean) > margin:  # false for nan
        ahead = pair[0] if (mean > 0) == higher_is_better else pair[1]
    return Comparison(epsilon, n, mean, mean - margin, mean + margin, ahead)


def _statement(
    pair: tuple[str, str], title: str, points: list[Comparison], decided: list[Comparison]
) -> str:
    subject = f"{pair[0]} and {pair[1]} by {title}"
    if not points:
        return f"{subject}: no epsilon at which both have a value for the same seed."
    if max(point.n for point in points) < 2:
        return f"{subject}: one seed only, the sign of their difference cannot be decided."
    span = _span([point.epsilon for point in points])
    if not decided:
        return f"{subject}: undecided {span}; more seeds may decide it."
    crossings = [
        f"they cross between epsilon {a.epsilon:g} ({a.ahead} ahead) and {b.epsilon:g} "
        f"({b.ahead} ahead)"
        for a, b in pairwise(decided)
        if a.ahead != b.ahead
    ]
    if crossings:
        return f"{subject}: {'; '.join(crossings)}."
    where = ", ".join(f"{point.epsilon:g}" for point in decided)
    rest = "" if len(decided) == len(points) else ", undecided elsewhere"
    return f"{subject}: no crossing {span}; {decided[0].ahead} is ahead at epsilon {where}{rest}."


def _span(epsilons: list[float]) -> str:
    if len(epsilons) == 1:
        return f"at epsilon {epsilons[0]:g}"
    return f"from epsilon {epsilons[0]:g} to {epsilons[-1]:g}"
