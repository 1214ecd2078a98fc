"""The formula of Hanley and McNeil against exponential scores, for which it is exact."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score

from dpcompare.auc_error import auc_standard_error
from dpcompare.errors import UsageError


def aucs(auc, positives, negatives, samples, seed):
    """The AUC of samples of exponential scores; P(positive > negative) is scale / (1 + scale)."""
    draws = np.random.default_rng(seed)
    high = draws.exponential(auc / (1 - auc), (samples, positives))
    low = draws.exponential(1.0, (samples, negatives))
    ranks = rankdata(np.concatenate([high, low], axis=1), axis=1)[:, :positives]
    return (ranks.sum(1) - positives * (positives + 1) / 2) / (positives * negatives)


@pytest.mark.parametrize(
    ("auc", "positives", "negatives"), [(0.78, 60, 140), (0.6, 30, 300), (0.95, 100, 40)]
)
def test_it_is_the_spread_over_samples_of_exponential_scores(auc, positives, negatives):
    found = aucs(auc, positives, negatives, samples=6000, seed=positives)
    assert found.mean() == pytest.approx(auc, abs=4 * found.std() / 6000**0.5)
    # The standard error of a standard deviation of 6000 samples is about 1%.
    expected = auc_standard_error(auc, positives, negatives)
    assert found.std() == pytest.approx(expected, rel=0.04)


def test_it_is_near_the_bootstrap_for_normal_scores():
    draws = np.random.default_rng(1)
    labels = np.arange(3000) < 800
    scores = draws.normal(1.0 * labels, 1.0)
    samples = [draws.integers(0, 3000, 3000) for _ in range(300)]
    bootstrap = np.std([roc_auc_score(labels[rows], scores[rows]) for rows in samples])
    expected = auc_standard_error(roc_auc_score(labels, scores), 800, 2200)
    assert expected == pytest.approx(bootstrap, rel=0.15)


def test_a_perfect_order_has_none_and_chance_has_that_of_the_rank_sum():
    assert auc_standard_error(1.0, 10, 20) == 0
    expected = ((10 + 20 + 1) / (12 * 10 * 20)) ** 0.5
    assert auc_standard_error(0.5, 10, 20) == pytest.approx(expected)


@pytest.mark.parametrize(("auc", "positives", "negatives"), [(1.1, 5, 5), (0.5, 0, 5), (0.5, 5, 0)])
def test_what_has_no_error_is_refused(auc, positives, negatives):
    with pytest.raises(UsageError):
        auc_standard_error(auc, positives, negatives)
