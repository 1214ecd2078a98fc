"""What the records of a study say to someone who has to choose a mechanism, in plain words.

Nothing is chosen by test metrics: the best mechanism is the one with the lowest validation loss.
Test metrics only say what that choice costs and who is decidedly behind it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pandas as pd

from dpcompare.auc_error import sample_error_sentences
from dpcompare.crossover import Comparison, Crossover, crossovers
from dpcompare.metric_sets import METRICS, MetricSet, metric_set
from dpcompare.summary import Records, is_swept, shown_trials, summarize

TOLERANCE = 0.05  # of predicted over observed, within which bids are taken for calibrated
UNITS = {"example": "whole-row", "label": "label"}
EQUAL_EPSILON = (
    "Equal epsilon is not equal privacy: for a whole-row mechanism (unit example) epsilon protects "
    "all of a row, for a label mechanism (unit label) only its label. Where features have to be "
    "protected too, only whole-row mechanisms count."
)


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


@dataclass(frozen=True)
class Cost:
    """What one curve loses at one epsilon, on the test rows. Shares, nan where not known.

    Attributes:
        label, epsilon: which.
        auc_gap: (1 - AUC) over that of the non-private model, minus 1.
        gain_lost: share of the non-private model's gain in loss over the best constant prediction
            that is lost: 0 is as good as non-private, 1 as bad as the constant.
    """

    label: str
    epsilon: float
    auc_gap: float
    gain_lost: float


@dataclass(frozen=True)
class Bids:
    """Whether bids computed from the predictions would be right in total, on the test rows.

    Attributes:
        label, epsilon: which.
        excess: predicted over observed, minus 1: what bids would be too high by.
        beside_non_private: predicted over that of the non-private model, minus 1; nan without one.
    """

    label: str
    epsilon: float
    excess: float
    beside_non_private: float

    @property
    def right(self) -> bool:
        """Within the tolerance of 1."""
        return abs(self.excess) <= TOLERANCE

    @property
    def as_non_private(self) -> bool:
        """Within the tolerance of the non-private model."""
        return abs(self.beside_non_private) <= TOLERANCE

    @property
    def known(self) -> bool:
        """Whether there is a calibration and a non-private one to compare it with."""
        return not math.isnan(self.beside_non_private)


@dataclass(frozen=True)
class Verdict:
    """Everything :func:`verdict` has to say about one study.

    Attributes:
        trained: whether the study trained models; one of kind "account" did not.
        duels: the best whole-row mechanism against the best label mechanism, one for each metric
            and number of training rows.
        best: which label or whole-row mechanism is the best at which epsilon, as sentences.
        pairs: every whole-row mechanism against every label mechanism.
        choices: by number of training rows and epsilon.
        recommendation: the choices in few sentences.
        costs: of every curve and finite epsilon with a score.
        bids: of every curve and epsilon with a score, the non-private one first.
        bidding: the bids in words, a sentence per curve.
        limits: what the comparisons do not contain, as sentences.
    """

    trained: bool
    duels: tuple[Duel, ...]
    best: tuple[str, ...]
    pairs: tuple[Duel, ...]
    choices: tuple[Choice, ...]
    recommendation: tuple[str, ...]
    costs: tuple[Cost, ...]
    bids: tuple[Bids, ...]
    bidding: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """All that a terminal would print."""
        return [
            *(duel.sentence for duel in self.duels),
            *self.best,
            *self.recommendation,
            *(choice.sentence for choice in self.choices),
            *self.bidding,
            *self.limits,
        ]


def verdict(records: Records) -> Verdict:
    """The verdict on one study.

    Args:
        records: of one study, as :meth:`dpcompare.results.ResultsFolder.records` returns them.

    Raises:
        DpcompareError: there are no records.
        UsageError: their task is unknown.
    """
    summary = summarize(records)
    metrics = metric_set(summary["task"].iloc[0])
    done = [record for record in records if record["status"] == "done"]
    if done and all(record["test"] is None for record in done):
        nothing = "This study trains nothing, so there is no utility to judge."
        return Verdict(False, (), (), (), (), (), (), (), (), (nothing,))
    if is_swept(summary):
        return _of_sweep(summary, metrics)
    trials = shown_trials(records)
    duels: list[Duel] = []
    best: list[str] = []
    pairs: list[Duel] = []
    choices: list[Choice] = []
    for examples, rows in _by_examples(summary):
        of_units = [_champion(rows, unit, trials, metrics, examples) for unit in UNITS]
        champions = [trial for found, _ in of_units for trial in found]
        shown = [trial for cell in _cells(rows) for trial in trials[cell]]
        if all(found for found, _ in of_units):
            best += [told for _, told in of_units if told]
        for metric in _compared(summary, metrics):
            duels += [_duel(c, examples) for c in crossovers(champions, metric)]
            pairs += [_duel(c, examples) for c in _across(crossovers(shown, metric), rows)]
        choices += _choices(rows, crossovers(shown, metrics.selection), metrics, examples)
    bids = _bids(summary)
    return Verdict(
        trained=True,
        duels=tuple(duels),
        best=tuple(best),
        pairs=tuple(pairs),
        choices=tuple(choices),
        recommendation=tuple(_recommendation(choices, metrics)),
        costs=tuple(_costs(summary, metrics)),
        bids=tuple(bids),
        bidding=tuple(_bidding(bids)),
        limits=tuple(_limits(records, summary, bool(duels))),
    )


def _of_sweep(summary: pd.DataFrame, metrics: MetricSet) -> Verdict:
    """A study that shows every value of a setting compares settings, not mechanisms."""
    costs, bids = tuple(_costs(summary, metrics)), tuple(_bids(summary))
    told = "This study walks through settings; its figure compares them, and none is recommended."
    return Verdict(True, (), (), (), (), (), costs, bids, (), (told, EQUAL_EPSILON))


def _by_examples(summary: pd.DataFrame) -> Iterator[tuple[float, pd.DataFrame]]:
    """The private rows by the number of training rows, nan if there is one number only.

    Only curves with equal numbers are compared.
    """
    private = summary[summary["epsilon"] < math.inf]
    sizes = private.groupby("label", sort=False)["examples"].transform("max").astype(float)
    different = sorted(set(sizes.dropna()))
    if len(different) < 2:
        yield math.nan, private
        return
    for examples in different:
        yield examples, private[sizes == examples]


def _cells(rows: pd.DataFrame) -> list[tuple[str, float]]:
    return list(zip(rows["label"], rows["epsilon"], strict=True))


def _compared(summary: pd.DataFrame, metrics: MetricSet) -> list[str]:
    """The study's own metric, or the main one where that has no better direction; and the loss."""
    own = str(summary["metric"].iloc[0])
    first = metrics.main if METRICS[own].better == "one" else own
    return list(dict.fromkeys([first, metrics.selection]))


