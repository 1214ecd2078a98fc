"""Limits and ticks of axes."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpcompare.figures.axes import (
    decimals,
    log_axis,
    log_places,
    round_numbers,
    text_width,
    value_limits,
    value_text,
)
from dpcompare.figures.style import figure_style, new_figure
from dpcompare.metric_sets import METRICS


def panel(curve: list[float], constant: float | None = None, best: float | None = None) -> Any:
    rows = [("curve", value) for value in curve]
    rows += [("uninformed", constant)] if constant is not None else []
    rows += [("best possible", best)] if best is not None else []
    frame = pd.DataFrame(rows, columns=["kind", "mean"])
    return frame.assign(low=frame["mean"], high=frame["mean"])


def test_lower_is_better_ends_six_tenths_of_the_gap_above_the_constant() -> None:
    low, high = value_limits(panel([0.131, 0.134, 0.2, 5.0], 0.135, 0.130), METRICS["log_loss"])
    assert high == pytest.approx(0.135 + 0.6 * 0.005)
    assert 0.1295 < low < 0.130


def test_higher_is_better_is_the_mirror_image() -> None:
    low, high = value_limits(panel([-3.0, 0.02, 0.05], 0.0, 0.09), METRICS["d2"])
    assert low == pytest.approx(-0.6 * 0.09)
    assert 0.09 < high < 0.1


def test_negative_losses_and_losses_around_0_have_the_same_rule() -> None:
    for shift in (0.0, -0.13, -1.0):
        values = panel([0.131 + shift, 5.0], 0.135 + shift, 0.130 + shift)
        low, high = value_limits(values, METRICS["poisson_loss"])
        assert low < 0.130 + shift
        assert high >= 0.135 + 0.6 * 0.005 + shift - 1e-12
        assert high - low < 0.03


def test_without_a_value_better_than_the_constant_the_nearest_is_inside() -> None:
    low, high = value_limits(panel([1.8, 1.9, 4.0], 1.0), METRICS["normalized_entropy"])
    assert low < 1.0
    assert 1.8 < high < 4.0
    low, high = value_limits(panel([-0.4, -7.0], 0.0, 0.1), METRICS["d2"])
    assert -7.0 < low < -0.4
    assert high > 0.1


def test_nothing_is_cut_without_a_constant_to_compare_with() -> None:
    low, high = value_limits(panel([0.1, 0.2, 9.0]), METRICS["poisson_loss"])
    assert low < 0.1
    assert high > 9.0


@pytest.mark.parametrize("name", list(METRICS))
@pytest.mark.parametrize("values", [[0.0], [0.5, 0.5], [1e-9, 2e-9], [math.nan, 0.3]])
@pytest.mark.parametrize("constant", [None, 0.5])
def test_an_axis_always_has_a_span(name: str, values: list[float], constant: float | None) -> None:
    low, high = value_limits(panel(values, constant), METRICS[name])
    assert math.isfinite(low)
    assert low < high


def test_terrible_values_do_not_widen_the_smallest_span() -> None:
    _, high = value_limits(panel([0.212, 11.0], 0.229), METRICS["poisson_loss"])
    assert high < 0.25


def test_places_agree_with_the_axis_that_is_drawn() -> None:
    values = [0.1, 0.7, 3.0, 50.0]
    with figure_style():
        ax = new_figure(5, 3).add_axes((0, 0, 1, 1))
        log_axis(ax, values, 360)
    drawn = ax.transData.transform([(value, 0) for value in values])[:, 0] * 72 / ax.figure.dpi
    np.testing.assert_allclose(log_places(values, 360)[1], drawn, rtol=1e-9)


def test_ticks_may_be_round_numbers_instead() -> None:
    ax = new_figure(5, 3).add_axes((0, 0, 1, 1))
    log_axis(ax, [1_234, 98_765], 360, round_numbers(1_234, 98_765), "{:,.0f}".format)
    np.testing.assert_allclose(ax.get_xticks(), [2_000, 5_000, 10_000, 20_000, 50_000, 100_000])
    assert [text.get_text() for text in ax.get_xticklabels()][2] == "10,000"


def test_long_ranges_have_powers_of_ten_only() -> None:
    assert round_numbers(3, 90_000)[1:] == [1, 10, 100, 1_000, 10_000, 100_000]


def test_decimals_tell_values_apart() -> None:
    assert decimals(0.5, 0.8) == 3
    assert decimals(0.128, 0.139) == 4
    assert value_text(-0.5, 3) == "\N{MINUS SIGN}0.500"
    assert value_text(-1234.0, 3) == "\N{MINUS SIGN}1.23e+03"
    assert value_text(math.inf, 3) == "inf"


def test_a_longer_text_is_wider() -> None:
    assert 0 < text_width("1") < text_width("1.5") < text_width("↑1.50")
