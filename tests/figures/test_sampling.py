"""Claims made as if batches were Poisson-sampled, against bounds for shuffled batches."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpcompare.figures.sampling import sampling
from dpcompare.figures.style import NothingToDraw, render
from tests.fabricated_records import account_record, failed, record, study
from tests.figures.readable import cut_or_overlapping

LONG = {0.5: 0.06, 1.0: 0.48, 3.0: 12.4, 8.0: 104.0}  # 150 epochs
SHORT = {0.5: 5.3, 1.0: 6.5, 3.0: 9.4, 8.0: 13.4}  # one
NO_SCORES: dict[str, Any] = dict.fromkeys(("validation", "test", "best_possible", "rows"))


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def bounds(label: str, values: dict[float, float]) -> list[dict[str, Any]]:
    return [
        account_record(epsilon, label, 1.0, 65536, shuffled_epsilon_at_least=bound)
        for epsilon, bound in values.items()
    ]


def both() -> list[dict[str, Any]]:
    return bounds("dp-sgd (epochs=150)", LONG) + bounds("dp-sgd (epochs=1)", SHORT)


def arrows(ax: Axes) -> int:
    return sum(getattr(text, "arrow_patch", None) is not None for text in ax.texts)


def test_points_are_the_bounds_and_the_line_is_the_claim() -> None:
    figure, numbers = sampling(both())
    (ax,) = figure.axes
    drawn = {line.get_label(): line for line in ax.lines}
    for label, values in (("dp-sgd (epochs=150)", LONG), ("dp-sgd (epochs=1)", SHORT)):
        np.testing.assert_array_equal(drawn[label].get_xdata(), list(values))
        np.testing.assert_array_equal(drawn[label].get_ydata(), list(values.values()))
        rows = numbers[numbers["label"] == label]
        np.testing.assert_array_equal(rows["shuffled_epsilon_at_least"], list(values.values()))
        np.testing.assert_array_equal(rows["claimed_epsilon"], list(values))
    claim = ax.lines[0]
    np.testing.assert_array_equal(claim.get_xdata(), claim.get_ydata())
    assert tuple(claim.get_xdata()) == ax.get_xlim()
    assert arrows(ax) == 8
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend[0] == "claimed: as if Poisson-sampled"
    assert "shuffled: at least, dp-sgd (epochs=150)" in legend
    assert cut_or_overlapping(figure) == []


def test_refuted_claims_are_those_below_their_bound() -> None:
    figure, numbers = sampling(both())
    refuted = numbers.set_index(["label", "claimed_epsilon"])["refuted"]
    assert list(refuted["dp-sgd (epochs=150)"]) == [False, False, True, True]
    assert refuted["dp-sgd (epochs=1)"].all()
    text = caption(figure)
    assert (
        "dp-sgd (epochs=150): the smallest refuted claim is epsilon 3, truly at least 12.4; "
        "no violation is proven at 0.5, 1." in text
    )
    assert (
        "dp-sgd (epochs=1): the smallest refuted claim is epsilon 0.5, truly at least 5.3." in text
    )
    assert "below it the bound proves nothing" in text


def test_shade_covers_what_lies_above_the_claim() -> None:
    (ax,) = sampling(both())[0].axes
    (shade,) = ax.collections
    path = shade.get_paths()[0]
    for label, values in (("long", LONG), ("short", SHORT)):
        for claim, bound in values.items():
            assert path.contains_point((claim, bound)) == (bound > claim), label


def test_without_a_violation_none_is_stated() -> None:
    figure, _ = sampling(bounds("dp-sgd", {0.5: 0.06, 1.0: 1.0}))
    assert "dp-sgd: no claim is refuted (epsilon 0.5, 1)." in caption(figure)
    assert cut_or_overlapping(figure) == []


def test_bounds_that_no_log_axis_can_show_are_written() -> None:
    figure, numbers = sampling(bounds("dp-sgd", {0.5: 0.0, 1.0: 0.4, 3.0: 9.0, 8.0: math.inf}))
    assert "Bounds outside the axis: 0 at epsilon 0.5, inf at epsilon 8." in caption(figure)
    assert list(numbers["outside_axis"]) == [True, False, False, True]
    assert list(numbers["refuted"]) == [False, False, True, True]
    low, high = figure.axes[0].get_ylim()
    assert 0 < low < 0.4
    assert math.isfinite(high)
    line = figure.axes[0].lines[1]
    np.testing.assert_array_equal(np.isnan(line.get_ydata()), [True, False, False, True])
    assert cut_or_overlapping(figure) == []


@pytest.mark.parametrize("bound", [0.0, 0.4, 12.4, math.inf])
def test_one_claim(bound: float) -> None:
    figure, numbers = sampling(bounds("dp-sgd", {3.0: bound}))
    assert len(numbers) == 1
    assert cut_or_overlapping(figure) == []


def test_what_is_missing_is_named() -> None:
    made = both()
    made[1] = failed("dp-sgd", 1.0, 0, "no noise fits", label=made[1]["label"])
    made[2]["diagnostics"]["shuffled_epsilon_at_least"] = math.nan
    made += [record("non-private", math.inf, 0, **NO_SCORES)]
    made += [account_record(e, "without", 1.0, 64) for e in LONG]
    figure, numbers = sampling(made)
    text = caption(figure)
    for part in (
        "Failed: dp-sgd (epochs=150) (1 trials, at epsilon 1)",
        "Not drawn for lack of a bound for shuffled batches: dp-sgd (epochs=150) at epsilon 3.",
        "Not drawn for lack of a bound for shuffled batches: without.",
        "Not drawn, no privacy: non-private.",
    ):
        assert part in text
    assert len(numbers) == 6
    assert cut_or_overlapping(figure) == []


def test_several_seeds_are_one_point() -> None:
    seeds = [*both(), *(r | {"seed": 1, "id": r["id"] + "1"} for r in both())]
    assert sampling(seeds)[1].equals(sampling(both())[1])


def test_equal_records_give_equal_files() -> None:
    assert render(sampling(both())[0], "svg") == render(sampling(both())[0], "svg")


def test_without_bounds_there_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match="shuffled_epsilon_at_least"):
        sampling(study())
    with pytest.raises(NothingToDraw, match="no claims"):
        sampling([failed("dp-sgd", 1.0, 0, "no noise fits")])
