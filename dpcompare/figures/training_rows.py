"""The number of training rows: a metric against it, one curve per mechanism and epsilon."""

import math
import re

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dpcompare.figures.axes import horizontal_lines, log_axis, value_label, value_limits
from dpcompare.figures.beyond import SIDES, draw_marks, marks, room, with_beyond
from dpcompare.figures.caption import rows_caption
from dpcompare.figures.curves import curve_handles, draw_curve
from dpcompare.figures.numbers import lines, scores
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import NothingToDraw, curve_styles, figure_style, line_styles
from dpcompare.metric_sets import METRICS
from dpcompare.summary import Records, summarize

HEIGHT = 3.4  # inches
_SIZE = re.compile(r"\s*\(\d+ rows\)$")


def training_rows(records: Records) -> tuple[Figure, pd.DataFrame]:
    """The study's metric against the number of training rows.

    Entries of a study that differ in `training.examples` make one curve if their labels differ in
    a size at the end only, as in "laplace (25000 rows)".

    Args:
        records: of one study.

    Returns:
        The figure and exactly the numbers in it: one row per point with `rows`, mean,
        standard_error, low, high, n_seeds, n_candidates, `above_axis` and `below_axis`.

    Raises:
        NothingToDraw: no curve has scores at two sizes.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    name = str(summary["metric"].iloc[0])
    numbers = _numbers(summary, name)
    with figure_style():
        return _compose(summary, numbers, name), numbers


def _numbers(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    scored = summary[summary[name].notna()]
    curves = scores(scored, name).assign(kind="curve", rows=scored["examples"].astype(float))
    several = len({epsilon for epsilon in scored["epsilon"] if math.isfinite(epsilon)}) > 1
    curves["label"] = [
        _curve_name(label, epsilon, several)
        for label, epsilon in zip(curves["label"], curves["epsilon"], strict=True)
    ]
    sizes = curves.groupby("label")["rows"].nunique()
    if not (sizes > 1).any():
        raise NothingToDraw(
            "nothing to draw against training rows: no curve has scores at two sizes; curves are "
            'made of entries with labels such as "laplace (25000 rows)"'
        )
    numbers = pd.concat([curves.sort_values("rows", kind="stable"), lines(summary, name)])
    first = ["kind", "label", "epsilon", "rows"]
    numbers = numbers[[*first, *(column for column in numbers if column not in first)]]
    return with_beyond(numbers.reset_index(drop=True), METRICS[name])


def _curve_name(label: str, epsilon: float, several: bool) -> str:
    base = _SIZE.sub("", label)
    return f"{base} at epsilon {epsilon:g}" if several and np.isfinite(epsilon) else base


def _compose(summary: pd.DataFrame, numbers: pd.DataFrame, name: str) -> Figure:
    metric, x = METRICS[name], "rows"
    curves, rest = (numbers[numbers["kind"].eq("curve") == kind] for kind in (True, False))
    styles = curve_styles(list(dict.fromkeys(curves["label"])))
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    above, below = (marks(numbers, metric, side, x, PANEL) for side in SIDES)
    slot = Slot(name, HEIGHT, room(above), room(below))
    title = str(summary["title"].iloc[0])
    names = summary["label"].str.replace(_SIZE, "", regex=True)
    small_print = rows_caption(summary.assign(label=names), CAPTION_COLUMNS)
    figure, (ax,) = page(title, curve_handles(numbers, styles, looks), [slot], small_print)
    ax.set_ylim(*value_limits(numbers, metric))
    ax.set_ylabel(value_label(metric))
    horizontal_lines(ax, rest, looks, HEIGHT * 72)
    for label, curve in curves.groupby("label", sort=False):
        draw_curve(ax, str(label), curve, x, styles[str(label)])
    log_axis(ax, sorted(set(curves[x])), PANEL, form="{:,.0f}".format)
    ax.set_xlabel("training rows (log scale)")
    draw_marks(ax, above, "above", x, styles)
    draw_marks(ax, below, "below", x, styles)
    return figure
