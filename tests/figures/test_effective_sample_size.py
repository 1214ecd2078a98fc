"""The effective sample size figure: points against the curve of non-private training."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dpcompare.errors import DpcompareError
from dpcompare.figures.effective_sample_size import effective_sample_size
from dpcompare.figures.style import NothingToDraw
from dpcompare.summary import summarize
from tests.fabricated_records import metrics, record, sample_sizes, study
from tests.figures.readable import cut_or_overlapping

SIZES = [1_000, 3_000, 10_000, 30_000, 100_000]


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def by_loss(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same study by log loss: it falls as the AUC rises."""
    made = []
    for one in records:
        auc = one["test"]["auc"]
        made.append(one | {"metric": "log_loss", "test": one["test"] | {"log_loss": 1.2 - auc}})
    return made


@pytest.mark.parametrize("ratio", [1.0, 0.7])
@pytest.mark.parametrize("change", [lambda records: records, by_loss], ids=["auc", "log loss"])
def test_the_ratio_is_read_off_the_curve(ratio: float, change: Any) -> None:
    _, numbers = effective_sample_size(change(sample_sizes(ratio)))
    points = numbers[numbers["kind"] == "curve"]
    found = points["ratio"].dropna()
    assert len(found) == 18
    # Between sizes 3 times apart the interpolated curve is up to 2% of n beside the true one.
    np.testing.assert_allclose(found, ratio, rtol=0.03)
    known = points.dropna(subset="ratio")
    np.testing.assert_allclose(known["rows_on_curve"] / known["rows"], known["ratio"])


def test_points_and_curve_are_those_of_the_summary() -> None:
    records = sample_sizes()
    summary = summarize(records)
    figure, numbers = effective_sample_size(records)
    clean = numbers[numbers["kind"] == "reference"]
    assert list(clean["rows"]) == SIZES
    drawn = {c.get_label(): c.lines[0] for c in figure.axes[0].containers}
    np.testing.assert_array_equal(drawn["non-private training on n rows"].get_xdata(), SIZES)
    for label in ("forward", "backward"):
        expected = summary[summary["label"] == label]
        np.testing.assert_array_equal(drawn[label].get_xdata(), expected["effective_examples"])
        np.testing.assert_array_equal(drawn[label].get_ydata(), expected["auc"])
        points = numbers[numbers["label"] == label]
        np.testing.assert_array_equal(points["standard_error"], expected["auc_se"])
        np.testing.assert_array_equal(points["epsilon"], expected["epsilon"])


def test_the_curve_at_its_own_sizes_is_the_mean() -> None:
    made = sample_sizes()
    rows = {"effective_examples": 10_000.0}
    made.append(record("randomized-response", 2.0, 0, label="at", diagnostics=rows))
    _, numbers = effective_sample_size(made)
    there = numbers.loc[numbers["label"] == "at", "curve_there"].iloc[0]
    expected = numbers.loc[numbers["rows"].eq(10_000) & numbers["kind"].eq("reference"), "mean"]
    assert there == pytest.approx(expected.iloc[0], rel=1e-12)


def test_what_no_size_or_several_match_has_no_ratio() -> None:
    made = [one for one in sample_sizes() if one["mechanism"] == "non-private"]
    for one in made:  # falls again towards 100,000 rows
        if one["schedule"]["examples"] == 100_000:
            one["test"] = metrics(0.765, 0.85)
    values = {"too good": 0.9, "too bad": 0.6, "twice": 0.768, "once": 0.74}
    for label, auc in values.items():
        rows = {"effective_examples": 5_000.0}
        changes: dict[str, Any] = {"label": label, "diagnostics": rows, "test": metrics(auc, 0.9)}
        made.append(record("randomized-response", 1.0, 0, **changes))
    figure, numbers = effective_sample_size(made)
    ratios = numbers[numbers["kind"] == "curve"].set_index("label")["ratio"]
    assert list(ratios.index[ratios.notna()]) == ["once"]
    assert "(1 of 4 points; elsewhere none or several sizes do)" in caption(figure)


