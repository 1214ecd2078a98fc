"""The cost of choosing the best of several candidates privately."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dpcompare.figures.selection_cost import selection_cost
from dpcompare.figures.style import NothingToDraw, render
from tests.fabricated_records import account_record, failed, record, study
from tests.figures.readable import cut_or_overlapping

EPSILONS = (0.5, 1.0, 3.0, 8.0)
TIMES = {3: (1.34, 1.33, 1.31, 1.26), 12: (2.27, 2.24, 2.18, 1.99), 100: (7.4, 7.6, 8.6, 8.5)}
NO_SCORES: dict[str, Any] = dict.fromkeys(("validation", "test", "best_possible", "rows"))


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def point(label: str, epsilon: float, candidate: float, spent: float) -> dict[str, Any]:
    made = account_record(epsilon, label, 1.0, 65536, candidate_epsilon=candidate)
    stated = {"epsilon": spent, "accountant": "rdp"}
    return made | {"guarantee": made["guarantee"] | stated}


def candidates(means: tuple[int, ...] = (3, 12, 100)) -> list[dict[str, Any]]:
    """Trials whose epsilon is that of the release: one candidate is trained with less."""
    return [
        point(f"dp-sgd (private_selection={mean})", e, e / times, e)
        for mean in means
        for e, times in zip(EPSILONS, TIMES[mean], strict=True)
    ]


def test_curves_and_ratios_equal_the_records() -> None:
    figure, numbers = selection_cost(candidates())
    total, ratio = figure.axes
    for mean, times in TIMES.items():
        name = f"dp-sgd, best of {mean} on average"
        rows = numbers[numbers["curve"] == name]
        assert set(rows["private_selection"]) == {mean}
        one = np.array(EPSILONS) / times
        for ax, expected in ((total, EPSILONS), (ratio, times)):
            line = next(line for line in ax.lines if line.get_label() == name)
            np.testing.assert_allclose(line.get_xdata(), one, rtol=1e-12)
            np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-12)
        np.testing.assert_allclose(rows["candidate_epsilon"], one, rtol=1e-12)
        np.testing.assert_allclose(rows["ratio"], times, rtol=1e-12)
    assert total.get_yscale() == ratio.get_yscale() == total.get_xscale() == "log"
    assert cut_or_overlapping(figure) == []


def test_free_choice_is_the_diagonal_and_a_ratio_of_1() -> None:
    figure, _ = selection_cost(candidates())
    diagonal, one = (ax.lines[0] for ax in figure.axes)
    np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
    np.testing.assert_array_equal(one.get_ydata(), [1.0, 1.0])
    for ax, line in zip(figure.axes, (diagonal, one), strict=True):
        assert line.get_label() == "if choosing were free"
        low, high = ax.get_ylim()
        assert low <= min(line.get_ydata())
        assert max(line.get_ydata()) <= high


def test_the_caption_states_the_ratios() -> None:
    text = caption(selection_cost(candidates((12,)))[0])
    assert (
        "dp-sgd, best of 12 on average: 1.99 at epsilon 4.02 (the least) to 2.27 at epsilon 0.22 "
        "(the most)." in text
    )
    assert "Accountant: rdp." in text
    assert "Computed; nothing was trained." in text


@pytest.mark.parametrize(
    ("label", "curve"),
    [
        ("dp-sgd", "dp-sgd"),
        ("dp-sgd (private_selection=12)", "dp-sgd, best of 12 on average"),
        ("dp-sgd (private_selection=12 epochs=5)", "dp-sgd (epochs=5), best of 12 on average"),
        ("dp-sgd (epochs=5)", "dp-sgd (epochs=5)"),
    ],
)
def test_curves_are_named_by_their_mean_number(label: str, curve: str) -> None:
    figure, numbers = selection_cost([point(label, 1.0, 0.5, 1.0)])
    assert list(numbers["curve"]) == [curve]
    assert figure.legends[0].get_texts()[0].get_text() == curve
    assert math.isnan(numbers["private_selection"].iloc[0]) == ("private" not in label)
    assert cut_or_overlapping(figure) == []


def test_what_is_missing_is_named() -> None:
    made = candidates()
    made[1] = failed("dp-sgd", 1.0, 0, "no noise fits", label=made[1]["label"])
    made[2]["diagnostics"]["candidate_epsilon"] = math.nan
    made[7] = point(made[7]["label"], 8.0, 4.0, math.inf)
    made += [account_record(e, "dp-sgd", 1.0, 64) for e in EPSILONS]
    made += [record("non-private", math.inf, 0, **NO_SCORES)]
    figure, numbers = selection_cost(made)
    text = caption(figure)
    lacking = "Not drawn for lack of the epsilon of one candidate:"
    for part in (
        "Failed: dp-sgd (private_selection=3) (1 trials, at epsilon 1)",
        f"{lacking} dp-sgd (private_selection=3) at epsilon 3.",
        f"{lacking} dp-sgd (private_selection=12) at epsilon 8.",
        f"{lacking} dp-sgd.",
        "Not drawn, no privacy: non-private.",
    ):
        assert part in text
    assert len(numbers) == 9
    assert cut_or_overlapping(figure) == []


def test_several_seeds_are_one_point() -> None:
    seeds = [*candidates(), *(r | {"seed": 1, "id": r["id"] + "1"} for r in candidates())]
    assert selection_cost(seeds)[1].equals(selection_cost(candidates())[1])


def test_equal_records_give_equal_files() -> None:
    assert render(selection_cost(candidates())[0], "svg") == render(
        selection_cost(candidates())[0], "svg"
    )


def test_without_candidates_there_is_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match=r"candidate_epsilon.*private_selection"):
        selection_cost(study())
    with pytest.raises(NothingToDraw, match="no cost"):
        selection_cost([failed("dp-sgd", 1.0, 0, "no noise fits")])
