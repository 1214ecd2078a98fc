"""The noise against the batch size, of studies that train nothing."""

import math
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from dpcompare.figures.noise_vs_batch import noise_vs_batch
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.summary import summarize
from tests.fabricated_records import account_record, failed, record, study
from tests.figures.readable import cut_or_overlapping

EPSILONS = (0.5, 3.0, 10.0)
SIZES = (1024, 8192, 65536, 524288, 4194304)
ROWS = 36_672_493
NO_SCORES: dict[str, Any] = dict.fromkeys(("validation", "test", "best_possible", "rows"))


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def panels(figure: Figure) -> dict[str, Any]:
    return {str(ax.get_label()): ax for ax in figure.axes}


def point(curve: str, epsilon: float, size: int, sigma: float, steps: int) -> dict[str, Any]:
    made = account_record(epsilon, f"{curve} (batch_size={size})", sigma, size)
    schedule = {"examples": ROWS, "batch_size": size, "steps": steps, "sampling": "poisson"}
    return made | {"schedule": schedule}


def account_study(
    powers: dict[str, float], epsilons: tuple[float, ...] = EPSILONS, sizes: tuple[int, ...] = SIZES
) -> list[dict[str, Any]]:
    """Curves whose noise multiplier is a power of the batch size."""
    return [
        point(curve, e, size, 2 / e * (size / 1024) ** power, round(5 * ROWS / size))
        for curve, power in powers.items()
        for size in sizes
        for e in epsilons
    ]


def two_curves() -> list[dict[str, Any]]:
    fixed_steps = [
        r | {"schedule": r["schedule"] | {"steps": 3000}}
        for r in account_study({"fixed steps": 1.0})
    ]
    return account_study({"fixed epochs": 0.3}) + fixed_steps


def test_each_curve_has_its_panels_and_each_epsilon_its_line() -> None:
    figure, numbers = noise_vs_batch(two_curves())
    summary = summarize(two_curves())
    assert list(panels(figure)) == [
        f"{curve}: {name}"
        for curve in ("fixed epochs", "fixed steps")
        for name in ("noise_on_mean", "noise_multiplier")
    ]
    for label, ax in panels(figure).items():
        curve, name = label.split(": ")
        assert [line.get_label() for line in ax.lines] == ["0.5", "3", "10"]
        for line, epsilon in zip(ax.lines, EPSILONS, strict=True):
            rows = summary[(summary["curve"] == curve) & (summary["epsilon"] == epsilon)]
            plotted = numbers[(numbers["curve"] == curve) & (numbers["epsilon"] == epsilon)]
            np.testing.assert_array_equal(line.get_xdata(), SIZES)
            np.testing.assert_array_equal(line.get_ydata(), rows[name])
            np.testing.assert_array_equal(line.get_ydata(), plotted[name])
    assert len(numbers) == 2 * len(SIZES) * len(EPSILONS)
    assert cut_or_overlapping(figure) == []


def test_the_panels_of_a_row_share_limits_on_log_axes() -> None:
    drawn = panels(noise_vs_batch(two_curves())[0])
    for name in ("noise_on_mean", "noise_multiplier"):
        one, other = (drawn[f"{curve}: {name}"] for curve in ("fixed epochs", "fixed steps"))
        assert one.get_ylim() == other.get_ylim()
        assert (one.get_xscale(), one.get_yscale()) == ("log", "log")
        for line in one.lines:
            assert one.get_ylim()[0] < min(line.get_ydata())
            assert max(line.get_ydata()) < one.get_ylim()[1]


@pytest.mark.parametrize(
    ("power", "reading"),
    [(0.3, "keeps falling"), (0.7, "flattens"), (0.95, "plateaus"), (1.0, "plateaus")],
)
def test_the_reading_is_computed_from_the_last_decade(power: float, reading: str) -> None:
    text = caption(noise_vs_batch(account_study({"some curve": power}))[0])
    slope = f"{power - 1:.2f}".replace("-", "\N{MINUS SIGN}")  # noise on mean is sigma over size
    expected = ", ".join(f"{e:g} ({slope})" for e in EPSILONS)
    assert f"batch size 419,430 to 4,194,304: {reading} at epsilon {expected}." in text


def test_only_the_last_decade_counts_for_the_reading() -> None:
    bent = [
        point("bent", 1.0, size, max(1.0, size / 262144), 100)
        for size in (1024, 65536, 262144, 1048576, 4194304)
    ]
    assert "plateaus at epsilon 1 (0.00)" in caption(noise_vs_batch(bent)[0])


def test_what_batch_sizes_have_in_common_stands_above_the_panels() -> None:
    drawn = panels(noise_vs_batch(two_curves())[0])
    titles = [
        drawn[f"{c}: noise_on_mean"].get_title("left") for c in ("fixed epochs", "fixed steps")
    ]
    assert titles == ["fixed epochs: 5 epochs", "fixed steps: 3,000 steps"]


