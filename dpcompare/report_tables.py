"""The tables of a report: every cell as text, made from the summary and the verdict."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpcompare.metric_sets import METRICS, MetricSet
from dpcompare.table_grid import shown_metrics
from dpcompare.verdict import Bids, Choice, Verdict, bid_text

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
_NOISE_COLUMNS = {
    "guarantee_epsilon": "epsilon spent",
    "delta": "delta",
    "noise_multiplier": "noise multiplier",
    "noise_on_mean": "noise on each entry of the mean gradient",
    "batch_size": "expected batch size",
    "steps": "steps",
    "examples": "training rows",
    "shuffled_epsilon_at_least": "epsilon if shuffled, at least",
    "candidate_epsilon": "epsilon of one candidate",
    "epsilon_zero_out": "epsilon under zero-out",
    "epsilon_add_or_remove_one": "epsilon under add-or-remove-one",
    "epsilon_replace_one": "epsilon under replace-one",
}


@dataclass(frozen=True)
class Table:
    """A table of the page, everything as text.

    Attributes:
        caption: what it shows.
        head: the titles of its columns.
        rows: its cells.
        headers: how many cells at the start of a row name it.
        prose: cells hold words, which may break, and not numbers.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    headers: int = 1
    prose: bool = False


def choice_table(found: Verdict, summary: pd.DataFrame, metrics: MetricSet) -> Table | None:
    """Which mechanism to take at which budget; None where there is nothing to choose from."""
    if not found.choices:
        return None
    sizes = any(not math.isnan(choice.examples) for choice in found.choices)
    costs = {(cost.label, cost.epsilon): cost for cost in found.costs}
    bids = {(b.label, b.epsilon): b for b in found.bids}
    units = dict(zip(summary["label"], summary["unit"], strict=True))
    ranks = "auc" in metrics.names
    head = ["Epsilon", *["Training rows"] * sizes, "Take", "It protects", "For whole rows take"]
    head += [
        *[f"1 {MINUS} AUC, against non-private"] * ranks,
        "Gain in loss that is lost",
        _bids_head(found),
    ]
    head += ["Decidedly behind", "Not distinguishable", "Beware"]
    rows = []
    for choice in found.choices:
        key = (choice.label or "", choice.epsilon)
        cost, bid = costs.get(key), bids.get(key)
        cells = [f"{choice.epsilon:g}", *[f"{choice.examples:,.0f}"] * sizes]
        cells += [choice.label or "nothing", _unit(units, choice), choice.whole_row or "nothing"]
        cells += [_percent(cost.auc_gap if cost else math.nan)] * ranks
        cells += [_percent(cost.gain_lost if cost else math.nan, signed=False)]
        cells += [bid_text(bid.excess).removeprefix("would ") if bid else NONE]
        cells += [_names(choice.behind, choice), _names(choice.level, choice)]
        rows.append([*cells, _beware(choice, metrics)])
    caption = (
        f"Which mechanism to take: the lowest mean validation {METRICS[metrics.selection].title} "
        f"among those that beat always predicting the {metrics.constant} on the validation rows. "
        "Costs, bids and who is behind are measured on the test rows."
    )
    return Table(caption, head, rows, headers=1 + sizes, prose=True)


def _bids_head(found: Verdict) -> str:
    """The title of the column of bids, with the yardstick where there is one only."""
    yardsticks = [bids for bids in found.bids if bids.epsilon == math.inf]
    if len(yardsticks) != 1:
        return "Bids"
    return f"Bids ({yardsticks[0].label} {bid_text(yardsticks[0].excess)})"


def _names(labels: Sequence[str], choice: Choice) -> str:
    others = [*choice.behind, *choice.level, *choice.ahead, *choice.open, *choice.unscored]
    if len(labels) > 1 and len(labels) == len(others):
        return "all others"
    return ", ".join(labels) or NONE


def _unit(units: Mapping[str, Any], choice: Choice) -> str:
    if choice.label is None:
        return NONE
    return {"example": "whole rows", "label": "labels only"}.get(units.get(choice.label, ""), NONE)


