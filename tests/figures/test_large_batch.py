"""The figure over batch sizes: a metric, and below it the noise on the mean gradient."""

import math
from typing import Any

import numpy as np
import pytest

from dpcompare.figures.large_batch import large_batch
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.summary import summarize
from tests.fabricated_records import failed, metrics, record, scores_of, study
from tests.figures.readable import cut_or_overlapping

BATCHES = {1024: 4, 2048: 8, 4096: 16, 8192: 32, 16384: 64}
EPSILONS = (0.5, 3.0, 8.0)
ABOUT = {"study": "large-batch", "title": "pCTR: larger batches and more epochs lower the noise"}


def sigma(epsilon: float, batch: int) -> float:
    return 0.0 if math.isinf(epsilon) else 0.45 + 0.9 * (batch / 16384) ** 0.6 / epsilon**0.6


def trial(epsilon: float, batch: int, seed: int, curve: str = "dp-sgd") -> dict[str, Any]:
    norm = 10.0 if "C=10" in curve else 30.0
    noise = sigma(epsilon, batch) * norm / batch
    at = 0.95 - 18 * noise - 0.05 * (30 / norm) ** 0.5 + 0.004 * (seed - 1)
    test = metrics(0.5 + 0.3 * max(at, 0.0), 1 - 0.2 * at)
    epochs = BATCHES[batch]
    diagnostics = {"noise_on_mean": noise, "calibrated": {"noise_multiplier": noise * batch / norm}}
    return record(
        "dp-sgd",
        epsilon,
        seed,
        label=f"{curve} (batch_size={batch} epochs={epochs})",
        test=test,
        validation=test,
        schedule={
            "examples": 100_000,
            "batch_size": batch,
            "steps": round(epochs * 100_000 / batch),
            "sampling": "poisson",
        },
        diagnostics={} if math.isinf(epsilon) else diagnostics,
        **ABOUT,
    )


def swept(
    epsilons: tuple[float, ...] = EPSILONS,
    batches: tuple[int, ...] = tuple(BATCHES),
    seeds: int = 3,
    curves: tuple[str, ...] = ("dp-sgd",),
) -> list[dict[str, Any]]:
    reference = [
        record("non-private", math.inf, seed, test=metrics(0.789 + 0.001 * seed, 0.82), **ABOUT)
        for seed in range(seeds)
    ]
    runs = [(e, b, s, c) for c in curves for b in batches for e in epsilons for s in range(seeds)]
    return [*reference, *(trial(*run) for run in runs)]


def counts() -> list[dict[str, Any]]:
    made = []
    for r in swept():
        scores = scores_of("pconvs", (r["test"]["auc"] - 0.5) / 0.3)
        parts = dict.fromkeys(("validation", "test"), scores)
        about = {"task": "pconvs", "metric": "poisson_loss"}
        made.append(r | parts | about | {"best_possible": scores_of("pconvs", 1.0)})
    return made


def failing(label: str) -> list[dict[str, Any]]:
    return [
        failed("dp-sgd", r["epsilon"], r["seed"], "out of memory", label=label, **ABOUT)
        if r["label"] == label
        else r
        for r in swept()
    ]


def ticks(records: list[dict[str, Any]]) -> list[str]:
    figure = large_batch(records)[0]
    return [text.get_text() for text in figure.axes[-1].get_xticklabels()]


def test_curves_hold_the_metric_and_the_noise_of_the_summary() -> None:
    records = swept()
    figure, numbers = large_batch(records)
    summary = summarize(records)
    assert [ax.get_label() for ax in figure.axes] == ["auc", "noise_on_mean"]
    assert [ax.get_yscale() for ax in figure.axes] == ["linear", "log"]
    for ax in figure.axes:
        drawn = {line.get_label(): line for line in ax.lines}
        for epsilon in EPSILONS:
            line = drawn[f"epsilon {epsilon:g}"]
            expected = summary[summary["epsilon"] == epsilon]
            np.testing.assert_array_equal(line.get_xdata(), list(BATCHES))
            np.testing.assert_array_equal(line.get_ydata(), expected[ax.get_label()])
    rows = numbers[(numbers["panel"] == "auc") & (numbers["kind"] == "curve")]
    np.testing.assert_allclose(
        rows["noise_on_mean"], rows["noise_multiplier"] * 30 / rows["batch_size"], rtol=1e-12
    )
    noise = numbers[numbers["panel"] == "noise_on_mean"]
    np.testing.assert_array_equal(noise["mean"], noise["noise_on_mean"])
    assert len(noise) == len(rows) == 15
    assert not cut_or_overlapping(figure)


