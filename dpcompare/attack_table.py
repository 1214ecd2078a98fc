"""The table of a report that says what epsilons let an attacker know."""

import pandas as pd

from dpcompare.attack_power import LABEL_FLIP
from dpcompare.attack_words import equal_curves, percent, short_name
from dpcompare.report_tables import NONE, Table

_CAPTION = (
    "How much an attacker recognizes at most (true positive rate), by how often the attacker may "
    "be wrong where there is nothing to recognize (false positive rate, FPR)"
)
_PAIRS = {
    "zero-out": "a row and an empty one",
    "add-or-remove-one": "a row and none",
    "replace-one": "two rows",
    "none": "two rows",
}


def attack_table(rows: pd.DataFrame) -> Table | None:
    """One row per attack on a curve and false positive rate, one column per epsilon.

    Curves with equal bounds share their rows, and so do false positive rates where nothing is
    protected.

    Args:
        rows: of :func:`dpcompare.attack_power.of_records`.
    """
    if rows.empty:
        return None
    epsilons = sorted(set(rows["epsilon"]))
    names = {first: short_name(labels) for first, labels in equal_curves(rows).items()}
    shown = rows[rows["label"].isin(names)]
    cells: dict[tuple[str, ...], dict[float, str]] = {}
    for row in shown.to_dict("records"):
        flip, public = row["attack"] == LABEL_FLIP, row["relation"] == "none"
        pair = "two labels of a row" if flip else _PAIRS[row["relation"]]
        rate = "any" if public else f"{100 * row['fpr']:g}%"
        of_row = cells.setdefault((names[row["label"]], pair, rate), {})
        of_row[row["epsilon"]] = percent(row["tpr"])
    head = ["Curve", "To tell apart", "FPR", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    texts = [[*key, *(found.get(e, NONE) for e in epsilons)] for key, found in cells.items()]
    return Table(_CAPTION, head, texts, headers=3)