def _unit_of(rows: pd.DataFrame) -> dict[str, str]:
    """The unit of each curve that got as far as a guarantee."""
    stated = rows[rows["unit"].notna()].drop_duplicates("label")
    return dict(zip(stated["label"], stated["unit"], strict=True))


def _champion(
    rows: pd.DataFrame,
    unit: str,
    trials: Mapping[tuple[str, float], Sequence[Mapping[str, Any]]],
    metrics: MetricSet,
    examples: float,
) -> tuple[Records, str]:
    """The trials of the best curve of a unit at each epsilon as one curve, and which that is."""
    loss = f"validation_{metrics.selection}"
    units = _unit_of(rows)
    scored = rows[(rows["label"].map(units) == unit) & rows[loss].notna()]
    labels = list(dict.fromkeys(scored["label"]))
    if len(labels) < 2:
        return [trial for cell in _cells(scored) for trial in trials[cell]], ""
    name = f"the best {UNITS[unit]} mechanism"
    winners = scored.loc[scored.groupby("epsilon")[loss].idxmin()]
    found = [{**t, "label": name} for cell in _cells(winners) for t in trials[cell]]
    told = "; ".join(
        f"{label} at {_and(_numbers(group['epsilon']))}"
        for label, group in winners.groupby("label", sort=False)
    )
    title = METRICS[metrics.selection].title
    return found, f"{name.capitalize()} by validation {title}{_with_rows(examples)}: {told}."


def _across(found: Sequence[Crossover], rows: pd.DataFrame) -> Iterator[Crossover]:
    """The comparisons of a whole-row mechanism with a label mechanism."""
    units = _unit_of(rows)
    for crossover in found:
        if {units.get(crossover.first), units.get(crossover.second)} == set(UNITS):
            yield crossover


def _duel(crossover: Crossover, examples: float) -> Duel:
    return Duel(examples, crossover, duel_sentence(crossover, examples))


