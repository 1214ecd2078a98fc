"""The utility figure: a metric against epsilon, one curve per mechanism."""

import math
import textwrap
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.figures.axes import (
    ROW,
    epsilon_axis,
    label_lines,
    mark_beyond,
    value_limits,
    value_text,
)
from dpcompare.figures.caption import caption
from dpcompare.figures.style import INK, curve_styles, figure_style, new_figure
from dpcompare.summary import METRICS, Metric, Records, summarize

ENTROPY = "normalized_entropy"
WIDTH, LEFT, RIGHT = 7.5, 0.95, 1.4  # inches
HEIGHTS = (2.9, 2.1)  # inches, of the upper and the lower panel
TITLE_LINE, LEGEND_ROW, CAPTION_LINE = 0.2, 0.19, 0.128  # inches
UNINFORMED = {"higher": "chance", "lower": "base rate", "one": "calibrated"}
WAYS = {"higher": "higher is better", "lower": "lower is better", "one": "1 is right"}


def utility_figure(records: Records, metric: str = "auc") -> Figure:
    """The figure of :func:`utility` alone."""
    return utility(records, metric)[0]


def utility(records: Records, metric: str | None = None) -> tuple[Figure, pd.DataFrame]:
    """A metric against epsilon, and normalized entropy below a metric that is no loss.

    Bands and bars are the mean ± standard error over seeds. What has no epsilon (no privacy, the
    best possible model, the base rate) is a horizontal line with its name and value at its end.
    Values too bad for the axis are written above it.

    Args:
        records: of one study.
        metric: one of `METRICS`, for the upper panel; None takes the study's own.

    Returns:
        The figure and exactly the numbers in it: one row per panel, line and epsilon with mean,
        standard_error, low, high, n_seeds, n_candidates (the shown one is the best of), and
        whether the point lies `above_axis`.

    Raises:
        UsageError: the metric is unknown.
        DpcompareError: there is nothing to draw.
    """
    summary = summarize(records)
    metric = metric or str(summary["metric"].iloc[0])
    if metric not in METRICS:
        raise UsageError(f"metric {metric!r} is unknown; there are: {', '.join(METRICS)}")
    panels = [metric] if METRICS[metric].better == "lower" else [metric, ENTROPY]
    numbers = pd.concat([_numbers(summary, name) for name in panels])
    curves = numbers[(numbers["kind"] == "curve") & numbers["mean"].notna()]
    if curves.empty:
        raise DpcompareError(
            "nothing to draw against epsilon: no trial with a finite epsilon has a score"
        )
    panels = [name for name in panels if name in set(curves["panel"])]
    numbers = numbers[numbers["panel"].isin(panels)].reset_index(drop=True)
    with figure_style():
        return _compose(records, summary, numbers, panels), numbers


def _numbers(summary: pd.DataFrame, name: str) -> pd.DataFrame:
    """Everything in one panel as a tidy frame; curves first, then horizontal lines."""
    finite = np.isfinite(summary["epsilon"])
    rows = pd.DataFrame(
        {
            "panel": name,
            "kind": np.where(finite, "curve", "reference"),
            "label": summary["label"],
            "epsilon": summary["epsilon"],
            "mean": summary[name],
            "standard_error": summary[f"{name}_se"],
            "low": summary[name] - summary[f"{name}_se"],
            "high": summary[name] + summary[f"{name}_se"],
            "n_seeds": summary[f"{name}_n"],
            "n_candidates": summary["n_candidates"],
        }
    )
    rows = pd.concat([rows[finite], rows[~finite]])
    lines = {"best possible": float(summary[f"best_possible_{name}"].iloc[0])}
    lines |= _uninformed(summary, name)
    for label, value in lines.items():
        if not math.isnan(value):
            kind = label if label == "best possible" else "uninformed"
            line = {"panel": name, "kind": kind, "label": label, "mean": value}
            rows = pd.concat([rows, pd.DataFrame([line])])
    _, top = value_limits(rows, METRICS[name]) if rows["mean"].notna().any() else (0, math.inf)
    return rows.assign(above_axis=rows["mean"] > top)


def _uninformed(summary: pd.DataFrame, name: str) -> dict[str, float]:
    """The score of a prediction that ignores the features, where it helps to see it."""
    metric = METRICS[name]
    label = UNINFORMED[metric.better]
    if name == "log_loss":
        return {label: float((summary["log_loss"] / summary[ENTROPY]).mean())}
    if name == "auc":  # a line far below all curves would only press them together
        low, high = summary["auc"].min(), summary["auc"].max()
        if not low - 0.5 < 0.5 * (high - low):
            return {}
    return {label: math.nan if metric.uninformed is None else metric.uninformed}


