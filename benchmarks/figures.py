"""Draws the results: speed against batch size, and the largest batch against memory.

    python benchmarks/figures.py

As Figure 4b and Table 4 of arXiv 2211.11896. Writes steps.png and largest_batch.png beside the CSV
files that it reads.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from registry import HERE

from dpcompare.figures.style import COLORS, INK, figure_style, new_figure, render

BLUE, VERMILION, GREEN, PINK, ORANGE, SKY = COLORS
GREY = "0.55"

# Color says who, marker and dashes say which: (label, color, marker, dashes).
LOOKS = {
    "matmul_floor": ("matrix products alone", GREY, "None", "-"),
    "non_private_sparse": ("no privacy, sparse", INK, "o", "-"),
    "non_private_dense": ("no privacy, dense", INK, "s", "--"),
    "ours_without_noise": ("dpcompare without noise", SKY, "P", ":"),
    "ours_lazy": ("dpcompare, lazy noise", BLUE, "o", "-"),
    "ours_lazy_momentum": ("dpcompare, lazy, momentum", BLUE, "D", ":"),
    "ours_eager": ("dpcompare, eager noise", GREEN, "s", "-"),
    "ours_eager_momentum": ("dpcompare, eager, momentum", GREEN, "D", ":"),
    "two_pass_ghost_without_noise": ("two-pass ghost without noise", ORANGE, "v", ":"),
    "two_pass_ghost": ("two-pass ghost", ORANGE, "v", "-"),
    "naive_without_noise": ("per-example vmap without noise", GREY, "X", ":"),
    "naive": ("per-example vmap", GREY, "X", "-"),
    "naive_at_once_without_noise": ("one vmap without noise", GREY, "^", ":"),
    "torch_sparse": ("torch, no privacy, sparse", PINK, "o", "--"),
    "torch_dense": ("torch, no privacy, dense", PINK, "s", "--"),
    "opacus_ghost": ("Opacus, ghost", VERMILION, "v", "-"),
    "opacus_hooks": ("Opacus, hooks", VERMILION, "X", "-"),
    "jax_privacy": ("jax-privacy", VERMILION, "P", "--"),
}
NOT_DRAWN = ("ours_eager_momentum", "ours_lazy_momentum", "naive_without_noise")
"""Left out of the speed figure, where their lines would lie on others; they are in the CSV."""

SLOW = 0.05  # of the fastest: slower variants are written below a panel, or they would squash it
WIDTH, HEIGHT, LEGEND, MARGIN = 3.1, 4.6, 2.85, 0.95  # inches
TOP = 0.3  # inches

Draw = Callable[[Axes, pd.DataFrame], set[str]]
"""Draws one panel and returns the variants that the legend must explain."""


def main() -> None:
    """Draw whatever results there are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=HERE / "results")
    folder = parser.parse_args().folder
    for stem, draw, bottom in (
        ("steps", draw_speed, 1.25),
        ("largest_batch", draw_largest, 0.6),
    ):
        source = folder / f"{stem}.csv"
        if not source.exists():
            print(f"no {stem}.csv, so no {stem}.png")
            continue
        with figure_style():
            figure = panels(pd.read_csv(source), draw, bottom)
        (folder / f"{stem}.png").write_bytes(render(figure, "png"))
        print(f"drawn: {stem}.png")


