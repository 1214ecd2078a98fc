"""Upper bounds on delta from the composed distribution of the privacy loss (PLD).

dp-accounting says what one step spends at every epsilon of a grid. "Connecting the dots" makes
masses of that which never read too low (Doroshenko et al., arXiv 2207.04380). Steps are composed by
a Fourier transform of the *tilted* masses ``p(l) exp(c l) / M(c)``. Tilting moves the epsilon that
is asked for, far in the tail of the loss, into the middle of what is transformed, so that rounding
is relative to delta and not to 1: after ten million steps an untilted transform is off by 1e-9, as
much as delta itself. The same M(c) gives the Chernoff bound
``delta <= M(c)^T exp(-c epsilon) c^c / (1 + c)^(1 + c)``, which is as safe as the masses are.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy import fft, optimize
from scipy.special import logsumexp

from dpcompare.sampled_gaussian import Direction, SampledGaussian, loss_deviation

STEP_SHARE, TOTAL_SHARE = 0.07, 0.01
"""The grid in standard deviations of one step's loss, and of the whole loss; the finer counts."""

GROWTH = 0.05
"""Points of a single step are this share of their loss apart, up to TOTAL_SHARE of the whole one.

Still farther out, where one step alone exceeds the usual whole loss, it is TOTAL_SHARE of the loss.
"""

LOG_CUT = -46.0
"""log of the mass of one step above its largest loss, which counts as an infinite loss."""

LOWEST_MASS = 1e-8
"""Mass, per root of the number of steps, that one step's smallest loss stands for."""

SECOND_DIFFERENCE_NOISE = 1e-14
"""A single mass is rounded by less than this, divided by the grid; below it masses mean nothing."""

LOG_WINDOW = -27.0
"""log of the tilted mass that may lie outside of the transform's window on either side."""

ROUNDING = 1e-14
"""Relative error of M(c), per step and unit of 1 + c, that rounding is taken to cause.

Distribution functions, divergences, masses and sums are each good to about four units of double
precision, 1e-15; ten times that is charged.
"""

MOST_POINTS = 1e6
"""Points of the grid up to the largest loss of responses, however small that of the noise is."""

LARGEST_TRANSFORM = 2**23
"""Points of the longest Fourier transform: seconds, and 64 MiB for each of some arrays."""

DIRECTIONS: dict[Direction, AdjacencyType] = {
    "remove": AdjacencyType.REMOVE,
    "add": AdjacencyType.ADD,
    "replace": AdjacencyType.REPLACE,
}


class Response(NamedTuple):
    """`times` randomized responses: a random one of `outputs` with chance `random`, else the truth.

    Every direction has the same loss, since responses are always accounted as replace-one.
    """

    random: float
    outputs: int
    times: int

    @property
    def epsilon(self) -> float:
        """Of one of them: log of keep over flip, ``log(1 + k (1 - p) / p)``."""
        if self.random == 0:
            return math.inf
        return math.log1p(self.outputs * (1 - self.random) / self.random)


class LossMasses(NamedTuple):
    """The discretized privacy loss of one step, and how often it is taken.

    Attributes:
        indices: (points,), the losses in units of the grid.
        masses: (points,), they sum to 1 - infinite.
        infinite: mass of an infinite loss.
        times: at least 1.
    """

    indices: np.ndarray
    masses: np.ndarray
    infinite: float
    times: int


