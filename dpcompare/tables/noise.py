"""The noise that guarantees ask for, in a study that trains nothing."""

import pandas as pd

from dpcompare.frame import number_or_text
from dpcompare.metric_sets import metric_set
from dpcompare.noise_grid import COLUMN_MEANINGS
from dpcompare.privacy import ROW_RELATIONS
from dpcompare.summary import Records, relation_column, summarize
from dpcompare.sweeps import split_label
from dpcompare.tables.captions import gaps_caption, privacy_caption
from dpcompare.tables.cells import absence, setting, short
from dpcompare.tables.sweep import swept_names
from dpcompare.tables.table import Table

_COLUMNS = {
    "examples": "examples",
    "batch_size": "batch size",
    "steps": "steps",
    "noise_multiplier": "noise multiplier",
    "noise_on_mean": "noise on mean",
    "guarantee_epsilon": "epsilon spent",
    **{relation_column(r): f"ε, {r}" for r in ROW_RELATIONS},
    "candidate_epsilon": "one candidate",
    "shuffled_epsilon_at_least": "shuffled, at least",
}


def noise_table(records: Records) -> Table:
    """One row per curve and epsilon: schedule, noise, and epsilon under each relation.

    Columns without any value are left out, except that of the noise multiplier.

    Args:
        records: of a study of kind "account".
    """
    summary = summarize(records)
    names = swept_names(summary)
    valued = [c for c in _COLUMNS if c == "noise_multiplier" or summary[c].notna().any()]
    shown = [column for column in valued if column not in names]
    blocks = []
    for _, of_curve in summary.groupby("curve", sort=False):
        blocks.append([_row(row, names, shown) for _, row in of_curve.iterrows()])
    return Table(
        study=str(summary["study"].iloc[0]),
        title=str(summary["title"].iloc[0]),
        head=["curve", *names, "epsilon", *(_COLUMNS[column] for column in shown)],
        alignment="l" + "r" * (len(names) + 1 + len(shown)),
        blocks=blocks,
        caption=[
            "Computed by the accountant alone: nothing is trained.",
            *_meanings(shown),
            *privacy_caption(summary),
            *gaps_caption(_as_scored(summary)),
        ],
        numbers=_numbers(summary, names, shown),
    )


def _meanings(columns: list[str]) -> list[str]:
    """What the columns mean, a sentence each."""
    texts = [COLUMN_MEANINGS[column] for column in columns if column in COLUMN_MEANINGS]
    return [f"{text[0].upper()}{text[1:]}." for text in texts]


def _row(row: pd.Series, names: list[str], shown: list[str]) -> list[str]:
    cells = [row["curve"], *(setting(_place(row, name)) for name in names), f"{row['epsilon']:g}"]
    if row["n_seeds"] == 0:
        return cells + [absence(row)] * len(shown)
    return cells + [short(row[column]) for column in shown]


def _place(row: pd.Series, name: str) -> str | None:
    """A swept value; of a curve that is not swept, what its trials used, where that is known."""
    value = split_label(row["label"])[1].get(name)
    known = name in _COLUMNS and pd.notna(row[name])
    return f"{row[name]:.12g}" if value is None and known else value


def _as_scored(summary: pd.DataFrame) -> pd.DataFrame:
    """With a score for every trial, for no score is missing where none is asked for."""
    names = metric_set(summary["task"].iloc[0]).names
    return summary.assign(**{f"{name}_n": summary["n_seeds"] for name in names})


def _numbers(summary: pd.DataFrame, names: list[str], shown: list[str]) -> pd.DataFrame:
    numbers = summary[["label", "curve"]].copy()
    for name in names:
        places = [_place(row, name) for _, row in summary.iterrows()]
        numbers[name] = [number_or_text(place) for place in places]
    rest = ["epsilon", *shown, "delta", "unit", "neighboring", "accountant", "failed", "missing"]
    return pd.concat([numbers, summary[rest]], axis=1)