def panels(rows: pd.DataFrame, draw: Draw, bottom: float) -> Figure:
    """One panel per model and width, the legend to their right, `bottom` inches below them."""
    groups = list(rows.groupby(["model", "width"], sort=False))
    total = MARGIN + len(groups) * WIDTH + LEGEND
    figure = new_figure(total, HEIGHT)
    axes = figure.subplots(1, len(groups), squeeze=False)[0]
    figure.subplots_adjust(
        left=MARGIN / total,
        right=1 - LEGEND / total,
        bottom=bottom / HEIGHT,
        top=1 - TOP / HEIGHT,
        wspace=0.3,
    )
    drawn: set[str] = set()
    for ax, ((model, width), part) in zip(axes, groups, strict=True):
        ax.set_title(f"model {model}, width {width}", fontsize=9)
        ax.set(xscale="log", yscale="log")
        drawn |= draw(ax, part)
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        ax.yaxis.set_minor_locator(NullLocator())
    shown = [name for name in LOOKS if name in drawn]
    handles = [Line2D([], [], label=LOOKS[name][0], **look(name)) for name in shown]
    middle = (bottom + HEIGHT - TOP) / 2 / HEIGHT
    figure.legend(
        handles=handles,
        loc="center left",
        bbox_to_anchor=(1 - (LEGEND - 0.1) / total, middle),
        frameon=False,
        handlelength=3,
    )
    return figure


def look(name: str) -> dict[str, Any]:
    """How a variant's line looks."""
    _, color, marker, dashes = LOOKS[name]
    return {"color": color, "marker": marker, "linestyle": dashes, "ms": 4.5, "lw": 1.3}


def draw_speed(ax: Axes, rows: pd.DataFrame) -> set[str]:
    """Median examples/s against batch size, with bars from minimum to maximum."""
    name_axes(ax, "examples per step", "examples per second, one core")
    rows = rows[~rows["variant"].isin(NOT_DRAWN)]
    # A variant that bears small batches only has several rows at the same one.
    speeds = rows.groupby(["variant", "batch"]).agg(
        median=("examples_per_second_median", "median"),
        low=("examples_per_second_min", "min"),
        high=("examples_per_second_max", "max"),
    )
    drawn, notes = set(), []
    for name in (name for name in LOOKS if name in set(rows["variant"])):
        mine = speeds.loc[name]
        if mine["median"].max() < SLOW * speeds["median"].max():
            value, batch = max(zip(mine["median"], mine.index, strict=True))
            form = ",.0f" if value >= 10 else ".1f"
            notes.append(f"{LOOKS[name][0]}: {value:{form}} at {batch:,} per step")
            continue
        bars = [mine["median"] - mine["low"], mine["high"] - mine["median"]]
        ax.errorbar(mine.index, mine["median"], bars, elinewidth=0.7, **look(name))
        drawn.add(name)
    measured = speeds.loc[sorted(drawn)].index.get_level_values("batch")
    ticks(ax, measured, "{:,.0f}")
    if notes:
        text = "\n".join(["Slower (examples per second):", *notes])
        ax.annotate(
            text, (0, 0), (0, -38), "axes fraction", "offset points", va="top", fontsize=7.5
        )
    return drawn


def draw_largest(ax: Axes, rows: pd.DataFrame) -> set[str]:
    """The largest batch against the memory that it may take."""
    name_axes(ax, "memory, GB", "largest batch that fits")
    fits = rows[rows["largest_batch"] > 0]
    drawn = [name for name in LOOKS if name in set(fits["variant"])]
    for name in drawn:
        mine = fits[fits["variant"] == name]
        ax.plot(mine["budget_gb"], mine["largest_batch"], **look(name))
    ticks(ax, rows["budget_gb"], "{:g}")
    # A budget that nothing fits is shown too.
    ax.set_xlim(0.9 * rows["budget_gb"].min(), rows["budget_gb"].max() / 0.9)
    return set(drawn)


def name_axes(ax: Axes, x: str, y: str) -> None:
    """Names below every panel, and beside the first."""
    ax.set_xlabel(x)
    place = ax.get_subplotspec()
    if place is not None and place.is_first_col():
        ax.set_ylabel(y)


def ticks(ax: Axes, values: Iterable[float], form: str) -> None:
    """A tick wherever something was measured."""
    ax.xaxis.set_major_locator(FixedLocator(sorted(set(values))))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form.format(value)))
    ax.xaxis.set_minor_locator(NullLocator())


if __name__ == "__main__":
    main()
