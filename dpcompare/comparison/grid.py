"""The grid of numbers that a comparison prints."""

import math

import pandas as pd

from dpcompare.comparison.sides import NOISE
from dpcompare.tables.cells import digits, with_error

_GAP = 2


def grid(frame: pd.DataFrame, width: int) -> str:
    """One line per label and epsilon, with an empty line between labels.

    Args:
        frame: from :func:`dpcompare.comparison.compare`, not empty.
        width: the most columns a line may have; labels are cut to what is left.
    """
    noise = frame["metric"].iloc[0] == NOISE
    head = ["curve", "epsilon", "A", "B", *(["B / A"] if noise else ["B - A", "95% interval", ""])]
    groups = [
        [_line_cells(row, noise) for _, row in rows.iterrows()]
        for _, rows in frame.groupby("label", sort=False)
    ]
    everything = [head, *(cells for group in groups for cells in group)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    rest = width - sum(widths[1:]) - _GAP * (len(widths) - 1)
    widths[0] = max(min(widths[0], rest), 5)
    blocks = ["\n".join(_line(cells, widths) for cells in group) for group in groups]
    dashes = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    return f"{_line(head, widths)}\n{dashes}\n" + "\n\n".join(blocks)


def _line_cells(row: pd.Series, noise: bool) -> list[str]:
    cells = [row["label"], f"{row['epsilon']:g}"]
    for side in ("a", "b"):
        mean, error = row[f"mean_{side}"], row[f"standard_error_{side}"]
        cells.append(row[f"absent_{side}"] or with_error(mean, error))
    if noise:
        return [*cells, digits(row["mean_b"] / row["mean_a"]) if row["mean_a"] else "-"]
    change = row["difference"]
    cells.append(
        "-" if math.isnan(change) else f"{change:+.4g}" if abs(change) >= 1000 else f"{change:+.4f}"
    )
    if not row["interval"]:
        return [*cells, "", ""]
    bounds = f"{digits(row['low'])} to {digits(row['high'])}"
    return [*cells, bounds, "*" if row["decided"] else ""]


def _line(cells: list[str], widths: list[int]) -> str:
    label, width = cells[0], widths[0]
    if len(label) > width:  # variants of one mechanism tend to differ at the end
        label = f"{label[: width // 2 - 1]}…{label[len(label) - (width - width // 2) :]}"
    aligned = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return (" " * _GAP).join([label.ljust(width), *aligned]).rstrip()
