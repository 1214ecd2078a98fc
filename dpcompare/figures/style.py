"""How every figure looks: one style, colors that survive color blindness and a grey printer."""

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dpcompare.errors import DpcompareError

# Okabe and Ito, "Color Universal Design" (2008), without yellow, too pale for a line on white, and
# without black, which is kept for what is no mechanism.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (4, 1.2, 1, 1.2)), (0, (2, 1)), (0, (6, 1, 1, 1, 1, 1)))
INK = "0.15"
FORMATS = ("png", "svg", "pdf")


class NothingToDraw(DpcompareError):
    """The records lack what a figure shows."""


def curve_styles(labels: list[str]) -> dict[str, dict[str, Any]]:
    """Color, marker and dashes of each curve: the three lists differ in length, so pairs last."""
    looks = zip(cycle(COLORS), cycle(MARKERS), cycle(DASHES), strict=False)
    return {
        label: {"color": color, "marker": marker, "linestyle": dashes}
        for label, (color, marker, dashes) in zip(labels, islice(looks, len(labels)), strict=True)
    }


def line_styles(lines: Iterable[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]]:
    """How horizontal lines look: (kind, label) to settings, kind as in a figure's numbers.

    Give all lines of a figure, so that they look alike in all its panels.
    """
    looks: dict[tuple[str, str], dict[str, Any]] = {}
    dashes: Iterator[Any] = cycle(("-", (0, (8, 2)), (0, (8, 2, 2, 2))))
    for kind, label in lines:
        if kind == "best possible":
            looks[kind, label] = {"color": "black", "linestyle": ":", "linewidth": 1.4}
        elif kind == "uninformed":
            looks[kind, label] = {"color": "0.5", "linestyle": "-.", "linewidth": 1.0}
        elif (kind, label) not in looks:
            looks[kind, label] = {"color": "black", "linestyle": next(dashes), "linewidth": 1.2}
    return looks


@contextmanager
def figure_style() -> Iterator[None]:
    """The house style while the context lasts; matplotlib's settings are put back after it."""
    settings = {
        **sns.axes_style("whitegrid"),
        **sns.plotting_context("paper"),
        "font.family": "DejaVu Sans",  # comes with matplotlib, so figures are alike everywhere
        "font.size": 9,
        "axes.labelsize": 9,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 9,
        "grid.color": "0.9",
        "xtick.bottom": True,
        "ytick.left": True,
        "xtick.major.size": 3,
        "ytick.major.size": 3,
        "svg.hashsalt": "dpcompare",  # without it, every drawing has other ids
        "path.simplify": False,
    }
    with mpl.rc_context(settings):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that pyplot does not know of."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def render(figure: Figure, form: str) -> bytes:
    """The figure as a file's content; equal figures give equal bytes.

    Args:
        figure: made within :func:`figure_style`.
        form: one of `FORMATS`.
    """
    dates: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    content = io.BytesIO()
    with figure_style():
        figure.savefig(content, format=form, dpi=200, metadata=dates.get(form))
    return content.getvalue()
