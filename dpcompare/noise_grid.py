"""The terminal table of a study that trains nothing: noise and guarantees instead of metrics."""

import math
from collections.abc import Sequence

import pandas as pd

from dpcompare.privacy import ROW_RELATIONS
from dpcompare.summary import relation_column
from dpcompare.sweeps import split_label, swept_label

_GAP = 2
_COLUMNS = {
    "epsilon": ("", "epsilon"),
    "batch_size": ("batch", "size"),
    "steps": ("", "steps"),
    "noise_multiplier": ("noise", "multiplier"),
    "noise_on_mean": ("noise", "on mean"),
    "candidate_epsilon": ("one", "candidate"),
    "shuffled_epsilon_at_least": ("shuffled,", "at least"),
}
_RELATIONS = {
    "zero-out": "zero-out",
    "add-or-remove-one": "add/remove",
    "replace-one": "replace",
}
COLUMN_MEANINGS = {
    "noise_multiplier": "noise multiplier: standard deviation of the noise on the sum of a batch, "
    "in units of its sensitivity",
    "noise_on_mean": "noise on mean: standard deviation of the noise on each entry of the mean "
    "gradient, in units of the gradient",
    "candidate_epsilon": "one candidate: the epsilon of training one candidate, which a choice "
    "that is not counted would claim",
    "shuffled_epsilon_at_least": "shuffled, at least: what the same noise is proven to cost where "
    "batches are shuffled, not drawn",
}


def noise_legend(summary: pd.DataFrame) -> list[str]:
    """What the columns mean, a line each."""
    return [COLUMN_MEANINGS[name] for name in _shown(summary) if name in COLUMN_MEANINGS]


def _shown(summary: pd.DataFrame) -> list[str]:
    """The columns that have a value."""
    return [name for name in _COLUMNS if summary[name].notna().any()]


def noise_grid(summary: pd.DataFrame, width: int) -> str:
    """One line per curve and epsilon, with an empty line between curves.

    Args:
        summary: from :func:`dpcompare.summary.summarize`, of a study of kind "account".
        width: the most columns a line may have; labels are cut to what is left.
    """
    names = _shown(summary)
    relations = [r for r in ROW_RELATIONS if summary[relation_column(r)].notna().any()]
    heads = [("", "curve"), *(_COLUMNS[name] for name in names)]
    heads += [("epsilon,", _RELATIONS[relation]) for relation in relations]
    groups = []
    for _, rows in summary.groupby("curve", sort=False):
        groups.append([_cells(row, names, relations) for _, row in rows.iterrows()])
    lines = [list(line) for line in zip(*heads, strict=True)]
    everything = [*lines, *(cells for group in groups for cells in group)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    widths[0] = min(widths[0], max(12, width - sum(widths[1:]) - _GAP * (len(widths) - 1)))
    titles = "\n".join(_line(cells, widths) for cells in lines)
    dashes = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    blocks = ["\n".join(_line(cells, widths) for cells in group) for group in groups]
    return f"{titles}\n{dashes}\n" + "\n\n".join(blocks)


def _cells(row: pd.Series, names: list[str], relations: Sequence[str]) -> list[str]:
    if row["n_seeds"] == 0:
        absence = "failed" if row["n_failed"] else "missing"
        empty = [""] * (len(names) + len(relations) - 1)
        return [_curve(row), f"{row['epsilon']:g} {absence}", *empty]
    values = [row[name] for name in names] + [row[relation_column(r)] for r in relations]
    return [_curve(row), *map(_text, values)]


def _curve(row: pd.Series) -> str:
    """The label without the swept values that have a column of their own."""
    curve, swept = split_label(row["label"])
    others = {key: value for key, value in swept.items() if key not in _COLUMNS}
    return swept_label(curve, others) if others else curve


def _text(value: float) -> str:
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 1000 and value == int(value) else f"{value:.4g}"


def _line(cells: list[str], widths: list[int]) -> str:
    label = cells[0]
    if len(label) > widths[0]:
        label = label[: widths[0] - 1] + "…"
    first, *rest = [label.ljust(widths[0])], *cells[1:]
    aligned = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
    return (" " * _GAP).join([*first, *aligned]).rstrip()
