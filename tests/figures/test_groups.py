"""The figure over groups: factors of clip norm and group size, and the best pair per epsilon."""

import math
from typing import Any

import numpy as np
import pytest

from dpcompare.figures.groups import groups
from dpcompare.figures.style import NothingToDraw, render
from dpcompare.summary import summarize
from tests.fabricated_records import failed, guarantee, metrics, record, scores_of, study
from tests.figures.readable import cut_or_overlapping

FACTORS = (1, 2, 4, 8, 16, 32)
EPSILONS = (0.5, 3.0, 8.0)
NINE = (0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0)
VARIANTS = ("larger clip norm", "larger groups", "both", "larger groups same noise")
ABOUT = {"study": "groups", "title": "pCTR: groups averaged before clipping"}


def pair(variant: str, factor: int) -> tuple[int, int]:
    """Clip norm and group size."""
    if variant == "larger clip norm":
        return 10 * factor, 1
    if variant == "both":
        size = 2 ** (factor.bit_length() // 2)
        return 10 * factor // size, size
    return 10, factor


def spent(epsilon: float, size: int) -> float:
    return epsilon * size**1.1


def trial(epsilon: float, variant: str, factor: int, seed: int) -> dict[str, Any]:
    norm, size = pair(variant, factor)
    same_noise = "same noise" in variant
    noise = (norm / 10) * size * (1.0 if same_noise else size**0.3)
    best = 4 * epsilon**0.5
    gain = 0.03 * math.log2(size) ** 0.5 + 0.01 * (variant == "both")
    at = 0.8 + 0.05 * math.log(epsilon) - 0.02 * math.log2(noise / best) ** 2 + gain
    at += 0.006 * (seed - 1)
    test = metrics(0.5 + 0.3 * max(at, 0.0), 1 - 0.2 * at)
    stated = guarantee("dp-sgd", epsilon)
    if same_noise and size > 1:
        stated |= {"epsilon": spent(epsilon, size)}
    return record(
        "dp-sgd",
        epsilon,
        seed,
        label=f"{variant} (clip_norm={norm} group_size={size})",
        test=test,
        validation=test,
        guarantee=stated,
        **ABOUT,
    )


def swept(
    epsilons: tuple[float, ...] = EPSILONS,
    variants: tuple[str, ...] = VARIANTS,
    factors: tuple[int, ...] = FACTORS,
    seeds: int = 3,
) -> list[dict[str, Any]]:
    reference = [
        record("non-private", math.inf, seed, test=metrics(0.789 + 0.001 * seed, 0.82), **ABOUT)
        for seed in range(seeds)
    ]
    runs = [
        (epsilon, variant, factor, seed)
        for variant in variants
        for factor in factors
        for epsilon in epsilons
        for seed in range(seeds)
    ]
    return [*reference, *(trial(*run) for run in runs)]


def counts() -> list[dict[str, Any]]:
    made = []
    for r in swept():
        scores = scores_of("pconvs", (r["test"]["auc"] - 0.5) / 0.3)
        parts = dict.fromkeys(("validation", "test"), scores)
        about = {"task": "pconvs", "metric": "poisson_loss"}
        made.append(r | parts | about | {"best_possible": scores_of("pconvs", 1.0)})
    return made


def failing(records: list[dict[str, Any]], start: str) -> list[dict[str, Any]]:
    return [
        failed("dp-sgd", r["epsilon"], r["seed"], "diverged", label=r["label"], **ABOUT)
        if r["label"].startswith(start)
        else r
        for r in records
    ]


def caption(records: list[dict[str, Any]]) -> str:
    return " ".join(groups(records)[0].texts[-1].get_text().split())


def test_panel_a_is_at_the_epsilon_nearest_to_one_over_factors() -> None:
    records = swept()
    figure, numbers = groups(records)
    summary = summarize(records)
    drawn = {line.get_label(): line for line in figure.axes[0].lines}
    for variant in VARIANTS:
        expected = summary[(summary["curve"] == variant) & (summary["epsilon"] == 0.5)]
        np.testing.assert_array_equal(drawn[variant].get_xdata(), FACTORS)
        np.testing.assert_array_equal(drawn[variant].get_ydata(), expected["auc"])
    rows = numbers[(numbers["panel"] == "factor") & (numbers["kind"] == "curve")]
    assert set(rows["epsilon"]) == {0.5}
    np.testing.assert_array_equal(rows["factor"], rows["clip_norm"] / 10 * rows["group_size"])
    assert not cut_or_overlapping(figure)


def test_panel_b_shows_the_pair_with_the_lowest_validation_loss_of_either_accounting() -> None:
    records = swept()
    _, numbers = groups(records)
    summary = summarize(records)
    size = summary["label"].str.extract(r"group_size=(\d+)")[0].astype(float)
    norm = summary["label"].str.extract(r"clip_norm=(\d+)")[0].astype(float)
    more = summary["label"].str.contains("same noise") & (size > 1)
    best = numbers[(numbers["panel"] == "best pair") & (numbers["kind"] == "curve")]
    for label, members in (
        ("at the same true epsilon", ~more),
        ("at the same noise", more | (size == 1)),
    ):
        for epsilon in EPSILONS:
            place = summary.loc[
                members & (summary["epsilon"] == epsilon), "validation_log_loss"
            ].idxmin()
            shown = best[(best["label"] == label) & (best["epsilon"] == epsilon)]
            assert list(shown["mean"]) == [summary.loc[place, "auc"]]
            assert list(shown["group_size"]) == [size[place]]
            assert list(shown["clip_norm"]) == [norm[place]]


def test_every_pair_of_panel_b_is_written_beside_its_point() -> None:
    figure, numbers = groups(swept(NINE))
    best = numbers[(numbers["panel"] == "best pair") & (numbers["kind"] == "curve")]
    expected = sorted(
        f"G={g:g}\nC={c:g}" for g, c in zip(best["group_size"], best["clip_norm"], strict=True)
    )
    written = [text.get_text() for text in figure.axes[1].texts]
    assert sorted(text for text in written if text.startswith("G=")) == expected
    assert len(expected) == 18
    assert cut_or_overlapping(figure) == []


def test_what_is_spent_decides_and_not_the_name() -> None:
    renamed = [r | {"label": r["label"].replace("same noise", "variant")} for r in swept()]
    _, numbers = groups(renamed)
    assert "at the same noise" in set(numbers["label"])
    honest = [r for r in swept() if "same noise" not in r["label"]]
    honest = [r | {"label": r["label"].replace("both", "same noise")} for r in honest]
    _, numbers = groups(honest)
    assert "at the same noise" not in set(numbers["label"])


def test_the_caption_names_what_is_spent_for_every_group_size() -> None:
    text = caption(swept())
    assert "larger groups same noise: more is spent than asked" in text
    pairs = ", ".join(f"0.5→{spent(0.5, size):.3g} for G={size}" for size in FACTORS[1:])
    assert f"in (a) {pairs};" in text
    _, numbers = groups(swept())
    best = numbers[numbers["label"] == "at the same noise"]
    shown = zip(best["epsilon"], best["group_size"], strict=True)
    pairs = ", ".join(f"{e:g}→{spent(e, int(size)):.3g} for G={size:g}" for e, size in shown)
    assert f"in (b) {pairs}." in text
    assert "at epsilon 0.5" in text
    assert "relative to G=1 and C=10" in text


def test_rings_link_the_panels() -> None:
    _, numbers = groups(swept())
    factor = numbers[numbers["panel"].eq("factor") & numbers["chosen"].eq(True)]
    best = numbers[numbers["panel"].eq("best pair") & numbers["epsilon"].eq(0.5)]
    assert set(factor["mean"]) == set(best["mean"])


def test_several_pairs_of_one_factor_are_points_without_a_line() -> None:
    grid = [
        trial(1.0, "larger groups", 1, seed)
        | {"label": f"grid (clip_norm={norm} group_size={size})"}
        for norm in (10, 20)
        for size in (1, 2)
        for seed in range(3)
    ]
    figure, numbers = groups(grid)
    line = next(line for line in figure.axes[0].lines if line.get_label() == "grid")
    assert line.get_linestyle() == "None"
    assert sorted(numbers["factor"].dropna()) == [1, 1, 2, 2, 4]  # four pairs, and the best
    assert "not joined by a line" in caption(grid)


def test_groups_alone_may_grow() -> None:
    alone = [
        r | {"label": r["label"].replace("clip_norm=10 ", "")}
        for r in swept(variants=("larger groups",))
    ]
    figure, numbers = groups(alone)
    rows = numbers[(numbers["panel"] == "factor") & (numbers["kind"] == "curve")]
    assert list(rows["factor"]) == list(FACTORS)
    assert rows["clip_norm"].isna().all()
    sizes = {f"G={factor}" for factor in FACTORS}
    assert sum(text.get_text() in sizes for text in figure.axes[1].texts) == len(EPSILONS)


def test_an_infinite_epsilon_is_named() -> None:
    infinite = [
        r | {"epsilon": math.inf, "guarantee": guarantee("dp-sgd", math.inf)}
        for r in swept((3.0,), ("larger groups",), seeds=1)[1:]
    ]
    text = caption([*swept((3.0,), seeds=1), *infinite])
    assert "Not drawn, epsilon is infinite: larger groups" in text
    with pytest.raises(NothingToDraw, match="finite epsilon"):
        groups(infinite)


def test_counts_show_their_loss() -> None:
    figure, numbers = groups(counts())
    best = numbers[(numbers["panel"] == "best pair") & (numbers["kind"] == "curve")]
    assert len(best) == 6
    assert figure.axes[0].get_ylabel().startswith("Poisson loss")
    assert not cut_or_overlapping(figure)


@pytest.mark.parametrize(
    "records",
    [
        swept(seeds=1),
        swept((3.0,)),
        swept(factors=(4,)),
        failing(swept(), "both"),
        failing(swept(), "larger groups same noise"),
        failing(swept(), "larger groups (clip_norm=10 group_size=8)"),
        [
            r | {"test": r["test"] | {"auc": None}} if r["label"].startswith("both") else r
            for r in swept()
        ],
        swept(NINE, VARIANTS[:3]),
    ],
    ids=["seed", "epsilon", "factor", "a curve", "an accounting", "a pair", "no metric", "nine"],
)
def test_no_text_is_cut_or_overlaps(records: list[dict[str, Any]]) -> None:
    assert cut_or_overlapping(groups(records)[0]) == []


def test_a_failed_curve_is_named() -> None:
    text = caption(failing(swept(), "larger clip norm (clip_norm=160"))
    assert "no trial has a score: larger clip norm (clip_norm=160 group_size=1)." in text


def test_equal_records_give_equal_bytes() -> None:
    for form in ("png", "svg"):
        assert render(groups(swept())[0], form) == render(groups(swept())[0], form)


def test_nothing_swept_is_a_clear_error() -> None:
    with pytest.raises(NothingToDraw, match="group_size: no label sweeps it"):
        groups(study())
