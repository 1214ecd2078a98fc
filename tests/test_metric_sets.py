"""Which metrics a task has, and what the best constant prediction scores by them."""

import math

import numpy as np
import pytest

from dpcompare import tasks
from dpcompare.errors import UsageError
from dpcompare.metric_sets import BINARY, COUNT, METRICS, constant_scores, metric_set
from dpcompare.metrics import BinaryMetrics, CountMetrics, binary_metrics, count_metrics

SIZES = {"rows", "positives", "total"}


@pytest.mark.parametrize("task", tasks.TASKS)
def test_every_task_has_metrics_that_are_measured_and_described(task):
    metrics = metric_set(task)
    measured = CountMetrics if task in tasks.COUNT_TITLES else BinaryMetrics
    assert set(metrics.names) == set(measured.__annotations__) - SIZES
    assert set(metrics.names) <= set(METRICS)
    assert metrics.names[0] == metrics.main
    assert METRICS[metrics.selection].better == "lower"


def test_the_main_metrics():
    assert [metric_set(task).main for task in ("pctr", "pcvr", "pconvs")] == [
        "auc",
        "auc",
        "poisson_loss",
    ]


def test_an_unknown_task_is_named():
    with pytest.raises(UsageError, match=r"'pconv' is unknown \(did you mean 'pconvs'\?\)"):
        metric_set("pconv")


def test_worse_than_the_constant():
    assert BINARY.worse_than_constant(1.01)
    assert not BINARY.worse_than_constant(1.0)
    assert COUNT.worse_than_constant(-0.01)
    assert not COUNT.worse_than_constant(0.0)
    assert not BINARY.worse_than_constant(math.nan)
    assert not COUNT.worse_than_constant(math.nan)


def test_scores_of_any_predictions_tell_those_of_the_base_rate():
    rng = np.random.default_rng(0)
    labels = (rng.random(500) < 0.1).astype(int)
    told = constant_scores(binary_metrics(labels, rng.random(500)), BINARY)
    direct = binary_metrics(labels, np.full(500, labels.mean()))
    assert set(told) == set(BINARY.names)
    for name in BINARY.names:
        assert told[name] == pytest.approx(direct[name], rel=1e-12), name


def test_scores_of_any_predictions_tell_those_of_the_constant_mean():
    rng = np.random.default_rng(0)
    labels = rng.poisson(0.3, 500)
    told = constant_scores(count_metrics(labels, rng.gamma(1.0, 0.3, 500) + 1e-3), COUNT)
    direct = count_metrics(labels, np.full(500, labels.mean()))
    assert set(told) == set(COUNT.names)
    for name in COUNT.names:
        assert told[name] == pytest.approx(direct[name], rel=1e-10, abs=1e-12), name


def test_what_scores_do_not_tell_is_nan():
    one_class = constant_scores(binary_metrics([0, 0], [0.1, 0.2]), BINARY)
    assert math.isnan(one_class["log_loss"])
    assert one_class["auc"] == 0.5
    constant = constant_scores(count_metrics([2, 2], [1.0, 3.0]), COUNT)
    assert math.isnan(constant["poisson_loss"])
    assert math.isnan(constant["deviance"])
    perfect = constant_scores({"d2": 1.0, "deviance": 0.0, "poisson_loss": 0.1}, COUNT)
    assert math.isnan(perfect["deviance"])
