"""Noise against batch size: what larger batches buy before anything is trained."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.figures.account import (
    curves_over,
    gap_sentences,
    log_limits,
    log_value_axis,
    sequential_colors,
    setting_sentences,
    with_gaps,
)
from dpcompare.figures.axes import log_axis, round_numbers
from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import CURVE_LOOK
from dpcompare.figures.page import CAPTION_COLUMNS, LEFT, WIDTH, Slot, page
from dpcompare.figures.style import MARKERS, NothingToDraw, figure_style
from dpcompare.summary import Records, summarize

HEIGHTS = {"noise_on_mean": 2.5, "noise_multiplier": 1.7}  # inches
YLABELS = {
    "noise_on_mean": "noise on each entry of the\nmean gradient (std. dev.)",
    "noise_multiplier": "noise multiplier",
}
BESIDE, BETWEEN, BELOW = 0.2, 0.3, 0.7  # inches: right of, between and below the panels of a pair
DECADE = 10.0
SAME = 1.05  # steps are whole, so equal epochs are nearly so
PLATEAU, FALLING = -0.1, -0.5  # slopes in the last decade: flatter, and steeper than these
_SLOPE = (
    "Noise on the mean over the last decade of batch sizes, in brackets its slope on log axes "
    "(\N{MINUS SIGN}1: noise falls as fast as batches grow; 0: larger batches help no more; it "
    f"keeps falling at \N{MINUS SIGN}{-FALLING:g} or below, plateaus at "
    f"\N{MINUS SIGN}{-PLATEAU:g} or above)."
)
_COLUMNS = [
    "curve",
    "epsilon",
    "batch_size",
    "steps",
    "noise_multiplier",
    "noise_on_mean",
    "guarantee_epsilon",
]


def noise_vs_batch(records: Records) -> tuple[Figure, pd.DataFrame]:
    """The noise that an epsilon takes, against the batch size: Figure 2 of arXiv 2211.11896.

    One panel per curve ("fixed epochs", "fixed steps") with one line per epsilon: the standard
    deviation of the noise on each entry of the mean gradient, and below it the noise multiplier.

    Args:
        records: of a study of kind "account" that sweeps the batch size.

    Returns:
        The figure and exactly the numbers in it, one row per point: curve, epsilon, batch_size,
        steps, noise_multiplier, noise_on_mean and guarantee_epsilon.

    Raises:
        NothingToDraw: no trial of a study that trains nothing states its noise.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    drawn = _drawn(summary)
    if not drawn.any():
        raise NothingToDraw(
            "no noise to draw against batch size: no trial with a finite epsilon states its noise "
            'without training; run a study of kind "account" that sweeps training.batch_size'
        )
    shown = summary[drawn].assign(curve=lambda rows: curves_over(rows, "batch_size"))
    order = list(dict.fromkeys(shown["curve"]))
    shown = shown.sort_values(
        ["curve", "epsilon", "batch_size"],
        key=lambda column: column.map(order.index) if column.name == "curve" else column,
        kind="stable",
    ).reset_index(drop=True)
    numbers = shown[_COLUMNS]
    paragraphs = [
        _meaning(numbers),
        _slopes(numbers),
        " ".join(setting_sentences(shown)),
        *gap_sentences(summary, drawn, "noise"),
    ]
    with figure_style():
        title = str(summary["title"].iloc[0])
        small_print = wrapped(paragraphs, CAPTION_COLUMNS)
        return _compose(title, numbers, _headings(shown), small_print), numbers


def _drawn(summary: pd.DataFrame) -> pd.Series:
    needed = summary[["noise_on_mean", "noise_multiplier", "batch_size"]].astype(float)
    return needed.gt(0).all(axis=1) & summary["test_rows"].isna() & np.isfinite(summary["epsilon"])


def _headings(shown: pd.DataFrame) -> dict[str, str]:
    """The name over each curve's panels, with what its batch sizes have in common."""
    headings = {}
    for curve, rows in shown.groupby("curve", sort=False):
        epochs = rows["steps"] * rows["batch_size"] / rows["examples"]
        common, several = "", rows["batch_size"].nunique() > 1
        if several and rows["steps"].nunique() == 1:
            common = f": {rows['steps'].iloc[0]:,.0f} steps"
        elif several and epochs.max() < epochs.min() * SAME:
            common = f": {epochs.median():.3g} epochs"
        headings[str(curve)] = f"{curve}{common}"
    return headings


def _meaning(numbers: pd.DataFrame) -> str:
    """How the two rows of panels hang together."""
    text = "Noise on the mean gradient is the noise multiplier over the batch size"
    products = numbers["noise_on_mean"] * numbers["batch_size"] / numbers["noise_multiplier"]
    low, high = f"{products.min():.4g}", f"{products.max():.4g}"
    if low == high == "1":
        return f"{text}, for a clip norm of 1."
    span = low if low == high else f"{low} to {high}"
    return f"{text}, times clip norm and rows clipped together (here {span})."