def duel_sentence(crossover: Crossover, examples: float = math.nan) -> str:
    """Who is ahead where, in one or two sentences.

    Args:
        crossover: of :func:`dpcompare.crossover.crossovers`.
        examples: training rows to name; nan for none.
    """
    title, points = METRICS[crossover.metric].title + _with_rows(examples), crossover.points
    pair = f"{crossover.first} and {crossover.second}"
    if not points:
        return f"By {title}: {pair} have no epsilon at which both have a value for the same seed."
    if max(point.n for point in points) < 2:
        return f"By {title}: one seed cannot decide between {pair}."
    span = _span([point.epsilon for point in points])
    if not any(point.ahead for point in points):
        return f"By {title}: {pair} are not told apart {span}. {_undecided(points)}"
    ahead = [
        f"{name} is ahead {_and(places)}" if number == 0 else f"{name} {_and(places)}"
        for number, (name, places) in enumerate(_leads(points))
    ]
    crossings = [f"between epsilon {low:g} and {high:g}" for low, high in crossover.intervals]
    if crossings:
        end = f"So the curves cross {_and(crossings)}."
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
        where = _and(_numbers(point.epsilon for point in several))
        sentences.append(
            f"At {where} these {seeds} seeds do not decide; the difference there may be up to "
            f"{most:.2g}."
        )
    if single:
        where = _and(_numbers(point.epsilon for point in single))
        sentences.append(f"At {where} there is one common seed, which cannot decide.")
    return " ".join(sentences)


def _choices(
    rows: pd.DataFrame, found: Sequence[Crossover], metrics: MetricSet, examples: float
) -> list[Choice]:
    points: dict[tuple[str, str, float], Comparison] = {}
    for crossover in found:
        low, high = sorted((crossover.first, crossover.second))
        points |= {(low, high, point.epsilon): point for point in crossover.points}
    units = _unit_of(rows)
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
    start = f"Epsilon {epsilon:g}{_with_rows(examples)}:"
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


def _recommendation(choices: Sequence[Choice], metrics: MetricSet) -> list[str]:
    """All choices in a sentence for each number of training rows, and where nothing is worth it."""
    sentences = []
    for _, group in groupby(choices, key=lambda choice: str(choice.examples)):
        of_label: dict[str | None, list[float]] = {}
        for choice in (same := list(group)):
            of_label.setdefault(choice.label, []).append(choice.epsilon)
        taken = [
            f"{label} at epsilon {_and(_numbers(places))}"
            for label, places in of_label.items()
            if label is not None
        ]
        rows = _with_rows(same[0].examples)
        if taken:
            sentences.append(
                f"By validation {METRICS[metrics.selection].title}{rows}, take {'; '.join(taken)}."
            )
        vain = [choice.epsilon for choice in same if choice.label is None and choice.useless]
        if vain:
            sentences.append(
                f"Warning: at epsilon {_and(_numbers(vain))}{rows} nothing beats always predicting "
                f"the {metrics.constant}; no private model is worth its training there."
            )
    return sentences


def _references(summary: pd.DataFrame) -> dict[float, pd.Series]:
    """The non-private model of each number of training rows: the best by validation loss."""
    loss = f"validation_{metric_set(summary['task'].iloc[0]).selection}"
    free = summary[(summary["epsilon"] == math.inf) & summary[loss].notna()].sort_values(
        loss, kind="stable"
    )
    return {_size(row["examples"]): row for _, row in free.drop_duplicates("examples").iterrows()}


def _size(examples: Any) -> float:
    """A number of rows as a key; nan would not equal itself."""
    return -1.0 if pd.isna(examples) else float(examples)


def _costs(summary: pd.DataFrame, metrics: MetricSet) -> Iterator[Cost]:
    references, loss = _references(summary), metrics.selection
    for _, row in summary[summary["epsilon"] < math.inf].iterrows():
        free = references.get(_size(row["examples"]))
        if free is None or math.isnan(row[loss]):
            continue
        gap = math.nan
        if "auc" in metrics.names:
            gap = _ratio(1 - row["auc"], 1 - free["auc"]) - 1
        gain = row[f"constant_{loss}"] - free[loss]
        lost = _ratio(row[loss] - free[loss], gain) if gain > 0 else math.nan
        yield Cost(str(row["label"]), float(row["epsilon"]), gap, lost)


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan


