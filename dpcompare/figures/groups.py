"""Groups that are averaged before clipping, against larger clip norms."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import curve_handles
from dpcompare.figures.page import (
    CAPTION_COLUMNS,
    LEFT,
    LEGEND_ROW,
    PANEL,
    TITLE_LINE,
    page,
)
from dpcompare.figures.pair_names import name_pairs, pair_name
from dpcompare.figures.style import (
    NothingToDraw,
    curve_styles,
    figure_style,
    line_styles,
)
from dpcompare.figures.swept import (
    MetricPanel,
    best_by_validation,
    panel_numbers,
    swept_caption,
    swept_rows,
    validation_loss,
)
from dpcompare.metric_sets import METRICS
from dpcompare.summary import Records, summarize
from dpcompare.wording import privacy_sentences

HEIGHTS = (2.7, 2.7)  # inches, of the upper and the lower panel
FACTOR, BEST = "factor", "best pair"  # the panels
TRUE, SAME_NOISE = "at the same true epsilon", "at the same noise"
_EXCESS = 1e-6  # a guarantee that is larger by this share spends more than was asked
_MARGIN = 20.0  # points, so that texts beyond the outermost points find room


def groups(records: Records) -> tuple[Figure, pd.DataFrame]:
    """Larger clip norms and larger groups: one by one, and the best pair for every epsilon.

    What Figure 3 of arXiv 2211.11896 shows for AUC. Its panel (a) is at the epsilon of the study
    that is nearest to 1; a factor is how much larger clip norm times group size is than with the
    smallest of both. Panel (b) shows, for every epsilon, the pair with the lowest validation loss.

    Noise that is calibrated for single rows protects groups less than it says. Trials that ask for
    it state a larger epsilon than the study does; in panel (b) they make a curve of their own, at
    the epsilon that was asked for. Groups of one row are the same in both, so both choose among
    them as well.

    Args:
        records: of one study, with labels such as "larger groups (clip_norm=10 group_size=2)",
            where the curve names what grows; without a clip norm, only groups grow.

    Returns:
        The figure and exactly the numbers in it: one row per panel ("factor", "best pair"), curve,
        epsilon and pair with clip_norm, group_size, factor, guarantee_epsilon, mean,
        standard_error, low, high, n_seeds, n_candidates, the mean validation loss, `chosen`
        (whether panel (b) shows the pair), `above_axis` and `below_axis`.

    Raises:
        NothingToDraw: no label sweeps the group size, or none of those that do has a score at a
            finite epsilon.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    rows = _factors(swept_rows(summary, "group_size"))
    numbers = _numbers(summary, rows)
    with figure_style():
        return _compose(summary, rows, numbers), numbers


def _factors(rows: pd.DataFrame) -> pd.DataFrame:
    clip = rows.get("clip_norm", pd.Series(math.nan, rows.index))
    factor = (clip / clip.min()).fillna(1.0) * rows["group_size"] / rows["group_size"].min()
    return rows.assign(
        clip_norm=clip,
        factor=factor,
        more_spent=rows["guarantee_epsilon"] > rows["epsilon"] * (1 + _EXCESS),
    )


