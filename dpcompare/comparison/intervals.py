"""The difference of two means over seeds, with its interval."""

import math
from typing import Any

import numpy as np
from scipy import stats

from dpcompare.crossover import CONFIDENCE


def difference_interval(a: dict[int, float], b: dict[int, float], paired: bool) -> dict[str, Any]:
    """The difference b - a with its t interval: over shared seeds, or by Welch (1947)."""
    shared = sorted(a.keys() & b.keys())
    first, second = np.array(list(a.values())), np.array(list(b.values()))
    if paired and len(shared) > 1:
        changes = np.array([b[seed] - a[seed] for seed in shared])
        difference, freedom = float(changes.mean()), float(len(shared) - 1)
        variance, kind = variance_of_mean(changes), "paired"
    else:
        difference = float(second.mean()) - float(first.mean()) if a and b else math.nan
        parts = variance_of_mean(first), variance_of_mean(second)
        variance, kind = sum(parts), "Welch"
        freedom = _welch_freedom(parts, (first.size, second.size))
    margin = math.nan
    if not math.isnan(variance):
        margin = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(variance)
    return {
        "difference": difference,
        "low": difference - margin,
        "high": difference + margin,
        "interval": "" if math.isnan(margin) else kind,
        "n_pairs": len(shared) if kind == "paired" else 0,
    }


def variance_of_mean(values: np.ndarray) -> float:
    """Its estimate with ddof = 1; nan for fewer than two values."""
    if values.size < 2 or not np.isfinite(values).all():
        return math.nan
    return float(values.var(ddof=1)) / values.size


def _welch_freedom(parts: tuple[float, float], counts: tuple[int, int]) -> float:
    """Degrees of freedom after Welch and Satterthwaite; the smaller ones where nothing varies."""
    spread = sum(part**2 / (n - 1) for part, n in zip(parts, counts, strict=True) if n > 1)
    return sum(parts) ** 2 / spread if spread else float(max(min(counts) - 1, 1))
