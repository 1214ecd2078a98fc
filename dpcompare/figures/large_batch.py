"""The batch size: a metric and the noise on the mean gradient, one curve per epsilon."""

import math
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from dpcompare.figures.axes import ROW, log_axis, round_numbers
from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import curve_handles, draw_curve
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import figure_style, line_styles
from dpcompare.figures.swept import (
    MetricPanel,
    epsilon_styles,
    panel_numbers,
    swept_caption,
    swept_rows,
)
from dpcompare.summary import Records, summarize

HEIGHTS = (2.9, 2.1)  # inches, of the metric and of the noise
NOISE = "noise_on_mean"
_NOISE_TITLE = "noise on the mean gradient\n(standard deviation, log scale)"
_NOISE = (
    "Noise on the mean gradient: the standard deviation of the noise on each of its entries, which "
    "is noise multiplier times clip norm over batch size."
)
_EXTENT = 2.0  # the least factor from the noise in the middle to the ends of its axis


def large_batch(records: Records) -> tuple[Figure, pd.DataFrame]:
    """The study's metric against the batch size, and below it the noise that explains it.

    What Table 3 of arXiv 2211.11896 shows for AUC. Epochs stand below each batch size.

    Args:
        records: of one study, with labels such as "dp-sgd (batch_size=8192 epochs=32)"; labels
            that sweep group_size as well are left out.

    Returns:
        The figure and exactly the numbers in it: one row per panel, curve, epsilon and batch size
        with epochs, noise_multiplier, noise_on_mean, mean, standard_error, low, high, n_seeds,
        n_candidates, `above_axis` and `below_axis`. In the panel "noise_on_mean" the mean is that
        standard deviation.

    Raises:
        NothingToDraw: no label sweeps the batch size, or none of those that do has a score.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    rows = swept_rows(summary, "batch_size", but_not="group_size")
    rows = rows.assign(epochs=_epochs(rows))
    numbers = _numbers(summary, rows)
    with figure_style():
        return _compose(summary, rows, numbers), numbers


def _epochs(rows: pd.DataFrame) -> pd.Series:
    """As swept, or passes over the training rows that the steps make."""
    made = rows["steps"].astype(float) * rows["batch_size"] / rows["examples"].astype(float)
    return rows["epochs"].fillna(made) if "epochs" in rows else made


def _numbers(summary: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    name = str(summary["metric"].iloc[0])
    others = [key for key in rows.attrs["swept"] if key not in ("batch_size", "epochs")]
    columns = ["batch_size", "epochs", *others, "noise_multiplier", NOISE]
    numbers = panel_numbers(summary, rows, name, columns).assign(panel=name)
    noisy = numbers[numbers["kind"].eq("curve") & numbers[NOISE].gt(0)]
    noisy = noisy.assign(panel=NOISE, mean=noisy[NOISE], above_axis=False, below_axis=False)
    noisy[["standard_error", "low", "high"]] = math.nan
    numbers = pd.concat([part for part in (numbers, noisy) if not part.empty], ignore_index=True)
    return numbers[["panel", *numbers.columns.drop("panel")]]


def _compose(summary: pd.DataFrame, rows: pd.DataFrame, numbers: pd.DataFrame) -> Figure:
    styles = epsilon_styles(rows)
    noisy = numbers[numbers["panel"] == NOISE]
    scored = numbers[numbers["panel"] != NOISE]
    rest = scored[scored["kind"] != "curve"]
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    name = str(scored["panel"].iloc[0])
    panel = MetricPanel(name, name, scored, "batch_size", HEIGHTS[0])
    line = ROW / 72  # inches for the epochs
    slots = [panel.slot(below=line)]
    if not noisy.empty:
        slots = [panel.slot(), Slot(NOISE, HEIGHTS[1], below=line)]
    remarks = [_NOISE] * (not noisy.empty)
    small_print = wrapped(swept_caption(summary, rows, remarks), CAPTION_COLUMNS)
    title = str(summary["title"].iloc[0])
    figure, axes = page(title, curve_handles(scored, styles, looks), slots, small_print)
    panel.draw(axes[0], styles, looks)
    if not noisy.empty:
        _draw_noise(axes[1], noisy, sorted(set(panel.curves["batch_size"])), styles)
    _epoch_ticks(axes[-1], panel.curves)
    for ax in axes:
        ax.tick_params(labelbottom=ax is axes[-1])
    axes[-1].set_xlabel("batch size (log scale), and below it epochs")
    return figure


def _draw_noise(
    ax: Axes, noisy: pd.DataFrame, sizes: list[float], styles: dict[str, dict[str, Any]]
) -> None:
    for label, curve in noisy.groupby("label", sort=False):
        draw_curve(ax, str(label), curve, "batch_size", styles[str(label)])
    log_axis(ax, sizes, PANEL)
    low, high = float(noisy["mean"].min()), float(noisy["mean"].max())
    spread = max(1.25, _EXTENT / math.sqrt(high / low))
    low, high = low / spread, high * spread
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ticks = [tick for tick in round_numbers(low, high) if low <= tick <= high]
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_major_formatter(FixedFormatter([f"{tick:g}" for tick in ticks]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel(_NOISE_TITLE)


def _epoch_ticks(ax: Axes, curves: pd.DataFrame) -> None:
    """Batch sizes as tick labels, and below each the epochs of all curves there."""
    sizes = sorted(set(curves["batch_size"]))
    shown = {size: f"{size:,.0f}" for size in sizes}
    epochs = {}
    for size in sizes:
        found = sorted(set(curves.loc[curves["batch_size"] == size, "epochs"].dropna()))
        epochs[size] = ", ".join(dict.fromkeys(map(_epochs_text, found)))

    def longer(size: float) -> str:
        return max(shown[size], epochs[size], key=len)

    log_axis(ax, sizes, PANEL, form=longer)
    kept = [bool(text) for text in ax.xaxis.get_major_formatter().seq]  # type: ignore[attr-defined]
    texts = [f"{shown[s]}\n{epochs[s]}" if k else "" for s, k in zip(sizes, kept, strict=True)]
    ax.xaxis.set_major_formatter(FixedFormatter(texts))


def _epochs_text(epochs: float) -> str:
    """Whole steps make 64.1 epochs of 64: too many digits would show it."""
    return f"{epochs:,.0f}" if epochs >= 10 else f"{epochs:.2g}"
