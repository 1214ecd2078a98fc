"""The page around the panels of a figure: title, legend and caption, each as high as it needs."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.figures.style import new_figure

WIDTH, LEFT, RIGHT = 7.5, 0.95, 1.45  # inches
PANEL = (WIDTH - LEFT - RIGHT) * 72  # points, the width of a panel
TITLE_LINE, LEGEND_ROW, CAPTION_LINE = 0.2, 0.19, 0.128  # inches
CAPTION_COLUMNS = 134


@dataclass(frozen=True)
class Slot:
    """The room of one panel, in inches.

    Attributes:
        name: the label of its axes.
        height: of the axes.
        above, below: what is kept free for marks beyond them.
    """

    name: str
    height: float
    above: float = 0.0
    below: float = 0.0


def page(
    title: str, handles: Sequence[Line2D], slots: Sequence[Slot], small_print: Sequence[str]
) -> tuple[Figure, list[Axes]]:
    """An empty figure of panels below each other, and their axes.

    Args:
        title: wrapped as needed.
        handles: of the legend, above the panels.
        slots: the panels from top to bottom.
        small_print: the lines of the caption.
    """
    heading = textwrap.wrap(title, 72)
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    columns = max(1, min(3, 104 // (longest + 9)))
    top = 0.12 + TITLE_LINE * len(heading) + LEGEND_ROW * -(-len(handles) // columns)
    bottom = 0.62 + CAPTION_LINE * len(small_print)
    total = top + bottom + sum(0.12 + slot.above + slot.height + slot.below for slot in slots)

    figure = new_figure(WIDTH, total)
    left = 0.12 / WIDTH
    figure.text(left, 1 - 0.08 / total, "\n".join(heading), va="top", fontsize=11, weight="bold")
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(left, 1 - (0.1 + TITLE_LINE * len(heading)) / total),
        ncols=columns,
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
    panels, edge = [], total - top
    for slot in slots:
        edge -= 0.12 + slot.above + slot.height
        box = (LEFT / WIDTH, edge / total, PANEL / 72 / WIDTH, slot.height / total)
        panels.append(figure.add_axes(box, label=slot.name))
        edge -= slot.below
    return figure, panels
