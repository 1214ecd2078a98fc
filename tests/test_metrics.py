"""Metrics by hand computation, and where they are undefined."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from sklearn.metrics import average_precision_score, d2_tweedie_score, mean_poisson_deviance

from dpcompare.metrics import binary_metrics, count_metrics


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


def test_average_precision_is_that_of_scikit_learn():
    rng = np.random.default_rng(3)
    labels = (rng.random(400) < 0.1).astype(int)
    scores = np.round(rng.random(400), 2)  # with ties
    found = binary_metrics(labels, scores)["average_precision"]
    assert found == pytest.approx(average_precision_score(labels, scores), rel=1e-12)


def test_average_precision_by_hand_and_of_a_constant():
    # positives at ranks 1 and 3: (1/1 + 2/3) / 2
    by_hand = binary_metrics([1, 0, 1, 0], [0.9, 0.8, 0.7, 0.1])["average_precision"]
    assert by_hand == pytest.approx(5 / 6)
    constant = binary_metrics([1, 0, 0, 0], [0.3] * 4)["average_precision"]
    assert constant == pytest.approx(1 / 4)
    assert binary_metrics([0, 0], [0.1, 0.2])["average_precision"] is None
    assert binary_metrics([1, 1], [0.1, 0.2])["average_precision"] == 1.0


def counts(rows: int = 500, mean: float = 0.3):
    rng = np.random.default_rng(5)
    means = rng.gamma(1.0, mean, rows) + 1e-4
    return rng.poisson(means).astype(float), means * rng.uniform(0.5, 2.0, rows)


def test_count_metrics_are_those_of_scikit_learn():
    labels, means = counts()
    found = count_metrics(labels, means)
    assert found["deviance"] == pytest.approx(mean_poisson_deviance(labels, means), rel=1e-12)
    assert found["d2"] == pytest.approx(d2_tweedie_score(labels, means, power=1), rel=1e-12)
    assert found["calibration"] == pytest.approx(means.sum() / labels.sum())
    assert (found["rows"], found["total"]) == (500, labels.sum())


def test_the_poisson_loss_is_the_negative_log_likelihood_without_its_constant():
    labels, means = counts()
    found = count_metrics(labels, means)["poisson_loss"]
    likelihood = stats.poisson.logpmf(labels, means) + gammaln(labels + 1)
    assert found == pytest.approx(-likelihood.mean(), rel=1e-12)


def test_the_poisson_loss_may_be_negative():
    assert count_metrics([5, 6], [5.0, 6.0])["poisson_loss"] < 0


def test_hand_computed_counts():
    found = count_metrics([0, 2], [1.0, 1.0])
    assert found["poisson_loss"] == pytest.approx(1.0)
    assert found["deviance"] == pytest.approx(2 * (1 + 2 * math.log(2) - 1) / 2)
    assert found["d2"] == pytest.approx(0.0)
    assert found["calibration"] == pytest.approx(1.0)


def test_perfect_counts_have_no_deviance_and_a_d2_of_one():
    found = count_metrics([1, 2, 3], [1.0, 2.0, 3.0])
    assert found["deviance"] == pytest.approx(0.0, abs=1e-15)
    assert found["d2"] == pytest.approx(1.0)


def test_a_rate_towards_0_costs_nothing_where_nothing_was_counted():
    found = count_metrics([0, 0, 1], [1e-300, 5e-324, 1.0])
    assert found["deviance"] == pytest.approx(0.0, abs=1e-15)
    assert found["poisson_loss"] == pytest.approx(1 / 3)


def test_fractional_counts_are_scored():
    found = count_metrics([0.36, 0.0], [0.36, 0.1])
    assert found["deviance"] == pytest.approx(0.1)


@pytest.mark.parametrize("label", [0, 2])
def test_constant_counts_leave_d2_undefined(label):
    found = count_metrics([label] * 3, [1.0, 2.0, 3.0])
    assert found["d2"] is None
    assert math.isfinite(found["deviance"])
    assert (found["calibration"] is None) == (label == 0)


def test_a_huge_rate_costs_a_finite_amount():
    found = count_metrics([0, 1], [math.exp(90), 1.0])
    assert math.isfinite(found["poisson_loss"])
    assert math.isfinite(found["deviance"])
    assert found["d2"] < -1e30


@pytest.mark.parametrize(
    ("labels", "means", "message"),
    [
        ([0, 1], [0.5], "lengths"),
        ([], [], "lengths"),
        ([0, 1], [0.5, math.nan], "means"),
        ([0, 1], [0.5, math.inf], "means"),
        ([0, 1], [0.5, 0.0], "means"),
        ([0, 1], [0.5, -1.0], "means"),
        ([0, -1], [0.5, 0.5], "counts"),
        ([0, math.nan], [0.5, 0.5], "counts"),
    ],
)
def test_what_is_no_count_or_no_mean_is_refused(labels, means, message):
    with pytest.raises(ValueError, match=message):
        count_metrics(labels, means)


def test_losses_are_means_over_rows_and_the_rest_is_not():
    """Scores of the whole are not the mean of the scores of unequal batches."""
    labels, means = counts(300)
    whole = count_metrics(labels, means)
    parts = [count_metrics(labels[s], means[s]) for s in (slice(0, 40), slice(40, 300))]
    for name in ("poisson_loss", "deviance"):
        weighted = (40 * parts[0][name] + 260 * parts[1][name]) / 300
        assert whole[name] == pytest.approx(weighted, rel=1e-12)
    assert whole["d2"] != pytest.approx((parts[0]["d2"] + parts[1]["d2"]) / 2, rel=1e-3)
    order = np.random.default_rng(0).permutation(300)
    shuffled = count_metrics(labels[order], means[order])
    for name in ("poisson_loss", "deviance", "d2", "calibration"):
        assert shuffled[name] == pytest.approx(whole[name], rel=1e-12)
