"""Attack power: what epsilons of different kinds let an attacker know, on one axis."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

from dpcompare.figures.account import gap_sentences
from dpcompare.figures.axes import SMALL, log_axis, log_places, round_numbers
from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import CURVE_LOOK
from dpcompare.figures.page import CAPTION_COLUMNS, PANEL, Slot, page
from dpcompare.figures.style import INK, NothingToDraw, curve_styles, figure_style
from dpcompare.summary import Records, is_swept, summarize
from dpcompare.wording import UNIT_NOTE, privacy_sentences

HEIGHT = 2.6  # inches
ROW_LOOK: dict[str, Any] = {"linestyle": ":", "linewidth": 1.3, "marker": "none"}
LINES = {"no protection": 1.0, "guessing": None}  # None: at the false positive rate
LINE_LOOK: dict[str, Any] = {"color": "0.45", "linewidth": 1.0, "linestyle": "-.", "zorder": 1}


def attack_power(records: Records) -> tuple[Figure, pd.DataFrame]:
    """True positive rates that no attack exceeds, against epsilon; a panel per false positive rate.

    Lines with markers: which of two labels a row had. Dotted: a whole row, under the relation of
    the curve's own guarantee, for mechanisms that protect rows. Curves without any difference are
    one line. See :mod:`dpcompare.attack_power`.

    Args:
        records: of one study, trained or accounted only.

    Returns:
        The figure and the numbers in it, as :func:`dpcompare.attack_power.of_records` returns them.

    Raises:
        NothingToDraw: no trial with a finite epsilon states a guarantee.
        DpcompareError: there are no records.
    """
    from dpcompare import attack_power as power  # dp-accounting takes a second to import
    from dpcompare import attack_words as words

    summary = summarize(records)
    numbers = power.of_records(records)
    if numbers.empty:
        raise NothingToDraw(
            "no attack power to draw: no trial with a finite epsilon states a guarantee"
        )
    places = set(zip(numbers["label"], numbers["epsilon"], strict=True))
    drawn = pd.Series(
        [place in places for place in zip(summary["label"], summary["epsilon"], strict=True)],
        summary.index,
    )
    lines = words.equal_curves(numbers)
    curves = summary.assign(label=summary["curve"]) if is_swept(summary) else summary
    paragraphs = [
        words.MEANING,
        words.example_sentence(numbers),
        " ".join(words.relation_sentences(numbers)),
        *words.equal_sentences(lines, "line"),
        *(
            f"Hollow markers: {text[0].lower()}{text[1:]}"
            for text in words.looser_sentences(numbers)
        ),
        "Equal epsilon is not equal privacy. "
        + " ".join(privacy_sentences(curves[drawn], with_relations=False))
        + f" {UNIT_NOTE}",
        *gap_sentences(summary, drawn, "a guarantee"),
    ]
    with figure_style():
        title = str(summary["title"].iloc[0])
        names = {first: words.short_name(labels) for first, labels in lines.items()}
        return _compose(title, numbers, names, wrapped(paragraphs, CAPTION_COLUMNS)), numbers


def _compose(
    title: str, numbers: pd.DataFrame, names: dict[str, str], small_print: list[str]
) -> Figure:
    styles = curve_styles(list(names))
    handles = [
        Line2D([], [], label=name, **CURVE_LOOK, **styles[first]) for first, name in names.items()
    ]
    if numbers["relation"].isin(("zero-out", "add-or-remove-one", "replace-one")).any():
        handles.append(Line2D([], [], label="the same for a whole row", color=INK, **ROW_LOOK))
    rates = sorted(set(numbers["fpr"]), reverse=True)
    slots = [Slot(f"{rate:g}", HEIGHT) for rate in rates]
    figure, panels = page(title, handles, slots, small_print)
    across = sorted(set(numbers["epsilon"]))
    for ax, rate in zip(panels, rates, strict=True):
        _finish(ax, rate, across)
        for first in names:
            of_label = numbers["label"].eq(first) & numbers["fpr"].eq(rate)
            _draw(ax, numbers[of_label].sort_values("epsilon"), styles[first])
        ax.tick_params(labelbottom=ax is panels[-1])
    panels[-1].set_xlabel("epsilon (log scale; what it protects is stated per curve below)")
    return figure


def _draw(ax: Axes, rows: pd.DataFrame, style: dict[str, Any]) -> None:
    """A label flip as a curve; a whole row dotted, where rows are protected at all."""
    whole = rows[rows["attack"].eq("whole row") & rows["relation"].ne("none")]
    label = str(rows["label"].iloc[0])
    if not whole.empty:
        look = ROW_LOOK | {"color": style["color"]}
        ax.plot(whole["epsilon"], whole["tpr"], label=f"{label}, whole row", **look)
    flips = rows[rows["attack"] == "label flip"]
    ax.plot(flips["epsilon"], flips["tpr"], label=label, **(CURVE_LOOK | style))
    looser = flips[~flips["from_releases"].astype(bool)]
    hollow = {"linestyle": "none", "marker": style["marker"], "markersize": 4.5, "zorder": 3}
    colors = {"markerfacecolor": "white", "markeredgecolor": style["color"]}
    ax.plot(looser["epsilon"], looser["tpr"], label="_looser", **hollow, **colors)


def _finish(ax: Axes, rate: float, across: list[float]) -> None:
    """Log axes in percent, and the lines between which every bound lies."""
    log_axis(ax, across, PANEL)
    (low, high), _ = log_places([rate, 1.0], HEIGHT * 72)
    ticks = [tick for tick in round_numbers(rate, 1.0) if low <= tick <= high]
    ax.set_yscale("log")
    ax.set_ylim(low, high)
    ax.yaxis.set_major_locator(FixedLocator(ticks))
    ax.yaxis.set_major_formatter(FixedFormatter([f"{100 * tick:g}%" for tick in ticks]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel(f"labels recognized at most (TPR),\nif wrong in {100 * rate:g}% (FPR, log scale)")
    for name, value in LINES.items():
        place = rate if value is None else value
        ax.axhline(place, **LINE_LOOK)
        ax.annotate(
            f"{name}: {100 * place:g}%",
            xy=(1, place),
            xycoords=ax.get_yaxis_transform(),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=INK,
            annotation_clip=False,
        )
