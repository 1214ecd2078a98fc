"""Utility of predicted probabilities: exact, over whole sets, never averaged over batches."""

from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_auc_score

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
        rows: how many rows were scored.
        positives: how many of them have label 1.
    """

    auc: float | None
    log_loss: float
    normalized_entropy: float | None
    calibration: float | None
    rows: int
    positives: int


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
        rows=int(y.size),
        positives=int(positives),
    )


def log_loss(labels: np.ndarray, predictions: np.ndarray) -> float:
    """Mean negative log-likelihood in nats, (n,) labels and (n,) probabilities."""
    p = np.clip(predictions, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return float(-np.mean(labels * np.log(p) + (1 - labels) * np.log1p(-p)))
