import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.metric_sets import BINARY
from dpcompare.results import ResultsFolder
from dpcompare.wording import crossing_sentences, crossovers, summarize, table, write_summary
from tests.fabricated_records import (
    BEST,
    EPSILONS,
    conversions,
    count_scores,
    curve,
    failed,
    guarantee,
    metrics,
    record,
    study,
)


def scored(auc: float | None, entropy: float | None = 0.9, **changes: Any) -> dict[str, Any]:
    seed = changes.pop("seed", 0)
    epsilon = changes.pop("epsilon", 1.0)
    label = changes.pop("label", "dp-sgd")
    return record(label, epsilon, seed, test=metrics(auc, entropy), **changes)


def row_of(summary: pd.DataFrame, label: str, epsilon: float) -> pd.Series:
    rows = summary[(summary["label"] == label) & (summary["epsilon"] == epsilon)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_one_row_per_curve_and_epsilon_in_order() -> None:
    summary = summarize(study())
    expected = [("non-private", math.inf)]
    expected += list(product(["dp-sgd", "randomized-response"], EPSILONS))
    assert list(zip(summary["label"], summary["epsilon"], strict=True)) == expected


def test_mean_and_standard_error_equal_a_hand_computation() -> None:
    row = row_of(
        summarize([scored(a, seed=i) for i, a in enumerate((0.70, 0.72, 0.77))]), "dp-sgd", 1
    )
    assert row["auc"] == pytest.approx(0.73, abs=1e-15)
    # deviations -.03, -.01, .04: sum of squares .0026, variance .0013, / 3 seeds
    assert row["auc_se"] == pytest.approx(math.sqrt(0.0013 / 3), rel=1e-12)
    assert row["n_seeds"] == row["auc_n"] == 3
    assert row["seeds"] == "0 1 2"


def test_an_undefined_metric_is_left_out_and_counted() -> None:
    records = [scored(a, seed=i) for i, a in enumerate((0.7, None, 0.8))]
    row = row_of(summarize(records), "dp-sgd", 1)
    assert row["auc"] == pytest.approx(0.75)
    assert (row["auc_n"], row["log_loss_n"], row["n_seeds"]) == (2, 3, 3)
    assert "AUC has no value in 1 trial, left out of its mean" in table(summarize(records))


def test_one_seed_has_no_standard_error() -> None:
    summary = summarize(study(seeds=1))
    assert summary["auc_se"].isna().all()
    assert summary["auc"].notna().all()
    assert "n = 1 seed" in table(summary)


def test_guarantee_and_other_relations_are_columns() -> None:
    row = row_of(summarize(study()), "dp-sgd", 3.0)
    assert row["guarantee_epsilon"] == pytest.approx(2.9997)
    assert row["epsilon_zero_out"] == row["guarantee_epsilon"]
    assert row["epsilon_replace_one"] == pytest.approx(5.91)
    assert (row["unit"], row["neighboring"], row["accountant"]) == ("example", "zero-out", "pld")
    assert math.isnan(row_of(summarize(study()), "randomized-response", 3.0)["epsilon_zero_out"])


def tuned_records() -> list[dict[str, Any]]:
    """Rate 0.1 is best on validation, 0.5 on the test rows; 2.0 only on the seed it survived."""
    made = []
    for rate, loss, auc in ((0.1, 0.80, 0.70), (0.5, 0.85, 0.75), (2.0, 0.60, 0.72)):
        for seed in range(2):
            changes = {"candidate": {"training.learning_rate": rate}}
            if rate == 2.0 and seed == 1:
                made.append(failed("dp-sgd", 1.0, seed, "diverged", **changes))
            else:
                validation = metrics(0.7, loss)
                made.append(scored(auc, seed=seed, validation=validation, **changes))
    return made


def test_validation_selects_the_candidate_and_test_never_does() -> None:
    row = row_of(summarize(tuned_records()), "dp-sgd", 1)
    assert row["candidate"] == "training.learning_rate=0.1"
    assert row["auc"] == pytest.approx(0.70)
    assert (row["n_candidates"], row["n_seeds"]) == (3, 2)
    assert row["tuned"]


def test_the_table_says_what_was_tuned() -> None:
    text = table(summarize([scored(0.79, label="non-private", epsilon=math.inf), *tuned_records()]))
    flat = " ".join(text.split())
    assert "1*" in text
    assert "Candidates: non-private 1, dp-sgd 3 (not equally many)" in flat
    assert "Chosen: dp-sgd at epsilon 1: training.learning_rate=0.1." in flat
    assert "selection is not counted in it" in flat


def test_candidates_without_validation_scores_are_not_chosen() -> None:
    records = [
        scored(0.7, candidate={"rate": rate}, validation=metrics(None, None)) for rate in (1, 2)
    ]
    summary = summarize(records)
    assert summary["n_seeds"].iloc[0] == 0
    assert math.isnan(summary["auc"].iloc[0])
    assert "no valid score" in table(summary)


def test_worse_than_the_base_rate_is_marked() -> None:
    summary = summarize(study())
    worse = summary[summary["worse_than_constant"]]
    assert list(worse["epsilon"]) == [0.1, 0.25, 0.5, 1.0]
    assert set(worse["label"]) == {"randomized-response"}
    marked = [line for line in table(summary).splitlines() if "! " in line]
    assert len(marked) == 5  # and the legend


def test_a_curve_far_worse_than_the_constant_keeps_its_numbers() -> None:
    made = [scored(0.5, 3000.0), scored(0.5, math.inf, label="lost"), scored(0.7, label="fine")]
    text = table(summarize(made))
    assert "! 3e+03" in text
    assert "! inf" in text
    assert "base rate" in text
    assert max(map(len, text.splitlines())) <= 100


def test_failed_and_missing_trials_have_rows_and_names() -> None:
    records = [r for r in study() if not (r["label"] == "dp-sgd" and r["epsilon"] == 0.1)]
    records = [
        failed(r["mechanism"], r["epsilon"], r["seed"], "diverged")
        if r["label"] == "dp-sgd" and r["epsilon"] == 0.5
        else r
        for r in records
        if not (r["label"] == "randomized-response" and r["epsilon"] == 3 and r["seed"] == 1)
    ]
    summary = summarize(records)
    assert len(summary) == 19
    assert row_of(summary, "dp-sgd", 0.1)["missing"] == "seed 0, seed 1, seed 2"
    assert row_of(summary, "dp-sgd", 0.5)["n_failed"] == 3
    assert row_of(summary, "randomized-response", 3)["n_seeds"] == 2
    text = table(summary)
    assert "Failed: dp-sgd at epsilon 0.5: seed 0, seed 1, seed 2: diverged." in text
    assert "Missing: dp-sgd at epsilon 0.1: seed 0, seed 1, seed 2." in text
    assert "Missing: randomized-response at epsilon 3: seed 1." in text
    assert "n = 2-3 seeds" in text


def test_a_mechanism_that_always_fails_is_reported() -> None:
    records = [*study(), failed("hybrid", 1.0, 0, "no such noise")]
    text = table(summarize(records))
    assert "hybrid: no trial got as far as a guarantee." in text
    assert "no such noise" in text


def test_the_table_states_privacy_and_fits_the_terminal() -> None:
    notes = ["Vocabularies were learnt from the training rows."]
    long = "dp-sgd " + "x" * 40 + " end"
    records = [*study(), *curve("dp-sgd", *flat(), 2, label=long, notes=notes)]
    text = table(summarize(records))
    joined = " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 100
    assert "n = 2-3 seeds, mean ± standard error, test-sample error not included" in joined
    assert "Equal epsilon is not equal privacy" in joined
    assert f"dp-sgd, {long}: epsilon protects one example under zero-out, delta 3.2e-06" in joined
    assert (
        "randomized-response: epsilon protects one label under replace-one-label, delta 0" in joined
    )
    assert "The same under add-or-remove-one. Under replace-one: 0.1→0.197" in joined
    assert "Not defined under zero-out, add-or-remove-one, replace-one" in joined
    assert "non-private: no privacy" in joined
    assert notes[0] in joined
    assert "best possible 0.8000" in joined
    assert "xx end " in joined


def flat() -> tuple[tuple[float, ...], tuple[float, ...]]:
    return (0.7,) * len(EPSILONS), (0.9,) * len(EPSILONS)


def test_spending_more_than_asked_is_said() -> None:
    over = guarantee("dp-sgd", 1.0) | {"epsilon": 1.5}
    text = table(summarize([scored(0.7, guarantee=over)]))
    assert "More is spent than asked: 1→1.5" in " ".join(text.split())


def test_older_records_of_the_same_trial_are_left_out_and_said() -> None:
    records = [scored(0.6, id="aa"), scored(0.7, id="bb")]
    summary = summarize(records)
    assert summary["auc"].iloc[0] == 0.7
    assert "1 older records" in table(summary)


def test_best_possible_is_a_mean_over_seeds() -> None:
    records = [scored(0.7, seed=i, best_possible=BEST | {"auc": 0.8 + i / 10}) for i in range(2)]
    assert summarize(records)["best_possible_auc"].iloc[0] == pytest.approx(0.85)
    records = [scored(0.7, best_possible=None)]
    assert math.isnan(summarize(records)["best_possible_auc"].iloc[0])
    assert "best possible" not in table(summarize(records))


def test_no_records_is_a_clear_error() -> None:
    with pytest.raises(DpcompareError, match="run-study"):
        summarize([])


def test_summary_csv_holds_the_same_numbers(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    records = study()
    with folder.lock():
        for made in records:
            folder.append(made)
    summary = write_summary(folder)
    read = pd.read_csv(folder.summary)
    assert math.isinf(read["epsilon"].iloc[0])
    for name in BINARY.names:
        np.testing.assert_array_equal(read[name], summary[name])
        np.testing.assert_array_equal(read[f"{name}_se"], summary[f"{name}_se"])
    pd.testing.assert_frame_equal(summary, summarize(records))


def two_curves(first: dict[float, list[float]], second: dict[float, list[float]]) -> list[Any]:
    return [
        scored(value, label=label, epsilon=epsilon, seed=seed)
        for label, values in (("A", first), ("B", second))
        for epsilon, list_ in values.items()
        for seed, value in enumerate(list_)
    ]


def test_the_crossing_lies_between_the_decided_epsilons() -> None:
    base = [0.70, 0.71, 0.72]
    behind, tie, ahead = [0.69, 0.702, 0.709], [0.71, 0.70, 0.721], [0.71, 0.722, 0.729]
    records = two_curves(
        dict.fromkeys((0.1, 0.5, 1.0, 10.0), base),
        {0.1: behind, 0.5: behind, 1.0: tie, 10.0: ahead},
    )
    (found,) = crossovers(records)
    assert found.intervals == ((0.5, 10.0),)
    assert [point.ahead for point in found.points] == ["A", "A", None, "B"]
    assert "cross between epsilon 0.5 (A ahead) and 10 (B ahead)" in found.statement
    differences = np.array(base) - np.array(behind)
    low, high = stats.t.interval(0.95, 2, loc=differences.mean(), scale=stats.sem(differences))
    assert found.points[0].low == pytest.approx(low, rel=1e-12)
    assert found.points[0].high == pytest.approx(high, rel=1e-12)


def test_only_common_seeds_are_paired() -> None:
    records = two_curves({1.0: [0.70, 0.80, 0.90]}, {1.0: [0.69, 0.791]})
    (point,) = crossovers(records)[0].points
    assert point.n == 2
    assert point.difference == pytest.approx(0.0095)


def test_curves_may_not_cross_or_stay_undecided() -> None:
    base = [0.70, 0.71, 0.72]
    lower, noisy = [0.65, 0.661, 0.67], [0.72, 0.68, 0.73]
    (apart,) = crossovers(two_curves({1.0: base, 3.0: base}, {1.0: lower, 3.0: noisy}))
    assert apart.intervals == ()
    assert "no crossing from epsilon 1 to 3" in apart.statement
    assert "A is ahead at epsilon 1, undecided elsewhere" in apart.statement
    (open_,) = crossovers(two_curves({1.0: base}, {1.0: noisy}))
    assert "undecided at epsilon 1" in open_.statement
    (single,) = crossovers(two_curves({1.0: [0.7]}, {1.0: [0.6]}))
    assert "one seed only" in single.statement
    assert single.points[0].ahead is None


def test_lower_is_better_for_losses() -> None:
    records = [
        scored(0.7, entropy=entropy + seed / 100, label=label, seed=seed)
        for label, entropy in (("A", 0.8), ("B", 0.9))
        for seed in range(3)
    ]
    (found,) = crossovers(records, "normalized_entropy")
    assert found.points[0].ahead == "A"
    with pytest.raises(UsageError, match="calibration"):
        crossovers(records, "calibration")


def test_counts_are_compared_by_their_own_metrics() -> None:
    made = conversions("pconvs")
    made = [r for r in made if r["label"] in ("dp-sgd", "randomized-response")]
    (by_loss,) = crossovers(made)
    assert by_loss.metric == "poisson_loss"
    assert by_loss.points[0].ahead == "dp-sgd"
    assert by_loss.points[-1].ahead == "randomized-response"
    for metric in ("d2", "deviance"):
        (other,) = crossovers(made, metric)
        assert other.intervals == by_loss.intervals
    assert "by Poisson loss: they cross between" in " ".join(crossing_sentences(made).split())
    with pytest.raises(UsageError, match=r"poisson_loss, deviance, d2, not by 'auc'"):
        crossovers(made, "auc")


def test_counts_are_tuned_by_poisson_loss_on_validation_rows() -> None:
    made = [
        record(
            "dp-sgd",
            1.0,
            0,
            task="pconvs",
            metric="d2",
            candidate={"rate": rate},
            validation=count_scores(d2),
            test=count_scores(0.05),
        )
        for rate, d2 in ((0.1, 0.02), (0.3, 0.04), (1.0, -2.0))
    ]
    summary = summarize(made)
    assert summary["candidate"].tolist() == ["rate=0.3"]
    assert "Tuned by mean validation Poisson loss" in " ".join(table(summary).split())


def test_crossing_sentences_are_ready_to_print() -> None:
    text = crossing_sentences(study())
    assert max(map(len, text.splitlines())) <= 100
    joined = " ".join(text.split())
    assert "dp-sgd and randomized-response by AUC: they cross between epsilon 5" in joined
    assert "by log loss" in crossing_sentences([r | {"metric": "log_loss"} for r in study()])
    assert "by AUC" in crossing_sentences([r | {"metric": "calibration"} for r in study()])
    assert crossing_sentences([r for r in study() if r["label"] == "dp-sgd"]) == ""


def test_pairs_are_private_curves_only() -> None:
    pairs = [(c.first, c.second) for c in crossovers(study())]
    assert pairs == [("dp-sgd", "randomized-response")]
