"""Bounds that a statistic of honest noise or honest sampling passes with a stated probability.

All of them are exact for what they are about, not asymptotic, so that they may lie far out.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

FALSE_ALARM = 1e-11
"""The probability at which a bound fails something honest; all bounds of a run stay below 1e-9."""


def mean_square_bounds(numbers: int) -> tuple[float, float]:
    """Between which the mean square of so many independent standard normals lies."""
    law = stats.chi2(numbers)
    return law.ppf(FALSE_ALARM / 2) / numbers, law.isf(FALSE_ALARM / 2) / numbers


def correlation_bound(samples: int, pairs: int) -> float:
    """What no correlation of `pairs` pairs of independent normals exceeds in absolute value.

    Args:
        samples: of each of them, at least 3.
        pairs: the chance of a false alarm is shared by all of them.
    """
    # The square of a correlation of independent normals is beta-distributed.
    return float(np.sqrt(stats.beta(0.5, (samples - 2) / 2).isf(FALSE_ALARM / pairs)))


def is_binomial(counts: ArrayLike, trials: int, probability: float) -> bool:
    """Whether none of the counts is too small or too large for a binomial draw.

    Args:
        counts: any number of them; the chance of a false alarm is shared by all of them.
        trials: of each.
        probability: of a success.
    """
    found = np.asarray(counts)
    law = stats.binom(trials, probability)
    tails = np.minimum(law.cdf(found), law.sf(found - 1))
    return bool(np.all(tails >= FALSE_ALARM / (2 * found.size)))
