"""Parts of axes that more than one figure needs: ticks, limits, and names of lines."""

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.textpath import TextPath
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from dpcompare.figures.style import INK
from dpcompare.metric_sets import Metric

CHARACTER = 5.8  # points, the width of a digit of a tick label
SMALL = 7.5  # points, for text inside a figure
ROW = 10.0  # points, from one line of such text to the next
SMALLEST_SPAN = 0.01  # of a value axis: less would blow up what the seeds cannot resolve
BEYOND_CONSTANT = 0.6  # of the gap between the best value and the constant prediction's
BEYOND_NEAREST = 0.15  # the same where no curve is better than the constant prediction
_WAYS = {"higher": "higher is better", "lower": "lower is better", "one": "1 is right"}


def log_places(values: Sequence[float], width: float) -> tuple[tuple[float, float], np.ndarray]:
    """Limits of a log axis that has room around all values, and where on it they lie.

    Args:
        values: ascending, above 0.
        width: of the axes, in points.

    Returns:
        The limits, and the places in points from the left, (k,).
    """
    logs = np.log10(values)
    margin = max(0.04 * (logs[-1] - logs[0]), 0.05)
    places = width * (logs - logs[0] + margin) / (logs[-1] - logs[0] + 2 * margin)
    return (float(10 ** (logs[0] - margin)), float(10 ** (logs[-1] + margin))), places


def log_axis(
    ax: Axes,
    values: Sequence[float],
    width: float,
    ticks: Sequence[float] | None = None,
    form: Callable[[float], str] = "{:g}".format,
) -> None:
    """A log axis with a tick at every value, and a number wherever one fits.

    Args:
        ax: the axes.
        values: ascending, above 0: all of them are inside.
        width: of the axes, in points.
        ticks: ascending, where ticks are instead.
        form: writes a number.
    """
    low, high = log_places(values, width)[0]
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    ticks = values if ticks is None else [tick for tick in ticks if low <= tick <= high]
    places = width * np.log(np.asarray(ticks) / low) / math.log(high / low)
    texts = [form(tick) for tick in ticks]
    halves = [CHARACTER * (len(text) + 1) / 2 for text in texts]
    end, edge = places[-1] - halves[-1], -math.inf
    for index in range(len(texts) - 1):
        if places[index] - halves[index] < edge or places[index] + halves[index] > end:
            texts[index] = ""
        else:
            edge = places[index] + halves[index]
    ax.xaxis.set_major_locator(FixedLocator(list(ticks)))
    ax.xaxis.set_major_formatter(FixedFormatter(texts))
    ax.xaxis.set_minor_locator(NullLocator())


def round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten around a range above 0; in a short range also 2 and 5 times them."""
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
    digits = (1, 2, 5) if high / low < 300 else (1,)
    return [digit * 10.0**power for power in powers for digit in digits]


def value_label(metric: Metric) -> str:
    """What the value axis of a metric says."""
    return f"{metric.title}\n({_WAYS[metric.better]})"


def value_limits(values: pd.DataFrame, metric: Metric) -> tuple[float, float]:
    """Limits of a value axis that a few terrible values cannot flatten.

    On the bad side the axis ends BEYOND_CONSTANT times as far beyond the constant prediction's
    value, where that is given, as the best value lies before it; but never so early that all curves
    are outside. Where 1 is right, it goes at most to 2.

    Args:
        values: of one panel, with kind, mean, low and high; the constant prediction is the row
            whose kind is "uninformed".
        metric: the metric of the panel.
    """
    shown = values[np.isfinite(values["mean"])]
    low = float(shown["low"].fillna(shown["mean"]).min())
    high = float(shown["high"].fillna(shown["mean"]).max())
    smallest = _smallest_span(shown, metric)
    floor, cap = _outer_limits(shown, metric, smallest)
    bottom, top = min(max(low, floor), cap), max(min(high, cap), floor)
    margin = max(0.05 * (top - bottom), (smallest - top + bottom) / 2)
    return bottom - margin * (bottom > floor), top + margin * (top < cap)


def _smallest_span(shown: pd.DataFrame, metric: Metric) -> float:
    """A share of the metric's unit; a loss has none, so there of the size of its least extreme."""
    if metric.uninformed is not None:
        return SMALLEST_SPAN
    return SMALLEST_SPAN * float(shown["mean"].abs().min()) or SMALLEST_SPAN


def _outer_limits(shown: pd.DataFrame, metric: Metric, smallest: float) -> tuple[float, float]:
    """How low and how high the axis may go at most."""
    base = shown.loc[shown["kind"] == "uninformed", "mean"]
    others = shown[shown["kind"] != "uninformed"]
    if metric.better == "one":
        return -math.inf, 2.0
    if base.empty or others.empty:
        return -math.inf, math.inf
    sign = -1 if metric.better == "higher" else 1
    constant, best = sign * float(base.iloc[0]), float((sign * others["mean"]).min())
    cap = constant + max(BEYOND_CONSTANT * (constant - best), smallest)
    nearest = float((sign * others.loc[others["kind"] == "curve", "mean"]).min())
    if nearest > constant:  # false for nan
        gap = nearest - min(best, constant)
        cap = max(cap, nearest + max(BEYOND_NEAREST * gap, smallest))
    return (-math.inf, cap) if sign > 0 else (-cap, math.inf)


def horizontal_lines(
    ax: Axes, lines: pd.DataFrame, looks: dict[tuple[str, str], dict[str, Any]], height: float
) -> None:
    """Draw and name lines over the whole width, with a band where there is a standard error.

    Args:
        ax: the axes, their value limits set.
        lines: rows of kind, label, mean, standard_error, low and high; no line without a mean.
        looks: of :func:`dpcompare.figures.style.line_styles`.
        height: of the axes, in points.
    """
    lines = lines[lines["mean"].notna()]
    for _, line in lines.iterrows():
        ax.axhline(line["mean"], **looks[line["kind"], line["label"]])
        if not math.isnan(line["standard_error"]):
            ax.axhspan(line["low"], line["high"], color=INK, alpha=0.15, linewidth=0)
    label_lines(ax, list(zip(lines["mean"], lines["label"], strict=True)), height)


def label_lines(ax: Axes, lines: list[tuple[float, str]], height: float) -> None:
    """Name horizontal lines at the right of the axes, moved apart where they are too close.

    Args:
        ax: the axes, their value limits set.
        lines: (value, text) each; the value is written behind the text.
        height: of the axes, in points.
    """
    low, high = ax.get_ylim()
    texts = []
    for value, name in sorted(lines):
        text = f"{name} {value_text(value, decimals(low, high))}"
        inside = min(max(value, low), high)
        arrow = "↑ " if value > high else "↓ " if value < low else ""
        texts.append((height * (inside - low) / (high - low), textwrap.fill(arrow + text, 20)))
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


def decimals(low: float, high: float) -> int:
    """How many decimals tell values on an axis apart."""
    return max(3, 2 + math.ceil(-math.log10(high - low)))


def value_text(value: float, places: int) -> str:
    """A value as it is written into a figure."""
    text = f"{value:.{places}f}" if abs(value) < 100 else f"{value:.3g}"
    return text.replace("-", "\N{MINUS SIGN}")


def text_width(text: str) -> float:
    """Width of a text of size SMALL, in points."""
    return float(TextPath((0, 0), text, size=SMALL).get_extents().x1)
