"""Figures over settings that a study sweeps: their values, one look per epsilon, one panel."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from dpcompare.figures.axes import horizontal_lines, log_axis, value_label, value_limits
from dpcompare.figures.beyond import SIDES, Side, draw_marks, marks, room, with_beyond
from dpcompare.figures.caption import gaps, points_sentence
from dpcompare.figures.curves import draw_curve
from dpcompare.figures.numbers import lines, scores
from dpcompare.figures.page import PANEL, Slot
from dpcompare.figures.style import DASHES, INK, MARKERS, NothingToDraw
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.sweeps import split_label
from dpcompare.wording import UNIT_NOTE, privacy_sentences, remark_sentences, tuning_sentence

_PALETTE, _LIGHTEST = "plasma", 0.6  # what follows in this palette is too pale for a line on white
_RING = 11.0  # points


def swept_numbers(label: str) -> dict[str, float]:
    """The swept values of a label that are positive numbers, which a log axis can show."""
    found = {}
    for key, text in split_label(label)[1].items():
        try:
            value = float(text)
        except ValueError:
            continue
        if 0 < value < math.inf:
            found[key] = value
    return found


def swept_rows(summary: pd.DataFrame, key: str, but_not: str | None = None) -> pd.DataFrame:
    """The rows of a summary whose labels sweep a setting.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        key: the setting.
        but_not: leave out labels that sweep this one as well.

    Returns:
        The rows by curve, epsilon and value, with a column of numbers for every setting that is
        swept with `key`, and a column `line`: the name of the curve at that epsilon. Attribute
        ``attrs["swept"]`` lists the settings, `key` first.

    Raises:
        NothingToDraw: no label sweeps the setting, or none of those that do has a score.
    """
    values = [swept_numbers(label) for label in summary["label"]]
    drawn = [key in found and but_not not in found for found in values]
    rows = summary[drawn]
    if rows.empty:
        raise NothingToDraw(
            f'nothing to draw against {key}: no label sweeps it, as "dp-sgd ({key}=8)" would; let '
            f"an entry of the study walk through values: sweep = {{ {key} = [...] }}"
        )
    if rows[str(summary["metric"].iloc[0])].isna().all():
        raise NothingToDraw(f"nothing to draw against {key}: no trial that sweeps it has a score")
    found = [value for value, here in zip(values, drawn, strict=True) if here]
    keys = [key, *sorted({other for value in found for other in value} - {key})]
    rows = rows.assign(**{k: [value.get(k, math.nan) for value in found] for k in keys})
    rows = rows.assign(line=_line_names(rows), order=pd.factorize(rows["curve"])[0])
    rows = rows.sort_values(["order", "epsilon", *keys], kind="stable")
    rows.attrs["swept"] = keys
    return rows


def _line_names(rows: pd.DataFrame) -> list[str]:
    """Curve and epsilon; epsilon alone where all curves with a finite one are the same."""
    several = rows.loc[np.isfinite(rows["epsilon"]), "curve"].nunique() > 1
    names = []
    for curve, epsilon in zip(rows["curve"], rows["epsilon"], strict=True):
        if math.isinf(epsilon):
            names.append(f"{curve} (epsilon = inf)")
        else:
            names.append(f"{curve}, epsilon {epsilon:g}" if several else f"epsilon {epsilon:g}")
    return names


def epsilon_styles(rows: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """How the line of each epsilon looks: the larger epsilon, the darker, up to black for infinity.

    Every epsilon has a marker of its own as well. Several curves differ in their dashes; those of
    one curve differ from epsilon to epsilon.

    Args:
        rows: of :func:`swept_rows`.
    """
    finite = sorted(set(rows.loc[np.isfinite(rows["epsilon"]), "epsilon"]))
    palette = sns.color_palette(_PALETTE, as_cmap=True)
    shades = palette(np.linspace(_LIGHTEST, 0, len(finite)) if len(finite) > 1 else [0.3])
    colors = {epsilon: tuple(shade) for epsilon, shade in zip(finite, shades, strict=False)}
    epsilons, curves = [*finite, math.inf], list(dict.fromkeys(rows["curve"]))
    markers = dict(zip(epsilons, cycle(MARKERS), strict=False))
    varied = curves if len(curves) > 1 else epsilons
    dashes = dict(zip(varied, cycle(DASHES), strict=False))
    return {
        line: {
            "color": colors.get(epsilon, INK),
            "marker": markers[epsilon],
            "linestyle": dashes[curve if len(curves) > 1 else epsilon],
        }
        for line, curve, epsilon in zip(rows["line"], rows["curve"], rows["epsilon"], strict=True)
    }


def validation_loss(summary: pd.DataFrame) -> str:
    """The column of a summary by which settings are chosen."""
    return f"validation_{metric_set(summary['task'].iloc[0]).selection}"


def best_by_validation(rows: pd.DataFrame, by: Sequence[str]) -> pd.Series:
    """Which row of each group has the lowest mean validation loss; test metrics never select.

    As for candidates (:func:`dpcompare.summary.summarize`), only rows with the most seeds scored
    take part. A group without any validation loss has no best row.

    Args:
        rows: of a summary.
        by: columns that make the groups.

    Returns:
        Booleans, with the index of `rows`.
    """
    column = validation_loss(rows)
    loss, seeds = rows[column], rows[f"{column.removeprefix('validation_')}_n"]
    ranked = rows.assign(minus_seeds=-seeds, loss=loss)[loss.notna() & (seeds > 0)]
    ranked = ranked.sort_values([*by, "minus_seeds", "loss"], kind="stable")
    best = ranked.drop_duplicates(list(by)).index
    return pd.Series(rows.index.isin(best), index=rows.index)


def panel_numbers(
    summary: pd.DataFrame, rows: pd.DataFrame, name: str, columns: Sequence[str]
) -> pd.DataFrame:
    """Everything in one panel as a tidy frame; curves first, then horizontal lines.

    Args:
        summary: of the study.
        rows: of it, those on curves, with `line`.
        name: the metric.
        columns: of `rows` to keep, as x is.
    """
    curves = scores(rows, name).assign(kind="curve", label=rows["line"], curve=rows["curve"])
    curves = curves.assign(**{column: rows[column] for column in columns})
    flat = summary[np.isinf(summary["epsilon"]) & ~summary["label"].isin(rows["label"])]
    flat = flat[flat[name].notna()]
    reference = scores(flat, name).assign(kind="reference", curve=flat["curve"])
    found = [part for part in (curves, reference, lines(rows, name)) if not part.empty]
    numbers = pd.concat(found, ignore_index=True)
    first = ["kind", "label", "curve", "epsilon", *columns]
    numbers = numbers[[*first, *(column for column in numbers if column not in first)]]
    return with_beyond(numbers, METRICS[name])


@dataclass(frozen=True)
class MetricPanel:
    """A panel with a metric against a setting, on a log axis.

    Attributes:
        name: of its axes.
        metric: a key of METRICS.
        rows: of :func:`panel_numbers`.
        x: the column of the horizontal axis.
        height: of the axes, in inches.
        rings: whether rows where the column `chosen` is true get a ring.
        margin: points kept free above and below all values, where none lies beyond the axis.
    """

    name: str
    metric: str
    rows: pd.DataFrame
    x: str
    height: float
    rings: bool = False
    margin: float = 0.0

    @property
    def curves(self) -> pd.DataFrame:
        """The rows that are no horizontal lines."""
        return self.rows[self.rows["kind"] == "curve"]

    def marks(self, side: Side) -> pd.DataFrame:
        """What is written beyond the axis, see :func:`dpcompare.figures.beyond.marks`."""
        return marks(self.rows, METRICS[self.metric], side, self.x, PANEL)

    def slot(self, above: float = 0.0, below: float = 0.0) -> Slot:
        """The room of the panel, with so many inches kept free besides marks."""
        over, under = room(self.marks("above")), room(self.marks("below"))
        return Slot(self.name, self.height, over + above, under + below)

    def draw(
        self,
        ax: Axes,
        styles: dict[str, dict[str, Any]],
        looks: dict[tuple[str, str], dict[str, Any]],
    ) -> None:
        """Draw curves, horizontal lines, marks and rings, and set up both axes."""
        metric, curves = METRICS[self.metric], self.curves
        ax.set_ylim(*self._limits())
        ax.set_ylabel(value_label(metric))
        horizontal_lines(ax, self.rows[self.rows["kind"] != "curve"], looks, self.height * 72)
        for label, curve in curves.groupby("label", sort=False):
            if curve["mean"].notna().any():
                draw_curve(ax, str(label), curve, self.x, styles[str(label)])
        log_axis(ax, sorted(set(curves[self.x])), PANEL)
        for side in SIDES:
            draw_marks(ax, self.marks(side), side, self.x, styles)
        if self.rings:
            self._draw_rings(ax, styles)

    def _limits(self) -> tuple[float, float]:
        low, high = value_limits(self.rows, METRICS[self.metric])
        more = (high - low) * self.margin / (self.height * 72 - 2 * self.margin)
        below, above = (self.rows[f"{side}_axis"].any() for side in ("below", "above"))
        return low - more * (not below), high + more * (not above)

    def _draw_rings(self, ax: Axes, styles: dict[str, dict[str, Any]]) -> None:
        for label, chosen in self.curves[self.curves["chosen"].eq(True)].groupby(
            "label", sort=False
        ):
            ax.plot(
                chosen[self.x],
                chosen["mean"],
                linestyle="none",
                marker="o",
                markersize=_RING,
                markerfacecolor="none",
                markeredgecolor=styles[str(label)]["color"],
                markeredgewidth=1.2,
                zorder=4,
            )


def ring_sentence(rows: pd.DataFrame, key: str, title: str) -> str:
    """What was chosen by validation loss, line by line, and that epsilon does not count it.

    Args:
        rows: of :func:`swept_rows` with `chosen`.
        key: the setting.
        title: its name.
    """
    loss = METRICS[validation_loss(rows).removeprefix("validation_")].title
    chosen = rows[rows["chosen"]]
    if chosen.empty:
        return f"No {title} is ringed: no trial has a validation {loss}."
    pairs = ", ".join(
        f"{v:g} for {line}" for line, v in zip(chosen["line"], chosen[key], strict=True)
    )
    return (
        f"Rings: the {title} with the lowest mean validation {loss} ({pairs}); epsilon does not "
        "count this choice."
    )


def swept_caption(
    summary: pd.DataFrame,
    rows: pd.DataFrame,
    remarks: Sequence[str],
    parts: str = "Points, bands and bars",
    privacy: Sequence[str] | None = None,
) -> list[str]:
    """The paragraphs below a figure over a swept setting.

    Args:
        summary: of the study.
        rows: of it, those that sweep the setting.
        remarks: what this figure has to say besides.
        parts: what it draws.
        privacy: what epsilon protects, where that takes more than a sentence per curve.
    """
    of_curves = summary.assign(label=summary["curve"])
    if privacy is None:
        privacy = privacy_sentences(of_curves, with_relations=False)
    paragraphs = [
        points_sentence(summary, parts),
        *remarks,
        f"{' '.join(privacy)} {UNIT_NOTE}",
        tuning_sentence(of_curves, with_choices=False),
    ]
    others = ~summary["label"].isin(rows["label"]) & np.isfinite(summary["epsilon"])
    if others.any():
        names = ", ".join(dict.fromkeys(summary.loc[others, "label"]))
        paragraphs.append(f"Not drawn, they do not sweep {rows.attrs['swept'][0]}: {names}.")
    return paragraphs + _gaps(summary)


def _gaps(summary: pd.DataFrame) -> list[str]:
    """Gaps with the values of the sweep, but notes on the trials once per curve."""
    notes = summary.assign(label=summary["curve"], missing="")
    return list(dict.fromkeys(gaps(summary.assign(notes="")) + remark_sentences(notes)))
