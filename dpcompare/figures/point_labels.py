"""The epsilon of each point, written beside it where there is room."""

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dpcompare.figures.axes import SMALL, text_width
from dpcompare.figures.box import Box, box_around

_HEIGHT, _MARKER = 8.0, 3.5  # points: of letters of size SMALL, and half a marker
_CLOSE = 7.0  # points: what is closer shares one label
# Where a label's middle may be: how many half widths to the right, and how many points up.
_PLACES = ((1, -9), (-1, 9), (-1, -9), (1, 9), (0, -12), (0, 12), (1.3, -18), (-1.3, 18))


class _Group(NamedTuple):
    """Points of one curve that lie on each other: where the first is, in points from the corner."""

    label: str
    x: float
    y: float
    epsilons: list[float]


def label_points(
    ax: Axes, points: pd.DataFrame, column: str, colors: dict[str, Any], rising: bool
) -> None:
    """Write epsilons beside points; those that lie on each other share a label, as "5-50".

    A label that finds no free place beside its point is left out.

    Args:
        ax: the axes, their limits set.
        points: rows of label, epsilon, mean and `column`.
        column: the one with their places.
        colors: of each label.
        rising: whether better values are higher, so that there is room below a curve.
    """
    frame = ax.get_window_extent()
    scale = 72 / ax.figure.dpi
    places = (ax.transData.transform(points[[column, "mean"]].to_numpy()) - frame.p0) * scale
    page = Box(0, 0, frame.width * scale, frame.height * scale)
    taken = [box_around(x, y, _MARKER, _MARKER) for x, y in places]
    for group in _groups(points, places):
        ends = dict.fromkeys((group.epsilons[0], group.epsilons[-1]))
        text = "-".join(f"{epsilon:g}" for epsilon in ends)
        half = text_width(text) / 2 + 1
        for aside, up in _PLACES:
            shift = aside * (half + 3), up if rising else -up
            box = box_around(group.x + shift[0], group.y + shift[1], half, _HEIGHT / 2)
            if box.within(page) and not any(box.meets(other) for other in taken):
                taken.append(box)
                _write(ax, text, group, shift, colors[group.label])
                break


def _groups(points: pd.DataFrame, places: np.ndarray) -> list[_Group]:
    groups: list[_Group] = []
    rows = zip(points["label"], points["epsilon"], places, strict=True)
    for label, epsilon, (x, y) in sorted(rows, key=lambda row: row[:2]):
        last = groups[-1] if groups else None
        if last and last.label == label and math.hypot(last.x - x, last.y - y) < _CLOSE:
            last.epsilons.append(epsilon)
        else:
            groups.append(_Group(label, x, y, [epsilon]))
    return groups


def _write(ax: Axes, text: str, group: _Group, shift: tuple[float, float], color: Any) -> None:
    ax.annotate(
        text,
        xy=(group.x, group.y),
        xycoords="axes points",
        xytext=shift,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=SMALL,
        color=color,
    )
