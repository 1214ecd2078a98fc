"""Swept settings: how a label names the values that one entry of a study walks through.

An entry with ``sweep = { clip_norm = [1, 10] }`` gives one set of trials for each value, labeled
"dp-sgd (clip_norm=1)" and "dp-sgd (clip_norm=10)". Figures put them back into one curve.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dpcompare.data.toml_table import shown, shown_key
from dpcompare.errors import UsageError

_LABEL = re.compile(
    r"(?P<curve>.*\S) \((?P<values>[A-Za-z_]\w*=[^\s()]+(?: [A-Za-z_]\w*=[^\s()]+)*)\)"
)
_TRAINING = "training."


def walked(content: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """An entry of a study file at each place of its sweep; the entry itself if it has none.

    Args:
        content: of the entry, with its label. Its `sweep` is a table of lists of equal length that
            are walked together; training settings stand in a table `training` of it.
        where: file and entry, for messages.

    Raises:
        UsageError: the sweep is no such table, or walks through what the entry sets as well.
    """
    values = {key: value for key, value in content.items() if key != "sweep"}
    if "sweep" not in content:
        yield values
        return
    lists = _lists(content["sweep"], where)
    own = values.get("training", {})
    if not isinstance(own, dict):
        raise UsageError(f"{where}: training must be a table, got {shown(own)}")
    for key in lists:
        if key in ("name", "label", "sweep"):
            raise UsageError(f"{where}: {key} cannot be swept; give each an entry of its own")
        inside = key.startswith(_TRAINING)
        if (key.removeprefix(_TRAINING) in own) if inside else (key in values):
            raise UsageError(f"{where}: {key} is swept and set; leave out one of the two")
    for places in zip(*lists.values(), strict=True):
        at = dict(zip(lists, places, strict=True))
        training = {
            key.removeprefix(_TRAINING): value
            for key, value in at.items()
            if key.startswith(_TRAINING)
        }
        yield (
            values
            | {key: value for key, value in at.items() if not key.startswith(_TRAINING)}
            | ({"training": own | training} if training else {})
            | {"label": swept_label(content["label"], at)}
        )


def _lists(sweep: Any, where: str) -> dict[str, list[Any]]:
    example = "such as sweep = { clip_norm = [1.0, 10.0] }"
    if not (isinstance(sweep, dict) and sweep):
        raise UsageError(f"{where}: sweep must be a table of lists, {example}; got {shown(sweep)}")
    training = sweep.get("training", {})
    if not isinstance(training, dict):
        raise UsageError(f"{where}: sweep.training must be a table of lists, got {shown(training)}")
    lists = {key: value for key, value in sweep.items() if key != "training"}
    for key, value in training.items():
        if f"{_TRAINING}{key}" in lists:
            raise UsageError(f"{where}: sweep names {_TRAINING}{shown_key(key)} twice")
        lists[f"{_TRAINING}{key}"] = value
    for key, value in lists.items():
        place = f"sweep.{shown_key(key)}"
        if not (isinstance(value, list) and value):
            raise UsageError(f"{where}: {place} must be a list of values, got {shown(value)}")
        if not all(isinstance(item, int | float | str) for item in value):
            raise UsageError(
                f"{where}: {place} must list numbers or texts, no lists or tables; got "
                f"{shown(value)}"
            )
        if any(isinstance(item, str) and re.search(r"[\s(),]", item) for item in value):
            raise UsageError(
                f"{where}: texts of {place} name curves, so they must be without spaces, "
                f"commas and brackets, got {shown(value)}; give each an entry with a label instead"
            )
    if len({len(value) for value in lists.values()}) > 1:
        found = ", ".join(f"{shown_key(key)} {len(value)}" for key, value in lists.items())
        raise UsageError(
            f"{where}: the lists of a sweep are walked together, so they need equal lengths; got "
            f"{found}"
        )
    return lists


def swept_label(label: str, values: Mapping[str, Any]) -> str:
    """The label of an entry at one place of its sweep.

    Args:
        label: of the entry.
        values: of the swept settings there; the prefix "training." is left out.
    """
    shown = " ".join(f"{key.removeprefix(_TRAINING)}={_text(v)}" for key, v in values.items())
    return f"{label} ({shown})"


def split_label(label: str) -> tuple[str, dict[str, str]]:
    """The curve that a label belongs to, and its swept values as text; no values if not swept."""
    found = _LABEL.fullmatch(label)
    if not found:
        return label, {}
    pairs = (pair.partition("=") for pair in found["values"].split(" "))
    return found["curve"], {key: value for key, _, value in pairs}


def walks_numbers(label: str) -> bool:
    """Whether a label names a place on a numeric axis, and no variant such as "shape=laplace"."""
    return any(map(_is_number, split_label(label)[1].values()))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
