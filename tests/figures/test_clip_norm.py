"""The figure over clip norms: a metric and calibration, the best by validation loss in a ring."""

import math
from typing import Any

import numpy as np
import pytest

from dpcompare.figures.clip_norm import clip_norm
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.summary import summarize
from tests.fabricated_records import failed, metrics, record, scores_of, study
from tests.figures.readable import cut_or_overlapping

NORMS = (1.0, 3.0, 10.0, 30.0, 100.0)
EPSILONS = (0.5, 3.0, 8.0)
BEST = {0.5: 3.0, 3.0: 10.0, 8.0: 30.0}
ABOUT = {"study": "clip-norm", "title": "pCTR: a larger clip norm biases less and adds more noise"}


def quality(epsilon: float, norm: float) -> float:
    """From 0, as the constant, to 1: noise counts from the best clip norm on, bias below it."""
    ratio = math.log10(norm / BEST.get(epsilon, 30.0))
    return 0.75 + 0.06 * math.log(min(epsilon, 30.0)) - (0.45 if ratio > 0 else 0.15) * ratio**2


def trial(epsilon: float, norm: float, seed: int, curve: str = "dp-sgd") -> dict[str, Any]:
    at = quality(epsilon, norm) + 0.01 * (seed - 1)
    test = metrics(0.5 + 0.3 * max(at, 0.0), 1 - 0.2 * at)
    test["calibration"] = 1 - 0.25 / norm**0.7 + (0.002 * norm / epsilon if epsilon < 99 else 0)
    label = f"{curve} (clip_norm={norm:g})"
    return record("dp-sgd", epsilon, seed, label=label, test=test, validation=test, **ABOUT)


def swept(
    epsilons: tuple[float, ...] = EPSILONS,
    norms: tuple[float, ...] = NORMS,
    seeds: int = 3,
    curve: str = "dp-sgd",
) -> list[dict[str, Any]]:
    reference = [
        record("non-private", math.inf, seed, test=metrics(0.789 + 0.001 * seed, 0.82), **ABOUT)
        for seed in range(seeds)
    ]
    runs = [(e, n, seed) for n in norms for e in epsilons for seed in range(seeds)]
    return [*reference, *(trial(e, n, seed, curve) for e, n, seed in runs)]


def counts() -> list[dict[str, Any]]:
    """The same study for conversions, where there is no AUC."""
    made = []
    for r in swept():
        norm = float(r["label"].partition("=")[2].rstrip(")") or 30)
        scores = scores_of("pconvs", quality(r["epsilon"], norm))
        parts = dict.fromkeys(("validation", "test"), scores)
        about = {"task": "pconvs", "metric": "poisson_loss"}
        made.append(r | parts | about | {"best_possible": scores_of("pconvs", 1.0)})
    return made


def failing(records: list[dict[str, Any]], label: str, *epsilons: float) -> list[dict[str, Any]]:
    return [
        failed(r["mechanism"], r["epsilon"], r["seed"], "diverged", label=label, **ABOUT)
        if r["label"] == label and r["epsilon"] in (epsilons or EPSILONS)
        else r
        for r in records
    ]


def without_auc(records: list[dict[str, Any]], label: str) -> list[dict[str, Any]]:
    return [
        r | {"test": r["test"] | {"auc": math.nan}} if r["label"] == label else r for r in records
    ]


def caption(records: list[dict[str, Any]]) -> str:
    return " ".join(clip_norm(records)[0].texts[-1].get_text().split())


def test_each_epsilon_is_one_curve_over_the_clip_norms_in_both_panels() -> None:
    records = swept()
    figure, numbers = clip_norm(records)
    summary = summarize(records)
    assert [ax.get_label() for ax in figure.axes] == ["auc", "calibration"]
    for ax in figure.axes:
        name = ax.get_label()
        drawn = {line.get_label(): line for line in ax.lines}
        for epsilon in EPSILONS:
            expected = summary[summary["epsilon"] == epsilon]
            line = drawn[f"epsilon {epsilon:g}"]
            np.testing.assert_array_equal(line.get_xdata(), NORMS)
            np.testing.assert_array_equal(line.get_ydata(), expected[name])
            rows = numbers[(numbers["panel"] == name) & (numbers["epsilon"] == epsilon)]
            np.testing.assert_array_equal(rows["clip_norm"], NORMS)
            np.testing.assert_array_equal(rows["standard_error"], expected[f"{name}_se"])
    assert not cut_or_overlapping(figure)


def test_the_ring_is_chosen_by_validation_loss_and_never_by_the_test_metric() -> None:
    records = swept()
    _, numbers = clip_norm(records)
    chosen = numbers[numbers["chosen"].eq(True)]
    assert dict(zip(chosen["epsilon"], chosen["clip_norm"], strict=True)) == BEST
    perfect = metrics(0.99, 0.1)
    worse = [r | {"test": perfect} if r["label"] == "dp-sgd (clip_norm=1)" else r for r in records]
    figure, numbers = clip_norm(worse)
    chosen = numbers[numbers["chosen"].eq(True)]
    assert dict(zip(chosen["epsilon"], chosen["clip_norm"], strict=True)) == BEST
    rings = [line for line in figure.axes[0].lines if line.get_markersize() > 9]
    assert sorted(x for ring in rings for x in ring.get_xdata()) == sorted(BEST.values())
    assert "lowest mean validation log loss (3 for epsilon 0.5, 10 for epsilon 3" in caption(worse)