def _beware(choice: Choice, metrics: MetricSet) -> str:
    """What speaks against a choice, or against others."""
    told = []
    if choice.label is None and choice.useless:
        told.append(f"nothing beats the {metrics.constant}")
    elif choice.useless:
        told.append(f"worse than the {metrics.constant}: {', '.join(choice.useless)}")
    if choice.fails_on_test:
        told.append(f"{choice.label} is worse than the {metrics.constant} on the test rows")
    if choice.ahead:
        told.append(f"decidedly better on the test rows: {', '.join(choice.ahead)}")
    if choice.open:
        told.append(f"too few common seeds to compare: {', '.join(choice.open)}")
    if choice.unscored:
        told.append(f"no score: {', '.join(choice.unscored)}")
    return "; ".join(told) or NONE


def pair_table(found: Verdict) -> Table | None:
    """Every pair, where there are more than the one that the verdict begins with."""
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    metrics: dict[str, None] = {}
    for pair in found.pairs:
        size = "" if math.isnan(pair.examples) else f"{pair.examples:,.0f}"
        key = (pair.crossover.first, pair.crossover.second, size)
        _, _, rest = pair.sentence.partition(": ")
        metrics[pair.crossover.metric] = None
        cells.setdefault(key, {})[pair.crossover.metric] = rest
    if len(cells) < 2:
        return None
    head = ["One", "The other", "Training rows", *(f"By {METRICS[m].title}" for m in metrics)]
    rows = [[*key, *(of.get(m, NONE) for m in metrics)] for key, of in cells.items()]
    if not any(row[2] for row in rows):
        head, rows = [*head[:2], *head[3:]], [[*row[:2], *row[3:]] for row in rows]
    caption = "Every whole-row mechanism against every label mechanism, on the test rows"
    return Table(caption, head, rows, headers=2, prose=True)


def cost_tables(found: Verdict, metrics: MetricSet) -> Iterator[Table]:
    """What every curve loses against the non-private model, a table for each way to measure it."""
    if any(not math.isnan(cost.auc_gap) for cost in found.costs):
        cells = {(c.label, c.epsilon): _percent(c.auc_gap) for c in found.costs}
        yield _by_epsilon(
            f"By how much 1 {MINUS} AUC is larger than that of the non-private model, on the test "
            "rows",
            cells,
        )
    if any(not math.isnan(cost.gain_lost) for cost in found.costs):
        cells = {(c.label, c.epsilon): _percent(c.gain_lost, signed=False) for c in found.costs}
        yield _by_epsilon(
            f"Share of the non-private model's gain in {METRICS[metrics.selection].title} over "
            f"always predicting the {metrics.constant} that is lost, on the test rows: 0% is as "
            f"good as non-private, 100% as bad as the {metrics.constant}",
            cells,
        )


def bid_table(found: Verdict) -> Table | None:
    """By how much bids of every curve would be wrong; None where no trial has a calibration."""
    if not found.bids:
        return None
    return _by_epsilon(
        "By how much predictions add up to more than was observed (+: bids too high, "
        f"{MINUS}: too low), on the test rows. ✓ within 5% of the non-private model and of the "
        "truth, ≈ within 5% of the non-private model only, ✗ off by more, no mark: no non-private "
        "model to compare with",
        {(bids.label, bids.epsilon): _bid_cell(bids) for bids in found.bids},
    )


def _bid_cell(bids: Bids) -> str:
    mark = ""
    if bids.known:
        mark = (" ✓" if bids.right else " ≈") if bids.as_non_private else " ✗"
    return _percent(bids.excess) + mark


def _by_epsilon(caption: str, cells: Mapping[tuple[str, float], str]) -> Table:
    """One row per curve and one column per epsilon."""
    epsilons = sorted({epsilon for _, epsilon in cells})
    labels = dict.fromkeys(label for label, _ in cells)
    head = ["Curve", *("ε = " + ("∞" if e == math.inf else f"{e:g}") for e in epsilons)]
    rows = [[label, *(cells.get((label, e), NONE) for e in epsilons)] for label in labels]
    return Table(caption, head, rows)


def _percent(share: float, signed: bool = True) -> str:
    if math.isnan(share):
        return NONE
    text = f"{100 * share:{'+' if signed else ''}.{1 if abs(share) < 0.0995 else 0}f}%"
    return "0.0%" if abs(share) < 0.0005 else text.replace("-", MINUS)


