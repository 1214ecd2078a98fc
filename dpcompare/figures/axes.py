"""Parts of axes that more than one figure needs: ticks, limits, and what lies outside them."""

import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from matplotlib.transforms import offset_copy

from dpcompare.figures.style import INK
from dpcompare.summary import Metric

CHARACTER = 5.8  # points, the width of a digit of a tick label
SMALL = 7.5  # points, for text inside a figure
SMALLEST_SPAN = 0.01  # of a value axis: less would blow up what the seeds cannot resolve
ROW = 10.0  # points, from one line of such text to the next


def epsilon_axis(ax: Axes, epsilons: list[float], width: float) -> None:
    """A log axis with a tick at every epsilon, and a number wherever one fits.

    Args:
        ax: the axes.
        epsilons: ascending, finite.
        width: of the axes, in points.
    """
    logs = np.log10(epsilons)
    margin = max(0.04 * (logs[-1] - logs[0]), 0.05)
    ax.set_xscale("log")
    ax.set_xlim(10 ** (logs[0] - margin), 10 ** (logs[-1] + margin))
    places = width * (logs - logs[0]) / (logs[-1] - logs[0] + 2 * margin)
    texts = [f"{epsilon:g}" for epsilon in epsilons]
    halves = [CHARACTER * (len(text) + 1) / 2 for text in texts]
    end, edge = places[-1] - halves[-1], -math.inf
    for index in range(len(texts) - 1):
        if places[index] - halves[index] < edge or places[index] + halves[index] > end:
            texts[index] = ""
        else:
            edge = places[index] + halves[index]
    ax.xaxis.set_major_locator(FixedLocator(epsilons))
    ax.xaxis.set_major_formatter(FixedFormatter(texts))
    ax.xaxis.set_minor_locator(NullLocator())


def value_limits(values: pd.DataFrame, metric: Metric) -> tuple[float, float]:
    """Limits of a value axis that a few terrible values cannot flatten.

    Where lower is better and the base rate's value is known, the axis goes at most 0.6 times as
    far above the base rate as the best value lies below it, but never so low that all values are
    outside; where 1 is right, it goes at most to 2.

    Args:
        values: of one panel, with mean, low and high, and the value of the base rate in the row
            whose kind is "uninformed".
        metric: the metric of the panel.
    """
    shown = values[np.isfinite(values["mean"])]
    bottom = float(shown["low"].fillna(shown["mean"]).min())
    top = float(shown["high"].fillna(shown["mean"]).max())
    cap = math.inf
    base = shown.loc[shown["kind"] == "uninformed", "mean"]
    if metric.better == "one":
        cap = 2.0
    elif metric.better == "lower" and not base.empty:
        best = float(shown.loc[shown["kind"] != "uninformed", "mean"].min())
        uninformed = float(base.iloc[0])
        cap = max(uninformed + 0.6 * (uninformed - best), 1.05 * uninformed, 1.25 * best)
    bottom, top = min(bottom, cap), min(top, cap)
    margin = max(0.05 * (top - bottom), (SMALLEST_SPAN - top + bottom) / 2)
    return bottom - margin, top + margin * (top < cap)


def mark_beyond(ax: Axes, beyond: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Write the values above the axis over it: marker, arrow and number, one row per curve.

    Args:
        ax: the axes.
        beyond: rows of label, epsilon, mean.
        styles: of :func:`curve_styles`.
    """
    for _, here in beyond.groupby("epsilon"):
        for row, (_, point) in enumerate(here.iterrows()):
            style = styles[point["label"]]
            over = offset_copy(
                ax.get_xaxis_transform(), ax.get_figure(root=True), 0, 8 + ROW * row, "points"
            )
            ax.plot(
                [point["epsilon"]],
                [1],
                transform=over,
                clip_on=False,
                marker=style["marker"],
                markersize=3.5,
                color=style["color"],
            )
            ax.annotate(
                f"↑{value_text(point['mean'], 2)}",
                xy=(point["epsilon"], 1),
                xycoords=over,
                xytext=(4, 0),
                textcoords="offset points",
                va="center_baseline",
                fontsize=SMALL,
                color=style["color"],
                annotation_clip=False,
            )


def label_lines(ax: Axes, lines: list[tuple[float, str]], height: float) -> None:
    """Name horizontal lines at the right of the axes, moved apart where they are too close.

    Args:
        ax: the axes, their value limits set.
        lines: (value, text) each.
        height: of the axes, in points.
    """
    low, high = ax.get_ylim()
    texts = []
    for value, text in sorted(lines):
        inside = min(value, high)
        text = text if value == inside else f"↑ {text}"
        texts.append((height * (inside - low) / (high - low), textwrap.fill(text, 19)))
    tops: list[float] = []
    for place, text in texts:
        half = ROW * (text.count("\n") + 1) / 2
        floor = tops[-1] if tops else -math.inf
        tops.append(max(place, floor + half) + half)
    overflow = max(0.0, tops[-1] - height - ROW / 2) if tops else 0.0
    for (place, text), top in zip(texts, tops, strict=True):
        center = top - ROW * (text.count("\n") + 1) / 2 - overflow
        ax.annotate(
            text,
            xy=(1, place / height),
            xycoords="axes fraction",
            xytext=(14, center - place),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=INK,
            arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkB": 0},
            annotation_clip=False,
        )


def value_text(value: float, decimals: int = 3) -> str:
    """A value as it is written into a figure."""
    return f"{value:.{decimals}f}" if value < 100 else f"{value:.3g}"
