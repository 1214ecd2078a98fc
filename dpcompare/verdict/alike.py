"""Whether the epsilons of a study's whole-row curves mean the same, so that one can be advised."""

import pandas as pd

from dpcompare.verdict.words import joined, numbers

_MORE = 1 + 1e-6


def within_budget(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that do not spend more epsilon than was asked for."""
    return rows[~_overspent(rows)]


def overspending_sentences(rows: pd.DataFrame) -> list[str]:
    """Which curves spend more than was asked for, so that they are not compared at that epsilon."""
    return [
        f"{label} spends more than was asked for at epsilon {joined(numbers(at['epsilon']))}, so "
        "it is not compared there."
        for label, at in rows[_overspent(rows)].groupby("label", sort=False)
    ]


def differences(rows: pd.DataFrame) -> list[str]:
    """In what the epsilons of the whole-row curves differ, besides their values; empty if in none.

    A relation that is worth more, or a choice that is counted, costs utility, so that the curve
    that promises least would be advised.
    """
    whole = rows[rows["unit"] == "example"]
    found = []
    relations = list(dict.fromkeys(whole["neighboring"]))
    if len(relations) > 1:
        found.append(f"the neighboring relation ({joined(relations)})")
    counted = whole["private_selection"].notna()
    if counted.any() and not counted.all():
        found.append("whether epsilon counts the tuning")
    return found


def _overspent(rows: pd.DataFrame) -> pd.Series:
    return rows["guarantee_epsilon"] > rows["epsilon"] * _MORE