def _plain(value: float) -> str:
    """Whole numbers whole, others to five digits."""
    if pd.isna(value):
        return NONE
    return f"{value:,.0f}" if value == round(value, 0) and value >= 1000 else f"{value:.5g}"


def _digits(value: float) -> str:
    if math.isnan(value):
        return NONE
    text = f"{value:.4f}" if abs(value) < 1000 else f"{value:.3g}"
    return text.replace("-", MINUS)


def number_table(summary: pd.DataFrame, metrics: MetricSet) -> Table:
    """Every curve and epsilon with its means, and what has no trial."""
    names = shown_metrics(summary)
    effective = bool(summary["effective_examples"].notna().any())
    titles = [METRICS[name].title for name in names]
    head = ["Curve", "Epsilon", *(title[0].upper() + title[1:] for title in titles)]
    head += [*["Effective rows"] * effective, "Seeds"]
    rows = []
    for label, column in (("best possible", "best_possible"), (metrics.constant, "constant")):
        values = [float(summary[f"{column}_{name}"].iloc[0]) for name in names]
        if not all(math.isnan(value) for value in values):
            rows.append([label, "", *map(_digits, values), *[""] * effective, ""])
    for _, row in summary.iterrows():
        rows.append(_number_cells(row, metrics, names, effective))
    caption = "Mean ± standard error over seeds, on the test rows"
    return Table(caption, head, rows, headers=2)


def _number_cells(
    row: pd.Series, metrics: MetricSet, names: Sequence[str], effective: bool
) -> list[str]:
    epsilon = "∞" if row["epsilon"] == math.inf else f"{row['epsilon']:g}"
    cells = [str(row["label"]), epsilon + ("*" if row["tuned"] else "")]
    if row["n_seeds"] == 0:
        why = "failed" if row["n_failed"] else "missing" if row["missing"] else "no valid score"
        return [*cells, why, *[""] * (len(names) - 1 + effective), "0"]
    for name in names:
        error = row[f"{name}_se"]
        text = _digits(row[name]) + ("" if math.isnan(error) else f" ± {_digits(error)}")
        worse = name == metrics.relative and row["worse_than_constant"]
        cells.append(f"! {text}" if worse else text)
    if effective:
        rows = row["effective_examples"]
        cells.append("" if math.isnan(rows) else f"{float(f'{rows:.3g}'):,.0f}")
    return [*cells, f"{row['n_seeds']:.0f}"]


def number_notes(summary: pd.DataFrame, metrics: MetricSet) -> Iterator[str]:
    """What the marks and the less known columns mean."""
    relative = METRICS[metrics.relative]
    side = "below" if relative.better == "higher" else "above"
    if summary["worse_than_constant"].any():
        yield (
            f"! worse than always predicting the {metrics.constant} ({relative.title} {side} "
            f"{relative.uninformed:g})."
        )
    if summary["tuned"].any():
        yield "* the best of several candidates by validation loss."
    observed = "positives" if metrics.main == "auc" else "total"
    yield f"Calibration: predicted over observed {observed}; 1 is right."
    if metrics.main == "auc":
        yield "Normalized entropy: log loss over that of the base rate."
    else:
        yield (
            "D²: 1 minus the Poisson deviance over that of the constant mean; 1 is perfect. The "
            "deviance is twice the Poisson loss above that of a perfect model."
        )
    if summary["effective_examples"].notna().any():
        yield "Effective rows: how many clean labels the random ones are worth."


def noise_table(summary: pd.DataFrame) -> Table:
    """The table of a study that only accounts: the noise that every budget needs."""
    shown = {name: title for name, title in _NOISE_COLUMNS.items() if summary[name].notna().any()}
    rows = []
    for _, row in summary.iterrows():
        epsilon = "∞" if row["epsilon"] == math.inf else f"{row['epsilon']:g}"
        values = [_plain(row[name]) for name in shown]
        if row["n_seeds"] == 0:
            values[:1] = ["failed" if row["n_failed"] else "missing"]
        rows.append([str(row["label"]), epsilon, *values])
    head = ["Curve", "Epsilon asked", *(title[0].upper() + title[1:] for title in shown.values())]
    return Table("The noise that each budget needs", head, rows, headers=2)
