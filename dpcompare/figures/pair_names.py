"""The pair of group size and clip norm of each point, written where there is room."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from dpcompare.figures.axes import SMALL, text_width
from dpcompare.figures.box import box_around

_MARKER = 3.0  # points, half a marker
_LINE = 9.0  # points, from one line of a name to the next
_AWAY = 6.0  # points, from a point to the text beside it
_HALO = [withStroke(linewidth=2, foreground="white")]


def name_pairs(ax: Axes, curves: pd.DataFrame, styles: dict[str, dict[str, Any]]) -> None:
    """Write each pair above or below its point, where it meets neither points nor other pairs.

    Args:
        ax: the axes, their limits set.
        curves: rows of label, epsilon, mean, group_size, clip_norm, above_axis and below_axis.
        styles: of each label.
    """
    points = curves[np.isfinite(curves["mean"]) & ~(curves["above_axis"] | curves["below_axis"])]
    frame = ax.get_window_extent()
    scale = 72 / ax.figure.dpi
    height = frame.height * scale
    places = (ax.transData.transform(points[["epsilon", "mean"]].to_numpy()) - frame.p0) * scale
    taken = [box_around(x, y, _MARKER, _MARKER) for x, y in places]
    middle = points.groupby("epsilon")["mean"].transform("mean")
    upper = points["mean"] >= middle
    for (_, point), (x, y), up in zip(points.iterrows(), places, upper, strict=True):
        text = pair_name(point, "\n")
        half = max(map(text_width, text.split("\n"))) / 2
        tall = _LINE * (text.count("\n") + 1)
        options = []
        for distance in (_AWAY, _AWAY + 12, _AWAY + 24, _AWAY + 36, _AWAY + 48):
            for sign in (1, -1) if up else (-1, 1):
                options.append(sign * (distance + tall / 2))
        boxes = [box_around(x, y + shift, half, tall / 2) for shift in options]
        free = [
            shift
            for shift, box in zip(options, boxes, strict=True)
            if box.bottom >= 0 and box.top <= height and not any(map(box.meets, taken))
        ]
        shift = free[0] if free else options[0]
        taken.append(boxes[options.index(shift)])
        _write(ax, text, point, shift, styles[str(point["label"])]["color"], tall)


def _write(ax: Axes, text: str, point: pd.Series, shift: float, color: Any, tall: float) -> None:
    far = abs(shift) > _AWAY + tall / 2
    line = {"arrowstyle": "-", "color": color, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
    ax.annotate(
        text,
        xy=(point["epsilon"], point["mean"]),
        xytext=(0, shift),
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=SMALL,
        linespacing=1.0,
        color=color,
        path_effects=_HALO,
        arrowprops=line if far else None,
        zorder=5,
    )


def pair_name(row: pd.Series, between: str) -> str:
    """Group size and, where there is one, clip norm."""
    size = f"G={row['group_size']:g}"
    return size if math.isnan(row["clip_norm"]) else f"{size}{between}C={row['clip_norm']:g}"
