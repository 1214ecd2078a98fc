"""What figures of accounted trials share: their curves, log axes, colors and caption sentences.

Such figures draw numbers that follow from the accountant alone, so a trial need not train anything.
"""

import math
from collections.abc import Callable, Iterable

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator, NullLocator

from dpcompare.figures.axes import round_numbers
from dpcompare.sweeps import split_label
from dpcompare.table_grid import shown_metrics
from dpcompare.wording import UNIT_NOTE, failure_counts, remark_sentences

MARGIN = 0.06  # of a log axis, free beyond the outermost values
_SAMPLING = {"poisson": "accounted as Poisson-sampled", "shuffle": "shuffled"}


def sequential_colors(values: Iterable[float]) -> dict[float, str]:
    """A color per value, from dark for the smallest to light; also in grey."""
    ordered = sorted(set(values))
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.8, len(ordered)))
    return {value: to_hex(shade) for value, shade in zip(ordered, shades, strict=True)}


def curves_over(summary: pd.DataFrame, setting: str) -> pd.Series:
    """The curve of each row where `setting` is on the horizontal axis.

    A curve that would have two rows at one place is told apart by the other swept settings.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        setting: a column of it that may also be a swept setting, such as batch_size.
    """
    curves = summary["curve"].astype(str)
    finer = pd.Series([_without(label, setting) for label in summary["label"]], summary.index)
    for names in (finer, summary["label"]):
        twice = summary.assign(curve=curves).duplicated(["curve", setting, "epsilon"])
        curves = curves.mask(curves.isin(set(curves[twice])), names)
    return curves


def _without(label: str, setting: str) -> str:
    curve, values = split_label(label)
    rest = " ".join(f"{key}={value}" for key, value in values.items() if key != setting)
    return f"{curve} ({rest})" if rest else curve


def with_gaps(points: pd.DataFrame, column: str, places: Iterable[float]) -> pd.DataFrame:
    """Points in order of a column, with empty rows where a place has none: lines break there."""
    everywhere = pd.Index(sorted(set(places)), name=column)
    return points.set_index(column).reindex(everywhere).reset_index()


def log_limits(values: Iterable[float]) -> tuple[float, float]:
    """Limits of a log axis with room around all finite values above 0."""
    logs = [math.log10(value) for value in values if 0 < value < math.inf]
    margin = max(MARGIN * (max(logs) - min(logs)), 0.08)
    return 10 ** (min(logs) - margin), 10 ** (max(logs) + margin)


def log_value_axis(ax: Axes, limits: tuple[float, float]) -> None:
    """A vertical log axis with ticks at round numbers, closer ones where the range is short."""
    low, high = limits
    inside = [tick for tick in round_numbers(low, high) if low <= tick <= high]
    even = [float(tick) for tick in MaxNLocator(4).tick_values(low, high) if low <= tick <= high]
    ticks = inside if len(inside) > 2 else even
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_major_formatter(FixedFormatter([short_number(tick) for tick in ticks]))
    ax.yaxis.set_minor_locator(NullLocator())


def short_number(value: float) -> str:
    """A tick's number: plain where that is short."""
    if value == 0 or 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}"
    digits, exponent = f"{value:.1e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


def setting_sentences(drawn: pd.DataFrame) -> list[str]:
    """What was accounted: rows, and what epsilon protects, once for all curves that share it.

    Args:
        drawn: the rows of the summary behind the figure, with the curve of each.
    """
    sentences = ["Computed; nothing was trained."] if drawn["test_rows"].isna().all() else []
    settings = _by_text(drawn, _setting)
    for text, curves in settings.items():
        names = f"{', '.join(curves)}: " if len(settings) > 1 else ""
        sentences.append(f"{names}{text}.")
    accountants = _by_text(drawn, lambda row: str(row["accountant"]))
    each = [
        f"{name} for {', '.join(curves)}" if len(accountants) > 1 else name
        for name, curves in accountants.items()
    ]
    return [*sentences, f"Accountant: {'; '.join(each)}.", UNIT_NOTE]


def _by_text(drawn: pd.DataFrame, text: Callable[[pd.Series], str]) -> dict[str, list[str]]:
    """The curves of each text about their rows."""
    found: dict[str, list[str]] = {}
    for curve, rows in drawn.groupby("curve", sort=False):
        texts = dict.fromkeys(text(row) for _, row in rows.iterrows())
        found.setdefault("; ".join(texts), []).append(str(curve))
    return found


def _setting(row: pd.Series) -> str:
    return (
        f"{row['examples']:,.0f} training rows, {_SAMPLING[row['sampling']]}; epsilon "
        f"protects one {row['unit']} under {row['neighboring']}, delta {row['delta']:.2g}"
    )


def gap_sentences(summary: pd.DataFrame, drawn: pd.Series, what: str) -> list[str]:
    """What is not drawn and why, and the notes of the trials.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        drawn: which of its rows are in the figure.
        what: the values that the figure shows, as in "for lack of {what}".
    """
    private = summary["epsilon"] < math.inf
    public = list(dict.fromkeys(summary.loc[~private & ~drawn, "label"]))
    shown = set(summary.loc[drawn, "label"])
    nothing = dict.fromkeys(label for label in summary.loc[private, "label"] if label not in shown)
    explained = summary["n_failed"].gt(0) | summary["missing"].ne("")
    partly = summary[private & ~drawn & ~explained & summary["label"].isin(shown)]
    sentences = []
    if public:
        sentences.append(f"Not drawn, no privacy: {', '.join(public)}.")
    if nothing:
        sentences.append(f"Not drawn for lack of {what}: {', '.join(nothing)}.")
    for label, rows in partly.groupby("label", sort=False):
        places = ", ".join(f"{epsilon:g}" for epsilon in rows["epsilon"])
        sentences.append(f"Not drawn for lack of {what}: {label} at epsilon {places}.")
    if failures := failure_counts(summary):
        sentences.append(f"Failed: {'; '.join(failures)}; reasons in the table.")
    return sentences + _remarks(summary)


def _remarks(summary: pd.DataFrame) -> list[str]:
    """Remarks without those on metrics, where nothing was scored."""
    if summary["test_rows"].notna().any():
        return remark_sentences(summary)
    counts = {f"{name}_n": summary["n_seeds"] for name in shown_metrics(summary)}
    return remark_sentences(summary.assign(**counts))


def listed(values: Iterable[float]) -> str:
    """Numbers as they stand in a sentence."""
    return ", ".join(f"{value:g}" for value in values)
