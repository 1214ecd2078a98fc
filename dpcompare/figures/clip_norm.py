"""The clip norm: bias against variance, one curve per epsilon."""

import pandas as pd
from matplotlib.figure import Figure

from dpcompare.figures.caption import wrapped
from dpcompare.figures.curves import curve_handles
from dpcompare.figures.page import CAPTION_COLUMNS, page
from dpcompare.figures.style import figure_style, line_styles
from dpcompare.figures.swept import (
    MetricPanel,
    best_by_validation,
    epsilon_styles,
    panel_numbers,
    ring_sentence,
    swept_caption,
    swept_rows,
    validation_loss,
)
from dpcompare.summary import Records, summarize

HEIGHTS = (2.9, 2.1)  # inches, of the upper and the lower panel
_TRADE = (
    "Gradients longer than the clip norm are shortened to it, which biases their mean; the noise "
    "grows with the clip norm."
)


def clip_norm(records: Records) -> tuple[Figure, pd.DataFrame]:
    """The study's metric and the calibration against the clip norm, one curve per epsilon.

    What Table 2 of arXiv 2211.11896 shows for AUC. A ring marks the clip norm with the lowest
    validation loss.

    Args:
        records: of one study, with labels such as "dp-sgd (clip_norm=10)"; labels that sweep
            group_size as well are left to :func:`dpcompare.figures.groups.groups`.

    Returns:
        The figure and exactly the numbers in it: one row per panel, curve, epsilon and clip norm
        with mean, standard_error, low, high, n_seeds, n_candidates, the mean validation loss,
        `chosen` (whether it is the lowest of its curve and epsilon), `above_axis` and
        `below_axis`.

    Raises:
        NothingToDraw: no label sweeps the clip norm, or none of those that do has a score.
        DpcompareError: there are no records.
    """
    summary = summarize(records)
    rows = swept_rows(summary, "clip_norm", but_not="group_size")
    rows = rows.assign(chosen=best_by_validation(rows, ("curve", "epsilon")))
    numbers = _numbers(summary, rows)
    with figure_style():
        return _compose(summary, rows, numbers), numbers


def _numbers(summary: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    names = dict.fromkeys((str(summary["metric"].iloc[0]), "calibration"))
    columns = [*rows.attrs["swept"], validation_loss(summary), "chosen"]
    panels = [panel_numbers(summary, rows, name, columns).assign(panel=name) for name in names]
    numbers = pd.concat(panels, ignore_index=True)
    return numbers[["panel", *numbers.columns.drop("panel")]]


def _compose(summary: pd.DataFrame, rows: pd.DataFrame, numbers: pd.DataFrame) -> Figure:
    styles = epsilon_styles(rows)
    rest = numbers[numbers["kind"] != "curve"]
    looks = line_styles(zip(rest["kind"], rest["label"], strict=True))
    names = list(dict.fromkeys(numbers["panel"]))
    panels = [
        MetricPanel(name, name, numbers[numbers["panel"] == name], "clip_norm", height, rings=True)
        for name, height in zip(names, HEIGHTS, strict=False)
    ]
    remarks = [_TRADE, ring_sentence(rows, "clip_norm", "clip norm")]
    small_print = wrapped(swept_caption(summary, rows, remarks), CAPTION_COLUMNS)
    title = str(summary["title"].iloc[0])
    handles = curve_handles(numbers, styles, looks)
    figure, axes = page(title, handles, [panel.slot() for panel in panels], small_print)
    for ax, panel in zip(axes, panels, strict=True):
        panel.draw(ax, styles, looks)
        ax.tick_params(labelbottom=ax is axes[-1])
    axes[-1].set_xlabel("clip norm (log scale)")
    return figure
