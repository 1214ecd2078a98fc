"""The labels of the synthetic ads log and the true rates behind them.

A *predictor* is what a true rate is made from: the log-odds of a click ("pctr"), the log-odds of a
conversion given a click ("pcvr"), or the log of the mean number of conversions of a click
("pconvs").
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dpcompare.data import ads_shape

Float64Array = npt.NDArray[np.float64]
ByTask = dict[str, Float64Array]

LABEL_TYPES: dict[str, type[Any]] = {"pctr": np.uint8, "pcvr": np.uint8, "pconvs": np.float32}

_DRIFTS = {
    "pctr": ads_shape.DRIFT,
    "pcvr": ads_shape.CONVERSION_DRIFT,
    "pconvs": ads_shape.CONVERSION_DRIFT,
}
# At the largest mean, more than this has a probability below 1e-28. It also ends sums that rounding
# keeps just below 1, where a uniform lies above them: one row in about 1e16.
_LARGEST_COUNT = 1000


def combine(click: Float64Array, conversions: Float64Array, second_effects: ByTask) -> ByTask:
    """Add products of two columns to the columns' own effects, and one task's to another's.

    Args:
        click: (n,) sum of the columns' effects on a click; changed in place.
        conversions: (2, n) sums of their effects on a conversion and on the count; changed too.
        second_effects: by column (n,) factors of products.

    Returns:
        The predictors, (n,) each, before drift and intercept.
    """
    conversion, count = conversions
    for predictor, pairs in (
        (click, ads_shape.PAIRS),
        (conversion, ads_shape.CONVERSION_PAIRS),
        (count, ads_shape.COUNT_PAIRS),
    ):
        for first, second, strength in pairs:
            predictor += strength * second_effects[first] * second_effects[second]
    conversion += ads_shape.CONVERSION_FROM_CLICK * click
    count += ads_shape.COUNT_FROM_CONVERSION * conversion
    return {"pctr": click, "pcvr": conversion, "pconvs": count}


def with_drift(predictors: ByTask, position: Float64Array) -> ByTask:
    """The predictors at the given positions of the log, (n,) in 0 to 1."""
    return {task: values + _DRIFTS[task] * position for task, values in predictors.items()}


def intercept(log_odds: Float64Array, rate: float) -> float:
    """What must be added to (n,) log-odds so that their mean rate is `rate`, by bisection."""
    low, high = -100.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(np.mean(_sigmoid(log_odds + middle)))
        low, high = (middle, high) if mean < rate else (low, middle)
    return (low + high) / 2


def true_rates(predictors: ByTask, click_intercept: float, conversion_intercept: float) -> ByTask:
    """Probabilities of a click and of a conversion, and mean counts, (n,) each."""
    log_means = predictors["pconvs"] + ads_shape.COUNT_INTERCEPT
    return {
        "pctr": _sigmoid(predictors["pctr"] + click_intercept),
        "pcvr": _sigmoid(predictors["pcvr"] + conversion_intercept),
        "pconvs": np.exp(np.clip(log_means, *ads_shape.COUNT_BOUNDS)),
    }


def draw(rates: ByTask, uniforms: ByTask) -> dict[str, npt.NDArray[Any]]:
    """One label per true rate, from one uniform in [0, 1) each, independently of each other."""
    labels = {
        "pctr": uniforms["pctr"] < rates["pctr"],
        "pcvr": uniforms["pcvr"] < rates["pcvr"],
        "pconvs": negative_binomial(uniforms["pconvs"], rates["pconvs"], ads_shape.GAMMA_SHAPE),
    }
    return {task: labels[task].astype(kind) for task, kind in LABEL_TYPES.items()}


def negative_binomial(uniforms: Float64Array, means: Float64Array, shape: float) -> Float64Array:
    """Counts that are Poisson with mean ``G m``, where G is gamma distributed with mean 1.

    This mixture is the negative binomial distribution of mean m and variance ``m + m**2 / shape``.
    It is inverted by adding up ``P(0) = (shape / (shape + m))**shape`` and
    ``P(k) = P(k - 1) * (k - 1 + shape) / k * m / (shape + m)``, so that the counts depend on the
    uniforms and on no library's choice of algorithm.

    Args:
        uniforms: (n,) in [0, 1).
        means: (n,) m, above 0.
        shape: of G, above 0.

    Returns:
        (n,) whole numbers, at most 1000; each grows with its uniform.
    """
    counts = np.zeros(len(means))
    rows = np.arange(len(means))
    ratio = means / (means + shape)
    term = (shape / (means + shape)) ** shape
    reached = term
    for count in range(1, _LARGEST_COUNT + 1):
        above = uniforms >= reached
        if not above.any():
            break
        rows, uniforms, ratio = rows[above], uniforms[above], ratio[above]
        counts[rows] = count
        term = term[above] * ratio * ((count - 1 + shape) / count)
        reached = reached[above] + term
    return counts


def _sigmoid(log_odds: Float64Array) -> Float64Array:
    return 1.0 / (1.0 + np.exp(-log_odds))