def _slopes(numbers: pd.DataFrame) -> str:
    """How fast the noise on the mean still falls where batches are largest."""
    sentences = []
    for curve, rows in numbers.groupby("curve", sort=False):
        end = float(rows["batch_size"].max())
        start = max(float(rows["batch_size"].min()), end / DECADE)
        if start == end:
            sentences.append(f"{curve}: one batch size, so no slope.")
            continue
        readings: dict[str, list[str]] = {}
        for epsilon, points in rows.groupby("epsilon"):
            slope = _slope(points, start, end)
            text = f"{epsilon:g}" + ("" if math.isnan(slope) else f" ({slope:.2f})")
            readings.setdefault(_reading(slope), []).append(text.replace("-", "\N{MINUS SIGN}"))
        each = "; ".join(f"{word} at epsilon {', '.join(e)}" for word, e in readings.items())
        sentences.append(f"{curve}, batch size {start:,.0f} to {end:,.0f}: {each}.")
    explained = [_SLOPE] if numbers.groupby("curve")["batch_size"].nunique().gt(1).any() else []
    return " ".join(explained + sentences)


def _slope(points: pd.DataFrame, start: float, end: float) -> float:
    """Mean slope between two batch sizes, linear between points; nan beyond them.

    Args:
        points: of one line, ascending in batch_size.
        start: the smaller batch size.
        end: the larger one.
    """
    sizes, noise = np.log(points["batch_size"]), np.log(points["noise_on_mean"])
    ends = np.log([start, end])
    at_start, at_end = np.interp(ends, sizes, noise, left=np.nan, right=np.nan)
    return float((at_end - at_start) / (ends[1] - ends[0]))


def _reading(slope: float) -> str:
    if math.isnan(slope):
        return "not known"
    if slope >= PLATEAU:
        return "plateaus"
    return "keeps falling" if slope <= FALLING else "flattens"


def _compose(
    title: str, numbers: pd.DataFrame, headings: dict[str, str], small_print: Sequence[str]
) -> Figure:
    epsilons = sorted(set(numbers["epsilon"]))
    colors = sequential_colors(epsilons)
    looks = {
        epsilon: CURVE_LOOK
        | {"color": colors[epsilon], "marker": MARKERS[index % len(MARKERS)], "markersize": 4}
        for index, epsilon in enumerate(epsilons)
    }
    handles = [Line2D([], [], label=f"epsilon = {e:g}", **look) for e, look in looks.items()]
    figure, panels, width = _pairs(title, handles, headings, small_print)
    for name in HEIGHTS:
        limits = log_limits(numbers[name])
        for curve in headings:
            ax = panels[curve, name]
            rows = numbers[numbers["curve"] == curve]
            for epsilon, points in rows.groupby("epsilon"):
                look: dict[str, Any] = looks[float(epsilon)]  # type: ignore[arg-type]
                line = with_gaps(points, "batch_size", rows["batch_size"])
                ax.plot(line["batch_size"], line[name], label=f"{epsilon:g}", **look)
            _finish(ax, numbers["batch_size"], limits, width)
    return figure


def _finish(ax: Axes, sizes: pd.Series, limits: tuple[float, float], width: float) -> None:
    values = sorted(set(map(float, sizes)))
    ticks = [t for t in round_numbers(values[0], values[-1]) if values[0] <= t <= values[-1]]
    log_axis(ax, values, width, ticks if len(ticks) > 1 else values, "{:,.0f}".format)
    log_value_axis(ax, limits)


def _pairs(
    title: str, handles: Sequence[Line2D], headings: dict[str, str], small_print: Sequence[str]
) -> tuple[Figure, dict[tuple[str, str], Axes], float]:
    """A page with two curves beside each other, and each one's panels below each other.

    Returns:
        The figure, its axes by curve and number, and their width in points.
    """
    columns = min(2, len(headings))
    room, both = 0.14, sum(HEIGHTS.values()) + 0.12
    rows = -(-len(headings) // columns)
    height = rows * (room + both) + (rows - 1) * BELOW
    figure, (frame,) = page(title, handles, [Slot("all", height)], small_print)
    bottom, total = frame.get_position().y0, figure.get_figheight()
    frame.remove()
    inside = WIDTH - LEFT - BESIDE - (columns - 1) * BETWEEN
    width = inside / columns
    panels = {}
    for index, (curve, above) in enumerate(headings.items()):
        row, column = divmod(index, columns)
        top = bottom * total + height - row * (room + both + BELOW) - room
        for name, size in HEIGHTS.items():
            place = LEFT + column * (width + BETWEEN), top - size, width, size
            box = place[0] / WIDTH, place[1] / total, place[2] / WIDTH, place[3] / total
            ax = figure.add_axes(box, label=f"{curve}: {name}")
            ax.tick_params(labelleft=column == 0, labelbottom=name == "noise_multiplier")
            if column == 0:
                ax.set_ylabel(YLABELS[name])
            panels[curve, name] = ax
            top -= size + 0.12
        panels[curve, "noise_on_mean"].set_title(above, fontsize=9, loc="left")
        panels[curve, "noise_multiplier"].set_xlabel("batch size (log scale)")
    return figure, panels, width * 72
