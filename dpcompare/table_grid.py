"""The grid of numbers in the terminal table: as wide as its numbers, labels cut to the rest."""

import math

import pandas as pd

from dpcompare.metric_sets import MetricSet, metric_set

_HEADS = {
    "auc": ("", "AUC"),
    "average_precision": ("avg.", "prec."),
    "log_loss": ("log", "loss"),
    "normalized_entropy": ("norm.", "ent."),
    "poisson_loss": ("Poisson", "loss"),
    "deviance": ("", "deviance"),
    "d2": ("", "D²"),
    "calibration": ("calib-", "ration"),
}
_SMALLEST_LABEL = 12
_GAP = 2


def shown_metrics(summary: pd.DataFrame) -> list[str]:
    """The metrics that the table shows.

    Average precision is for rare positives: it is shown for conversions, and where a study asks
    for it.
    """
    task, own = summary[["task", "metric"]].iloc[0]
    left_out = set() if task == "pcvr" else {"average_precision"} - {own}
    return [name for name in metric_set(task).names if name not in left_out]


def grid(summary: pd.DataFrame, width: int) -> str:
    """One line per curve and epsilon, with an empty line between curves.

    Args:
        summary: from :func:`dpcompare.summary.summarize`.
        width: the most columns a line may have.
    """
    metrics, names = metric_set(summary["task"].iloc[0]), shown_metrics(summary)
    effective = bool(summary["effective_examples"].notna().any())
    heads = [("", "curve"), ("", "epsilon"), *(_HEADS[name] for name in names)]
    heads += [("eff.", "rows")] * effective + [("", "seeds")]
    groups = [_references(summary, metrics, names, effective)]
    for _, rows in summary.groupby("label", sort=False):
        groups.append([_cells(row, metrics, names, effective) for _, row in rows.iterrows()])
    head = [list(line) for line in zip(*heads, strict=True)]
    everything = [*head, *(cells for group in groups for cells in group)]
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    rest = width - sum(widths[1:]) - _GAP * (len(widths) - 1)
    widths[0] = min(widths[0], max(rest, _SMALLEST_LABEL))
    left = {0, *(2 + names.index(name) for name in _with_error(summary.iloc[0], metrics))}
    blocks = ["\n".join(_line(cells, widths, left) for cells in g) for g in groups if g]
    titles = "\n".join(_line(cells, widths, left) for cells in head)
    dashes = "-" * (sum(widths) + _GAP * (len(widths) - 1))
    return f"{titles}\n{dashes}\n" + "\n\n".join(blocks)


def _line(cells: list[str], widths: list[int], left: set[int]) -> str:
    cells = [_shortened(cells[0], widths[0]), *cells[1:]]
    aligned = [
        cell.ljust(width) if index in left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return (" " * _GAP).join(aligned).rstrip()


def _with_error(row: pd.Series, metrics: MetricSet) -> set[str]:
    """The metrics whose standard error is shown."""
    return {metrics.main, row["metric"]}


def _references(
    summary: pd.DataFrame, metrics: MetricSet, names: list[str], effective: bool
) -> list[list[str]]:
    """What has no trial: the best possible model and the best constant prediction, where known."""
    lines = []
    for label, column in (("best possible", "best_possible"), (metrics.constant, "constant")):
        values = summary[[f"{column}_{name}" for name in names]].iloc[0]
        if pd.notna(summary[f"{column}_{metrics.selection}"].iloc[0]):
            lines.append([label, "", *map(_digits, values), *[""] * effective, ""])
    return lines


def _cells(row: pd.Series, metrics: MetricSet, names: list[str], effective: bool) -> list[str]:
    epsilon = f"{row['epsilon']:g}" + ("*" if row["tuned"] else "")
    if row["n_seeds"] == 0:
        empty = [""] * (len(names) - 1 + effective)
        return [row["label"], epsilon, _absence(row), *empty, "0"]
    numbers = []
    for name in names:
        text = _digits(row[name])
        if name in _with_error(row, metrics) and not math.isnan(row[f"{name}_se"]):
            text += f" ± {_digits(row[f'{name}_se'])}"
        if name == metrics.relative and row["worse_than_constant"]:
            text = f"! {text}"
        numbers.append(text)
    numbers += [_rows(row["effective_examples"])] * effective
    return [row["label"], epsilon, *numbers, str(row["n_seeds"])]


def _absence(row: pd.Series) -> str:
    if row["n_failed"]:
        return "failed"
    return "missing" if row["missing"] else "no valid score"


def _digits(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if abs(value) < 1000 else f"{value:.3g}"


def _rows(value: float) -> str:
    """A number of rows to three digits."""
    if math.isnan(value):
        return ""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 10 else f"{value:.1f}"


def _shortened(label: str, width: int) -> str:
    """Cut in the middle: variants of one mechanism tend to differ at the end."""
    if len(label) <= width:
        return label
    return label[: width // 2 - 1] + "…" + label[len(label) - (width - width // 2) :]
