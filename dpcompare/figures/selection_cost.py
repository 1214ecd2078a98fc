"""The cost of private selection: epsilon of the best of several candidates, over that of one."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.figures.account import (
    gap_sentences,
    log_limits,
    log_value_axis,
    setting_sentences,
)
from dpcompare.figures.axes import log_axis, log_places, round_numbers
from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import CURVE_LOOK
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import NothingToDraw, curve_styles, figure_style
from dpcompare.summary import Records, summarize
from dpcompare.sweeps import split_label

TOTAL, RATIO = "guarantee_epsilon", "ratio"
HEIGHTS = {TOTAL: 3.0, RATIO: 1.8}  # inches
YLABELS = {
    TOTAL: "epsilon of releasing the\nbest candidate (log scale)",
    RATIO: "the same over that of\none candidate (log scale)",
}
SETTING = "private_selection"
FREE = "if choosing were free"
FREE_LOOK: dict[str, Any] = {"color": "black", "linewidth": 1.2, "zorder": 1}


def selection_cost(records: Records) -> tuple[Figure, pd.DataFrame]:
    """What releasing the best of several candidates costs, against training one of them.

    The number of candidates is random, with the mean that `private_selection` swept over
    (Papernot and Steinke, arXiv 2110.03620). Below, the ratio of the two epsilons.

    Args:
        records: of one study whose trials state the epsilon of one candidate.

    Returns:
        The figure and exactly the numbers in it, one row per point: label, curve,
        private_selection (the mean number of candidates; empty where it is not swept), epsilon
        (asked for), candidate_epsilon, guarantee_epsilon, ratio, noise_multiplier, batch_size and
        steps.

    Raises:
        NothingToDraw: no trial with a finite epsilon states the epsilon of one candidate.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    drawn = _drawn(summary)
    if not drawn.any():
        raise NothingToDraw(
            "no cost of selection to draw: no trial with a finite epsilon states "
            "candidate_epsilon; trials of dp-sgd with private_selection do"
        )
    shown = summary[drawn].assign(curve=lambda rows: rows["label"].map(_curve))
    numbers = _numbers(shown)
    paragraphs = [
        "Across: epsilon of training one candidate, which is what is claimed where tuning is not "
        "counted. Up: epsilon of releasing the best of a random number of candidates, chosen on "
        "private rows.",
        " ".join(_ratio_sentences(numbers)),
        " ".join(setting_sentences(shown)),
        *gap_sentences(summary, drawn, "the epsilon of one candidate"),
    ]
    with figure_style():
        title = str(summary["title"].iloc[0])
        return _compose(title, numbers, wrapped(paragraphs, CAPTION_COLUMNS)), numbers


def _drawn(summary: pd.DataFrame) -> pd.Series:
    epsilons = summary[["epsilon", "candidate_epsilon", TOTAL]].astype(float)
    return (epsilons.gt(0) & epsilons.lt(np.inf)).all(axis=1)


def _curve(label: str) -> str:
    """The name of a curve, which says how many candidates there are."""
    curve, values = split_label(label)
    mean = values.pop(SETTING, None)
    rest = " ".join(f"{key}={value}" for key, value in values.items())
    name = f"{curve} ({rest})" if rest else curve
    return name if mean is None else f"{name}, best of {mean} on average"


def _numbers(shown: pd.DataFrame) -> pd.DataFrame:
    means = [split_label(label)[1].get(SETTING) for label in shown["label"]]
    numbers = shown.assign(
        **{
            SETTING: pd.to_numeric(pd.Series(means, shown.index, dtype=object), errors="coerce"),
            RATIO: shown[TOTAL] / shown["candidate_epsilon"],
        }
    )
    first = ["label", "curve", SETTING, "epsilon", "candidate_epsilon", TOTAL, RATIO]
    return numbers[[*first, "noise_multiplier", "batch_size", "steps"]].reset_index(drop=True)


def _ratio_sentences(numbers: pd.DataFrame) -> list[str]:
    """How many times the epsilon of one candidate each curve spends."""
    sentences = []
    for curve, points in numbers.groupby("curve", sort=False):
        ordered = points.sort_values(RATIO, kind="stable")
        least, most = ordered.iloc[0], ordered.iloc[-1]
        text = f"{curve}: {_times(least)}"
        if len(points) > 1:
            text += f" (the least) to {_times(most)} (the most)"
        sentences.append(f"{text}.")
    return ["Times the epsilon of one candidate:", *sentences]


def _times(point: pd.Series) -> str:
    return f"{point[RATIO]:.2f} at epsilon {point['candidate_epsilon']:.3g}"


def _compose(title: str, numbers: pd.DataFrame, small_print: list[str]) -> Figure:
    styles = curve_styles(list(dict.fromkeys(numbers["curve"])))
    handles = [
        *(Line2D([], [], label=curve, **CURVE_LOOK, **style) for curve, style in styles.items()),
        Line2D([], [], label=FREE, **FREE_LOOK),
    ]
    slots = [Slot(name, height) for name, height in HEIGHTS.items()]
    figure, panels = page(title, handles, slots, small_print)
    across = sorted(set(numbers["candidate_epsilon"]))
    ends = np.array(log_places(across, PANEL)[0])
    for ax in panels:
        name = str(ax.get_label())
        free = ends if name == TOTAL else np.ones(2)
        ax.plot(ends, free, label=FREE, **FREE_LOOK)
        for curve, points in numbers.groupby("curve", sort=False):
            ordered = points.sort_values("candidate_epsilon")
            look = CURVE_LOOK | styles[str(curve)]
            ax.plot(ordered["candidate_epsilon"], ordered[name], label=curve, **look)
        _finish(ax, across, [*numbers[name], *free])
        ax.tick_params(labelbottom=ax is panels[-1])
    panels[-1].set_xlabel("epsilon of training one candidate (log scale)")
    return figure


def _finish(ax: Axes, across: list[float], up: list[float]) -> None:
    low, high = across[0], across[-1]
    ticks = [tick for tick in round_numbers(low, high) if low * 0.95 <= tick <= high * 1.05]
    log_axis(ax, across, PANEL, ticks if len(ticks) > 1 else across, "{:.3g}".format)
    log_value_axis(ax, log_limits(up))
    ax.set_ylabel(YLABELS[str(ax.get_label())])
