"""The range of numbers that stream by."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


class ValueRange:
    """Number, minimum and maximum of the present values; NaN is missing.

    Attributes:
        rows: how many values were added.
        missing: how many of them are NaN.
        low: the smallest, infinity if there is none.
        high: the largest, -infinity if there is none.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.missing = 0
        self.low = math.inf
        self.high = -math.inf

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take in (n,) numbers."""
        self.rows += len(values)
        if len(values):
            self.missing += int(np.count_nonzero(values != values))
            # Python's min keeps the old value where the new one is NaN
            self.low = min(self.low, float(np.fmin.reduce(values)))
            self.high = max(self.high, float(np.fmax.reduce(values)))

    def merge(self, other: "ValueRange") -> None:
        """Take in the values that another range has seen."""
        self.rows += other.rows
        self.missing += other.missing
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)

    def state(self) -> list[float]:
        """What :meth:`restore` needs."""
        return [self.rows, self.missing, self.low, self.high]

    def restore(self, state: list[Any]) -> None:
        """Go on from a :meth:`state`."""
        self.rows, self.missing, self.low, self.high = state
