"""Shuffled batches under a Poisson claim: what is claimed, and what is refuted."""

import math
import sys
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.figures.account import (
    gap_sentences,
    listed,
    log_limits,
    log_value_axis,
    setting_sentences,
    with_gaps,
)
from dpcompare.figures.axes import SMALL, log_axis, log_places
from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import CURVE_LOOK
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import INK, NothingToDraw, curve_styles, figure_style
from dpcompare.summary import Records, summarize

HEIGHT = 3.8  # inches
CLAIM_LOOK: dict[str, Any] = {"color": "black", "linewidth": 1.4}
FALSE_LOOK: dict[str, Any] = {"color": "#D55E00", "alpha": 0.12}
ARROW = 13.0  # points
DEEPEST = 30.0  # how many times below the smallest claim the axis may reach
CLAIM = "claimed: as if Poisson-sampled"
REFUTED = "the claim is false"
_BOUND = "shuffled_epsilon_at_least"


def sampling(records: Records) -> tuple[Figure, pd.DataFrame]:
    """What shuffled batches give at least, against the epsilon claimed as if Poisson-sampled.

    DP-SGD is commonly accounted as if every batch were Poisson-sampled, and trained on shuffled
    ones. Where the lower bound on the epsilon of shuffled batches lies above the claim, the claim
    is false; below it nothing is proven (Chua et al., arXiv 2403.17673).

    Args:
        records: of one study whose trials state such a bound.

    Returns:
        The figure and exactly the numbers in it, one row per point: label, claimed_epsilon,
        shuffled_epsilon_at_least, refuted, noise_multiplier, batch_size, steps, and outside_axis
        (too small to draw).

    Raises:
        NothingToDraw: no trial with a finite epsilon states a bound.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    drawn = np.isfinite(summary["epsilon"]) & summary[_BOUND].notna()
    if not drawn.any():
        raise NothingToDraw(
            "no claims to compare with shuffled batches: no trial with a finite epsilon states "
            'shuffled_epsilon_at_least; studies of kind "account" with dp-sgd do'
        )
    shown = summary[drawn].assign(curve=lambda rows: rows["label"])
    numbers = _numbers(shown)
    paragraphs = [
        "The line is the epsilon that is claimed when batches are accounted as if Poisson-sampled. "
        "Points are lower bounds, hence the arrows: the same noise on shuffled batches gives at "
        "least so much, at the same delta. Above the line the claim is false; below it the bound "
        "proves nothing, neither a violation nor that the claim holds. Lines between points only "
        "guide the eye.",
        " ".join(_verdicts(numbers)),
        " ".join(setting_sentences(shown)),
        *gap_sentences(summary, drawn, "a bound for shuffled batches"),
    ]
    with figure_style():
        title = str(summary["title"].iloc[0])
        return _compose(title, numbers, wrapped(paragraphs, CAPTION_COLUMNS)), numbers


def _numbers(shown: pd.DataFrame) -> pd.DataFrame:
    claimed, bound = shown["epsilon"], shown[_BOUND]
    return pd.DataFrame(
        {
            "label": shown["label"],
            "claimed_epsilon": claimed,
            _BOUND: bound,
            "refuted": bound > claimed,
            "noise_multiplier": shown["noise_multiplier"],
            "batch_size": shown["batch_size"],
            "steps": shown["steps"],
            "outside_axis": ~bound.between(claimed.min() / DEEPEST, sys.float_info.max),
        }
    ).reset_index(drop=True)


def _verdicts(numbers: pd.DataFrame) -> list[str]:
    """Per label, the smallest claim that is refuted, and the claims that are not."""
    sentences = []
    for label, points in numbers.groupby("label", sort=False):
        refuted, rest = (points[points["refuted"] == side] for side in (True, False))
        if refuted.empty:
            text = f"{label}: no claim is refuted (epsilon {listed(rest['claimed_epsilon'])})."
        else:
            first = refuted.sort_values("claimed_epsilon").iloc[0]
            text = (
                f"{label}: the smallest refuted claim is epsilon {first['claimed_epsilon']:g}, "
                f"truly at least {first[_BOUND]:.3g}"
            )
            if not rest.empty:
                text += f"; no violation is proven at {listed(rest['claimed_epsilon'])}"
            text += "."
        low = points[points["outside_axis"]]
        if not low.empty:
            pairs = zip(low["claimed_epsilon"], low[_BOUND], strict=True)
            outside = ", ".join(f"{bound:.2g} at epsilon {claim:g}" for claim, bound in pairs)
            text += f" Bounds outside the axis: {outside}."
        sentences.append(text)
    return sentences


def _compose(title: str, numbers: pd.DataFrame, small_print: list[str]) -> Figure:
    styles = curve_styles(list(dict.fromkeys(numbers["label"])))
    slot = Slot("sampling", HEIGHT)
    figure, (ax,) = page(title, _handles(styles), [slot], small_print)
    claims = sorted(set(numbers["claimed_epsilon"]))
    inside = numbers[~numbers["outside_axis"]]
    ends = log_places(claims, PANEL)[0]
    limits = log_limits([*inside[_BOUND], *ends])
    log_axis(ax, claims, PANEL)
    log_value_axis(ax, (limits[0], limits[1] * 1.25))  # room for the arrow of the highest point
    ax.set_xlabel("claimed epsilon (log scale)")
    ax.set_ylabel("epsilon (log scale)")
    ax.fill_between(ends, ends, ax.get_ylim()[1], linewidth=0, **FALSE_LOOK)
    ax.plot(ends, ends, **CLAIM_LOOK)
    for label, points in numbers.groupby("label", sort=False):
        _draw_bounds(ax, str(label), points[~points["outside_axis"]], claims, styles[str(label)])
    _name_regions(ax, ends[1])
    return figure


def _handles(styles: dict[str, dict[str, Any]]) -> list[Line2D]:
    return [
        Line2D([], [], label=CLAIM, **CLAIM_LOOK),
        *(
            Line2D([], [], label=f"shuffled: at least, {label}", **CURVE_LOOK, **style)
            for label, style in styles.items()
        ),
        Line2D([], [], label=REFUTED, linewidth=9, solid_capstyle="butt", **FALSE_LOOK),
    ]


def _draw_bounds(
    ax: Axes, label: str, points: pd.DataFrame, claims: list[float], style: dict[str, Any]
) -> None:
    line = with_gaps(points, "claimed_epsilon", claims)
    ax.plot(line["claimed_epsilon"], line[_BOUND], label=label, **CURVE_LOOK, **style)
    for _, point in points.iterrows():
        ax.annotate(
            "",
            xy=(point["claimed_epsilon"], point[_BOUND]),
            xytext=(0, ARROW),
            textcoords="offset points",
            arrowprops={"arrowstyle": "<|-", "color": style["color"], "linewidth": 1.1},
        )


def _name_regions(ax: Axes, claim: float) -> None:
    """Beside the axes, where no point can be: the end of the line, and what its sides mean."""
    low, high = np.log(ax.get_ylim())
    at = (math.log(claim) - low) / (high - low)
    for height, shift, side, text in (
        (at, 10, "bottom", f"above: {REFUTED}"),
        (at, 0, "center", "the claim"),
        (at, -10, "top", "below: no violation\nproven"),
    ):
        ax.annotate(
            text,
            xy=(1, height),
            xycoords="axes fraction",
            xytext=(6, shift),
            textcoords="offset points",
            va=side,
            fontsize=SMALL,
            color=INK,
            annotation_clip=False,
        )
