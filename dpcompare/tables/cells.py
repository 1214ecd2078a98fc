"""The cells of tables: numbers to the digits that are shown, and words for what is not there."""

import math
from collections.abc import Callable

import pandas as pd

from dpcompare.frame import number_or_text

NOTHING = "-"


def digits(value: float, decimals: int = 4) -> str:
    """A number to fixed decimals; a large one to three digits."""
    if math.isnan(value):
        return NOTHING
    return f"{value:.{decimals}f}" if abs(value) < 1000 else f"{value:.3g}"


def with_error(value: float, error: float, decimals: int = 4) -> str:
    """A mean and its error, if it has one."""
    if math.isnan(error):
        return digits(value, decimals)
    return f"{digits(value, decimals)} ± {digits(error, decimals)}"


def short(value: float | None) -> str:
    """A number to four digits; whole ones in full, with thousands apart."""
    if value is None or math.isnan(value):
        return NOTHING
    whole = math.isfinite(value) and value == int(value) and abs(value) < 1e12
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def setting(value: str | None) -> str:
    """A swept value."""
    if value is None:
        return NOTHING
    number = number_or_text(value)
    return short(number) if isinstance(number, float) else value


def absence(row: pd.Series) -> str:
    """Why a row of the summary without scored trials has none."""
    if row["n_failed"]:
        return "failed"
    return "missing" if row["missing"] else NOTHING


def score(row: pd.Series, metric: str) -> str:
    """A metric of a row of the summary: mean ± standard error."""
    if row["n_seeds"] == 0:
        return absence(row)
    return with_error(row[metric], row[f"{metric}_se"])


def marked(text: str, row: pd.Series) -> str:
    """A cell, marked if its model is worse than the best constant prediction."""
    return f"! {text}" if row["worse_than_constant"] else text


def epsilon_titles(epsilons: list[float]) -> list[str]:
    """The titles of columns that stand for epsilons."""
    return ["no privacy" if math.isinf(epsilon) else f"ε = {epsilon:g}" for epsilon in epsilons]


def along_epsilons(
    rows: pd.DataFrame, epsilons: list[float], cell: Callable[[pd.Series], str]
) -> list[str]:
    """A cell for every epsilon, from the rows of one label in the summary."""
    there = {row["epsilon"]: cell(row) for _, row in rows.iterrows()}
    return [there.get(epsilon, NOTHING) for epsilon in epsilons]