class PrivacyLoss:
    """An upper bound on the privacy loss of all releases together, in one direction.

    Args:
        gaussians: at least one, all of them with noise.
        responses: beside them, each with a finite epsilon.
        direction: of the comparison.
        coarsening: how much coarser than usual the grid is. The bound stays one.
    """

    def __init__(
        self,
        gaussians: Sequence[SampledGaussian],
        responses: Sequence[Response],
        direction: Direction,
        coarsening: float = 1.0,
    ) -> None:
        self._coarser = lambda factor: PrivacyLoss(
            gaussians, responses, direction, coarsening * factor
        )
        steps = sum(part.steps for part in gaussians)
        variance = sum(g.steps * loss_deviation(g, direction) ** 2 for g in gaussians)
        deviation = math.sqrt(variance)
        largest = sum(r.times * r.epsilon for r in responses)
        self.interval = coarsening * max(
            deviation * min(STEP_SHARE / math.sqrt(steps), TOTAL_SHARE), largest / MOST_POINTS
        )
        total = deviation / self.interval
        self._parts = [_gaussian(g, direction, self.interval, total) for g in gaussians]
        self._parts += [_response(r, self.interval) for r in responses]
        self._count = sum(part.times for part in self._parts)
        self._deviation = deviation
        kept = sum(part.times * math.log1p(-part.infinite) for part in self._parts)
        self.infinite = -math.expm1(kept)
        """Mass of an infinite loss: what was cut off."""

    def log_moment(self, order: float) -> float:
        """log E exp(order * loss) of the finite part, its rounding errors included."""
        total = 0.0
        for part in self._parts:
            exponents = order * self.interval * part.indices
            total += part.times * float(logsumexp(exponents, b=part.masses))
        return total + self._count * ROUNDING * (1 + abs(order))

    def log_chernoff(self, order: float, epsilon: float) -> float:
        """log of a bound on the delta of the finite part, for any order above 0."""
        return self.log_moment(order) - order * epsilon + _log_factor(order)

    def order_at_epsilon(self, epsilon: float) -> float:
        """The order of the smallest Chernoff bound on delta."""
        return _minimize(lambda order: self.log_chernoff(order, epsilon), self._deviation)

    def order_at_delta(self, delta: float) -> float:
        """The order of the smallest Chernoff bound on epsilon."""

        def bound(order: float) -> float:
            return (self.log_chernoff(order, 0.0) - math.log(delta)) / order

        return _minimize(bound, self._deviation)

    def delta_bound(self, epsilon: float) -> float:
        """A Chernoff bound on delta: no transform, but ten times too large, or far more."""
        bound = self.log_chernoff(self.order_at_epsilon(epsilon), epsilon)
        return self.infinite + math.exp(min(0.0, bound))

    def composed(self, order: float) -> "ComposedLoss":
        """All steps together, exact around the epsilon at which `order` is the best.

        Where that would take too long a transform, on a grid that is as much coarser.
        """
        low, high = (self._window(order, sign) for sign in (-1.0, 1.0))
        first = math.floor(low / self.interval)
        points = fft.next_fast_len(math.ceil(high / self.interval) - first + 1, real=True)
        if points > LARGEST_TRANSFORM:
            return self._coarser(1.01 * points / LARGEST_TRANSFORM).composed(order)
        single = [self._spectrum(part, order, points) for part in self._parts]
        whole = [s**part.times for s, part in zip(single, self._parts, strict=True)]
        spectrum = math.prod(whole[1:], start=whole[0])
        # How much a relative error of the single spectra grows in that of the whole.
        growth = float(np.abs(spectrum).mean())
        for i, part in enumerate(self._parts):
            others = math.prod(np.abs(w) for j, w in enumerate(whole) if j != i)
            growth += part.times * float((np.abs(single[i]) ** (part.times - 1) * others).mean())
        masses = np.roll(fft.irfft(spectrum, points), -(first % points))
        lost_or_made_up = abs(math.fsum(masses) - 1.0) - float(masses[masses < 0].sum())
        unseen = growth * self._transform_error(order, points)
        error = 2 * math.exp(LOG_WINDOW) + lost_or_made_up + unseen
        losses = self.interval * (first + np.arange(points))
        return ComposedLoss(losses, masses, order, self.log_moment(order), self.infinite, error)

    def _spectrum(self, part: LossMasses, order: float, points: int) -> np.ndarray:
        exponents = order * self.interval * part.indices + np.log(part.masses)
        tilted = np.exp(exponents - logsumexp(exponents))
        return np.asarray(fft.rfft(np.bincount(part.indices % points, tilted, points)))

    def _transform_error(self, order: float, points: int) -> float:
        """The mass at the worst loss that does as much to a delta as the transform's rounding.

        Every level of a fast transform adds at most about 5 units of rounding to each coefficient
        (as in Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2; the sum of
        masses is 1), and the way back averages errors over the coefficients. With order c and
        grid h, the weights ``exp(-c l) (1 - exp(-l))`` of these errors in a delta sum to at most
        ``1 + e / (c h)`` times the weight of the worst loss.
        """
        return 5 * 2.0**-53 * math.log2(points) * (1 + math.e / (order * self.interval))

    def _window(self, order: float, sign: float) -> float:
        """Above (sign 1) or below (-1) lies at most exp(LOG_WINDOW) of the tilted mass."""
        whole = self.log_moment(order)

        def reach(shift: float) -> float:
            return (self.log_moment(order + sign * shift) - whole - LOG_WINDOW) / shift

        return sign * reach(_minimize(reach, self._deviation))


