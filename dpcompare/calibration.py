"""The noise multiplier that fits a budget: on the safe side, certified, and remembered on disk."""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from dpcompare.accounting import (
    directions,
    dpsgd_event,
    epsilon,
    group_relation,
    sampled_gaussian_event,
)
from dpcompare.compilation import cache_folder
from dpcompare.errors import UsageError
from dpcompare.label_kernel import binary_randomized_response
from dpcompare.privacy import ROW_RELATIONS, Budget, RowRelation, Schedule
from dpcompare.saddle_point import estimated_noise
from dpcompare.sampled_gaussian import SampledGaussian

ALGORITHM = 4
"""Part of every cache key; to be raised whenever calibration changes its answers."""

TOLERANCE = 1e-4
"""The share of epsilon that the search may leave unspent."""

MOST_EVALUATIONS = 100
"""Far more than any search takes: it closes in by halves where secants do not help."""

SMALLEST, LARGEST = 0.05, 1e7
"""The noise multipliers that are searched."""

LARGEST_ESTIMATED = 1e7
"""The search for a larger epsilon starts where one for this one would."""


def noise_multiplier(budget: Budget, schedule: Schedule, group_size: int = 1) -> float:
    """The noise multiplier at which DP-SGD over `schedule` fits `budget`.

    The value is rounded up to float32, in which training computes, and was itself accounted: its
    epsilon, as accounting states it, is at most the budget's and within TOLERANCE of it. Values are
    cached in the folder that the environment variable DPCOMPARE_CACHE names, by default
    ``dpcompare`` in the user's cache folder.

    Args:
        budget: epsilon (infinite: no noise), delta, relation and accountant.
        schedule: Poisson-sampled.
        group_size: rows that are drawn and clipped together.

    Raises:
        UsageError: no noise multiplier fits, the batches are shuffled, or the relation is not
            defined for groups.
        DpcompareError: the accountant's rounding errors are too large for this delta.
    """
    dpsgd_event(1.0, schedule, group_size)  # refuses shuffled batches
    relation = group_relation(budget.neighboring, group_size)
    if math.isinf(budget.epsilon):
        return 0.0
    probability = schedule.sampling_probability(group_size)
    key = {
        "algorithm": ALGORITHM,
        "dp-accounting": version("dp-accounting"),
        "epsilon": float(budget.epsilon),
        "delta": float(budget.delta),
        # Zero-out and add-or-remove-one have the same loss distributions.
        "neighboring": "replace-one" if relation == "replace-one" else "add-or-remove-one",
        "accountant": budget.accountant,
        "sampling_probability": probability,
        "steps": schedule.steps,
    }
    return _remembered(key, lambda: _search(budget, relation, probability, schedule.steps))


def calibration_report(budget: Budget, schedule: Schedule, group_size: int = 1) -> dict[str, Any]:
    """What `dpcompare calibrate` prints: JSON values, "inf" for infinity, None for not defined.

    Raises:
        UsageError: as :func:`noise_multiplier`.
    """
    sigma = noise_multiplier(budget, schedule, group_size)
    event = dpsgd_event(sigma, schedule, group_size)

    def under(relation: RowRelation) -> float | str | None:
        if group_size > 1 and relation == "add-or-remove-one":
            return None
        value = epsilon(
            event, budget.delta, group_relation(relation, group_size), budget.accountant
        )
        return value if math.isfinite(value) else "inf"

    return {
        "noise_multiplier": sigma,
        "epsilon": under(budget.neighboring),
        "delta": budget.delta,
        "neighboring": budget.neighboring,
        "accountant": budget.accountant,
        "examples": schedule.examples,
        "batch_size": schedule.batch_size,
        "steps": schedule.steps,
        "group_size": group_size,
        "sampling_probability": schedule.sampling_probability(group_size),
        "epsilon_under_other_relations": {
            relation: under(relation)
            for relation in ROW_RELATIONS
            if relation != budget.neighboring
        },
    }


def _up_to_float32(value: float) -> float:
    rounded = np.float32(value)
    return float(rounded if rounded >= value else np.nextafter(rounded, np.float32(np.inf)))


