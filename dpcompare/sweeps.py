"""Swept settings: how a label names the values that one entry of a study walks through.

An entry with ``sweep = { clip_norm = [1, 10] }`` gives one set of trials for each value, labeled
"dp-sgd (clip_norm=1)" and "dp-sgd (clip_norm=10)". Figures put them back into one curve.
"""

import re
from collections.abc import Mapping
from typing import Any

_LABEL = re.compile(r"(?P<curve>.*\S) \((?P<values>[a-z_]+=[^\s()]+(?: [a-z_]+=[^\s()]+)*)\)")
_TRAINING = "training."


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


def _text(value: Any) -> str:
    return f"{value:.12g}" if isinstance(value, float) else str(value)
