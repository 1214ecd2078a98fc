"""A curve of means over seeds, as every figure draws it."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from dpcompare.figures.numbers import entries

CURVE_LOOK: dict[str, Any] = {"linewidth": 1.6, "markersize": 4.5}


def draw_curve(ax: Axes, label: str, curve: pd.DataFrame, x: str, style: dict[str, Any]) -> None:
    """Draw means with their standard errors as band and bars; a single seed has a hollow marker.

    Args:
        ax: the axes.
        label: of the curve.
        curve: rows of `x`, mean, standard_error and n_seeds.
        x: the column of the horizontal axis.
        style: of :func:`dpcompare.figures.style.curve_styles`.
    """
    places, mean, error = (curve[key].to_numpy() for key in (x, "mean", "standard_error"))
    color = style["color"]
    ax.fill_between(places, mean - error, mean + error, color=color, alpha=0.2, linewidth=0)
    ax.plot(places, mean, label=label, markeredgecolor=color, **CURVE_LOOK, **style)
    known = ~np.isnan(error)  # the band vanishes beside a point without error, the bar does not
    ax.vlines(places[known], (mean - error)[known], (mean + error)[known], color=color, linewidth=1)
    single = (curve["n_seeds"] == 1).to_numpy()
    ax.plot(
        places[single],
        mean[single],
        linestyle="none",
        marker=style["marker"],
        markersize=4.5,
        markerfacecolor="white",
        markeredgecolor=color,
        zorder=3,
    )


def curve_handles(
    numbers: pd.DataFrame,
    styles: dict[str, dict[str, Any]],
    looks: dict[tuple[str, str], dict[str, Any]],
) -> list[Line2D]:
    """A legend entry for all that has a value; the constant prediction is named at its line."""
    named = numbers[numbers["mean"].notna() & (numbers["kind"] != "uninformed")]
    handles = []
    for kind, label, tried in entries(named):
        look = styles[label] if kind == "curve" else looks[kind, label]
        note = " (epsilon = inf)" if kind == "reference" else ""
        handles.append(Line2D([], [], label=label + note + tried, **(CURVE_LOOK | look)))
    return handles
