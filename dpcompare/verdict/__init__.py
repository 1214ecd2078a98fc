"""What the records of a study say to someone who has to choose a mechanism, in plain words.

Nothing is chosen by test metrics: the best mechanism is the one with the lowest validation loss.
Test metrics only say what that choice costs and who is decidedly behind it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from dpcompare.crossover import crossovers
from dpcompare.frame import trains
from dpcompare.metric_sets import METRICS, MetricSet, metric_set
from dpcompare.summary import Records, is_swept, shown_trials, summarize
from dpcompare.verdict.alike import differences, overspending_sentences, within_budget
from dpcompare.verdict.bids import TOLERANCE, Bids, bid_text, bidding_sentences, find_bids
from dpcompare.verdict.champions import cells, champion
from dpcompare.verdict.choices import Choice, find_choices, recommendation_sentences
from dpcompare.verdict.costs import Cost, find_costs
from dpcompare.verdict.duels import Duel, across_units, as_duel, duel_sentence
from dpcompare.verdict.limits import EQUAL_EPSILON, limit_sentences
from dpcompare.verdict.units import UNITS

__all__ = [
    "EQUAL_EPSILON",
    "TOLERANCE",
    "UNITS",
    "Bids",
    "Choice",
    "Cost",
    "Duel",
    "Verdict",
    "bid_text",
    "duel_sentence",
    "verdict",
]


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
    if not trains(records):
        nothing = "This study trains nothing, so there is no utility to judge."
        return Verdict(False, (), (), (), (), (), (), (), (), (nothing,))
    done = [record for record in records if record["status"] == "done"]
    if done and all(record["test"] is None for record in done):
        so_far = "Candidates have been compared, but none that was chosen has run yet."
        return Verdict(True, (), (), (), (), (), (), (), (), (f"{so_far} Run the study again.",))
    if is_swept(summary):
        return _of_sweep(summary, metrics)
    trials = shown_trials(records)
    duels: list[Duel] = []
    best: list[str] = []
    pairs: list[Duel] = []
    choices: list[Choice] = []
    unlike: list[str] = []
    for examples, every_row in _by_examples(summary):
        rows = within_budget(every_row)
        shown = [trial for cell in cells(rows) for trial in trials[cell]]
        for metric in _compared(summary, metrics):
            pairs += [as_duel(c, examples) for c in across_units(crossovers(shown, metric), rows)]
        unlike += overspending_sentences(every_row)
        if differing := differences(rows):
            unlike.append(
                "No mechanism is recommended, since the whole-row curves differ in what epsilon "
                f"means: {' and '.join(differing)}."
            )
            continue
        of_units = [champion(rows, unit, trials, metrics, examples) for unit in UNITS]
        champions = [trial for found, _ in of_units for trial in found]
        if all(found for found, _ in of_units):
            best += [told for _, told in of_units if told]
        for metric in _compared(summary, metrics):
            duels += [as_duel(c, examples) for c in crossovers(champions, metric)]
        choices += find_choices(rows, crossovers(shown, metrics.selection), metrics, examples)
    bids = find_bids(summary)
    return Verdict(
        trained=True,
        duels=tuple(duels),
        best=tuple(best),
        pairs=tuple(pairs),
        choices=tuple(choices),
        recommendation=tuple(recommendation_sentences(choices, metrics)),
        costs=tuple(find_costs(summary, metrics)),
        bids=tuple(bids),
        bidding=tuple(bidding_sentences(bids)),
        limits=(*unlike, *limit_sentences(records, summary, bool(duels or pairs))),
    )


def _of_sweep(summary: pd.DataFrame, metrics: MetricSet) -> Verdict:
    """A study that shows every value of a setting compares settings, not mechanisms."""
    costs, bids = tuple(find_costs(summary, metrics)), tuple(find_bids(summary))
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


def _compared(summary: pd.DataFrame, metrics: MetricSet) -> list[str]:
    """The study's own metric, or the main one where that has no better direction; and the loss."""
    own = str(summary["metric"].iloc[0])
    first = metrics.main if METRICS[own].better == "one" else own
    return list(dict.fromkeys([first, metrics.selection]))