class ComposedLoss(NamedTuple):
    """Tilted masses of the composed loss.

    Attributes:
        losses: (points,), rising.
        masses: (points,), those of the loss times ``exp(order * loss - log_moment)``.
        order: of the tilt.
        log_moment: of the untilted loss, at that order.
        infinite: mass of an infinite loss.
        error: how much of the tilted mass may be wrong.
    """

    losses: np.ndarray
    masses: np.ndarray
    order: float
    log_moment: float
    infinite: float
    error: float

    def delta(self, epsilon: float) -> float:
        """An upper bound on delta, all errors included."""
        above = slice(int(np.searchsorted(self.losses, epsilon, side="right")), None)
        over = self.losses[above] - epsilon
        tail = float(np.exp(-self.order * over) * -np.expm1(-over) @ self.masses[above])
        scale = math.exp(min(700.0, self.log_moment - self.order * epsilon))
        return min(1.0, self.infinite + scale * max(0.0, tail) + self.rounding(epsilon))

    def rounding(self, epsilon: float) -> float:
        """What wrong mass adds to the delta at `epsilon`, if all of it lies at the worst loss."""
        log_worst = self.log_moment - self.order * epsilon + _log_factor(self.order)
        return self.error * math.exp(min(700.0, log_worst))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon whose :meth:`delta` is at most `delta`; 0 if that of 0 is.

        Infinite where the mass of infinite losses alone is above `delta`.
        """
        if self.infinite >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0

        def excess(epsilon: float) -> float:
            return math.log(max(self.delta(epsilon), 1e-300) / delta)

        high = (self.log_moment + _log_factor(self.order) - math.log(delta)) / self.order
        while excess(high) > 0:  # the Chernoff bound holds but for errors and infinite losses
            high += 1 / self.order
        low = high
        while low > 0 and excess(low) <= 0:
            low = max(0.0, low - 4 / self.order)
        root = optimize.brentq(excess, low, high, xtol=1e-10 * high, rtol=1e-10)
        while excess(root) > 0:
            root += max(1e-9 * root, 1e-12 * high)
        return float(root)


def _gaussian(
    gaussian: SampledGaussian, direction: Direction, interval: float, total: float
) -> LossMasses:
    """Masses from dp-accounting's divergences, fine around 0 and coarser far from it."""

    def loss(log_cut: float) -> GaussianPrivacyLoss:
        return GaussianPrivacyLoss(
            gaussian.noise_multiplier,
            sampling_prob=gaussian.sampling_probability,
            adjacency_type=DIRECTIONS[direction],
            log_mass_truncation_bound=log_cut,
        )

    highest = loss(LOG_CUT).connect_dots_bounds().epsilon_upper
    rounded = SECOND_DIFFERENCE_NOISE / interval
    lowest_mass = min(0.1, max(LOWEST_MASS / math.sqrt(gaussian.steps), rounded))
    lowest = loss(math.log(lowest_mass)).connect_dots_bounds().epsilon_lower
    indices = _grid(math.floor(lowest / interval), math.ceil(highest / interval), total)
    deltas = np.array(loss(LOG_CUT).get_delta_for_epsilon(indices * interval))
    masses, infinite = connect_the_dots(indices * interval, deltas)
    # Negative masses were set to 0. That mass is taken from the smallest loss, so that the sum
    # stays 1: in millions of steps its powers would drown everything else.
    masses[0] = max(0.0, 1.0 - infinite - math.fsum(masses[1:]))
    kept = masses > 0
    return LossMasses(indices[kept], masses[kept], infinite, gaussian.steps)


def connect_the_dots(losses: np.ndarray, deltas: np.ndarray) -> tuple[np.ndarray, float]:
    """Masses at `losses` (and at infinity) whose deltas are never below those of a mechanism.

    They are those of the function that joins the points (exp(loss), delta) by straight lines,
    which lies above the convex curve of the mechanism (Doroshenko et al., algorithm 1; the same
    as dp-accounting's ``create_pmf_pessimistic_connect_dots``, whose time and memory grow with
    the largest loss on the grid and not with the number of points).

    Args:
        losses: (points,), rising; at least two.
        deltas: (points,), the mechanism's hockey-stick divergences there; falling.
    """
    gaps = np.diff(losses)
    falls = -np.diff(np.minimum.accumulate(deltas))
    masses = np.zeros(len(losses))
    masses[1:] += falls / -np.expm1(-gaps)
    masses[:-1] -= falls / np.expm1(gaps)
    masses[0] += 1 - deltas[0]
    return np.maximum(masses, 0.0), float(deltas[-1])


def _grid(lowest: int, highest: int, total: float) -> np.ndarray:
    """Rising integers from `lowest` to `highest` or beyond, `total` being the whole deviation."""

    def outwards(end: int) -> list[int]:
        points, x = [], 0
        while x < end:
            x += max(1, int(min(GROWTH * x, TOTAL_SHARE * max(x, total))))
            points.append(x)
        return points

    if lowest > 0 or highest < 0:
        return np.arange(lowest, highest + 1)
    return np.array([-x for x in reversed(outwards(-lowest))] + [0] + outwards(highest))


def _response(response: Response, interval: float) -> LossMasses:
    """The exact masses, at losses rounded up to the grid."""
    keep = 1 - response.random + response.random / response.outputs
    flip = response.random / response.outputs
    losses = np.array([-response.epsilon, 0.0, response.epsilon])
    masses = np.array([flip, max(0.0, 1 - keep - flip), keep])
    kept = masses > 0
    indices = np.ceil(losses / interval).astype(int)
    return LossMasses(indices[kept], masses[kept], 0.0, response.times)


def _minimize(function: Callable[[float], float], deviation: float) -> float:
    """The order at which a function with one minimum is smallest.

    Orders are searched around the inverse standard deviation of the loss, on a logarithmic scale.
    """
    center = -math.log(deviation)
    found = optimize.minimize_scalar(
        lambda x: function(math.exp(x)),
        bounds=(center - 12, center + 12),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return math.exp(found.x)


def _log_factor(order: float) -> float:
    """log of the largest value of ``exp(-order x) (1 - exp(-x))``: c^c / (1 + c)^(1 + c)."""
    return order * math.log(order / (1 + order)) - math.log1p(order)
