"""The effective sample size: do randomized labels do as well as the clean ones they are worth?"""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.interpolate import PchipInterpolator

from dpcompare.figures.axes import (
    horizontal_lines,
    log_axis,
    round_numbers,
    value_label,
    value_limits,
)
from dpcompare.figures.beyond import SIDES, draw_marks, marks, room, with_beyond
from dpcompare.figures.caption import sample_size_caption
from dpcompare.figures.numbers import entries, lines, scores
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.point_labels import label_points
from dpcompare.figures.style import INK, NothingToDraw, curve_styles, figure_style, line_styles
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.summary import Records, summarize

HEIGHT = 3.6  # inches
CLEAN = "non-private training on n rows"
CLEAN_LOOK: dict[str, Any] = {"color": INK, "marker": "o", "markersize": 3.5, "linewidth": 1.2}


def effective_sample_size(records: Records) -> tuple[Figure, pd.DataFrame]:
    """The study's metric against the effective number of training rows.

    The curve is non-private training on fewer and fewer rows, interpolated in log rows. A point is
    a label mechanism at one epsilon, drawn at the number of clean labels that its noisy ones are
    worth, as its records state it. Where that number is all that counts, points lie on the curve.

    Args:
        records: of one study, with non-private trials of at least two training sizes. Of several
            models of one size, that with the lowest validation loss is shown.

    Returns:
        The figure and exactly the numbers in it: one row per point with `rows` (trained on, or
        effective), mean, standard_error, low, high, n_seeds, n_candidates, `curve_there` (the
        metric on the curve at as many rows), `rows_on_curve` (how many rows reach the same metric
        on it; empty where none or several do) and their `ratio` to the
        effective ones.

    Raises:
        NothingToDraw: there are fewer than two training sizes, or no effective sample sizes.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    name = str(summary["metric"].iloc[0])
    numbers = _numbers(summary, name)
    with figure_style():
        return _compose(summary, numbers, name), numbers


def _numbers(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    clean = summary["mechanism"].eq("non-private") & summary[name].notna()
    selection = f"validation_{metric_set(summary['task'].iloc[0]).selection}"
    sizes = summary[clean].sort_values(["examples", selection]).drop_duplicates("examples")
    private = summary[summary["effective_examples"].gt(0) & np.isfinite(summary["epsilon"])]
    private = private[private[name].notna()]
    if len(sizes) < 2:
        raise NothingToDraw(
            "no effective sample size to draw: non-private trials of at least two training sizes "
            "are needed"
        )
    if private.empty:
        raise NothingToDraw(
            "no effective sample size to draw: no scored trial with a finite epsilon states one; "
            "it is known for binary randomized response where the true rates are known"
        )
    curve = scores(sizes, name).assign(kind="reference", rows=sizes["examples"].astype(float))
    points = scores(private, name).assign(kind="curve", rows=private["effective_examples"])
    points = points.assign(**_against(points, curve))
    numbers = pd.concat([curve, points, lines(summary, name)], ignore_index=True)
    first = ["kind", "label", "epsilon", "rows"]
    numbers = numbers[[*first, *(column for column in numbers if column not in first)]]
    return with_beyond(numbers, METRICS[name])


def _against(points: pd.DataFrame, clean: pd.DataFrame) -> dict[str, np.ndarray]:
    """Where the points lie beside the curve."""
    curve = _curve(clean)
    rows = points["rows"].to_numpy()
    matched = np.array([_rows_on_curve(value, curve) for value in points["mean"]])
    return {
        "curve_there": curve(np.log(rows)),
        "rows_on_curve": matched,
        "ratio": matched / rows,
    }


def _curve(clean: pd.DataFrame) -> PchipInterpolator:
    """The metric of non-private training as a function of log rows, nan outside its ends.

    Straight lines between few sizes would lie beside a bent curve: hence cubic pieces, monotone
    wherever the points are.
    """
    return PchipInterpolator(np.log(clean["rows"]), clean["mean"], extrapolate=False)


def _rows_on_curve(value: float, curve: PchipInterpolator) -> float:
    """How many rows reach a value; nan where no place on the curve does, or several do."""
    places = curve.solve(value, extrapolate=False)
    distinct = places[np.diff(places, prepend=-np.inf) > 1e-6]
    return float(np.exp(distinct[0])) if distinct.size == 1 else math.nan


def _compose(summary: pd.DataFrame, numbers: pd.DataFrame, name: str) -> Figure:
    metric, x = METRICS[name], "rows"
    clean, private = (numbers[numbers["kind"] == kind] for kind in ("reference", "curve"))
    styles = curve_styles(list(dict.fromkeys(private["label"])))
    rest = numbers[~numbers["kind"].isin(("reference", "curve"))]
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    above, below = (marks(numbers, metric, side, x, PANEL) for side in SIDES)
    slot = Slot(name, HEIGHT, room(above), room(below))
    small_print = sample_size_caption(summary, numbers, metric.title, CAPTION_COLUMNS)
    title = str(summary["title"].iloc[0])
    figure, (ax,) = page(title, _handles(numbers, styles, looks), [slot], small_print)
    ax.set_ylim(*value_limits(numbers, metric))
    ax.set_ylabel(value_label(metric))
    rows = sorted(set(numbers[x].dropna()))
    log_axis(ax, rows, PANEL, round_numbers(rows[0], rows[-1]), "{:,.0f}".format)
    ax.set_xlabel("rows with clean labels, or effective rows (log scale; numbers are epsilon)")
    horizontal_lines(ax, rest, looks, HEIGHT * 72)
    _draw_clean(ax, clean)
    for label, points in private.groupby("label", sort=False):
        look = styles[str(label)] | {"linestyle": "none", "markersize": 5, "elinewidth": 1}
        ax.errorbar(points[x], points["mean"], points["standard_error"], label=label, **look)
    everywhere = styles | dict.fromkeys(clean["label"], CLEAN_LOOK)
    draw_marks(ax, above, "above", x, everywhere)
    draw_marks(ax, below, "below", x, everywhere)
    inside = private[~(private["above_axis"] | private["below_axis"])]
    colors = {label: style["color"] for label, style in styles.items()}
    label_points(ax, inside, x, colors, rising=metric.better == "higher")
    return figure


def _draw_clean(ax: Axes, clean: pd.DataFrame) -> None:
    curve, knots = _curve(clean), np.log(clean["rows"].to_numpy())
    logs = np.unique(np.concatenate([knots, np.linspace(knots[0], knots[-1], 201)]))
    ax.plot(np.exp(logs), curve(logs), color=INK, linewidth=CLEAN_LOOK["linewidth"])
    look = CLEAN_LOOK | {"linestyle": "none", "elinewidth": 1}
    ax.errorbar(clean["rows"], clean["mean"], clean["standard_error"], label=CLEAN, **look)


def _handles(
    numbers: pd.DataFrame,
    styles: dict[str, dict[str, Any]],
    looks: dict[tuple[str, str], dict[str, Any]],
) -> list[Line2D]:
    handles = [Line2D([], [], label=CLEAN, **CLEAN_LOOK)]
    for kind, label, tried in entries(numbers):
        if kind == "curve":
            look = styles[label] | {"linestyle": "none", "markersize": 5}
            handles.append(Line2D([], [], label=label + tried, **look))
        elif kind == "best possible":
            handles.append(Line2D([], [], label=label, **looks[kind, label]))
    return handles