def test_a_clip_norm_that_failed_on_a_seed_is_not_chosen() -> None:
    records = [
        failed("dp-sgd", 0.5, 0, "diverged", label=r["label"], **ABOUT)
        if (r["label"], r["epsilon"], r["seed"]) == ("dp-sgd (clip_norm=3)", 0.5, 0)
        else r
        for r in swept()
    ]
    _, numbers = clip_norm(records)
    chosen = numbers[numbers["chosen"].eq(True) & numbers["epsilon"].eq(0.5)]
    assert set(chosen["clip_norm"]) == {1.0}  # the next best of those with all seeds
    assert "Failed: dp-sgd (clip_norm=3) (1 trials, at epsilon 0.5)" in caption(records)


def test_what_is_not_swept_is_a_line_or_named() -> None:
    other = [record("randomized-response", e, 0, **ABOUT) for e in EPSILONS]
    figure, numbers = clip_norm([*swept(), *other])
    assert set(numbers.loc[numbers["kind"] == "reference", "label"]) == {"non-private"}
    text = " ".join(figure.texts[-1].get_text().split())
    assert "Not drawn, they do not sweep clip_norm: randomized-response." in text


def test_clipping_without_noise_is_a_black_curve() -> None:
    figure, numbers = clip_norm(swept((*EPSILONS, math.inf)))
    line = next(x for x in figure.axes[0].lines if x.get_label() == "dp-sgd (epsilon = inf)")
    np.testing.assert_array_equal(line.get_xdata(), NORMS)
    assert line.get_color() == "0.15"
    assert not cut_or_overlapping(figure)
    assert (numbers["kind"].eq("curve") & np.isinf(numbers["epsilon"])).sum() == 2 * len(NORMS)


def test_other_swept_settings_have_a_column() -> None:
    records = [r | {"label": r["label"].replace("=10)", "=10 learning_rate=0.5)")} for r in swept()]
    _, numbers = clip_norm(records)
    rates = numbers[numbers["kind"] == "curve"].set_index("clip_norm")["learning_rate"]
    assert set(rates[10.0]) == {0.5}
    assert rates.drop(10.0).isna().all()


def test_counts_have_no_auc_and_a_lower_loss_is_better() -> None:
    figure, numbers = clip_norm(counts())
    assert [ax.get_label() for ax in figure.axes] == ["poisson_loss", "calibration"]
    chosen = numbers[numbers["chosen"].eq(True)]
    assert dict(zip(chosen["epsilon"], chosen["clip_norm"], strict=True)) == BEST
    assert not cut_or_overlapping(figure)
    assert "lowest mean validation Poisson loss" in caption(counts())


@pytest.mark.parametrize(
    "records",
    [
        swept(seeds=1),
        swept((3.0,)),
        swept(norms=(10.0,)),
        failing(swept(), "dp-sgd (clip_norm=30)"),
        failing(swept(), "dp-sgd (clip_norm=30)", 3.0),
        without_auc(swept(), "dp-sgd (clip_norm=10)"),
        swept() + swept(curve="dp-sgd, batch 8192")[3:],
        swept((0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0)),
        [r | {"metric": "calibration"} for r in swept()],
    ],
    ids=[
        "one seed",
        "one epsilon",
        "one value",
        "a value failed",
        "a point failed",
        "no metric",
        "two curves",
        "nine epsilons",
        "calibration",
    ],
)
def test_no_text_is_cut_or_overlaps(records: list[dict[str, Any]]) -> None:
    assert cut_or_overlapping(clip_norm(records)[0]) == []


def test_gaps_are_named() -> None:
    text = caption(failing(swept(), "dp-sgd (clip_norm=30)"))
    assert "Not drawn, no trial has a score: dp-sgd (clip_norm=30)." in text
    assert "AUC has no value in 9 trials" in caption(without_auc(swept(), "dp-sgd (clip_norm=1)"))


def test_notes_stand_once_per_curve() -> None:
    note = "Vocabularies were learnt from the training rows."
    text = caption([r | {"notes": [note]} for r in swept()])
    assert text.count(note) == 1
    assert f"non-private, dp-sgd: {note}" in text


def test_equal_records_give_equal_bytes() -> None:
    for form in ("png", "svg"):
        assert render(clip_norm(swept())[0], form) == render(clip_norm(swept())[0], form)


def test_nothing_swept_is_a_clear_error() -> None:
    with pytest.raises(NothingToDraw, match=r"no label sweeps it.*clip_norm=8"):
        clip_norm(study())
    everything = swept()
    for norm in NORMS:
        everything = failing(everything, f"dp-sgd (clip_norm={norm:g})")
    with pytest.raises(NothingToDraw, match="no trial that sweeps it has a score"):
        clip_norm(everything)