def _numbers(summary: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    name = str(summary["metric"].iloc[0])
    finite = rows[np.isfinite(rows["epsilon"])]
    scored = sorted(set(finite.loc[finite[name].notna(), "epsilon"]))
    if not scored:
        raise NothingToDraw(
            "nothing to draw against group_size: no trial with a finite epsilon has a score"
        )
    nearest = min(scored, key=lambda epsilon: abs(math.log(epsilon)))
    best = _best_pairs(finite)
    here = finite[finite["epsilon"] == nearest]
    pairs = set(best.index[best["epsilon"] == nearest])
    here = here.assign(line=here["curve"], chosen=here.index.isin(pairs))
    here = here.sort_values(["order", "factor", "clip_norm"], kind="stable")
    columns = ["clip_norm", "group_size", "factor", "guarantee_epsilon"]
    others = [key for key in rows.attrs["swept"] if key not in columns]
    columns += [*others, validation_loss(summary), "chosen"]
    panels = [
        panel_numbers(summary, shown, name, columns).assign(panel=panel)
        for panel, shown in ((FACTOR, here), (BEST, best))
    ]
    numbers = pd.concat(panels, ignore_index=True)
    return numbers[["panel", *numbers.columns.drop("panel")]]


def _best_pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """The best pair of every epsilon, among those of either accounting."""
    parts = []
    for line, members in (
        (TRUE, ~rows["more_spent"]),
        (SAME_NOISE, rows["more_spent"] | rows["group_size"].eq(1)),
    ):
        if line == SAME_NOISE and not rows["more_spent"].any():
            continue
        pairs = rows[members].assign(line=line)
        best = pairs[best_by_validation(pairs, ("epsilon",))]
        parts.append(best.assign(chosen=True).sort_values("epsilon"))
    return pd.concat(parts)


def _compose(summary: pd.DataFrame, rows: pd.DataFrame, numbers: pd.DataFrame) -> Figure:
    metric = str(summary["metric"].iloc[0])
    factor, best = (
        MetricPanel(FACTOR, metric, _panel(numbers, FACTOR), "factor", HEIGHTS[0], rings=True),
        MetricPanel(BEST, metric, _panel(numbers, BEST), "epsilon", HEIGHTS[1], margin=_MARGIN),
    )
    panels = (factor, best)
    rest = numbers[numbers["kind"] != "curve"]
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    shared = numbers["kind"].ne("curve") & numbers["panel"].eq(FACTOR)
    epsilon = factor.curves["epsilon"].iloc[0]
    variants, accountings = (list(dict.fromkeys(p.curves["label"])) for p in panels)
    styles = _styles(factor.curves, variants, accountings)
    headings = (
        f"(a) larger clip norms and groups, at epsilon {epsilon:g}",
        "(b) the best pair for each epsilon: group size G, clip norm C",
    )
    handles = [curve_handles(panel.curves, styles, looks) for panel in panels]
    above = [_heading_height(entries) for entries in handles]
    slots = [factor.slot(above[0], below=0.45), best.slot(above[1])]
    small_print = wrapped(_caption(summary, rows, numbers, epsilon), CAPTION_COLUMNS)
    title = str(summary["title"].iloc[0])
    references = curve_handles(numbers[shared], styles, looks)
    figure, axes = page(title, references, slots, small_print)
    for ax, panel, slot, text, entries, room in zip(
        axes, panels, slots, headings, handles, above, strict=True
    ):
        panel.draw(ax, styles, looks)
        _heading(ax, text, entries, (slot.above - room + 0.06) / slot.height)
    axes[0].set_xlabel("clip norm times group size, relative to the smallest (log scale)")
    axes[1].set_xlabel("epsilon asked for (log scale)")
    name_pairs(axes[1], best.curves, styles)
    return figure


def _panel(numbers: pd.DataFrame, name: str) -> pd.DataFrame:
    return numbers[numbers["panel"] == name]


def _styles(
    curves: pd.DataFrame, variants: Sequence[str], accountings: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """No look is used in both panels; several pairs of one factor are not joined by a line."""
    styles = curve_styles([*accountings, *variants])  # the first colors are dark enough for text
    for label, factors in curves.groupby("label")["factor"]:
        if factors.duplicated().any():
            styles[str(label)] |= {"linestyle": "none"}
    return styles


def _columns(handles: Sequence[Line2D]) -> int:
    longest = max(len(str(handle.get_label())) for handle in handles)
    return max(1, min(3, 104 // (longest + 9)))


def _heading_height(handles: Sequence[Line2D]) -> float:
    """Inches of a heading with the legend of its panel."""
    return TITLE_LINE + LEGEND_ROW * -(-len(handles) // _columns(handles)) + 0.1


def _heading(ax: Axes, text: str, handles: Sequence[Line2D], up: float) -> None:
    """A heading with a legend over the axes, from the left of the page on.

    Args:
        ax: the axes.
        text: of the heading.
        handles: of the legend.
        up: what marks take above the axes, as a share of their height.
    """
    ax.legend(
        handles=handles,
        title=text,
        alignment="left",
        title_fontproperties={"size": 9, "weight": "bold"},
        loc="lower left",
        bbox_to_anchor=((0.12 - LEFT) * 72 / PANEL, 1 + up),
        ncols=_columns(handles),
        frameon=False,
        borderpad=0,
        borderaxespad=0,
        handlelength=3.2,
        labelspacing=0.35,
    )


def _caption(
    summary: pd.DataFrame, rows: pd.DataFrame, numbers: pd.DataFrame, epsilon: float
) -> list[str]:
    loss = METRICS[validation_loss(summary).removeprefix("validation_")].title
    curves = numbers[numbers["kind"] == "curve"]
    remarks = [
        "Gradients are averaged over groups of G rows, and the averages clipped to norm C. A "
        f"factor is relative to {_smallest(rows)}.",
        f"(b) shows the pair with the lowest mean validation {loss}; rings in (a) are these pairs "
        f"at epsilon {epsilon:g}. Epsilon does not count this choice.",
    ]
    if _several_of_a_factor(curves):
        remarks.append("Pairs of one curve with the same factor are not joined by a line.")
    remarks += _beyond(curves[curves["panel"] == BEST])
    if (infinite := rows[np.isinf(rows["epsilon"])]).size:
        names = ", ".join(dict.fromkeys(infinite["curve"]))
        remarks.append(f"Not drawn, epsilon is infinite: {names} with swept values.")
    return swept_caption(summary, rows, remarks, privacy=_privacy(summary, numbers))


def _smallest(rows: pd.DataFrame) -> str:
    size = f"G={rows['group_size'].min():g}"
    clip = rows["clip_norm"].min()
    return size if math.isnan(clip) else f"{size} and C={clip:g}"


def _several_of_a_factor(curves: pd.DataFrame) -> bool:
    on_factor = curves[curves["panel"] == FACTOR]
    return bool(on_factor.duplicated(["label", "factor"]).any())


def _beyond(curves: pd.DataFrame) -> list[str]:
    """The pairs of points that (b) has no room for."""
    outside = curves[curves["above_axis"] | curves["below_axis"]]
    pairs = [
        f"epsilon {row['epsilon']:g} {row['label']} {pair_name(row, ' ')}"
        for _, row in outside.iterrows()
    ]
    return [f"Beyond the axis in (b): {'; '.join(pairs)}."] if pairs else []


def _privacy(summary: pd.DataFrame, numbers: pd.DataFrame) -> list[str]:
    """What epsilon protects, and what groups spend where the noise is that of single rows."""
    asked = summary[["guarantee_epsilon", "epsilon"]].min(axis=1)
    known = summary["guarantee_epsilon"].notna()
    named = summary.assign(label=summary["curve"], guarantee_epsilon=asked.where(known, math.nan))
    sentences = privacy_sentences(named, with_relations=False)
    spent = numbers[numbers["guarantee_epsilon"] > numbers["epsilon"] * (1 + _EXCESS)]
    if spent.empty:
        return sentences
    names = ", ".join(dict.fromkeys(spent["curve"]))
    spans = [
        f"in ({letter}) {_spent(spent[spent['panel'] == panel])}"
        for letter, panel in (("a", FACTOR), ("b", BEST))
        if panel in set(spent["panel"])
    ]
    return [
        *sentences,
        f"{names}: more is spent than asked, as the noise is that of single rows; "
        f"{'; '.join(spans)}.",
    ]


def _spent(rows: pd.DataFrame) -> str:
    return ", ".join(
        f"{asked:g}→{_rounded(given)} for G={size:g}"
        for asked, given, size in dict.fromkeys(
            zip(rows["epsilon"], rows["guarantee_epsilon"], rows["group_size"], strict=True)
        )
    )


def _rounded(epsilon: float) -> str:
    return f"{epsilon:.3g}" if epsilon < 1000 else f"{epsilon:,.0f}"
