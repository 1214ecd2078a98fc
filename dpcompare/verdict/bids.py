"""Whether bids computed from the predictions would be right in total."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd

from dpcompare.verdict.references import ratio, references_by_size, size_key
from dpcompare.verdict.words import joined, numbers

TOLERANCE = 0.05  # of predicted over observed, within which bids are taken for calibrated


@dataclass(frozen=True)
class Bids:
    """Whether bids computed from the predictions would be right in total, on the test rows.

    Attributes:
        label, epsilon: which.
        excess: predicted over observed, minus 1: what bids would be too high by.
        beside_non_private: predicted over that of the non-private model, minus 1; nan without one.
    """

    label: str
    epsilon: float
    excess: float
    beside_non_private: float

    @property
    def right(self) -> bool:
        """Within the tolerance of 1."""
        return abs(self.excess) <= TOLERANCE

    @property
    def as_non_private(self) -> bool:
        """Within the tolerance of the non-private model."""
        return abs(self.beside_non_private) <= TOLERANCE

    @property
    def known(self) -> bool:
        """Whether there is a calibration and a non-private one to compare it with."""
        return not math.isnan(self.beside_non_private)


def find_bids(summary: pd.DataFrame) -> list[Bids]:
    """The non-private models that serve as yardsticks first, then all private rows."""
    references = references_by_size(summary)
    private = summary[(summary["epsilon"] < math.inf) & summary["calibration"].notna()]
    sizes = {size_key(examples) for examples in private["examples"]}
    yardsticks = [row for size, row in references.items() if size in sizes or private.empty]
    found = []
    for row in [*yardsticks, *(row for _, row in private.iterrows())]:
        free = references.get(size_key(row["examples"]))
        beside = math.nan if free is None else ratio(row["calibration"], free["calibration"]) - 1
        found.append(Bids(str(row["label"]), float(row["epsilon"]), row["calibration"] - 1, beside))
    return found


def bid_text(excess: float) -> str:
    """A share by which bids are wrong, in words."""
    if abs(excess) < 0.0005:
        return "would bid right in total"
    return f"would {'over' if excess > 0 else 'under'}bid by {_percent(abs(excess))}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def bidding_sentences(bids: Sequence[Bids]) -> Iterator[str]:
    """A sentence on the yardsticks and one for each private curve."""
    private = [b for b in bids if b.epsilon < math.inf]
    yardsticks = [b for b in bids if b.epsilon == math.inf]
    if yardsticks:
        told = ", ".join(f"{b.label} {bid_text(b.excess)}" for b in yardsticks)
        yield (
            f"On the test rows {told}. That is no cost of privacy (a log that drifts between "
            "training and test rows does it too), so this model is the yardstick."
        )
    if unknown := dict.fromkeys(b.label for b in private if not b.known):
        yield (
            f"{', '.join(unknown)}: no non-private model on as many training rows, so what privacy "
            "adds to the calibration is not known."
        )
    known = [b for b in private if b.known]
    for label, curve in groupby(known, key=lambda b: b.label):
        yield f"{label}: {_beside(list(curve))}."


def _beside(curve: Sequence[Bids]) -> str:
    """How bids of one curve compare with those of the non-private model."""
    limit = f"{TOLERANCE:.0%}"
    off = [b for b in curve if not b.as_non_private]
    if not off:
        text = f"within {limit} of the non-private model at every epsilon"
        return text if all(b.right for b in curve) else f"{text}, and like it not within it of 1"
    near = joined(numbers(b.epsilon for b in curve if b.as_non_private))
    text = (
        f"within {limit} of the non-private model at epsilon {near}"
        if near
        else (f"at no epsilon within {limit} of the non-private model")
    )
    sides = {"under": [b for b in off if b.excess < 0], "over": [b for b in off if b.excess >= 0]}
    for side, group in sides.items():
        if group:
            sizes = sorted(abs(b.excess) for b in group)
            low, high = _percent(sizes[0]), _percent(sizes[-1])
            by = low if low == high else f"{low} to {high}"
            text += f"; would {side}bid by {by} at {joined(numbers(b.epsilon for b in group))}"
    return text
