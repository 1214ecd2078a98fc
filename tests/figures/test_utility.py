import math
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.figures.style import NothingToDraw, curve_styles
from dpcompare.figures.utility import utility, utility_figure
from dpcompare.summary import summarize
from tests.fabricated_records import (
    CONSTANT_POISSON,
    EPSILONS,
    RR_AUC,
    RR_ENTROPY,
    SGD_AUC,
    SGD_ENTROPY,
    conversions,
    curve,
    failed,
    metrics,
    record,
    study,
)
from tests.figures.readable import cut_or_overlapping


def panel(figure: Figure, name: str) -> Axes:
    return next(ax for ax in figure.axes if ax.get_label() == name)


def line_of(ax: Axes, label: str) -> Any:
    return next(line for line in ax.lines if line.get_label() == label)


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def side_labels(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.texts]


def five_mechanisms() -> list[dict[str, Any]]:
    made = study()
    for number in range(1, 4):
        entropies = tuple(value * (1 + number / 30) for value in RR_ENTROPY)
        aucs = tuple(value - number / 80 for value in RR_AUC)
        made += curve("randomized-response", aucs, entropies, 3, label=f"variant number {number}")
    return made


def without_dp_sgd() -> list[dict[str, Any]]:
    return [
        failed(r["mechanism"], r["epsilon"], r["seed"], "diverged") if r["label"] == "dp-sgd" else r
        for r in study()
    ]


def test_lines_equal_summary_and_numbers() -> None:
    records = study()
    figure, numbers = utility(records)
    summary = summarize(records)
    for name in ("auc", "normalized_entropy"):
        for label in ("dp-sgd", "randomized-response"):
            line = line_of(panel(figure, name), label)
            rows = summary[summary["label"] == label]
            plotted = numbers[(numbers["panel"] == name) & (numbers["label"] == label)]
            np.testing.assert_array_equal(line.get_xdata(), EPSILONS)
            np.testing.assert_allclose(line.get_ydata(), rows[name], rtol=0, atol=1e-12)
            np.testing.assert_allclose(line.get_ydata(), plotted["mean"], rtol=0, atol=1e-12)
            np.testing.assert_array_equal(plotted["standard_error"], rows[f"{name}_se"])


def test_the_band_equals_a_hand_computation() -> None:
    aucs = (0.70, 0.72, 0.77)
    made = [record("dp-sgd", 1.0, seed, test=metrics(auc, 0.9)) for seed, auc in enumerate(aucs)]
    made += [record("dp-sgd", 3.0, seed, test=metrics(auc, 0.9)) for seed, auc in enumerate(aucs)]
    figure, numbers = utility(made)
    error = math.sqrt(0.0013 / 3)  # of deviations -.03, -.01, .04
    heights = panel(figure, "auc").collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(0.73 - error, rel=1e-12)
    assert heights.max() == pytest.approx(0.73 + error, rel=1e-12)
    assert numbers["low"].iloc[0] == pytest.approx(0.73 - error, rel=1e-12)


def test_every_epsilon_is_inside_and_has_a_readable_tick() -> None:
    figure = utility_figure(study())
    for ax in figure.axes:
        low, high = ax.get_xlim()
        assert low < 0.1
        assert high > 50
        assert ax.get_xscale() == "log"
        np.testing.assert_array_equal(ax.get_xticks(), EPSILONS)
    ticks = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert ticks == ["0.1", "0.25", "0.5", "1", "3", "5", "10", "30", "50"]


def test_crowded_ticks_lose_labels_but_not_the_ends() -> None:
    epsilons = [float(e) for e in np.geomspace(0.1, 50, 60).round(3)]
    figure = utility_figure([record("dp-sgd", e, 0) for e in epsilons])
    labels = [text.get_text() for text in figure.axes[-1].get_xticklabels()]
    assert len(labels) == 60
    assert labels[0] == "0.1"
    assert labels[-1] == "50"
    assert 8 < sum(map(bool, labels)) < 25
    assert cut_or_overlapping(figure) == []