def _compose(
    records: Records, summary: pd.DataFrame, numbers: pd.DataFrame, panels: list[str]
) -> Figure:
    """Title, legend, panels and caption from top to bottom, each as high as its text needs."""
    curves = numbers[numbers["kind"] == "curve"]
    styles = curve_styles(list(dict.fromkeys(curves["label"])))
    title = textwrap.wrap(summary["title"].iloc[0], 72)
    small_print = caption(records, summary, panels[0], columns=134)
    handles = _handles(numbers, styles)
    legend_columns = max(1, min(3, 104 // (max(len(str(h.get_label())) for h in handles) + 9)))
    legend_height = LEGEND_ROW * -(-len(handles) // legend_columns)
    gaps = [0.12 + ROW / 72 * _rows_above(numbers, name) for name in panels]
    top = 0.12 + TITLE_LINE * len(title) + legend_height
    bottom = 0.62 + CAPTION_LINE * len(small_print)
    heights = HEIGHTS[: len(panels)]
    total = top + sum(gaps) + sum(heights) + bottom

    figure = new_figure(WIDTH, total)
    left = 0.12 / WIDTH
    figure.text(left, 1 - 0.08 / total, "\n".join(title), va="top", fontsize=11, weight="bold")
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left, 1 - (0.1 + TITLE_LINE * len(title)) / total),
        ncols=legend_columns,
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=3.2,
        labelspacing=0.35,
    )
    figure.text(
        left,
        (0.06 + CAPTION_LINE * len(small_print)) / total,
        "\n".join(small_print),
        va="top",
        fontsize=7,
        linespacing=1.25,
    )
    edge = total - top
    for name, gap, height in zip(panels, gaps, heights, strict=True):
        edge -= gap + height
        box = (LEFT / WIDTH, edge / total, (WIDTH - LEFT - RIGHT) / WIDTH, height / total)
        ax = figure.add_axes(box, label=name)
        _draw_panel(ax, numbers[numbers["panel"] == name], METRICS[name], styles, height * 72)
        epsilon_axis(ax, sorted(set(curves["epsilon"])), (WIDTH - LEFT - RIGHT) * 72)
        if name != panels[-1]:
            ax.tick_params(labelbottom=False)
    ax.set_xlabel("epsilon (log scale; what it protects is stated per curve below)")
    return figure


def _draw_panel(
    ax: Axes, rows: pd.DataFrame, metric: Metric, styles: dict[str, dict[str, Any]], height: float
) -> None:
    ax.set_ylim(*value_limits(rows, metric))
    ax.set_ylabel(f"{metric.title}\n({WAYS[metric.better]})")
    lines = rows[(rows["kind"] != "curve") & rows["mean"].notna()]
    references = _references(rows)
    for _, line in lines.iterrows():
        ax.axhline(line["mean"], **_line_style(line, references))
        if not math.isnan(line["standard_error"]):
            ax.axhspan(line["low"], line["high"], color=INK, alpha=0.15, linewidth=0)
    for label, curve in rows[rows["kind"] == "curve"].groupby("label", sort=False):
        if curve["mean"].notna().any():
            _draw_curve(ax, str(label), curve, styles[str(label)])
    names = [
        (line["mean"], f"{line['label']} {value_text(line['mean'])}")
        for _, line in lines.iterrows()
    ]
    label_lines(ax, names, height)
    mark_beyond(ax, rows[(rows["kind"] == "curve") & rows["above_axis"]], styles)


def _draw_curve(ax: Axes, label: str, curve: pd.DataFrame, style: dict[str, Any]) -> None:
    x, mean, error = (curve[key].to_numpy() for key in ("epsilon", "mean", "standard_error"))
    color = style["color"]
    ax.fill_between(x, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
    ax.plot(x, mean, label=label, linewidth=1.6, markersize=4.5, markeredgecolor=color, **style)
    known = ~np.isnan(error)  # the band vanishes beside a point without error, the bar does not
    ax.vlines(x[known], (mean - error)[known], (mean + error)[known], color=color, linewidth=1)
    single = (curve["n_seeds"] == 1).to_numpy()
    ax.plot(
        x[single],
        mean[single],
        linestyle="none",
        marker=style["marker"],
        markersize=4.5,
        markerfacecolor="white",
        markeredgecolor=color,
        zorder=3,
    )


def _line_style(line: pd.Series, references: list[str]) -> dict[str, Any]:
    if line["kind"] == "best possible":
        return {"color": "black", "linestyle": ":", "linewidth": 1.4}
    if line["kind"] == "uninformed":
        return {"color": "0.5", "linestyle": "-.", "linewidth": 1.0}
    dashes: Any = ("-", (0, (8, 2)), (0, (8, 2, 2, 2)))
    return {
        "color": "black",
        "linestyle": dashes[references.index(line["label"]) % len(dashes)],
        "linewidth": 1.2,
    }


def _handles(numbers: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> list[Line2D]:
    """A legend entry for all that has a value; chance and base rate are named at their lines."""
    named = numbers[numbers["mean"].notna() & (numbers["kind"] != "uninformed")]
    valued = named.drop_duplicates(["kind", "label"])
    handles = []
    for _, line in valued.iterrows():
        kind, label = line["kind"], line["label"]
        look: dict[str, Any] = {"linewidth": 1.6, "markersize": 4.5}
        look |= styles[label] if kind == "curve" else _line_style(line, _references(numbers))
        note = " (epsilon = inf)" if kind == "reference" else ""
        tried = numbers.loc[(numbers["label"] == label) & (numbers["kind"] == kind), "n_candidates"]
        note += f" (best of {tried.max():.0f})" if tried.max() > 1 else ""
        handles.append(Line2D([], [], label=label + note, **look))
    return handles


def _references(numbers: pd.DataFrame) -> list[str]:
    """The curves without privacy, all of them, so that their dashes are alike in all panels."""
    return list(dict.fromkeys(numbers.loc[numbers["kind"] == "reference", "label"]))


def _rows_above(numbers: pd.DataFrame, panel: str) -> int:
    above = numbers[(numbers["panel"] == panel) & (numbers["kind"] == "curve")]
    above = above[above["above_axis"]]
    return 0 if above.empty else int(above.groupby("epsilon").size().max())
