"""Metrics by hand computation, and where they are undefined."""

import math

import numpy as np
import pytest

from dpcompare.metrics import binary_metrics


def test_hand_computed_values():
    metrics = binary_metrics([0, 1, 0, 1], [0.1, 0.2, 0.8, 0.9])
    expected = -(math.log(0.9) + math.log(0.2) + math.log(0.2) + math.log(0.9)) / 4
    assert metrics["auc"] == pytest.approx(0.75)  # the mean of two batches would say 1.0
    assert metrics["log_loss"] == pytest.approx(expected)
    assert metrics["normalized_entropy"] == pytest.approx(expected / math.log(2))
    assert metrics["calibration"] == pytest.approx(1.0)
    assert (metrics["rows"], metrics["positives"]) == (4, 2)


def test_ties_count_half():
    assert binary_metrics([0, 1, 1, 0], [0.5] * 4)["auc"] == pytest.approx(0.5)


def test_the_base_rate_scores_one():
    labels = np.array([1, 0, 0, 0])
    metrics = binary_metrics(labels, np.full(4, 0.25))
    assert metrics["normalized_entropy"] == pytest.approx(1.0)
    assert metrics["calibration"] == pytest.approx(1.0)


def test_one_class_leaves_ranking_undefined():
    metrics = binary_metrics([0, 0, 0], [0.1, 0.2, 0.3])
    assert metrics["auc"] is None
    assert metrics["normalized_entropy"] is None
    assert metrics["calibration"] is None
    assert math.isfinite(metrics["log_loss"])


def test_saturated_mistakes_cost_a_finite_amount():
    assert binary_metrics([1, 0], [0.0, 0.5])["log_loss"] == pytest.approx(
        (-math.log(1e-7) + math.log(2)) / 2
    )


@pytest.mark.parametrize("predictions", [[0.5, math.nan], [0.5, 1.1], [0.5], []])
def test_bad_predictions_are_refused(predictions):
    with pytest.raises(ValueError, match=r"probabilities|lengths"):
        binary_metrics([0, 1], predictions)
