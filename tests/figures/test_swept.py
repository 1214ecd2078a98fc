"""What figures over swept settings share: values, looks and the choice by validation loss."""

import math
from typing import Any

import matplotlib.colors as mcolors
import numpy as np
import pytest

from dpcompare.figures.style import NothingToDraw
from dpcompare.figures.swept import (
    best_by_validation,
    epsilon_styles,
    swept_numbers,
    swept_rows,
)
from dpcompare.summary import summarize
from tests.fabricated_records import failed, metrics, record


def trials(curve: str, values: dict[str, float], *epsilons: float) -> list[dict[str, Any]]:
    """One seed of each value of a swept setting, with that validation log loss."""
    return [
        record(
            "dp-sgd",
            epsilon,
            0,
            label=f"{curve} ({text})",
            validation=metrics(0.7, 1.0) | {"log_loss": loss},
        )
        for text, loss in values.items()
        for epsilon in epsilons
    ]


def luminance(color: Any) -> float:
    """Relative luminance as WCAG 2.1 defines it."""
    channels = np.array(mcolors.to_rgb(color))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


@pytest.mark.parametrize(
    ("label", "numbers"),
    [
        ("dp-sgd (clip_norm=0.5)", {"clip_norm": 0.5}),
        ("a (b) (batch_size=8192 epochs=2.5)", {"batch_size": 8192.0, "epochs": 2.5}),
        ("dp-sgd (sampling=poisson clip_norm=1e3)", {"clip_norm": 1000.0}),
        ("dp-sgd (clip_norm=0 scale=-1 top=inf low=nan)", {}),
        ("dp-sgd", {}),
    ],
)
def test_only_values_that_a_log_axis_can_show_are_numbers(
    label: str, numbers: dict[str, float]
) -> None:
    assert swept_numbers(label) == numbers


def test_rows_are_sorted_by_number_and_not_by_text() -> None:
    made = trials("x", {"clip_norm=100": 0.3, "clip_norm=20": 0.2, "clip_norm=3": 0.1}, 1.0)
    rows = swept_rows(summarize(made), "clip_norm")
    assert list(rows["clip_norm"]) == [3, 20, 100]
    assert set(rows["line"]) == {"epsilon 1"}
    assert rows.attrs["swept"] == ["clip_norm"]


def test_labels_that_sweep_another_setting_as_well_can_be_left_out() -> None:
    both = trials("x", {"clip_norm=1 group_size=2": 0.3}, 1.0)
    only = trials("y", {"clip_norm=1": 0.3}, 1.0)
    rows = swept_rows(summarize(both + only), "clip_norm", but_not="group_size")
    assert list(rows["curve"]) == ["y"]
    with pytest.raises(NothingToDraw, match="no label sweeps it"):
        swept_rows(summarize(both), "clip_norm", but_not="group_size")


def test_the_lowest_validation_loss_of_each_group_is_best() -> None:
    losses = {"clip_norm=1": 0.3, "clip_norm=2": 0.2, "clip_norm=4": 0.25, "clip_norm=8": math.nan}
    rows = swept_rows(summarize(trials("x", losses, 1.0, 3.0)), "clip_norm")
    best = rows[best_by_validation(rows, ("epsilon",))]
    assert list(best["clip_norm"]) == [2, 2]


def test_a_value_with_fewer_seeds_is_not_best_and_one_without_any_never_is() -> None:
    losses = {"clip_norm=1": 0.3, "clip_norm=2": 0.2}
    made = trials("x", losses, 1.0)
    made += [r | {"seed": 1, "id": r["id"] + "1"} for r in made if "norm=1" in r["label"]]
    made += [failed("dp-sgd", 1.0, 1, "diverged", label="x (clip_norm=2)")]
    rows = swept_rows(summarize(made), "clip_norm")
    assert list(rows.loc[best_by_validation(rows, ("epsilon",)), "clip_norm"]) == [1]
    silent = [r | {"validation": None} for r in made]
    rows = swept_rows(summarize(silent), "clip_norm")
    assert not best_by_validation(rows, ("epsilon",)).any()


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_epsilons_can_be_told_apart_in_grey_and_read_on_white(count: int) -> None:
    epsilons = [float(e) for e in np.geomspace(0.1, 50, count)]
    made = trials("x", {"clip_norm=1": 0.3, "clip_norm=2": 0.2}, *epsilons, math.inf)
    styles = epsilon_styles(swept_rows(summarize(made), "clip_norm"))
    lights = [luminance(style["color"]) for style in styles.values()]
    assert len(lights) == count + 1
    assert min(1.05 / (light + 0.05) for light in lights) > 3  # WCAG 2.1, graphical objects
    assert all(np.diff(lights[:-1]) < 0)
    looks = {(str(style["marker"]), str(style["linestyle"])) for style in styles.values()}
    assert len(looks) == count + 1
