"""The figure over training rows: one curve per mechanism, whatever its number of rows."""

import math
from typing import Any

import numpy as np
import pytest

from dpcompare.figures.style import NothingToDraw
from dpcompare.figures.training_rows import training_rows
from dpcompare.summary import summarize
from tests.fabricated_records import metrics, record
from tests.figures.readable import cut_or_overlapping

SIZES = (20_000, 100_000, 500_000)


def sized(mechanism: str, epsilon: float, rise: float) -> list[dict[str, Any]]:
    made = []
    for place, rows in enumerate(SIZES):
        for seed in range(3):
            auc = 0.70 + rise * place + 0.002 * seed
            schedule = {"examples": rows, "batch_size": 1024, "steps": 10, "sampling": "shuffle"}
            made.append(
                record(
                    mechanism,
                    epsilon,
                    seed,
                    label=f"{mechanism} ({rows} rows)",
                    test=metrics(auc, 0.9),
                    schedule=schedule,
                )
            )
    return made


def study(epsilons: tuple[float, ...] = (1.0,)) -> list[dict[str, Any]]:
    private = [r for e in epsilons for r in sized("randomized-response", e, 0.02 * e)]
    return [*sized("non-private", math.inf, 0.03), *private]


def test_each_mechanism_is_one_curve_over_its_sizes() -> None:
    records = study()
    figure, numbers = training_rows(records)
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    summary = summarize(records)
    for mechanism in ("non-private", "randomized-response"):
        expected = summary[summary["mechanism"] == mechanism].sort_values("examples")
        np.testing.assert_array_equal(drawn[mechanism].get_xdata(), SIZES)
        np.testing.assert_array_equal(drawn[mechanism].get_ydata(), expected["auc"])
        rows = numbers[numbers["label"] == mechanism]
        np.testing.assert_array_equal(rows["mean"], expected["auc"])
        np.testing.assert_array_equal(rows["standard_error"], expected["auc_se"])
    assert not cut_or_overlapping(figure)


def test_epsilons_are_told_apart_where_there_are_several() -> None:
    _, numbers = training_rows(study((0.5, 1.0)))
    names = set(numbers.loc[numbers["kind"] == "curve", "label"])
    assert names == {
        "non-private",
        "randomized-response at epsilon 0.5",
        "randomized-response at epsilon 1",
    }


def test_the_caption_says_what_epsilon_protects_and_how_many_rows_train() -> None:
    figure, _ = training_rows(study())
    caption = " ".join(figure.texts[-1].get_text().split())
    assert "20,000-500,000 training rows" in caption
    assert "epsilon protects one label under replace-one-label" in caption


def test_one_size_is_no_curve() -> None:
    one = [r for r in study() if r["schedule"]["examples"] == SIZES[0]]
    with pytest.raises(NothingToDraw, match=r"scores at two sizes.*rows"):
        training_rows(one)