def test_epochs_stand_below_batch_sizes() -> None:
    expected = [f"{batch:,}\n{epochs}" for batch, epochs in BATCHES.items()]
    assert ticks(swept()) == expected
    plain = [r | {"label": r["label"].partition(" epochs")[0] + ")"} for r in swept()[3:]]
    assert ticks(plain) == expected  # told from steps, batch size and rows
    np.testing.assert_allclose(
        sorted(set(large_batch(plain)[1]["epochs"].dropna())), list(BATCHES.values()), rtol=0.05
    )


def test_curves_of_several_names_differ_in_dashes_and_their_epsilons_in_color() -> None:
    figure, numbers = large_batch(swept((0.5, 8.0), curves=("dp-sgd C=10", "dp-sgd C=30")))
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    names = ["dp-sgd C=10, epsilon 0.5", "dp-sgd C=10, epsilon 8"]
    names += [name.replace("C=10", "C=30") for name in names]
    assert list(dict.fromkeys(numbers.loc[numbers["kind"] == "curve", "label"])) == names
    assert lines[names[0]].get_color() == lines[names[2]].get_color()
    assert lines[names[0]].get_color() != lines[names[1]].get_color()
    assert lines[names[0]].get_linestyle() == lines[names[1]].get_linestyle()
    assert lines[names[0]].get_linestyle() != lines[names[2]].get_linestyle()
    assert not cut_or_overlapping(figure)


def test_without_any_noise_in_the_records_there_is_one_panel() -> None:
    records = [r | {"diagnostics": {}} for r in swept()]
    figure, numbers = large_batch(records)
    assert [ax.get_label() for ax in figure.axes] == ["auc"]
    assert "noise_on_mean" in numbers
    assert not cut_or_overlapping(figure)


def test_a_curve_without_privacy_has_no_noise_and_is_in_the_upper_panel_only() -> None:
    figure, numbers = large_batch(swept((*EPSILONS, math.inf)))
    infinite = numbers[np.isinf(numbers["epsilon"]) & numbers["kind"].eq("curve")]
    assert set(infinite["panel"]) == {"auc"}
    assert len(infinite) == len(BATCHES)
    assert not cut_or_overlapping(figure)


def test_counts_show_their_loss() -> None:
    figure, _ = large_batch(counts())
    assert [ax.get_label() for ax in figure.axes] == ["poisson_loss", "noise_on_mean"]
    assert not cut_or_overlapping(figure)


@pytest.mark.parametrize(
    "records",
    [
        swept(seeds=1),
        swept((3.0,)),
        swept(batches=(8192,)),
        swept((3.0,), batches=(8192,), seeds=1),
        failing("dp-sgd (batch_size=16384 epochs=64)"),
        [r | {"test": r["test"] | {"auc": None}} if r["epsilon"] == 3 else r for r in swept()],
        swept((0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0)),
    ],
    ids=["one seed", "one epsilon", "one size", "one", "a size failed", "no metric", "nine"],
)
def test_no_text_is_cut_or_overlaps(records: list[dict[str, Any]]) -> None:
    assert cut_or_overlapping(large_batch(records)[0]) == []


def test_a_failed_size_is_named_and_keeps_its_tick() -> None:
    figure, _ = large_batch(failing("dp-sgd (batch_size=16384 epochs=64)"))
    text = " ".join(figure.texts[-1].get_text().split())
    assert "no trial has a score: dp-sgd (batch_size=16384 epochs=64)." in text
    assert [t.get_text() for t in figure.axes[-1].get_xticklabels()][-1] == "16,384\n64"


def test_equal_records_give_equal_bytes() -> None:
    for form in ("png", "svg"):
        assert render(large_batch(swept())[0], form) == render(large_batch(swept())[0], form)


def test_nothing_swept_is_a_clear_error() -> None:
    with pytest.raises(NothingToDraw, match="batch_size: no label sweeps it"):
        large_batch(study())
