"""Little phrases that the sentences of a verdict share."""

import math
from collections.abc import Iterable, Sequence


def with_rows(examples: float) -> str:
    """The number of training rows, to go into a sentence; nothing if it is nan."""
    return "" if math.isnan(examples) else f" with {examples:,.0f} training rows"


def numbers(values: Iterable[float]) -> list[str]:
    """Each number as text."""
    return [f"{value:g}" for value in values]


def joined(texts: Sequence[str]) -> str:
    """A list in words."""
    if len(texts) < 2:
        return "".join(texts)
    return f"{', '.join(texts[:-1])} and {texts[-1]}"