def _search(budget: Budget, relation: RowRelation, probability: float, steps: int) -> float:
    """The smallest noise multiplier found that the accountant certifies.

    Starts from an estimate and takes secants of log epsilon over log sigma, within a bracket once
    there is one. What decides is the accountant's epsilon of the rounded value alone.
    """

    def spent(sigma: float) -> float:
        event = sampled_gaussian_event(SampledGaussian(sigma, probability, steps))
        return epsilon(event, budget.delta, relation, budget.accountant)

    lowest, highest = math.log(SMALLEST), math.log(LARGEST)
    x, slope = _start(budget, relation, probability, steps)
    overspends, fits = -math.inf, math.inf  # log sigma of the closest on either side
    certified = math.inf
    last: tuple[float, float] | None = None
    for _ in range(MOST_EVALUATIONS):
        sigma = _up_to_float32(math.exp(min(highest, max(lowest, x))))
        x, excess = math.log(sigma), math.log(max(spent(sigma), 1e-300) / budget.epsilon)
        if -TOLERANCE <= excess <= 0:
            return sigma
        if excess > 0:
            overspends = max(overspends, x)
        else:
            fits, certified = min(fits, x), min(certified, sigma)
        if overspends >= highest or fits < lowest + TOLERANCE:
            break
        if last is not None and x != last[0]:
            slope = min(-0.1, (excess - last[1]) / (x - last[0]))
        last = x, excess
        x -= min(1.0, max(-1.0, (excess + TOLERANCE / 2) / slope))
        if not overspends < x < fits:
            x = (overspends + fits) / 2
        if fits - overspends < TOLERANCE / 10:
            return certified
    raise UsageError(
        f"no noise multiplier between {SMALLEST:g} and {LARGEST:g} gives epsilon "
        f"{budget.epsilon:g} at delta {budget.delta:.2e} over {steps:,} steps with sampling "
        f"probability {probability:.3g}; epsilons from about {spent(LARGEST):.2g} to "
        f"{spent(SMALLEST):.2g} can be reached"
    )


def _start(
    budget: Budget, relation: RowRelation, probability: float, steps: int
) -> tuple[float, float]:
    """Estimates of log sigma, and of the slope of log epsilon over log sigma there."""

    def log_sigma(epsilon: float) -> float:
        sigma = estimated_noise(
            epsilon, budget.delta, probability, steps, directions(relation, probability)
        )
        return min(math.log(LARGEST), max(math.log(SMALLEST), math.log(sigma)))

    near = min(budget.epsilon, LARGEST_ESTIMATED)
    at, beside = log_sigma(near), log_sigma(0.99 * near)
    slope = math.log(1 / 0.99) / min(-1e-6, at - beside)
    return at, max(-20.0, min(-0.1, slope))


def response_report(
    epsilon: float, base_rate: float | None = None, examples: int | None = None
) -> dict[str, Any]:
    """What `dpcompare calibrate --mechanism randomized-response` prints, for binary labels.

    Args:
        epsilon: of each label, > 0.
        base_rate: the public rate of ones, in (0, 1): then the effective sample size is told.
        examples: labels; None tells it as a fraction only.
    """
    kernel = binary_randomized_response(epsilon)
    report: dict[str, Any] = {
        "mechanism": "randomized-response",
        "epsilon": epsilon,
        "delta": 0.0,
        "neighboring": "replace-one-label",
        "flip_probability": float(kernel.probabilities[0, 1]),
    }
    if base_rate is None:
        return report
    fraction = kernel.effective_sample_size_fraction([base_rate])
    report |= {
        "base_rate": base_rate,
        "observed_rate": float(np.array([1 - base_rate, base_rate]) @ kernel.probabilities[:, 1]),
        "effective_sample_size_fraction": fraction,
    }
    if examples is not None:
        report |= {"examples": examples, "effective_examples": fraction * examples}
    return report


def _remembered(key: dict[str, Any], compute: Callable[[], float]) -> float:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    path = cache_folder() / f"noise-{digest[:32]}.json"
    try:
        stored = json.loads(path.read_text())
        if stored["key"] == key and stored["noise_multiplier"] > 0:
            return float(stored["noise_multiplier"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there, or damaged: it is made again
    value = compute()
    _store(path, json.dumps({"key": key, "noise_multiplier": value}))
    return value


def _store(path: Path, text: str) -> None:
    """Written whole or not at all; a folder that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:
        return