def test_the_caption_states_what_was_accounted() -> None:
    text = caption(noise_vs_batch(two_curves())[0])
    for part in (
        "Computed; nothing was trained. 36,672,493 training rows, accounted as Poisson-sampled",
        "epsilon protects one example under zero-out, delta 3.2e-06. Accountant: pld.",
        "the noise multiplier over the batch size, for a clip norm of 1.",
    ):
        assert part in text
    clipped = two_curves()
    for one in clipped:
        one["diagnostics"]["noise_on_mean"] *= 30
    assert "times clip norm and rows clipped together (here 30)" in caption(
        noise_vs_batch(clipped)[0]
    )


def test_one_point_is_drawn_as_a_marker() -> None:
    figure, numbers = noise_vs_batch([point("fixed epochs", 3.0, 65536, 0.68, 2798)])
    assert len(numbers) == 1
    assert figure.axes[0].lines[0].get_marker() == "o"
    assert "fixed epochs: one batch size, so no slope." in caption(figure)
    assert cut_or_overlapping(figure) == []


def test_what_is_missing_is_named_and_breaks_the_line() -> None:
    made = account_study({"fixed epochs": 0.3})
    made[4] = failed("dp-sgd", 3.0, 0, "no noise fits", label=made[4]["label"])  # size 8192
    made[5]["diagnostics"]["noise_on_mean"] = None
    made += [record("non-private", math.inf, 0, **NO_SCORES)]
    made += [failed("dp-sgd", 3.0, 0, "no noise fits", label="fixed steps (batch_size=1024)")]
    figure, numbers = noise_vs_batch(made)
    text = caption(figure)
    for part in (
        "Failed: fixed epochs (batch_size=8192) (1 trials, at epsilon 3)",
        "Not drawn for lack of noise: fixed epochs (batch_size=8192) at epsilon 10.",
        "Not drawn for lack of noise: fixed steps (batch_size=1024).",
        "Not drawn, no privacy: non-private.",
    ):
        assert part in text
    assert len(numbers) == 13
    assert np.isnan(figure.axes[0].lines[1].get_ydata()[1])
    assert cut_or_overlapping(figure) == []


def test_a_line_that_ends_early_has_no_reading() -> None:
    made = account_study({"x": 0.3})
    del made[-2]  # the largest batch size at epsilon 3
    assert "; not known at epsilon 3." in caption(noise_vs_batch(made)[0])


def test_more_curves_than_two_go_into_rows() -> None:
    figure, _ = noise_vs_batch(account_study({"a": 0.1, "b": 0.2, "c": 0.3}))
    boxes = {label: ax.get_position() for label, ax in panels(figure).items()}
    a, b, c = (boxes[f"{curve}: noise_on_mean"] for curve in "abc")
    assert a.y0 == pytest.approx(b.y0)
    assert c.x0 == pytest.approx(a.x0)
    assert c.y1 < boxes["a: noise_multiplier"].y0
    assert cut_or_overlapping(figure) == []


def test_curves_that_differ_in_another_swept_setting_too_are_told_apart() -> None:
    made = [
        account_record(1.0, f"dp-sgd (batch_size={size} epochs={epochs})", epochs / 10, size)
        for size in (1024, 8192)
        for epochs in (5, 10)
    ]
    _, numbers = noise_vs_batch(made)
    assert set(numbers["curve"]) == {"dp-sgd (epochs=5)", "dp-sgd (epochs=10)"}
    paired = [made[0], made[3]]  # swept together: one curve
    assert set(noise_vs_batch(paired)[1]["curve"]) == {"dp-sgd"}


def test_several_seeds_are_one_point() -> None:
    made = two_curves()
    both = [*made, *(r | {"seed": 1, "id": r["id"] + "1"} for r in made)]
    assert noise_vs_batch(both)[1].equals(noise_vs_batch(made)[1])


def test_equal_records_give_equal_files() -> None:
    assert render(noise_vs_batch(two_curves())[0], "svg") == render(
        noise_vs_batch(two_curves())[0], "svg"
    )


def test_a_trained_study_is_no_such_figure() -> None:
    with pytest.raises(NothingToDraw, match=r'kind "account".*batch_size'):
        noise_vs_batch(study())
    noise = {"noise_on_mean": 0.1, "calibrated": {"noise_multiplier": 1.0}}
    with pytest.raises(NothingToDraw):
        noise_vs_batch([record("dp-sgd", 1.0, 0, diagnostics=noise)])
    with pytest.raises(NothingToDraw):
        noise_vs_batch([failed("dp-sgd", 1.0, 0, "no noise fits")])
