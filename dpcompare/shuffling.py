"""What epsilon DP-SGD on shuffled batches provably exceeds: a lower bound, never a guarantee.

Two data sets that differ in one row, and a loss, under which every other row pulls one way and the
row in question the other (Chua et al., arXiv 2403.17673, section 3.1). In units of the clip norm,
one epoch of T steps then shows a normal vector w of standard deviation sigma, whose mean is 0 but
for the step t that the row fell into, which is uniform: there the mean is 2 (law P), or 1 if the
row is missing (law Q). The largest entry of w is one number that tells the two apart:

    P[max w < c] = Phi((c - 2) / sigma) Phi(c / sigma)^(T - 1),

and Q with 1 in place of 2. If a run is (epsilon, delta)-private, every event S has
``P(S) <= exp(epsilon) Q(S) + delta``, so that ``log((P(S) - delta) / Q(S))`` is a lower bound on
its epsilon, whatever S was chosen. For one epoch S is that the maximum is at least c.

For several epochs, each shuffled anew, each epoch's maximum is put into one of many bins, and
S is that the rounded log likelihood ratios of the bins sum to at least a threshold. (Counting
the epochs whose maximum reaches c is the case of two bins, and proves far less.) Rounding changes
which event that is, not what is known about it: its probabilities under P and Q are both computed
as they are, Q's scaled by the exponential of the sum so that they do not underflow. Cutting the
tails of partial sums takes the same outcomes out of S under both laws, which is another event, and
as good. All sums are of positive numbers, so that rounding errors stay relative ones, and these are
taken off (ROUNDING).
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from dpcompare.errors import UsageError

BINS = 2000
"""Bins of an epoch's maximum."""

CELLS = 8000
"""Multiples of the rounding unit over which log likelihood ratios spread, about."""

ROUNDING = 1e-10
"""Relative error of a probability per epoch, far above what floating point adds up to."""

NEGLIGIBLE = 1e-6
"""Share of delta that tails may hold which are cut from a partial sum."""

SMALLEST = 1e-280
"""Probabilities below it are cut: products with them could underflow."""


class _Ratios(NamedTuple):
    """The law of the rounded log likelihood ratios of some epochs, in cells of one width.

    Attributes:
        present: (cells,) probabilities under P, with the row.
        missing: (cells,) probabilities under Q, without it, times exp(cell * width).
        first: the cell that the arrays begin with.
    """

    present: np.ndarray
    missing: np.ndarray
    first: int


def epsilon_lower_bound(
    noise_multiplier: float, steps_per_epoch: int, epochs: int, delta: float
) -> float:
    """An epsilon that DP-SGD with batches shuffled anew for every epoch cannot be better than.

    It holds for losses that nothing is known about, as guarantees do, under zero-out, and under
    replace-one as well, since the gradient of a replaced row may be 0. Where no event proves
    anything, it is 0. At one step per epoch it is close to the exact epsilon. A batch that spans
    two epochs is not described: each epoch is taken to end with a batch of its own.

    Args:
        noise_multiplier: standard deviation of the noise on each sum, in units of the clip norm.
        steps_per_epoch: batches that a permutation is cut into, the last one possibly shorter:
            rows over batch size, rounded up.
        epochs: passes over the data.
        delta: in (0, 1).

    Raises:
        UsageError: an argument is out of range.
    """
    if not (noise_multiplier >= 0 and steps_per_epoch >= 1 and epochs >= 1 and 0 < delta < 1):
        raise UsageError(
            "a lower bound for shuffled batches needs a noise multiplier of at least 0, at least "
            "one step per epoch and one epoch, and a delta between 0 and 1; got "
            f"{noise_multiplier}, {steps_per_epoch}, {epochs} and {delta}"
        )
    if noise_multiplier == 0:
        return math.inf
    edges = _edges(noise_multiplier, steps_per_epoch, delta / epochs)
    present = _log_masses(edges, 2.0, noise_multiplier, steps_per_epoch)
    missing = _log_masses(edges, 1.0, noise_multiplier, steps_per_epoch)
    possible = np.isfinite(present) & np.isfinite(missing)
    present, missing = present[possible], missing[possible]
    width = _cell_width(present, missing, epochs)
    composed = _composed(_rounded(present, missing, width), epochs, NEGLIGIBLE * delta / epochs)
    return _best_threshold(composed, width, delta, ROUNDING * epochs)