def test_what_has_no_epsilon_is_a_labelled_line() -> None:
    figure = utility_figure(study())
    assert legend(figure) == [
        "dp-sgd",
        "randomized-response",
        "non-private (epsilon = inf)",
        "best possible",
    ]
    upper, lower = figure.axes
    assert side_labels(upper)[:3] == ["chance 0.500", "non-private 0.790", "best possible 0.800"]
    assert side_labels(lower)[:3] == ["best possible 0.790", "non-private 0.820", "base rate 1.000"]
    heights = [line.get_ydata()[0] for line in upper.lines[:3]]
    np.testing.assert_allclose(heights, [0.7898, 0.8, 0.5])


def test_a_mechanism_without_privacy_beside_its_curve_is_drawn_too() -> None:
    figure, numbers = utility([*study(), record("dp-sgd", math.inf, 0)])
    assert "dp-sgd (epsilon = inf)" in legend(figure)
    assert (numbers["epsilon"] == math.inf).sum() == 4  # two references in two panels


def test_values_beyond_the_axis_are_written_above_it() -> None:
    figure, numbers = utility(study())
    lower = figure.axes[1]
    assert lower.get_ylim()[1] < 1.35
    assert side_labels(lower)[3:] == ["↑5.21", "↑2.14", "↑1.35"]
    above = numbers[numbers["above_axis"]]
    assert list(above["epsilon"]) == [0.1, 0.25, 0.5]
    assert set(above["label"]) == {"randomized-response"}


def test_when_all_values_are_terrible_the_axis_still_shows_some() -> None:
    terrible = tuple(entropy + 1 for entropy in RR_ENTROPY)
    made = curve("randomized-response", RR_AUC, terrible, 2, best_possible=None)
    _, numbers = utility(made)
    shown = numbers[(numbers["panel"] == "normalized_entropy") & (numbers["kind"] == "curve")]
    assert 0 < shown["above_axis"].sum() < len(shown)


def test_an_infinite_loss_is_written_not_lost() -> None:
    made = [*study(), *curve("x", SGD_AUC, (math.inf, *SGD_ENTROPY[1:]), 2)]
    assert "↑inf" in side_labels(utility_figure(made).axes[1])


def test_a_single_seed_is_marked_and_has_no_band() -> None:
    made = [record("dp-sgd", e, s) for e, n in ((1, 3), (3, 1), (5, 3)) for s in range(n)]
    figure = utility_figure([r | {"epsilon": float(r["epsilon"])} for r in made])
    ax = panel(figure, "auc")
    hollow = [line for line in ax.lines if line.get_markerfacecolor() == "white"]
    assert [list(line.get_xdata()) for line in hollow] == [[3.0]]
    bars = [c for c in ax.collections if hasattr(c, "get_segments")]
    assert sorted(segment[0, 0] for bar in bars for segment in bar.get_segments()) == [1.0, 5.0]
    assert "n = 1-3 seeds" in caption(figure)
    assert "Hollow markers: a single seed" in caption(figure)


def test_a_failed_mechanism_is_named_and_not_in_the_legend() -> None:
    figure = utility_figure(without_dp_sgd())
    assert "dp-sgd" not in legend(figure)
    assert "Not drawn, no trial has a score: dp-sgd." in caption(figure)
    assert "Failed: dp-sgd (27 trials" in caption(figure)
    everywhere = {line.get_label() for ax in figure.axes for line in ax.lines}
    assert "dp-sgd" not in everywhere


def test_a_failure_of_one_mechanism_does_not_recolor_the_others() -> None:
    before = line_of(utility_figure(study()).axes[0], "randomized-response").get_color()
    after = line_of(utility_figure(without_dp_sgd()).axes[0], "randomized-response").get_color()
    assert before == after


def test_the_caption_states_privacy_and_crossing() -> None:
    notes = ["Vocabularies were learnt from the training rows."]
    text = caption(utility_figure([r | {"notes": notes} for r in study()]))
    for part in (
        "n = 3 seeds, mean ± standard error, test-sample error not included",
        "12,500 test rows",
        "Equal epsilon is not equal privacy",
        "dp-sgd: epsilon protects one example under zero-out, delta 3.2e-06",
        "randomized-response: epsilon protects one label under replace-one-label, delta 0",
        "they cross between epsilon 5 (dp-sgd ahead) and 10 (randomized-response ahead)",
        notes[0],
    ):
        assert part in text


