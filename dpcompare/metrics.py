"""Utility of predictions: exact, over whole sets, never averaged over batches."""

from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.metrics import average_precision_score, roc_auc_score

# The log loss reads predictions no closer to 0 or 1 than this, about the resolution of float32
# at 1, so that one saturated row costs a finite 16 nats.
SMALLEST_PROBABILITY = 1e-7


class BinaryMetrics(TypedDict):
    """What is reported for a binary task; None where a metric is not defined.

    Attributes:
        auc: area under the ROC curve; None if all labels are equal.
        log_loss: mean negative log-likelihood, in nats.
        normalized_entropy: log loss over that of the constant base rate of the same rows; below 1
            is better than the base rate. 1 minus it is what Criteo calls LLH-CompVN.
        calibration: sum of predictions over sum of labels; 1 is calibrated.
        average_precision: mean precision over the positives, from the highest prediction down;
            None if there are none. That of a random order is the share of positives.
        rows: how many rows were scored.
        positives: how many of them have label 1.
    """

    auc: float | None
    log_loss: float
    normalized_entropy: float | None
    calibration: float | None
    average_precision: float | None
    rows: int
    positives: int


class CountMetrics(TypedDict):
    """What is reported for a count; None where a metric is not defined.

    Attributes:
        poisson_loss: mean of ``m - y log m`` for predicted means m, in nats (arXiv 2211.11896,
            eq. 1): the negative log-likelihood without ``log(y!)``; it may be negative.
        deviance: mean Poisson deviance ``2 (y log(y / m) - y + m)``; 0 for a perfect prediction.
        d2: 1 minus deviance over that of the constant mean of the same rows; above 0 is better
            than the constant, 1 is perfect. None if all labels are equal.
        calibration: sum of predictions over sum of labels; 1 is calibrated.
        rows: how many rows were scored.
        total: the sum of their labels.
    """

    poisson_loss: float
    deviance: float
    d2: float | None
    calibration: float | None
    rows: int
    total: float


def binary_metrics(labels: ArrayLike, predictions: ArrayLike) -> BinaryMetrics:
    """Score predicted probabilities against true labels.

    Args:
        labels: (n,) zeros and ones.
        predictions: (n,) probabilities of a one.

    Raises:
        ValueError: no rows, different lengths, or a prediction outside [0, 1] (nan included).
    """
    y = np.asarray(labels, dtype=np.float64)
    p = np.asarray(predictions, dtype=np.float64)
    if y.ndim != 1 or y.shape != p.shape or y.size == 0:
        raise ValueError(f"expected two equal, non-empty lengths, got {y.shape} and {p.shape}")
    if not np.all((p >= 0) & (p <= 1)):
        raise ValueError("predictions must be probabilities; some are nan or outside [0, 1]")
    positives = float(y.sum())
    one_class = positives in (0.0, float(y.size))
    loss = log_loss(y, p)
    base_loss = log_loss(y, np.full_like(y, positives / y.size))
    return BinaryMetrics(
        auc=None if one_class else float(roc_auc_score(y, p)),
        log_loss=loss,
        normalized_entropy=None if one_class else loss / base_loss,
        calibration=float(p.sum()) / positives if positives else None,
        average_precision=float(average_precision_score(y, p)) if positives else None,
        rows=int(y.size),
        positives=int(positives),
    )


def count_metrics(labels: ArrayLike, predictions: ArrayLike) -> CountMetrics:
    """Score predicted means against true counts.

    Args:
        labels: (n,) numbers >= 0.
        predictions: (n,) means, finite and above 0.

    Raises:
        ValueError: no rows, different lengths, a label below 0, or a prediction that is no mean.
    """
    y = np.asarray(labels, dtype=np.float64)
    m = np.asarray(predictions, dtype=np.float64)
    if y.ndim != 1 or y.shape != m.shape or y.size == 0:
        raise ValueError(f"expected two equal, non-empty lengths, got {y.shape} and {m.shape}")
    if not np.all((y >= 0) & np.isfinite(y)):
        raise ValueError("counts must be 0 or more")
    if not np.all((m > 0) & np.isfinite(m)):
        raise ValueError("predicted means must be finite and above 0")
    total = float(y.sum())
    deviance = poisson_deviance(y, m)
    constant = poisson_deviance(y, np.full_like(y, total / y.size)) if total else 0.0
    return CountMetrics(
        poisson_loss=float(np.mean(m - y * np.log(m))),
        deviance=deviance,
        d2=1 - deviance / constant if np.any(y != y[0]) else None,
        calibration=float(m.sum()) / total if total else None,
        rows=int(y.size),
        total=total,
    )


def poisson_deviance(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Mean Poisson deviance of (n,) counts and (n,) predicted means, in nats."""
    return float(2 * np.mean(xlogy(labels, labels / predictions) - labels + predictions))


def log_loss(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Mean negative log-likelihood in nats, (n,) labels and (n,) probabilities."""
    p = np.clip(predictions, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return float(-np.mean(labels * np.log(p) + (1 - labels) * np.log1p(-p)))
