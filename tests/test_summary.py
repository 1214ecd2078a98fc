"""The summary of every task: which columns it has, and what they hold."""

import math
from typing import Any

import pytest

from dpcompare.errors import UsageError
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.summary import summarize
from tests.fabricated_records import (
    CONSTANT_DEVIANCE,
    CONSTANT_POISSON,
    CONVERSION_ENTROPY,
    conversions,
    count_scores,
    failed,
    record,
    study,
)


@pytest.mark.parametrize("task", ["pcvr", "pconvs"])
def test_columns_are_those_of_the_task(task: str) -> None:
    summary = summarize(conversions(task))
    assert [name for name in METRICS if name in summary] == [
        name for name in METRICS if name in metric_set(task).names
    ]
    for name in metric_set(task).names:
        for column in (f"{name}_se", f"{name}_n", f"validation_{name}", f"best_possible_{name}"):
            assert column in summary
    assert len(summary) == 1 + 6 * 9


def test_worse_than_the_constant_is_a_negative_d2() -> None:
    summary = summarize(conversions("pconvs"))
    assert (summary["worse_than_constant"] == (summary["d2"] < 0)).all()
    assert 0 < summary["worse_than_constant"].sum() < len(summary)


def test_the_constant_of_each_loss_is_a_column() -> None:
    counts, binary = summarize(conversions("pconvs")), summarize(conversions("pcvr"))
    assert counts["constant_poisson_loss"].iloc[0] == pytest.approx(CONSTANT_POISSON, rel=1e-9)
    assert counts["constant_deviance"].iloc[0] == pytest.approx(CONSTANT_DEVIANCE, rel=1e-9)
    assert counts["constant_d2"].iloc[0] == 0
    assert binary["constant_log_loss"].iloc[0] == pytest.approx(CONVERSION_ENTROPY, rel=1e-9)
    assert binary["constant_average_precision"].iloc[0] == pytest.approx(0.03)


def test_a_diverged_trial_does_not_spoil_the_constant() -> None:
    counts: dict[str, Any] = {"task": "pconvs", "metric": "poisson_loss"}
    made = [record("x", 1.0, 0, test=count_scores(-1e20), **counts)]
    made += [record("y", 1.0, 0, test=count_scores(0.05), **counts)]
    made += [failed("z", 1.0, 0, "diverged", **counts)]
    value = summarize(made)["constant_poisson_loss"].iloc[0]
    assert value == pytest.approx(CONSTANT_POISSON, rel=1e-9)


def test_constant_counts_have_no_d2_and_are_left_out_of_its_mean() -> None:
    counts: dict[str, Any] = {"task": "pconvs", "metric": "poisson_loss"}
    undefined = count_scores(0.05) | {"d2": None}
    scores = [count_scores(0.04), undefined, count_scores(0.06)]
    made = [record("x", 1.0, seed, test=test, **counts) for seed, test in enumerate(scores)]
    row = summarize(made).iloc[0]
    assert row["d2"] == pytest.approx(0.05)
    assert (row["d2_n"], row["poisson_loss_n"], row["n_seeds"]) == (2, 3, 3)


def test_records_from_before_average_precision_are_read() -> None:
    summary = summarize(study())
    assert summary["average_precision"].isna().all()
    assert (summary["average_precision_n"] == 0).all()
    assert summary["auc"].notna().all()


def test_effective_examples_are_a_mean_over_seeds() -> None:
    made = [
        record("rr", 1.0, seed, diagnostics={"effective_examples": 1000.0 + seed})
        for seed in range(3)
    ]
    summary = summarize([*made, record("dp-sgd", 1.0, 0)])
    assert summary["effective_examples"].iloc[0] == 1001
    assert math.isnan(summary["effective_examples"].iloc[1])


def test_an_unknown_task_is_a_clear_error() -> None:
    with pytest.raises(UsageError, match="'pctrs' is unknown"):
        summarize([record("x", 1.0, 0, task="pctrs")])
