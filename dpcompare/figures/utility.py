"""The utility figure: a metric against epsilon, one curve per mechanism."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpcompare.errors import UsageError
from dpcompare.figures.axes import horizontal_lines, log_axis, value_label, value_limits
from dpcompare.figures.beyond import SIDES, draw_marks, marks, room, with_beyond
from dpcompare.figures.caption import utility_caption
from dpcompare.figures.curves import curve_handles, draw_curve
from dpcompare.figures.numbers import lines, scores
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import NothingToDraw, curve_styles, figure_style, line_styles
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.summary import Records, summarize

HEIGHTS = (2.9, 2.1)  # inches, of the upper and the lower panel


def utility_figure(records: Records, metric: str | None = None) -> Figure:
    """The figure of :func:`utility` alone."""
    return utility(records, metric)[0]


def utility(records: Records, metric: str | None = None) -> tuple[Figure, pd.DataFrame]:
    """A metric against epsilon; below one that is no loss, the loss relative to a constant's.

    Bands and bars are the mean ± standard error over seeds. What has no epsilon (no privacy, the
    best possible model, the best constant prediction) is a horizontal line with its name and value
    at its end. Values too bad for the axis are written above or below it.

    Args:
        records: of one study.
        metric: one of the task's, for the upper panel; None takes the study's own.

    Returns:
        The figure and exactly the numbers in it: one row per panel, line and epsilon with mean,
        standard_error, low, high, n_seeds, n_candidates (the shown one is the best of), and
        whether the point lies `above_axis` or `below_axis`.

    Raises:
        UsageError: the metric is not one of the task.
        NothingToDraw: no trial with a finite epsilon has a score.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    names = _panels(summary, metric)
    numbers = pd.concat([_numbers(summary, name) for name in names])
    curves = numbers[(numbers["kind"] == "curve") & numbers["mean"].notna()]
    if curves.empty:
        raise NothingToDraw(
            "nothing to draw against epsilon: no trial with a finite epsilon has a score"
        )
    names = [name for name in names if name in set(curves["panel"])]
    numbers = numbers[numbers["panel"].isin(names)].reset_index(drop=True)
    with figure_style():
        return _compose(records, summary, numbers, names), numbers


def _panels(summary: pd.DataFrame, metric: str | None) -> list[str]:
    metrics = metric_set(summary["task"].iloc[0])
    metric = metric or str(summary["metric"].iloc[0])
    if metric not in metrics.names:
        known = ", ".join(metrics.names)
        raise UsageError(
            f"metric {metric!r} is unknown for task {summary['task'].iloc[0]}; there are: {known}"
        )
    alone = METRICS[metric].better == "lower" or metric == metrics.relative
    return [metric] if alone else [metric, metrics.relative]


def _numbers(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    """Everything in one panel as a tidy frame; curves first, then horizontal lines."""
    finite = np.isfinite(summary["epsilon"])
    rows = scores(summary, name)
    rows.insert(0, "panel", name)
    rows.insert(1, "kind", np.where(finite, "curve", "reference"))
    rows = pd.concat([rows[finite], rows[~finite], lines(summary, name).assign(panel=name)])
    return with_beyond(rows, METRICS[name])


def _compose(
    records: Records, summary: pd.DataFrame, numbers: pd.DataFrame, names: list[str]
) -> Figure:
    curves = numbers[numbers["kind"] == "curve"]
    styles = curve_styles(list(dict.fromkeys(curves["label"])))
    rest = numbers[numbers["kind"] != "curve"]
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    outside, slots = {}, []
    for name, height in zip(names, HEIGHTS, strict=False):
        rows, metric = numbers[numbers["panel"] == name], METRICS[name]
        above, below = (marks(rows, metric, side, "epsilon", PANEL) for side in SIDES)
        outside[name] = {"above": above, "below": below}
        slots.append(Slot(name, height, room(above), room(below)))
    small_print = utility_caption(records, summary, names[0], CAPTION_COLUMNS)
    title = str(summary["title"].iloc[0])
    figure, panels = page(title, curve_handles(numbers, styles, looks), slots, small_print)
    for ax, slot in zip(panels, slots, strict=True):
        rows, metric = numbers[numbers["panel"] == slot.name], METRICS[slot.name]
        ax.set_ylim(*value_limits(rows, metric))
        ax.set_ylabel(value_label(metric))
        horizontal_lines(ax, rows[rows["kind"] != "curve"], looks, slot.height * 72)
        for label, curve in rows[rows["kind"] == "curve"].groupby("label", sort=False):
            if curve["mean"].notna().any():
                draw_curve(ax, str(label), curve, "epsilon", styles[str(label)])
        log_axis(ax, sorted(set(curves["epsilon"])), PANEL)
        for side in SIDES:
            draw_marks(ax, outside[slot.name][side], side, "epsilon", styles)
        ax.tick_params(labelbottom=ax is panels[-1])
    panels[-1].set_xlabel("epsilon (log scale; what it protects is stated per curve below)")
    return figure
