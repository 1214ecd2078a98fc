"""A fast estimate of delta and of the noise for a budget: accurate, but without any guarantee.

It only says where the search of :mod:`dpcompare.calibration` starts, and lets tests compare the
accountant with an integral that is taken in another way. Never state an epsilon from here.

With K(z) the logarithm of the moment generating function of one step's privacy loss, delta after
T steps is the contour integral of ``exp(T K(z) - z epsilon) / (z (z + 1))`` along a vertical line
right of 0, divided by 2 pi i. On the line through the saddle point the integrand falls like a
normal, so that a few dozen points of the trapezoid rule give all digits (Zhu, Dong and Wang,
arXiv 2106.08567, have the characteristic functions; Alghamdi et al., arXiv 2208.09595, the saddle
point).
"""

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize
from scipy.stats import norm

from dpcompare.sampled_gaussian import (
    Direction,
    LossQuadrature,
    SampledGaussian,
    loss_deviation,
    loss_quadrature,
)

POINTS_PER_WIDTH = 6
"""Points on the contour per standard deviation of the integrand."""

BELOW_GUESS, ABOVE_GUESS = 5.0, 2.0
"""Where the logarithm of the saddle point is looked for, beside that of a normal loss.

Large losses are likelier than those of a normal, which moves it down, seldom up. Where one large
loss decides, it is of the size of 1 / epsilon.
"""

SMALLEST, LARGEST = 0.03, 3e7
"""Noise multipliers beyond which none is estimated."""

NEGLIGIBLE = 1e-10
"""Share of the integrand's peak at which the integral ends, and below which a sum says nothing."""

MOST_BLOCKS = 30
"""Blocks of 64 points after which a contour integral that has not converged is given up."""


def estimated_log_delta(gaussian: SampledGaussian, epsilon: float, direction: Direction) -> float:
    """log of the delta that `gaussian` spends at `epsilon` in one direction, by contour integral.

    Good to about six digits, but rough (within a factor of ten or so) where a row is hardly ever
    drawn more than once or the steps are few: there the integrand decays slowly.
    """
    quadrature = loss_quadrature(gaussian, direction)
    if epsilon >= gaussian.steps * quadrature.losses.max():
        return -math.inf

    def exponent(z: np.ndarray) -> np.ndarray:
        kernel = np.log(z) + np.log1p(z)  # from integrating (1 - exp(epsilon - loss))
        return gaussian.steps * _log_moment(z, quadrature) - z * epsilon - kernel

    def height(log_order: float) -> float:
        return float(exponent(np.array([math.exp(log_order)]))[0].real)

    variance = gaussian.steps * loss_deviation(gaussian, direction) ** 2
    guess = math.log(max(epsilon / variance - 0.5, 1 / math.sqrt(variance)))
    bounds = min(guess, -math.log(epsilon)) - BELOW_GUESS, guess + ABOVE_GUESS
    found = optimize.minimize_scalar(
        height, bounds=bounds, method="bounded", options={"xatol": 1e-2}
    )
    saddle = math.exp(found.x)
    step = 1e-2 * saddle
    beside = exponent(saddle + step * np.array([-1.0, 0.0, 1.0])).real
    width = step / math.sqrt(max(beside[0] - 2 * beside[1] + beside[2], 1e-4))
    spacing = min(width, saddle) / POINTS_PER_WIDTH
    total, peak = -0.5, float(beside[1])  # the line is symmetric: half of the point at its middle
    for block in range(MOST_BLOCKS):
        points = saddle + 1j * spacing * np.arange(64 * block, 64 * (block + 1))
        values = np.exp(exponent(points) - peak)
        total += float(values.real.sum())
        if np.abs(values[-16:]).max() < NEGLIGIBLE:
            break
    else:  # the area of a normal of that height and width is all that is left to say
        total = width * math.sqrt(math.pi / 2) / spacing
    return peak + math.log(max(total, NEGLIGIBLE) * spacing / math.pi)


def estimated_noise(
    epsilon: float, delta: float, probability: float, steps: int, directions: tuple[Direction, ...]
) -> float:
    """About the noise multiplier at which `steps` sampled Gaussians spend (epsilon, delta).

    Args:
        epsilon: above 0.
        delta: in (0, 1).
        probability: that a row is drawn in a step.
        steps: at least 1.
        directions: those of the relation; the first usually decides.
    """
    estimate = max(SMALLEST, _gaussian_limit(epsilon, delta, probability, steps))
    for number, direction in enumerate(directions):

        def excess(log_sigma: float, direction: Direction = direction) -> float:
            gaussian = SampledGaussian(math.exp(log_sigma), probability, steps)
            return estimated_log_delta(gaussian, epsilon, direction) - math.log(delta)

        if number == 0 or excess(math.log(estimate)) > 0:
            estimate = math.exp(_falling_root(excess, math.log(estimate)))
    return estimate


def _log_moment(z: np.ndarray, quadrature: LossQuadrature) -> np.ndarray:
    """log E exp(z L), (orders,), by way of E (exp(z L) - 1), which keeps the digits of small L."""
    exponents = np.multiply.outer(z, quadrature.losses) + quadrature.log_weights
    peak = exponents.real.max(-1, keepdims=True)
    if peak.max() < 700:
        grown = (np.exp(exponents) - np.exp(quadrature.log_weights)).sum(-1)
        if grown.real.max() > -0.5:
            return np.log1p(grown)
    with np.errstate(divide="ignore"):  # a moment of 0 is a point that does not count
        return peak[..., 0] + np.log(np.exp(exponents - peak).sum(-1))


def _falling_root(function: Callable[[float], float], start: float) -> float:
    """A root of a falling smooth function near `start`, by secants of at most a third."""
    x, value = start, function(start)
    last, last_value = x - 0.01, function(x - 0.01)
    for _ in range(40):
        slope = (value - last_value) / (x - last)
        usable = -math.inf < slope < 0
        move = -value / slope if usable else math.copysign(0.3, value)
        last, last_value = x, value
        x += min(0.3, max(-0.3, move))
        if not math.log(SMALLEST) < x < math.log(LARGEST):
            return min(math.log(LARGEST), max(math.log(SMALLEST), x))
        if abs(move) < 1e-7:
            return x
        value = function(x)
    return x


def _gaussian_limit(epsilon: float, delta: float, probability: float, steps: int) -> float:
    """The noise multiplier in the limit of many small steps.

    The composition tends to one Gaussian mechanism of noise multiplier 1 / mu with
    ``mu = q sqrt(T (exp(1 / sigma^2) - 1))`` (Bu et al., arXiv 1911.11607), whose exact delta is
    that of Balle and Wang (arXiv 1805.06530).
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        hidden = math.exp(min(700.0, epsilon + norm.logcdf(-mu / 2 - epsilon / mu)))
        return norm.cdf(mu / 2 - epsilon / mu) - hidden - delta

    mu = math.exp(optimize.brentq(excess, math.log(1e-9), math.log(1e4)))
    return 1 / math.sqrt(math.log1p((mu / probability) ** 2 / steps))
