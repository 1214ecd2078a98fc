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
from scipy import optimize
from scipy.stats import norm

from dpcompare.accounting import (
    SampledGaussian,
    delta_of,
    dpsgd_event,
    epsilon,
    group_relation,
    sampled_gaussian_event,
)
from dpcompare.errors import UsageError
from dpcompare.privacy import ROW_RELATIONS, AccountantName, Budget, RowRelation, Schedule

ALGORITHM = 3
"""Part of every cache key; to be raised whenever calibration changes its answers."""

TOLERANCE = 2e-4
"""Relative excess of noise that the search may leave."""

SMALLEST, LARGEST = 0.05, 1e7
"""The noise multipliers that are searched."""


def noise_multiplier(budget: Budget, schedule: Schedule, group_size: int = 1) -> float:
    """The noise multiplier at which DP-SGD over `schedule` fits `budget`.

    The value is rounded up to float32, in which training computes, and was itself accounted: its
    epsilon is at most the budget's. The smallest one of which that is true is at most a per mille
    lower. Values are cached in the folder that the environment variable DPCOMPARE_CACHE names, by
    default ``dpcompare`` in the user's cache folder.

    Args:
        budget: epsilon (infinite: no noise), delta, relation and accountant.
        schedule: Poisson-sampled.
        group_size: rows that are drawn and clipped together.

    Raises:
        UsageError: no noise multiplier fits, the batches are shuffled, or the relation is not
            defined for groups.
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
    """The smallest noise multiplier found that fits, close above the root of the excess."""

    def epsilon_of(sigma: float, accountant: AccountantName = budget.accountant) -> float:
        event = sampled_gaussian_event(SampledGaussian(sigma, probability, steps))
        return epsilon(event, budget.delta, relation, accountant)

    least, most = epsilon_of(LARGEST, "rdp"), epsilon_of(SMALLEST, "rdp")
    if not least < budget.epsilon < most:
        raise UsageError(
            f"no noise multiplier between {SMALLEST:g} and {LARGEST:g} gives epsilon "
            f"{budget.epsilon:g} at delta {budget.delta:.2e} over {steps:,} steps with sampling "
            f"probability {probability:.3g}; epsilons from about {least:.2g} to {most:.2g} can be "
            "reached"
        )
    excess = _excess(budget, relation, probability, steps)
    fitting: list[float] = []

    def log_excess(log_sigma: float) -> float:
        value = excess(math.exp(log_sigma))
        if value <= 0:
            fitting.append(math.exp(log_sigma))
        return value

    start = math.log(_gaussian_limit(budget, probability, steps))
    low, high = _bracket(log_excess, start)
    root = optimize.brentq(log_excess, low, high, xtol=TOLERANCE / 4)
    while min(fitting) > math.exp(root) * (1 + TOLERANCE):
        root += TOLERANCE / 4
        log_excess(root)
    sigma = _up_to_float32(min(fitting))
    # What is stated of the trial is an epsilon, whose rounding is not that of the search's delta.
    while epsilon_of(sigma) > budget.epsilon:
        sigma = _up_to_float32(sigma * (1 + TOLERANCE / 20))
    return sigma


def _excess(
    budget: Budget, relation: RowRelation, probability: float, steps: int
) -> Callable[[float], float]:
    """A falling function of the noise multiplier that is above 0 where the budget is overspent."""

    def by_delta(sigma: float) -> float:
        gaussian = SampledGaussian(sigma, probability, steps)
        delta = delta_of(gaussian, budget.epsilon, relation)
        return math.log(max(delta, 1e-300) / budget.delta)

    def by_epsilon(sigma: float) -> float:
        event = sampled_gaussian_event(SampledGaussian(sigma, probability, steps))
        spent = epsilon(event, budget.delta, relation, "rdp")
        return math.log(max(spent, 1e-300) / budget.epsilon)

    return by_delta if budget.accountant == "pld" else by_epsilon


def _bracket(function: Callable[[float], float], start: float) -> tuple[float, float]:
    """Points around the root of a falling function, by growing steps from `start`."""
    x, above = start, function(start) > 0
    step = 0.02 if above else -0.02
    while True:
        last, x = x, x + step
        if (function(x) > 0) != above:
            return min(last, x), max(last, x)
        step *= 2


def _gaussian_limit(budget: Budget, probability: float, steps: int) -> float:
    """The noise multiplier in the limit of many small steps, where the search starts.

    The composition tends to one Gaussian mechanism of noise multiplier 1 / mu with
    ``mu = q sqrt(T (exp(1 / sigma^2) - 1))`` (Bu et al., arXiv 1911.11607), whose exact delta is
    that of Balle and Wang (arXiv 1805.06530).
    """

    def excess(log_mu: float) -> float:
        mu, e = math.exp(log_mu), budget.epsilon
        hidden = math.exp(min(700.0, e + norm.logcdf(-mu / 2 - e / mu)))
        return norm.cdf(mu / 2 - e / mu) - hidden - budget.delta

    mu = math.exp(optimize.brentq(excess, math.log(1e-9), math.log(1e4)))
    return 1 / math.sqrt(math.log1p((mu / probability) ** 2 / steps))


def _remembered(key: dict[str, Any], compute: Callable[[], float]) -> float:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    path = _cache_folder() / f"noise-{digest[:32]}.json"
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


def _cache_folder() -> Path:
    if named := os.environ.get("DPCOMPARE_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "dpcompare"