def test_tuned_curves_are_marked() -> None:
    made = study()
    for rate in (0.1, 0.3):
        made += curve("hybrid", SGD_AUC, SGD_ENTROPY, 2, candidate={"training.learning_rate": rate})
    figure = utility_figure(made)
    assert "hybrid (best of 2)" in legend(figure)
    assert "selection is not counted" in caption(figure)


def test_five_curves_look_different_in_color_and_in_grey() -> None:
    lines = [
        line
        for line in utility_figure(five_mechanisms()).axes[0].lines
        if line.get_label() in {r["label"] for r in five_mechanisms()} - {"non-private"}
    ]
    assert len({line.get_color() for line in lines}) == 5
    assert len({line.get_marker() for line in lines}) == 5
    styles = curve_styles([line.get_label() for line in lines])
    assert len({str(style["linestyle"]) for style in styles.values()}) == 5
    assert len({str(style) for style in curve_styles(list(map(str, range(30)))).values()}) == 30


@pytest.mark.parametrize(
    "records",
    [
        study(),
        study(seeds=1),
        without_dp_sgd(),
        five_mechanisms(),
        [r | {"title": "A title as long as they come, " * 6, "label": r["label"] + " variant " * 4}
         for r in study()],
        [r for r in study() if r["epsilon"] in (1.0, math.inf)],
    ],
    ids=["three", "one seed", "failed", "five", "long names", "one epsilon"],
)  # fmt: skip
def test_no_text_is_cut_or_overlaps(records: list[dict[str, Any]]) -> None:
    assert cut_or_overlapping(utility_figure(records)) == []


@pytest.mark.parametrize(
    ("task", "metric"),
    [
        ("pcvr", "auc"),
        ("pcvr", "log_loss"),
        ("pcvr", "average_precision"),
        ("pconvs", "poisson_loss"),
        ("pconvs", "deviance"),
        ("pconvs", "d2"),
        ("pconvs", "calibration"),
    ],
)
def test_no_text_of_seven_curves_is_cut_or_overlaps(task: str, metric: str) -> None:
    figure = utility_figure(conversions(task), metric)
    assert len(legend(figure)) == 8
    assert cut_or_overlapping(figure) == []


@pytest.mark.parametrize("metric", ["log_loss", "calibration"])
def test_no_text_of_another_metric_is_cut_or_overlaps(metric: str) -> None:
    assert cut_or_overlapping(utility_figure(five_mechanisms(), metric)) == []


def test_losses_need_no_second_panel_and_know_the_base_rate() -> None:
    figure, numbers = utility(study(), "log_loss")
    assert [ax.get_label() for ax in figure.axes] == ["log_loss"]
    base = numbers.loc[numbers["kind"] == "uninformed", "mean"].iloc[0]
    assert base == pytest.approx(0.5623)


def test_nothing_to_draw_is_a_clear_error() -> None:
    with pytest.raises(DpcompareError, match="run-study"):
        utility([])
    with pytest.raises(NothingToDraw, match="nothing to draw against epsilon"):
        utility([r for r in study() if r["label"] == "non-private"])
    with pytest.raises(NothingToDraw, match="nothing to draw"):
        utility([failed("dp-sgd", 1.0, 0, "diverged")])
    with pytest.raises(UsageError, match="accuracy"):
        utility(study(), "accuracy")


def test_pyplot_and_settings_are_left_alone() -> None:
    before = dict(mpl.rcParams)
    utility_figure(study())
    assert plt.get_fignums() == []
    assert dict(mpl.rcParams) == before


def test_counts_have_one_panel_for_a_loss_and_the_relative_one_below_calibration() -> None:
    made = conversions("pconvs")
    panels = {
        metric: [ax.get_label() for ax in utility_figure(made, metric).axes]
        for metric in ("poisson_loss", "deviance", "d2", "calibration")
    }
    assert panels == {
        "poisson_loss": ["poisson_loss"],
        "deviance": ["deviance"],
        "d2": ["d2"],
        "calibration": ["calibration", "d2"],
    }
    assert [ax.get_label() for ax in utility_figure(made).axes] == ["poisson_loss"]
    with pytest.raises(UsageError, match=r"'auc' is unknown for task pconvs; there are: poisson"):
        utility_figure(made, "auc")


