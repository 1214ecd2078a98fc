"""Accountants compared: the noise that each one asks for, and what that does to the metric."""

import re
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpcompare.crossover import crossovers
from dpcompare.figures.account import (
    gap_sentences,
    log_limits,
    log_value_axis,
    setting_sentences,
    with_gaps,
)
from dpcompare.figures.axes import (
    horizontal_lines,
    label_lines,
    log_axis,
    value_label,
    value_limits,
)
from dpcompare.figures.beyond import SIDES, draw_marks, marks, room, with_beyond
from dpcompare.figures.caption import points_sentence, wrapped
from dpcompare.figures.curves import CURVE_LOOK, curve_handles, draw_curve
from dpcompare.figures.numbers import lines, scores
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import INK, NothingToDraw, curve_styles, figure_style, line_styles
from dpcompare.metric_sets import METRICS
from dpcompare.summary import Records, summarize
from dpcompare.wording import tuning_sentence

NOISE, RATIO = "noise_multiplier", "ratio"
HEIGHTS = {NOISE: 2.2, RATIO: 1.5}  # inches
METRIC_HEIGHT = 2.4
_ACCOUNTANT = re.compile(r"(?:accountant=)?(?:pld|rdp)", re.IGNORECASE)
_COLUMNS = [
    "panel",
    "kind",
    "label",
    "accountant",
    "epsilon",
    "mean",
    "standard_error",
    "low",
    "high",
    "n_seeds",
    "n_candidates",
    "above_axis",
    "below_axis",
]


def accountants(records: Records) -> tuple[Figure, pd.DataFrame]:
    """Noise multiplier and metric under PLD and RDP accounting: Figure 4a of arXiv 2211.11896.

    From top to bottom: the noise multiplier against epsilon; the ratio of RDP's to PLD's, where two
    labels differ in nothing but the accountant; and, where trials have scores, the study's metric.

    Args:
        records: of one study, trained or accounted only.

    Returns:
        The figure and exactly the numbers in it: one row per panel ("noise_multiplier", "ratio" or
        the metric), line and epsilon with accountant, mean, standard_error, low, high, n_seeds,
        n_candidates, `above_axis` and `below_axis`.

    Raises:
        NothingToDraw: fewer than two accountants have a noise multiplier.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    drawn = _drawn(summary)
    shown = summary[drawn]
    known = sorted(set(shown["accountant"]))
    if len(known) < 2:
        only = f"there is one of {known[0]} alone" if known else "there is none"
        raise NothingToDraw(
            "no accountants to compare: noise multipliers of both pld and rdp are needed, but "
            f'{only}; add an entry with accountant = "rdp"'
        )
    numbers = _numbers(summary, shown)
    paragraphs = [
        *_ratio_sentences(shown, numbers),
        *_score_sentences(records, summary, shown),
        " ".join(setting_sentences(shown.assign(curve=shown["label"]))),
        *gap_sentences(summary, drawn | _public(summary, numbers), "a noise multiplier"),
    ]
    with figure_style():
        title = str(summary["title"].iloc[0])
        return _compose(title, numbers, wrapped(paragraphs, CAPTION_COLUMNS)), numbers


def _drawn(summary: pd.DataFrame) -> pd.Series:
    known = summary["accountant"].isin(("pld", "rdp")) & summary[NOISE].gt(0)
    return known & np.isfinite(summary["epsilon"])


def _public(summary: pd.DataFrame, numbers: pd.DataFrame) -> pd.Series:
    """The rows without privacy that are lines of the metric's panel."""
    lines_drawn = set(numbers.loc[numbers["kind"] == "reference", "label"])
    return np.isinf(summary["epsilon"]) & summary["label"].isin(lines_drawn)


def _numbers(summary: pd.DataFrame, shown: pd.DataFrame) -> pd.DataFrame:
    """All panels as a tidy frame: the noise, the ratios, then the metric and its lines."""
    name = str(summary["metric"].iloc[0])
    about = ["label", "epsilon", "accountant", "n_seeds", "n_candidates"]
    parts = [
        shown[about].assign(panel=NOISE, kind="curve", mean=shown[NOISE]),
        _ratios(shown).assign(panel=RATIO, kind="curve"),
    ]
    if shown[name].notna().any():
        public = summary[np.isinf(summary["epsilon"]) & summary[name].notna()]
        rows = pd.concat(
            [
                scores(shown, name).assign(kind="curve", accountant=shown["accountant"]),
                scores(public, name).assign(kind="reference"),
                lines(summary, name),
            ]
        )
        parts.append(with_beyond(rows, METRICS[name]).assign(panel=name))
    numbers = pd.concat([part.reindex(columns=_COLUMNS) for part in parts], ignore_index=True)
    outside = {side: numbers[side].eq(True) for side in ("above_axis", "below_axis")}
    return numbers.assign(**outside)


def _ratios(shown: pd.DataFrame) -> pd.DataFrame:
    """RDP's noise multiplier over PLD's, one row per pair of labels and epsilon."""
    rows = []
    for rdp, pld in _pairs(shown).items():
        over, under = (
            shown[shown["label"] == label].set_index("epsilon")[NOISE] for label in (rdp, pld)
        )
        for epsilon, ratio in (over / under).dropna().sort_index().items():
            rows.append({"label": rdp, "epsilon": epsilon, "mean": ratio})
    return pd.DataFrame(rows, columns=["label", "epsilon", "mean"]).assign(
        accountant="rdp over pld"
    )


