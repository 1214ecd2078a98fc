"""The two folders of a comparison, read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpcompare.errors import UsageError
from dpcompare.frame import trains
from dpcompare.results import ResultsFolder
from dpcompare.summary import summarize

NOISE = "noise_multiplier"


@dataclass(frozen=True)
class Side:
    """One of the two folders."""

    path: Path
    study: Mapping[str, Any] | None
    records: list[dict[str, Any]]
    summary: pd.DataFrame
    warnings: list[str]

    @property
    def metric(self) -> str:
        """What is compared: the study's metric, or the noise if nothing is trained."""
        return str(self.summary["metric"].iloc[0]) if trains(self.records) else NOISE


def read_sides(a: Path, b: Path) -> tuple[Side, Side]:
    """Two folders that can be compared.

    Raises:
        UsageError: the tasks differ, or only one of the studies trains.
        DpcompareError: a folder has no records.
    """
    first, second = read_side(a), read_side(b)
    tasks = [side.records[-1]["task"] for side in (first, second)]
    if tasks[0] != tasks[1]:
        raise UsageError(
            f"{a} is of task {tasks[0]} and {b} of task {tasks[1]}; compare results of one task"
        )
    if trains(first.records) != trains(second.records):
        names = (a, b) if trains(first.records) else (b, a)
        raise UsageError(
            f"{names[0]} has trained models and {names[1]} only noise; compare two of one kind"
        )
    return first, second


def read_side(path: Path) -> Side:
    """One folder with its study, records and summary.

    Raises:
        DpcompareError: it has no records.
    """
    folder = ResultsFolder(path)
    records = folder.records(folder.plan())
    try:
        study = tomllib.loads(folder.study.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        study = None
    return Side(Path(path), study, records, summarize(records), folder.warnings)
