"""Two folders side by side in words, as the terminal prints them."""

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dpcompare.comparison.grid import grid
from dpcompare.comparison.metric import NOT_THERE, compared
from dpcompare.comparison.settings import differing
from dpcompare.comparison.sides import NOISE, Side, read_sides
from dpcompare.metric_sets import METRICS
from dpcompare.results import ResultsFolder

WIDTH = 100


def comparison_text(a: Path, b: Path) -> str:
    """Both folders in words, at most 100 columns wide.

    Args:
        a: a results folder.
        b: another of the same task.

    Raises:
        UsageError: the tasks differ, or only one of the studies trains.
        DpcompareError: a folder has no records.
    """
    first, second = read_sides(a, b)
    frame = compared(first, second)
    both = frame[(frame["absent_a"] != NOT_THERE) & (frame["absent_b"] != NOT_THERE)]
    blocks = [
        _wrapped([f"A: {_about(first)}", f"B: {_about(second)}"]),
        _wrapped([*first.warnings, *second.warnings, *_sameness(first, second)]),
        _wrapped(_difference_lines(first, second), "  "),
        grid(both, WIDTH) if not both.empty else "No curve has the same label and epsilon in both.",
        _wrapped(_legend(both)) if not both.empty else "",
        _wrapped([*_only(frame, "A"), *_only(frame, "B")]),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _about(side: Side) -> str:
    first = side.records[-1]
    done = sum(record["status"] == "done" for record in side.records)
    planned = set(ResultsFolder(side.path).plan() or [record["id"] for record in side.records])
    return (
        f"{side.path} (study {first['study']}, task {first['task']}): {done} of "
        f"{len(planned)} trials done"
    )


def _sameness(first: Side, second: Side) -> list[str]:
    """How many trials are the same, told by their identity, and whether they agree."""
    a, b = ({record["id"]: record for record in side.records} for side in (first, second))
    shared = a.keys() & b.keys()
    if not shared:
        return []
    agree = all(_outcome(a[key]) == _outcome(b[key]) for key in shared)
    outcome = "with the same results" if agree else "but their results are not the same"
    if len(shared) == len(a) == len(b):
        return [f"These are the same trials, {outcome}."]
    return [f"{len(shared)} trials are the same in both, {outcome}."]


def _outcome(record: Mapping[str, Any]) -> tuple[Any, ...]:
    scores = record["validation"], record["test"]
    return record["status"], *scores, record["diagnostics"].get("calibrated")


def _difference_lines(first: Side, second: Side) -> list[str]:
    unread = [str(side.path) for side in (first, second) if side.study is None]
    lines = [f"{path} has no study.toml that can be read." for path in unread]
    found = differing(first, second)
    if not found:
        return [*lines, "No setting differs."]
    lines.append("What differs, A → B:")
    return lines + [f"{found.setting}: {found.a} → {found.b}" for found in found]


def _legend(frame: pd.DataFrame) -> list[str]:
    metric = str(frame["metric"].iloc[0])
    if metric == NOISE:
        return [
            "Noise multipliers: standard deviation of the noise on the sum of a batch, in units of "
            "its sensitivity."
        ]
    title, better = METRICS[metric].title, METRICS[metric].better
    direction = "1 is right" if better == "one" else f"{better} is better"
    return [
        f"{title[0].upper()}{title[1:]} on the test rows ({direction}), mean ± standard error over "
        "seeds.",
        *_intervals(frame),
    ]


def _intervals(frame: pd.DataFrame) -> list[str]:
    pairs = sorted(set(frame.loc[frame["interval"] == "paired", "n_pairs"]))
    lines = []
    if pairs:
        n = "-".join(map(str, dict.fromkeys([pairs[0], pairs[-1]])))
        lines.append(f"Paired by seed (n = {n} pairs): B - A is over the seeds of both.")
    if (frame["interval"] == "Welch").any():
        lines.append("Not paired: Welch's interval, for data or seeds are not the same in both.")
    if (frame["difference"].notna() & (frame["interval"] == "")).any():
        lines.append("No interval where a folder has one seed only.")
    if (frame["interval"] != "").any():
        lines.append(
            "* the interval excludes 0. Intervals hold one by one, and do not contain the error of "
            "the test sample."
        )
    return lines


def _only(frame: pd.DataFrame, name: str) -> list[str]:
    """The labels and epsilons that only one folder has."""
    absent = {"A": "absent_b", "B": "absent_a"}[name]
    rows = frame[frame[absent] == NOT_THERE]
    labels: dict[str, list[str]] = {}
    for label, of_label in rows.groupby("label", sort=False):
        epsilons = ", ".join(f"{epsilon:g}" for epsilon in of_label["epsilon"])
        labels.setdefault(epsilons, []).append(str(label))
    places = [f"{', '.join(names)} at epsilon {epsilons}" for epsilons, names in labels.items()]
    return [f"Only in {name}: {'; '.join(places)}."] if places else []


def _wrapped(sentences: list[str], indent: str = "") -> str:
    """Each sentence on its own lines; `indent` applies to all but the first sentence."""
    lines = []
    for number, sentence in enumerate(sentences):
        start = indent if number else ""
        wrapper = textwrap.TextWrapper(
            WIDTH,
            initial_indent=start,
            subsequent_indent=start + "  ",
            break_on_hyphens=False,
        )
        lines.append(wrapper.fill(sentence))
    return "\n".join(lines)
