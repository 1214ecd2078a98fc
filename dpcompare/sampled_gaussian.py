"""The sampled Gaussian mechanism of DP-SGD, and the law of the privacy loss of one of its steps.

A step shows a normal draw of standard deviation sigma (the noise multiplier, in units of the
sensitivity) whose mean is 0, or 1 where the row in question was drawn, with probability q. Under
replace-one the other data set has mean -1 in place of 1.
"""

import math
from typing import Literal, NamedTuple

import numpy as np

Direction = Literal["remove", "add", "replace"]
"""Which of two data sets was used, and which other it is compared with.

"remove": the row was there, and might not have been. "add": it was not, and might have been.
"replace": it was there, and might have been another one.
"""

TAIL = 9.5
"""Standard deviations of the noise after which a quadrature stops (a tail of 1e-21).

Moments must not see what lies beyond: high ones would be made of nothing else, though it adds next
to nothing to any delta.
"""

POINTS_PER_DEVIATION = 10
"""Points of a trapezoid sum per standard deviation of the noise.

For a normal times an analytic function the sum converges exponentially: the error of a pure
normal at this spacing is below 1e-80, and what remains comes from how fast the function varies.
"""


class SampledGaussian(NamedTuple):
    """`steps` Gaussian mechanisms, each on a Poisson sample of the rows."""

    noise_multiplier: float
    sampling_probability: float
    steps: int


class LossQuadrature(NamedTuple):
    """Points of one step's privacy loss.

    Attributes:
        losses: (points,).
        log_weights: (points,), the logarithm of their probability under the data set that was used.
    """

    losses: np.ndarray
    log_weights: np.ndarray


def loss_quadrature(gaussian: SampledGaussian, direction: Direction) -> LossQuadrature:
    """A trapezoid rule for integrals over the privacy loss of one step, without its far tails.

    Args:
        gaussian: its number of steps does not matter.
        direction: of the comparison.
    """
    sigma, q = gaussian.noise_multiplier, gaussian.sampling_probability
    high = 1.0 + TAIL * sigma
    count = int(2 * high / sigma * POINTS_PER_DEVIATION) + 2
    x, step = np.linspace(-high, high, count, retstep=True)
    log_normal = -(x**2) / (2 * sigma**2) + math.log(step / (sigma * math.sqrt(2 * math.pi)))
    up = _log_ratio((2 * x - 1) / (2 * sigma**2), q)
    if direction == "add":
        return LossQuadrature(-up, log_normal)
    if direction == "remove":
        return LossQuadrature(up, log_normal + up)
    down = _log_ratio(-(2 * x + 1) / (2 * sigma**2), q)
    return LossQuadrature(up - down, log_normal + up)


def loss_deviation(gaussian: SampledGaussian, direction: Direction) -> float:
    """Standard deviation of one step's privacy loss."""
    losses, log_weights = loss_quadrature(gaussian, direction)
    weights = np.exp(log_weights)
    return math.sqrt(float(weights @ (losses - weights @ losses) ** 2))


def _log_ratio(exponent: np.ndarray, q: float) -> np.ndarray:
    """``log(1 - q + q exp(exponent))``, exact for small q and for large exponents."""
    if q == 1.0:
        return exponent
    small = np.log1p(q * np.expm1(np.minimum(exponent, 30.0)))
    return np.where(exponent < 30.0, small, np.logaddexp(math.log1p(-q), math.log(q) + exponent))
