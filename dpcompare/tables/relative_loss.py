"""How much more a model loses with privacy than without, in percent."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from dpcompare.metric_sets import BINARY, MetricSet, constant_scores, metric_set
from dpcompare.summary import Records, shown_trials, summarize
from dpcompare.tables.captions import constant_caption, gaps_caption, privacy_caption
from dpcompare.tables.cells import (
    NOTHING,
    absence,
    along_epsilons,
    digits,
    epsilon_titles,
    marked,
    with_error,
)
from dpcompare.tables.table import Table


@dataclass(frozen=True)
class _Reference:
    """The non-private trials that others are compared with.

    Attributes:
        label: of their curve.
        alternatives: how many non-private curves it was chosen from.
        losses: their losses by seed.
        constants: the losses of the best constant prediction on the same rows, by seed.
    """

    label: str
    alternatives: int
    losses: dict[int, float]
    constants: dict[int, float]


def relative_loss_table(records: Records) -> Table | None:
    """Table 1 of arXiv 2211.11896: the relative increase of the loss, per curve and epsilon.

    The loss is 1 - AUC for binary labels, and Poisson loss for counts. Each trial is compared with
    the non-private one of the same seed. The numbers also hold `share_of_gap`, the increase as a
    share of what lies between the non-private model and the best constant prediction: it is defined
    even where a Poisson loss is not above 0.

    Args:
        records: of one study.

    Returns:
        The table; None without a scored non-private trial, or without private ones.
    """
    summary = summarize(records)
    metrics = metric_set(summary["task"].iloc[0])
    private = summary[summary["epsilon"] < math.inf]
    trials = shown_trials(records)
    reference = _reference(summary, trials, metrics)
    if reference is None or private.empty:
        return None
    numbers = pd.DataFrame(
        _numbers(row, trials[row["label"], row["epsilon"]], reference, metrics)
        for _, row in private.iterrows()
    )
    epsilons = sorted(set(private["epsilon"]))
    shown = private.assign(
        relative=numbers["mean"].to_numpy(), deviation=numbers["standard_deviation"].to_numpy()
    )
    rows = [
        [str(label), *along_epsilons(of_label, epsilons, _cell)]
        for label, of_label in shown.groupby("label", sort=False)
    ]
    loss = loss_name(metrics)
    return Table(
        study=str(summary["study"].iloc[0]),
        title=f"Relative increase of {loss} over training without privacy, in percent",
        head=["curve", *epsilon_titles(epsilons)],
        alignment="l" + "r" * len(epsilons),
        blocks=[rows],
        caption=[
            *_comparison_caption(numbers, reference, loss),
            *constant_caption(private),
            *_left_out(numbers),
            *privacy_caption(summary),
            *gaps_caption(summary),
        ],
        numbers=numbers,
    )


def absence_of_relative_losses(records: Records) -> list[str]:
    """Why there is no such table; nothing where there is one, or nothing private to show."""
    summary = summarize(records)
    metrics = metric_set(summary["task"].iloc[0])
    if _reference(summary, shown_trials(records), metrics) is not None:
        return []
    if not (summary["epsilon"] < math.inf).any():
        return []
    return [
        f"Relative increases of {loss_name(metrics)} are not shown: no trial without privacy has a "
        "score."
    ]


def loss_name(metrics: MetricSet) -> str:
    """What the loss of a task is called."""
    return "1 - AUC" if metrics is BINARY else "Poisson loss"


def _loss(trial: Mapping[str, Any], metrics: MetricSet) -> float:
    """The loss of a trial on the test rows, nan where it is not defined."""
    value = (trial["test"] or {}).get("auc" if metrics is BINARY else "poisson_loss")
    if value is None:
        return math.nan
    return 1 - value if metrics is BINARY else float(value)


def _constant_loss(trial: Mapping[str, Any], metrics: MetricSet) -> float:
    """The loss of the best constant prediction on the test rows of a trial."""
    scores = constant_scores(trial["test"], metrics)
    return 1 - scores["auc"] if metrics is BINARY else scores["poisson_loss"]


def _reference(
    summary: pd.DataFrame,
    trials: Mapping[tuple[str, float], Iterable[Mapping[str, Any]]],
    metrics: MetricSet,
) -> _Reference | None:
    """The non-private curve; of several, that of the lowest loss on the validation rows."""
    there = summary[(summary["epsilon"] == math.inf) & (summary["n_seeds"] > 0)]
    best = there.sort_values(f"validation_{metrics.selection}", kind="stable")["label"]
    for label in best:
        scored = [t for t in trials[label, math.inf] if not math.isnan(_loss(t, metrics))]
        if scored:
            return _Reference(
                str(label),
                len(there),
                {trial["seed"]: _loss(trial, metrics) for trial in scored},
                {trial["seed"]: _constant_loss(trial, metrics) for trial in scored},
            )
    return None


def _numbers(
    row: pd.Series,
    trials: Iterable[Mapping[str, Any]],
    reference: _Reference,
    metrics: MetricSet,
) -> dict[str, Any]:
    """One curve at one epsilon, over the seeds that have a non-private partner."""
    losses = {trial["seed"]: _loss(trial, metrics) for trial in trials}
    scored = {seed: loss for seed, loss in losses.items() if not math.isnan(loss)}
    pairs = {seed: loss for seed, loss in scored.items() if seed in reference.losses}
    relative, shares, not_positive = [], [], []
    for seed, loss in pairs.items():
        without, constant = reference.losses[seed], reference.constants[seed]
        if without > 0:
            relative.append(100 * (loss - without) / without)
        else:
            not_positive.append(seed)
        if constant > without:
            shares.append((loss - without) / (constant - without))
    deviation = _deviation(relative)
    return {
        "label": row["label"],
        "mechanism": row["mechanism"],
        "epsilon": row["epsilon"],
        "loss": loss_name(metrics),
        "mean": _mean(relative),
        "standard_deviation": deviation,
        "standard_error": deviation / math.sqrt(max(len(relative), 1)),
        "n_seeds": len(relative),
        "loss_mean": _mean(list(pairs.values())),
        "non_private": reference.label,
        "non_private_mean": _mean([reference.losses[seed] for seed in pairs]),
        "share_of_gap": _mean(shares),
        "unpaired_seeds": _listed(sorted(scored.keys() - pairs.keys())),
        "not_positive_seeds": _listed(not_positive),
        "worse_than_constant": row["worse_than_constant"],
        "candidate": row["candidate"],
        "failed": row["failed"],
        "missing": row["missing"],
    }


def _mean(values: list[float]) -> float:
    return fmean(values) if values else math.nan


def _deviation(values: list[float]) -> float:
    """The standard deviation with ddof = 1."""
    return stdev(values) if len(values) > 1 and math.isfinite(sum(values)) else math.nan


def _listed(seeds: list[int]) -> str:
    return " ".join(map(str, seeds))


def _cell(row: pd.Series) -> str:
    if math.isnan(row["relative"]):
        return absence(row) if row["n_seeds"] == 0 else NOTHING
    return marked(with_error(row["relative"], row["deviation"], 2), row)


def _comparison_caption(numbers: pd.DataFrame, reference: _Reference, loss: str) -> list[str]:
    counts = sorted(set(numbers["n_seeds"]) - {0})
    n = "-".join(map(str, dict.fromkeys([counts[0], counts[-1]]))) if counts else "0"
    spread = "one seed, so no standard deviation"
    if n != "1":
        spread = f"mean ± standard deviation (ddof = 1) over n = {n} seeds"
    sentence = (
        f"Each trial is compared with the one of {reference.label} with the same seed ({loss} "
        f"{digits(_mean(list(reference.losses.values())))} in the mean): {spread}, test-sample "
        "error not included."
    )
    if reference.alternatives == 1:
        return [sentence]
    return [
        sentence,
        f"{reference.label} has the lowest validation loss of {reference.alternatives} curves "
        "without privacy.",
    ]


def _left_out(numbers: pd.DataFrame) -> list[str]:
    """The seeds that are not in the means."""
    reasons = {
        "unpaired_seeds": "no trial without privacy of the same seed has a score",
        "not_positive_seeds": "the loss without privacy is not above 0 (the CSV has share_of_gap)",
    }
    sentences = []
    for column, reason in reasons.items():
        rows = numbers[numbers[column] != ""]
        places = [
            f"{label} at epsilon {', '.join(f'{e:g}' for e in at['epsilon'])} (seed {seeds})"
            for (label, seeds), at in rows.groupby(["label", column], sort=False)
        ]
        if places:
            sentences.append(f"Left out, {reason}: {'; '.join(places)}.")
    return sentences
