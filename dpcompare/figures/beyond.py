"""Values that lie beyond an axis: written above or below it, never cut off."""

from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.transforms import offset_copy

from dpcompare.figures.axes import (
    ROW,
    SMALL,
    decimals,
    log_places,
    text_width,
    value_limits,
    value_text,
)
from dpcompare.metric_sets import Metric

Side = Literal["above", "below"]
SIDES: tuple[Side, ...] = ("above", "below")
_MARKER, _TEXT, _GAP = 2.0, 4.0, 1.0  # points: half a marker, where text starts, what stays free


def with_beyond(rows: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    """The rows of one panel with columns above_axis and below_axis."""
    low, high = -np.inf, np.inf
    if np.isfinite(rows["mean"]).any():
        low, high = value_limits(rows, metric)
    return rows.assign(above_axis=rows["mean"] > high, below_axis=rows["mean"] < low)


def marks(rows: pd.DataFrame, metric: Metric, side: Side, x: str, width: float) -> pd.DataFrame:
    """What is written on one side of an axis.

    Marks are put into rows, those of one place from the least to the most extreme, so that none
    touches another.

    Args:
        rows: of one panel, from :func:`with_beyond`.
        metric: of the panel.
        side: above or below.
        x: the column that gives the places on the log axis; the axis shows all of them.
        width: of the axes, in points.

    Returns:
        One row per mark with label, x, text and row, which counts from 0 at the axis.
    """
    sign = 1 if side == "above" else -1
    outside = rows[np.isfinite(rows[x]) & rows[f"{side}_axis"]]
    if outside.empty:
        return outside.assign(text="", row=0)
    values = sorted(set(rows.loc[np.isfinite(rows[x]), x]))
    place = dict(zip(values, log_places(values, width)[1], strict=True))
    outside = outside.assign(size=sign * outside["mean"]).sort_values([x, "size"], kind="stable")
    places = decimals(*value_limits(rows, metric))
    texts = ["↓↑"[sign > 0] + _short(value, places) for value in outside["mean"]]
    ends: list[float] = []
    numbers = []
    for at, text in zip(outside[x], texts, strict=True):
        start = place[at] - _MARKER
        number = next((n for n, end in enumerate(ends) if end < start), len(ends))
        ends[number : number + 1] = [place[at] + _TEXT + text_width(text) + _GAP]
        numbers.append(number)
    return outside.assign(text=texts, row=numbers)


def _short(value: float, places: int) -> str:
    """A decimal less than beside lines, or two for large values: marks stand side by side."""
    return value_text(value, places - (2 if abs(value) >= 10 else 1))


def room(marked: pd.DataFrame) -> float:
    """Inches that marks take beyond an axis."""
    return 0.0 if marked.empty else ROW / 72 * (int(marked["row"].max()) + 1)


def draw_marks(
    ax: Axes, marked: pd.DataFrame, side: Side, x: str, styles: dict[str, dict[str, Any]]
) -> None:
    """Write marks over or under the axes: marker, arrow and number.

    Args:
        ax: the axes.
        marked: from :func:`marks`.
        side: above or below.
        x: the column with their places.
        styles: of :func:`dpcompare.figures.style.curve_styles`.
    """
    edge, sign = (1, 1) if side == "above" else (0, -1)
    for _, mark in marked.iterrows():
        style = styles[mark["label"]]
        shift = sign * (8 + ROW * mark["row"])
        there = offset_copy(ax.get_xaxis_transform(), ax.get_figure(root=True), 0, shift, "points")
        ax.plot(
            [mark[x]],
            [edge],
            transform=there,
            clip_on=False,
            marker=style["marker"],
            markersize=3.5,
            color=style["color"],
        )
        ax.annotate(
            mark["text"],
            xy=(mark[x], edge),
            xycoords=there,
            xytext=(_TEXT, 0),
            textcoords="offset points",
            va="center_baseline",
            fontsize=SMALL,
            color=style["color"],
            annotation_clip=False,
        )
    if side == "below" and not marked.empty:  # tick labels make room
        ax.tick_params(axis="x", pad=4 + ROW * (marked["row"].max() + 1))
