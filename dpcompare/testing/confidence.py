"""What samples prove: bounds on probabilities, and on the epsilon that two samples tell apart."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

Array = NDArray[np.float64]

_COMMON_VALUES = 32  # each is an event of its own
_THRESHOLDS = 200
_ERROR_WHILE_CHOOSING = 1e-3  # any number works; rare events are not chosen by luck at this one


class Separation(NamedTuple):
    """An event that tells two groups apart, and the epsilon that it proves.

    Attributes:
        epsilon: at most the true one, but for the error that was allowed; 0 proves nothing.
        column: what the event looks at.
        low, high: it happens where the column lies between them, both included.
        groups: the one in which it is more frequent, and the other.
    """

    epsilon: float
    column: str
    low: float
    high: float
    groups: tuple[int, int]

    def __str__(self) -> str:
        if self.low == self.high:
            where = f"= {self.low:.6g}"
        elif math.isinf(self.low):
            where = f"<= {self.high:.6g}"
        else:
            where = f">= {self.low:.6g}"
        return f"{self.column} {where}"


def clopper_pearson(
    counts: ArrayLike, trials: ArrayLike, error: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Bounds that a probability is below, and above, with a chance of at most `error` each.

    The exact interval of Clopper and Pearson (Biometrika 26, 1934).

    Args:
        counts: how often something happened, any shape.
        trials: out of how many, broadcast against `counts`.
        error: in (0, 1).
    """
    k, n = np.broadcast_arrays(np.asarray(counts, float), np.asarray(trials, float))
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, beta.ppf(error, k, n - k + 1), 0.0)
        high = np.where(k < n, beta.isf(error, k + 1, n - k), 1.0)
    return low, high


def separation(groups: Sequence[dict[str, Array]], delta: float, error: float) -> Separation:
    """The largest epsilon that samples of some groups prove.

    If every group is (epsilon, delta)-close to every other, an event of probabilities p and q
    satisfies ``p <= exp(epsilon) q + delta``. Every second draw of a group serves to choose
    the event, among thresholds and common values of single columns, and the pair of groups; the
    other draws prove the bound, so choosing costs nothing.

    Args:
        groups: of each, draws of some columns by name, (draws,) each.
        delta: of the claim.
        error: the chance that the result is above the true epsilon.
    """
    chosen = Separation(-math.inf, "nothing", -math.inf, math.inf, (0, 0))
    for column in groups[0]:
        samples = [np.nan_to_num(group[column].astype(float), nan=1e300) for group in groups]
        chosen = max(chosen, _chosen_event(column, [s[::2] for s in samples], delta))
    if chosen.groups[0] == chosen.groups[1]:
        return chosen._replace(epsilon=0.0)
    proving = [
        np.nan_to_num(groups[g][chosen.column].astype(float), nan=1e300)[1::2]
        for g in chosen.groups
    ]
    frequent, rare = (
        clopper_pearson(np.sum((s >= chosen.low) & (s <= chosen.high)), len(s), error / 2)
        for s in proving
    )
    proved = _log_ratio(frequent[0], rare[1], delta)
    return chosen._replace(epsilon=max(0.0, float(proved)))


def _chosen_event(column: str, samples: Sequence[Array], delta: float) -> Separation:
    """The event and pair of groups that seem to prove most."""
    lows, highs = _events(np.concatenate(samples))
    bounds = []
    for sample in map(np.sort, samples):
        counts = np.searchsorted(sample, highs, "right") - np.searchsorted(sample, lows, "left")
        bounds.append(clopper_pearson(counts, len(sample), _ERROR_WHILE_CHOOSING))
    best = Separation(-math.inf, column, -math.inf, math.inf, (0, 0))
    for one in range(len(samples)):
        for other in range(len(samples)):
            if one != other:
                ratios = _log_ratio(bounds[one][0], bounds[other][1], delta)
                at = int(np.argmax(ratios))
                event = float(lows[at]), float(highs[at])
                best = max(best, Separation(float(ratios[at]), column, *event, (one, other)))
    return best


def _events(values: Array) -> tuple[Array, Array]:
    """Intervals, as their ends: below and above thresholds, and the most common single values."""
    distinct, counts = np.unique(values, return_counts=True)
    common = distinct[np.argsort(-counts, kind="stable")[:_COMMON_VALUES]]
    # Half of the thresholds are spread evenly, the others lie in the tails.
    tails = np.geomspace(1e-4, 0.5, _THRESHOLDS // 4)
    shares = np.concatenate([np.linspace(0, 1, _THRESHOLDS // 2), tails, 1 - tails])
    thresholds = np.unique(np.quantile(values, shares, method="nearest"))
    nothing = np.full(len(thresholds), np.inf)
    lows = np.concatenate([-nothing, thresholds, common])
    return lows, np.concatenate([thresholds, nothing, common])


def _log_ratio(frequent: ArrayLike, rare: ArrayLike, delta: float) -> Array:
    """``log((p - delta) / q)``, minus infinity where p is not above delta."""
    above = np.maximum(np.asarray(frequent, float) - delta, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(above) - np.log(np.asarray(rare, float))
