"""What released gradients cost, accounted anew by dp-accounting alone from what training does."""

import math
from functools import cache
from typing import NamedTuple

from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from dpcompare import shuffling
from dpcompare.mechanism import GradientRelease
from dpcompare.privacy import RowRelation, Schedule, default_delta

_FINEST, _COARSEST = 1e-5, 1e-2  # grid of the privacy loss
_POINTS = 1000  # of the grid, per epsilon


class Bounds(NamedTuple):
    """An interval that holds the true epsilon."""

    at_least: float
    at_most: float


def epsilon_bounds(
    gradient: GradientRelease, schedule: Schedule, relation: RowRelation, scale: float
) -> Bounds:
    """The epsilon of gradient sums of every step of a schedule, at the default delta.

    For Poisson-drawn batches these are dp-accounting's optimistic and pessimistic estimates of
    the privacy loss; what is drawn is a group, and a row that vanishes from a group moves a
    clipped sum as a replaced one does. For shuffled batches there is a lower bound only.

    Args:
        gradient: noise and group size as training uses them.
        schedule: how often.
        relation: any, but add-or-remove-one for groups.
        scale: an epsilon of the right size; the grid is a thousandth of it.
    """
    sigma = float(gradient.noise_multiplier)
    if sigma == 0:
        return Bounds(math.inf, math.inf)
    if schedule.sampling == "shuffle":
        return Bounds(_shuffled(sigma, schedule, relation), math.inf)
    probability = schedule.sampling_probability(gradient.group_size)
    replaced = relation == "replace-one" or gradient.group_size > 1
    grid = min(_COARSEST, max(_FINEST, scale / _POINTS))
    return _poisson(sigma, probability, replaced, schedule, grid)


@cache
def _poisson(
    sigma: float, probability: float, replaced: bool, schedule: Schedule, grid: float
) -> Bounds:
    def estimate(pessimistic: bool) -> float:
        step = pld.from_gaussian_mechanism(
            sigma,
            pessimistic_estimate=pessimistic,
            value_discretization_interval=grid,
            sampling_prob=probability,
            use_connect_dots=pessimistic,
            neighboring_relation=NeighboringRelation.REPLACE_ONE
            if replaced
            else NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        total = step.self_compose(schedule.steps)
        return float(total.get_epsilon_for_delta(default_delta(schedule.examples)))

    return Bounds(estimate(False), estimate(True))


def _shuffled(sigma: float, schedule: Schedule, relation: RowRelation) -> float:
    """Of the whole epochs; where rows may be added or removed nothing is known here."""
    per_epoch = -(-schedule.examples // schedule.batch_size)
    epochs = schedule.steps // per_epoch
    if epochs < 1 or relation == "add-or-remove-one":
        return 0.0
    delta = default_delta(schedule.examples)
    return shuffling.epsilon_lower_bound(sigma, per_epoch, epochs, delta)
