"""Cutting rows by position, so in time order, without cutting a journey."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpcompare.errors import UsageError


def split_rows(
    rows: int,
    shares: Sequence[float] = (0.8, 0.1, 0.1),
    journeys: npt.NDArray[np.int64] | None = None,
) -> tuple[slice, slice, slice]:
    """Cut rows by position: train first, then validation, then test.

    Args:
        rows: n.
        shares: three numbers above 0 that add up to 1.
        journeys: (n,) the journey of each row, never decreasing. A cut inside a journey moves
            forward to the start of the next one.

    Raises:
        UsageError: the shares break that rule, or a part would be empty.
    """
    valid = len(shares) == 3 and all(math.isfinite(share) and share > 0 for share in shares)
    if not valid or abs(math.fsum(shares) - 1) > 1e-9:
        raise UsageError(
            "split must be three numbers above 0 that add up to 1 (train, validation, test), "
            f"got {list(shares)}"
        )
    first = round(rows * shares[0])
    second = round(rows * (shares[0] + shares[1]))
    if journeys is not None:
        first, second = _after_journey(journeys, first), _after_journey(journeys, second)
    if not 0 < first < second < rows:
        kept = "" if journeys is None else ", and a journey is never cut"
        raise UsageError(
            f"{rows:,} rows are too few for the split {list(shares)}: "
            f"train, validation and test need at least one row each{kept}"
        )
    return slice(0, first), slice(first, second), slice(second, rows)


def _after_journey(journeys: npt.NDArray[np.int64], cut: int) -> int:
    """The first position from `cut` on where a journey starts, or the end."""
    if not 0 < cut < len(journeys):
        return cut
    return int(np.searchsorted(journeys, journeys[cut - 1], side="right"))