def _pairs(shown: pd.DataFrame) -> dict[str, str]:
    """The PLD label of each RDP label, where they agree in the rest of their names and settings."""
    shown = shown[shown["private_selection"].isna()]  # whose RDP counts a choice too
    labels = shown.drop_duplicates("label").sort_index()
    pld, rdp = (labels[labels["accountant"] == name] for name in ("pld", "rdp"))
    if len(pld) == 1 == len(rdp):
        return {str(rdp["label"].iloc[0]): str(pld["label"].iloc[0])}
    known = {_key(row): str(row["label"]) for _, row in pld[::-1].iterrows()}
    keys = {str(row["label"]): _key(row) for _, row in rdp.iterrows()}
    return {label: known[key] for label, key in keys.items() if key in known}


def _key(row: pd.Series) -> tuple[Any, ...]:
    """What a label and its trials are, but for the accountant."""
    words = re.split(r"[\s(),:;]+", str(row["label"]))
    rest = sorted(word for word in words if word and not _ACCOUNTANT.fullmatch(word))
    settings = ("mechanism", "examples", "batch_size", "steps", "delta", "neighboring")
    return *rest, *(row[name] for name in settings)


def _ratio_sentences(shown: pd.DataFrame, numbers: pd.DataFrame) -> list[str]:
    """How much more noise RDP takes, and which labels have no counterpart."""
    sentences, pairs = [], _pairs(shown)
    for label, rows in numbers[numbers["panel"] == RATIO].groupby("label", sort=False):
        ordered = rows.sort_values("mean", kind="stable")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        text = (
            f"{label} takes {most['mean']:.3f} times the noise of {pairs[str(label)]} at epsilon "
        )
        text += f"{most['epsilon']:g}"
        if len(rows) > 1:
            text += f" (the most) and {least['mean']:.3f} times at {least['epsilon']:g} (the least)"
        sentences.append(f"{text}.")
    alone = [
        label for label in dict.fromkeys(shown["label"]) if label not in {*pairs, *pairs.values()}
    ]
    if alone:
        sentences.append(f"No ratio, nothing differs in the accountant alone: {', '.join(alone)}.")
    return [" ".join(sentences)] if sentences else []


def _score_sentences(records: Records, summary: pd.DataFrame, shown: pd.DataFrame) -> list[str]:
    """What the metric's points are, and which label of each pair is ahead."""
    name = str(summary["metric"].iloc[0])
    if shown[name].isna().all():
        return []
    sentences = [points_sentence(summary, "Points, bands and bars of the metric")]
    if METRICS[name].better != "one":
        pairs = [{*pair} for pair in _pairs(shown).items()]
        found = [c.statement for c in crossovers(records, name) if {c.first, c.second} in pairs]
        if found:
            sentences.append(f"Paired by seed (95% t intervals, one by one): {' '.join(found)}")
    return [*sentences, tuning_sentence(summary, with_choices=False)]


def _compose(title: str, numbers: pd.DataFrame, small_print: list[str]) -> Figure:
    curves, rest = (numbers[numbers["kind"].eq("curve") == kind] for kind in (True, False))
    styles = curve_styles(list(dict.fromkeys(curves["label"])))
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    slots, outside = [], {}
    for name in dict.fromkeys(numbers["panel"]):
        if name in HEIGHTS:
            slots.append(Slot(name, HEIGHTS[name]))
            continue
        rows = numbers[numbers["panel"] == name]
        outside = {side: marks(rows, METRICS[name], side, "epsilon", PANEL) for side in SIDES}
        slots.append(Slot(name, METRIC_HEIGHT, *(room(outside[side]) for side in SIDES)))
    figure, panels = page(title, curve_handles(numbers, styles, looks), slots, small_print)
    for ax, slot in zip(panels, slots, strict=True):
        rows = numbers[numbers["panel"] == slot.name]
        if slot.name in HEIGHTS:
            _draw_noise(ax, rows, styles)
        else:
            _draw_metric(ax, rows, styles, looks)
        log_axis(ax, sorted(set(curves["epsilon"])), PANEL)
        ax.tick_params(labelbottom=ax is panels[-1])
    for side, marked in outside.items():
        draw_marks(panels[-1], marked, side, "epsilon", styles)
    panels[-1].set_xlabel("epsilon (log scale)")
    return figure


def _draw_noise(ax: Axes, rows: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """The panel of the noise multipliers or of their ratios."""
    for label, curve in rows.groupby("label", sort=False):
        points = with_gaps(curve, "epsilon", rows["epsilon"])
        ax.plot(points["epsilon"], points["mean"], label=label, **CURVE_LOOK, **styles[str(label)])
    if ax.get_label() == NOISE:
        log_value_axis(ax, log_limits(rows["mean"]))
        ax.set_ylabel("noise multiplier\n(log scale)")
        return
    low, high = min(1.0, rows["mean"].min()), max(1.0, rows["mean"].max())
    margin = max(0.08 * (high - low), 0.002)
    ax.set_ylim(low - margin, high + margin)
    ax.axhline(1.0, color=INK, linewidth=1.0, zorder=1)
    ax.set_ylabel("noise multiplier,\nRDP over PLD")
    label_lines(ax, [(1.0, "equal noise")], HEIGHTS[RATIO] * 72)


def _draw_metric(
    ax: Axes,
    rows: pd.DataFrame,
    styles: dict[str, dict[str, Any]],
    looks: dict[tuple[str, str], dict[str, Any]],
) -> None:
    metric = METRICS[str(ax.get_label())]
    ax.set_ylim(*value_limits(rows, metric))
    ax.set_ylabel(value_label(metric))
    horizontal_lines(ax, rows[rows["kind"] != "curve"], looks, METRIC_HEIGHT * 72)
    for label, curve in rows[rows["kind"] == "curve"].groupby("label", sort=False):
        if curve["mean"].notna().any():
            draw_curve(ax, str(label), curve, "epsilon", styles[str(label)])