def _bids(summary: pd.DataFrame) -> list[Bids]:
    """The non-private models that serve as yardsticks first, then all private rows."""
    references = _references(summary)
    private = summary[(summary["epsilon"] < math.inf) & summary["calibration"].notna()]
    sizes = {_size(examples) for examples in private["examples"]}
    yardsticks = [row for size, row in references.items() if size in sizes or private.empty]
    found = []
    for row in [*yardsticks, *(row for _, row in private.iterrows())]:
        free = references.get(_size(row["examples"]))
        beside = math.nan if free is None else _ratio(row["calibration"], free["calibration"]) - 1
        found.append(Bids(str(row["label"]), float(row["epsilon"]), row["calibration"] - 1, beside))
    return found


def bid_text(excess: float) -> str:
    """A share by which bids are wrong, in words."""
    if abs(excess) < 0.0005:
        return "would bid right in total"
    return f"would {'over' if excess > 0 else 'under'}bid by {_percent(abs(excess))}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def _bidding(bids: Sequence[Bids]) -> Iterator[str]:
    """A sentence on the yardsticks and one for each private curve."""
    private = [b for b in bids if b.epsilon < math.inf]
    yardsticks = [b for b in bids if b.epsilon == math.inf]
    if yardsticks:
        told = ", ".join(f"{b.label} {bid_text(b.excess)}" for b in yardsticks)
        yield (
            f"On the test rows {told}. That is no cost of privacy (a log that drifts between "
            "training and test rows does it too), so this model is the yardstick."
        )
    if unknown := dict.fromkeys(b.label for b in private if not b.known):
        yield (
            f"{', '.join(unknown)}: no non-private model on as many training rows, so what privacy "
            "adds to the calibration is not known."
        )
    known = [b for b in private if b.known]
    for label, curve in groupby(known, key=lambda b: b.label):
        yield f"{label}: {_beside(list(curve))}."


def _beside(curve: Sequence[Bids]) -> str:
    """How bids of one curve compare with those of the non-private model."""
    limit = f"{TOLERANCE:.0%}"
    off = [b for b in curve if not b.as_non_private]
    if not off:
        text = f"within {limit} of the non-private model at every epsilon"
        return text if all(b.right for b in curve) else f"{text}, and like it not within it of 1"
    near = _and(_numbers(b.epsilon for b in curve if b.as_non_private))
    text = (
        f"within {limit} of the non-private model at epsilon {near}"
        if near
        else (f"at no epsilon within {limit} of the non-private model")
    )
    sides = {"under": [b for b in off if b.excess < 0], "over": [b for b in off if b.excess >= 0]}
    for side, group in sides.items():
        if group:
            sizes = sorted(abs(b.excess) for b in group)
            low, high = _percent(sizes[0]), _percent(sizes[-1])
            by = low if low == high else f"{low} to {high}"
            text += f"; would {side}bid by {by} at {_and(_numbers(b.epsilon for b in group))}"
    return text


def _limits(records: Records, summary: pd.DataFrame, compared: bool) -> Iterator[str]:
    """What stands beside every crossover: units, missing sides, and test-sample error."""
    yield EQUAL_EPSILON
    private = summary[(summary["epsilon"] < math.inf)]
    units = set(_unit_of(private[private["n_seeds"] > 0]).values())
    if not compared:
        missing = [f"{name} mechanism" for unit, name in UNITS.items() if unit not in units]
        lack = (
            f"no {' and no '.join(missing)} has a score"
            if missing
            else ("none has the same epsilon, seeds and number of training rows as another")
        )
        yield f"No whole-row mechanism is compared with a label mechanism: {lack}."
        return
    yield (
        "Intervals are paired t intervals at 95%, over seeds, and hold at each epsilon by itself, "
        "not at all of them together."
    )
    yield from sample_error_sentences(records)


def _with_rows(examples: float) -> str:
    return "" if math.isnan(examples) else f" with {examples:,.0f} training rows"


def _span(epsilons: Sequence[float]) -> str:
    if len(epsilons) == 1:
        return f"at epsilon {epsilons[0]:g}"
    return f"within epsilon {epsilons[0]:g}-{epsilons[-1]:g}"


def _numbers(values: Any) -> list[str]:
    return [f"{value:g}" for value in values]


def _and(texts: Sequence[str]) -> str:
    """A list in words."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
