"""What a study that sweeps settings found: swept values against epsilon."""

import math

import pandas as pd

from dpcompare.frame import number_or_text
from dpcompare.metric_sets import BINARY, METRICS, metric_set
from dpcompare.summary import Records, summarize
from dpcompare.sweeps import split_label
from dpcompare.tables.captions import constant_caption, gaps_caption, privacy_caption
from dpcompare.tables.cells import along_epsilons, epsilon_titles, marked, score, setting
from dpcompare.tables.table import Table
from dpcompare.wording import seeds_sentence


def sweep_table(records: Records) -> Table | None:
    """The study's metric for every place of its sweeps (rows) and epsilon (columns).

    Args:
        records: of one study.

    Returns:
        The table; None where nothing is swept.
    """
    summary = summarize(records)
    return _table(summary, str(summary["metric"].iloc[0]))


def sweep_calibration_table(records: Records) -> Table | None:
    """The same for the calibration of binary labels: small clip norms bias predictions.

    Args:
        records: of one study.

    Returns:
        The table; None where nothing is swept, labels are not binary, or calibration is the
        study's own metric.
    """
    summary = summarize(records)
    binary = metric_set(summary["task"].iloc[0]) is BINARY
    if not binary or summary["metric"].iloc[0] == "calibration":
        return None
    return _table(summary, "calibration")


def swept_names(summary: pd.DataFrame) -> list[str]:
    """The settings that any label of a summary is swept over, in order of appearance."""
    return list(dict.fromkeys(name for label in summary["label"] for name in split_label(label)[1]))


def _table(summary: pd.DataFrame, metric: str) -> Table | None:
    names = swept_names(summary)
    if not names:
        return None
    swept = {label for label in summary["label"] if split_label(label)[1]}
    drawn = summary[summary["label"].isin(swept) | (summary["epsilon"] < math.inf)]
    rest = summary[~summary.index.isin(drawn.index)]
    epsilons = sorted(set(drawn["epsilon"]))
    several = drawn["curve"].nunique() > 1
    blocks = [
        [
            [str(curve)] * several + _places(str(label), names) + _scores(rows, epsilons, metric)
            for label, rows in of_curve.groupby("label", sort=False)
        ]
        for curve, of_curve in drawn.groupby("curve", sort=False)
    ]
    title = METRICS[metric].title
    return Table(
        study=str(summary["study"].iloc[0]),
        title=f"{summary['title'].iloc[0]} ({title})",
        head=["curve"] * several + names + epsilon_titles(epsilons),
        alignment="l" * several + "r" * (len(names) + len(epsilons)),
        blocks=blocks,
        caption=[
            f"{title[0].upper()}{title[1:]} at every place of the sweep. {seeds_sentence(summary)}",
            *(
                f"Without privacy, {row['label']}: {score(row, metric)}."
                for _, row in rest.iterrows()
            ),
            *constant_caption(drawn),
            *privacy_caption(summary),
            *gaps_caption(summary),
        ],
        numbers=_numbers(summary, names, metric),
    )


def _places(label: str, names: list[str]) -> list[str]:
    values = split_label(label)[1]
    return [setting(values.get(name)) for name in names]


def _scores(rows: pd.DataFrame, epsilons: list[float], metric: str) -> list[str]:
    return along_epsilons(rows, epsilons, lambda row: marked(score(row, metric), row))


def _numbers(summary: pd.DataFrame, names: list[str], metric: str) -> pd.DataFrame:
    numbers = summary[["curve"]].copy()
    for name in names:
        values = [split_label(label)[1].get(name) for label in summary["label"]]
        numbers[name] = [number_or_text(value) for value in values]
    return numbers.assign(
        epsilon=summary["epsilon"],
        metric=metric,
        mean=summary[metric],
        standard_error=summary[f"{metric}_se"],
        n_seeds=summary[f"{metric}_n"],
        **{
            column: summary[column]
            for column in ("worse_than_constant", "candidate", "failed", "missing")
        },
    )