def _edges(sigma: float, steps: int, delta: float) -> np.ndarray:
    """Borders between bins: maxima outside of them are too seldom to matter."""
    reach = sigma * math.sqrt(2 * math.log(steps / delta))
    wide = np.linspace(min(0.0, 2.0 - reach), 2.0 + reach, 10 * BINS)
    _, below = _log_tails(wide, 2.0, sigma, steps)
    return np.linspace(wide[below > math.log(1e-9)][0], wide[-1], BINS - 1)


def _log_masses(edges: np.ndarray, mean: float, sigma: float, steps: int) -> np.ndarray:
    """log of the probability that an epoch's maximum lies between neighboring edges, (edges + 1,).

    Args:
        edges: rising.
        mean: of the entry of the row's step.
        sigma: standard deviation of every entry.
        steps: entries.
    """
    above, below = _log_tails(edges, mean, sigma, steps)
    above = np.concatenate([[0.0], above, [-math.inf]])
    below = np.concatenate([[-math.inf], below, [0.0]])
    with np.errstate(divide="ignore", invalid="ignore"):
        from_above = above[:-1] + np.log(-np.expm1(above[1:] - above[:-1]))
        from_below = below[1:] + np.log(-np.expm1(below[:-1] - below[1:]))
    # The difference of the smaller tails has the smaller error.
    return np.where(above[:-1] < -math.log(2), from_above, from_below)


def _log_tails(
    c: np.ndarray, mean: float, sigma: float, steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """log P[max w >= c] and log P[max w < c], where one entry of w has that mean, others 0."""
    log_hazard = _log_hazard((c - mean) / sigma)
    if steps > 1:
        log_hazard = np.logaddexp(log_hazard, math.log(steps - 1) + _log_hazard(c / sigma))
    hazard = np.exp(log_hazard)
    with np.errstate(divide="ignore"):
        above = np.where(log_hazard < -37, log_hazard, np.log(-np.expm1(-hazard)))
    return above, -hazard


def _log_hazard(x: np.ndarray) -> np.ndarray:
    """``log(-log(Phi(x)))``, which is the logarithm of the upper tail where that is tiny."""
    upper = log_ndtr(-x)
    with np.errstate(divide="ignore"):
        return np.where(upper < -37, upper, np.log(-log_ndtr(x)))


def _cell_width(present: np.ndarray, missing: np.ndarray, epochs: int) -> float:
    ratios, weights = present - missing, np.exp(present)
    deviation = math.sqrt(float(weights @ (ratios - weights @ ratios) ** 2))
    return (float(np.ptp(ratios)) + 20 * deviation * math.sqrt(epochs - 1)) / CELLS


def _rounded(present: np.ndarray, missing: np.ndarray, width: float) -> _Ratios:
    cells = np.rint((present - missing) / width).astype(int)
    first = int(cells.min())
    return _Ratios(
        np.bincount(cells - first, np.exp(present)),
        np.bincount(cells - first, np.exp(missing + cells * width)),
        first,
    )


def _composed(one: _Ratios, epochs: int, tail: float) -> _Ratios:
    """The law of the sum over epochs, by squaring."""
    power, total, left = _cut(one, tail), None, epochs
    while True:
        if left % 2:
            total = power if total is None else _sum(total, power, tail)
        left //= 2
        if left == 0:
            assert total is not None
            return total
        power = _sum(power, power, tail)


def _sum(a: _Ratios, b: _Ratios, tail: float) -> _Ratios:
    present, missing = np.convolve(a.present, b.present), np.convolve(a.missing, b.missing)
    return _cut(_Ratios(present, missing, a.first + b.first), tail)


def _cut(law: _Ratios, tail: float) -> _Ratios:
    """Without cells of no weight, and without tails that hold less than `tail` under P."""
    kept = np.minimum(law.present, law.missing) >= SMALLEST
    present, missing = law.present * kept, law.missing * kept
    begin = int(np.searchsorted(np.cumsum(present), tail))
    end = len(present) - int(np.searchsorted(np.cumsum(present[::-1]), tail))
    return _Ratios(present[begin:end], missing[begin:end], law.first + begin)


def _best_threshold(law: _Ratios, width: float, delta: float, error: float) -> float:
    """The largest ``log((P(S) - delta) / Q(S))``, where S is that the sum reaches a threshold."""
    cells = law.first + np.arange(len(law.missing))
    present = np.cumsum(law.present[::-1])
    with np.errstate(divide="ignore"):
        log_missing = np.logaddexp.accumulate((np.log(law.missing) - cells * width)[::-1])
    surplus = present * (1 - error) - delta
    proves = surplus > 0
    if not proves.any():
        return 0.0
    bounds = np.log(surplus[proves]) - log_missing[proves] - error
    return max(0.0, float(np.max(bounds - 1e-12 * np.abs(log_missing[proves]))))