def test_the_constant_mean_is_a_line_of_a_poisson_loss() -> None:
    figure, numbers = utility(conversions("pconvs"))
    base = numbers.loc[numbers["kind"] == "uninformed", "mean"].iloc[0]
    assert base == pytest.approx(CONSTANT_POISSON)
    assert side_labels(figure.axes[0])[:3] == [
        "best possible 0.2121",
        "non-private 0.2146",
        "constant mean 0.2288",
    ]


@pytest.mark.parametrize(
    ("task", "metric"), [("pcvr", "log_loss"), ("pconvs", "poisson_loss"), ("pconvs", "deviance")]
)
def test_losses_that_differ_little_fill_their_axis(task: str, metric: str) -> None:
    figure, numbers = utility(conversions(task), metric)
    low, high = figure.axes[0].get_ylim()
    best = numbers.loc[numbers["kind"] == "best possible", "mean"].iloc[0]
    constant = numbers.loc[numbers["kind"] == "uninformed", "mean"].iloc[0]
    assert (high - constant) == pytest.approx(0.6 * (constant - best))
    assert low < best
    assert best - low < 0.1 * (high - low)


def test_a_poisson_loss_may_be_negative() -> None:
    made = []
    for one in conversions("pconvs"):
        parts = {part: dict(one[part]) for part in ("validation", "test", "best_possible")}
        for scores in parts.values():
            scores["poisson_loss"] -= 0.22
        made.append(one | parts)
    figure = utility_figure(made)
    low, high = figure.axes[0].get_ylim()
    assert low < -0.0079
    assert CONSTANT_POISSON - 0.22 < high < 0.02
    assert "non-private \N{MINUS SIGN}0.0054" in side_labels(figure.axes[0])
    assert cut_or_overlapping(figure) == []


def test_values_far_below_the_constant_are_written_under_the_axis() -> None:
    figure, numbers = utility(conversions("pconvs"), "d2")
    ax = figure.axes[0]
    low, _ = ax.get_ylim()
    assert -0.06 < low < -0.05  # 0.6 times the best possible 0.09 below 0
    below = numbers[numbers["below_axis"]]
    assert (below["mean"] < low).all()
    assert not numbers["above_axis"].any()
    written = [text for text in side_labels(ax) if text.startswith("↓")]
    assert len(written) == len(below)
    assert "↓\N{MINUS SIGN}56.9" in written  # laplace at epsilon 0.1
    assert cut_or_overlapping(figure) == []


def test_marks_under_the_upper_panel_leave_the_lower_one_free() -> None:
    made = [r | {"metric": "calibration"} for r in conversions("pconvs")]
    figure = utility_figure(made)
    assert figure.axes[0].get_label() == "calibration"
    assert any(text.startswith("↓") for text in side_labels(figure.axes[1]))
    assert cut_or_overlapping(figure) == []


def test_an_infinitely_bad_d2_is_written_not_lost() -> None:
    made = conversions("pconvs")
    for one in made:
        if one["label"] == "laplace" and one["epsilon"] == 0.1:
            one["test"] = one["test"] | {"d2": -math.inf}
    assert "↓\N{MINUS SIGN}inf" in side_labels(utility_figure(made, "d2").axes[0])


@pytest.mark.parametrize("metric", ["poisson_loss", "d2"])
def test_when_no_curve_beats_the_constant_the_best_point_is_still_shown(metric: str) -> None:
    made = [
        one
        for one in conversions("pconvs")
        if one["label"] == "non-private" or (one["label"] == "laplace" and one["epsilon"] <= 3)
    ]
    _, numbers = utility(made, metric)
    points = numbers[numbers["kind"] == "curve"]
    outside = points["above_axis"] | points["below_axis"]
    assert list(points.loc[~outside, "epsilon"]) == [3.0]


def test_more_training_sizes_than_one_are_said() -> None:
    sizes = [
        record("non-private", math.inf, 0, label=str(rows), schedule={"examples": rows})
        for rows in (1000, 20000)
    ]
    made = [one | {"schedule": one["schedule"] | SCHEDULE} for one in sizes]
    assert "1,000-100,000 training rows" in caption(utility_figure([*study(), *made]))


SCHEDULE = {"batch_size": 100, "steps": 10, "sampling": "shuffle"}
