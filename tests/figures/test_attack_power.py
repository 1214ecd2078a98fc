"""The figure of attack power: bounds of labels and rows against epsilon, on one axis."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dpcompare import attack_power as power
from dpcompare.accounting import guarantee, sampled_gaussian_event
from dpcompare.figures.attack_power import attack_power
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.label_mechanism import pure_releases
from dpcompare.privacy import Release
from dpcompare.results import ResultsFolder
from dpcompare.sampled_gaussian import SampledGaussian
from tests.fabricated_records import account_record, conversions, failed, record, study
from tests.figures.readable import cut_or_overlapping

REFERENCE = Path(__file__).resolve().parents[2] / "results" / "reference"


def caption(figure: Figure) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def line(ax: Axes, label: str) -> Line2D:
    return next(line for line in ax.lines if line.get_label() == label)


def claimed(*releases: Release) -> dict[str, Any]:
    stated = vars(guarantee(releases, 1e-5, "zero-out"))
    return stated | {"events": list(stated["events"])}


def trial(label: str, epsilon: float, sigma: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """A trial that states what it released: gradients with noise sigma, or labels."""
    gradients = Release(sampled_gaussian_event(SampledGaussian(sigma, 0.04, 100)), "example")
    releases = [gradients] if sigma else pure_releases(epsilon, "randomized response")
    mechanism = "dp-sgd" if sigma else "randomized-response"
    return record(mechanism, epsilon, seed, label=label, guarantee=claimed(*releases))


def pair() -> list[dict[str, Any]]:
    """DP-SGD and randomized response at two epsilons, two seeds each."""
    return [
        made
        for seed in (0, 1)
        for epsilon, sigma in ((0.5, 4.0), (3.0, 1.0))
        for made in (trial("dp-sgd", epsilon, sigma, seed), trial("rr", epsilon, seed=seed))
    ]


def test_lines_equal_the_bounds() -> None:
    figure, numbers = attack_power(pair())
    assert list(numbers.columns) == power.COLUMNS
    assert [ax.get_label() for ax in figure.axes] == ["0.01", "0.001"]
    for ax in figure.axes:
        rate = float(str(ax.get_label()))
        np.testing.assert_allclose(line(ax, "rr").get_ydata(), np.exp([0.5, 3.0]) * rate, rtol=1e-6)
        gaussians = [[SampledGaussian(sigma, 0.04, 100)] for sigma in (4.0, 1.0)]
        for label, relation in (("dp-sgd", "replace-one"), ("dp-sgd, whole row", "zero-out")):
            bounds = [power.of_gaussians(g, [], relation, rate)[0] for g in gaussians]  # type: ignore[arg-type]
            np.testing.assert_allclose(line(ax, label).get_ydata(), bounds, rtol=1e-4)
            np.testing.assert_array_equal(line(ax, label).get_xdata(), [0.5, 3.0])
        assert ax.get_xscale() == ax.get_yscale() == "log"
        low, high = ax.get_ylim()
        assert low < rate < 1 < high
    assert legend(figure) == ["dp-sgd", "rr", "the same for a whole row"]
    assert cut_or_overlapping(figure) == []


def test_the_caption_says_what_a_newcomer_needs() -> None:
    text = caption(attack_power(pair())[0])
    for part in (
        "At epsilon 0.5, an attacker who may be wrong about 1 in 1,000 rows",
        "0.165% under rr",
        "Guessing recognizes 0.1%.",
        "a flipped label is a replaced row",
        "Label mechanisms use features as they are",
        "Equal epsilon is not equal privacy. dp-sgd: epsilon protects one example under zero-out",
        "rr: epsilon protects one label under replace-one-label",
    ):
        assert part in text


def test_curves_without_any_difference_are_one_line() -> None:
    records = [trial(f"mechanism number {k}", epsilon) for k in range(5) for epsilon in (1.0, 2.0)]
    figure, numbers = attack_power(records)
    assert legend(figure) == ["mechanism number 0 and 4 more"]
    assert set(numbers["label"]) == {f"mechanism number {k}" for k in range(5)}
    assert "In one line, since their bounds are equal: mechanism number 0, " in caption(figure)
    assert cut_or_overlapping(figure) == []


def test_bounds_of_a_stated_epsilon_alone_are_hollow_and_named() -> None:
    unread = trial("dp-sgd", 1.0, 2.0)
    unread["guarantee"]["events"] = ["2 x something new (unit: example)"]
    figure, numbers = attack_power([unread, trial("rr", 1.0)])
    known = numbers.set_index("label")["from_releases"]
    assert not known["dp-sgd"].any()
    assert known["rr"].all()
    text = caption(figure)
    said = "Hollow markers: bounds of the stated epsilon and delta alone, which are looser: dp-sgd."
    assert said in text
    hollow = [line for line in figure.axes[0].lines if line.get_markerfacecolor() == "white"]
    assert [len(line.get_xdata()) for line in hollow] == [1, 0]  # type: ignore[arg-type]


def test_made_up_studies_can_be_read() -> None:
    for records in (study(), conversions("pcvr"), conversions("pconvs", seeds=1)):
        figure, _ = attack_power(records)
        assert cut_or_overlapping(figure) == []


@pytest.mark.parametrize("name", ["quickstart", "groups"])
def test_committed_studies_can_be_drawn(name: str) -> None:
    folder = ResultsFolder(REFERENCE / name)
    figure, numbers = attack_power(folder.records(folder.plan()))
    assert numbers["from_releases"].all()
    assert cut_or_overlapping(figure) == []


def test_what_is_missing_is_named() -> None:
    records = [
        *pair(),
        record("non-private", math.inf, 0),
        failed("rr-on-bins", 0.5, 0, "diverged"),
        failed("rr-on-bins", 3.0, 0, "diverged"),
    ]
    records[2] = failed("dp-sgd", 3.0, 0, "no noise fits")
    records[6] = failed("dp-sgd", 3.0, 1, "no noise fits")
    figure, numbers = attack_power(records)
    text = caption(figure)
    assert "Not drawn, no privacy: non-private." in text
    assert "Not drawn for lack of a guarantee: rr-on-bins." in text
    assert "dp-sgd (2 trials, at epsilon 3)" in text
    assert set(numbers["label"]) == {"dp-sgd", "rr"}
    assert cut_or_overlapping(figure) == []


def test_one_epsilon_and_a_study_that_trains_nothing() -> None:
    figure, _ = attack_power([account_record(1.0, "dp-sgd", 1.0, 64)])
    assert cut_or_overlapping(figure) == []


def test_equal_records_give_equal_files() -> None:
    first, second = (attack_power(pair())[0] for _ in range(2))
    assert render(first, "svg") == render(second, "svg")


def test_without_a_guarantee_there_is_nothing_to_draw() -> None:
    for records in (
        [record("non-private", math.inf, 0)],
        [failed("dp-sgd", 1.0, 0, "no noise fits")],
    ):
        with pytest.raises(NothingToDraw, match="no attack power"):
            attack_power(records)