def test_points_outside_the_sizes_have_no_curve_there() -> None:
    made = sample_sizes()
    for one in made:
        if one["label"] == "forward" and one["epsilon"] == 0.1:
            one["diagnostics"] = {"effective_examples": 12.0}
    figure, numbers = effective_sample_size(made)
    point = numbers[numbers["label"].eq("forward") & numbers["epsilon"].eq(0.1)].iloc[0]
    assert math.isnan(point["curve_there"])
    assert figure.axes[0].get_xlim()[0] < 12
    assert cut_or_overlapping(figure) == []


def test_the_caption_says_what_is_compared() -> None:
    text = caption(effective_sample_size(sample_sizes())[0])
    for part in (
        "Fisher information about the log-odds",
        "at the true rates",
        "Label mechanisms train on 100,000 rows",
        "times its effective rows",
        "n = 3 seeds, mean ± standard error",
        "1,000-100,000 training rows",
        "forward, backward: epsilon protects one label under replace-one-label, delta 0",
    ):
        assert part in text
    made = [*sample_sizes(), record("dp-sgd", 1.0, 0)]
    assert "no effective sample size is known: dp-sgd" in caption(effective_sample_size(made)[0])


def test_epsilons_are_written_at_the_points() -> None:
    figure, _ = effective_sample_size(sample_sizes())
    written = [text.get_text() for text in figure.axes[0].texts]
    assert written.count("0.1") == 2
    assert written.count("3-50") == 2


@pytest.mark.parametrize("change", [lambda records: records, by_loss], ids=["auc", "log loss"])
@pytest.mark.parametrize("seeds", [1, 3])
def test_no_text_is_cut_or_overlaps(change: Any, seeds: int) -> None:
    figure, _ = effective_sample_size(change(sample_sizes(seeds=seeds)))
    assert cut_or_overlapping(figure) == []


def test_points_and_clean_models_beyond_the_axis_are_written_at_it() -> None:
    made = by_loss(sample_sizes())
    for one in made:
        one["test"] = one["test"] | {"normalized_entropy": one["test"]["log_loss"] / 0.5}
        tiny = one["schedule"]["examples"] == 1_000
        if tiny or (one["label"] == "forward" and one["epsilon"] == 0.1):
            one["test"] = one["test"] | {"log_loss": 3.0, "normalized_entropy": 6.0}
    figure, numbers = effective_sample_size(made)
    assert numbers["above_axis"].sum() == 2
    marks = [text.get_text() for text in figure.axes[0].texts]
    assert marks.count("↑3.00") == 2
    assert cut_or_overlapping(figure) == []


def test_of_several_models_of_one_size_the_best_on_validation_is_shown() -> None:
    made = sample_sizes()
    schedule = {"examples": 10_000, "batch_size": 9, "steps": 9, "sampling": "shuffle"}
    for label, loss in (("worse", 0.95), ("better", 0.7)):
        changes: dict[str, Any] = {"schedule": schedule, "validation": metrics(0.7, loss)}
        made.append(record("non-private", math.inf, 0, label=label, **changes))
    _, numbers = effective_sample_size(made)
    clean = numbers[numbers["kind"] == "reference"]
    assert list(clean["rows"]) == SIZES
    assert clean.loc[clean["rows"] == 10_000, "label"].iloc[0] == "better"


def test_what_is_missing_is_named() -> None:
    with pytest.raises(NothingToDraw, match="two training sizes"):
        effective_sample_size(study())
    with pytest.raises(NothingToDraw, match="no scored trial with a finite epsilon states one"):
        effective_sample_size([r for r in sample_sizes() if r["mechanism"] == "non-private"])
    with pytest.raises(DpcompareError, match="run-study"):
        effective_sample_size([])
