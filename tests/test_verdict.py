"""The verdict of a study in words, on made-up records whose answer is known."""

import math

import pytest

from dpcompare.errors import DpcompareError
from dpcompare.verdict import bid_text, verdict
from tests import fabricated_records as made
from tests.fabricated_records import EPSILONS, metrics, record


def trial(mechanism, epsilon, seed, auc, loss, label=None, validation=None, **changes):
    """One trial with a test AUC and log loss, and a validation loss that is the same by default."""

    def scores(value):
        return metrics(auc, value / made.BASE_ENTROPY) | {"calibration": 1.0}

    values = {"test": scores(loss), "validation": scores(validation or loss)} | changes
    return record(mechanism, epsilon, seed, label=label or mechanism, **values)


def curves(gaps, seeds=3, noise=0.001, **changes):
    """dp-sgd with AUC .7, and randomized-response that is `gaps` (epsilon to gap) ahead of it."""
    found = [trial("non-private", math.inf, seed, 0.78, 0.47) for seed in range(seeds)]
    for epsilon, gap in gaps.items():
        for seed in range(seeds):
            shift = noise * (seed - (seeds - 1) / 2)
            found.append(trial("dp-sgd", epsilon, seed, 0.7, 0.5))
            other = trial(
                "randomized-response",
                epsilon,
                seed,
                0.7 + gap + shift,
                0.5 - gap - shift,
                **changes,
            )
            found.append(other)
    return found


def test_a_crossing_is_told_with_who_is_ahead_where_and_what_is_undecided():
    found = verdict(curves({0.1: -0.05, 0.25: -0.05, 0.5: 0.0, 1.0: 0.05, 3.0: 0.05}))
    by_auc, by_loss = found.duels
    assert by_auc.crossover.metric == "auc"
    assert by_loss.crossover.metric == "log_loss"
    # Half the t interval of three seeds with standard deviation .001: 4.303 * .001 / sqrt(3).
    assert by_auc.sentence == (
        "By AUC: dp-sgd is ahead up to epsilon 0.25, randomized-response from epsilon 1 on. At 0.5 "
        "these 3 seeds do not decide; the difference there may be up to 0.0025. So the curves "
        "cross between epsilon 0.25 and 1."
    )
    assert by_auc.crossover.intervals == ((0.25, 1.0),)


@pytest.mark.parametrize(
    ("gaps", "ending"),
    [
        ({0.1: 0.05, 50.0: 0.05}, "The curves do not cross within epsilon 0.1-50."),
        ({0.1: 0.05, 1.0: 0.0, 50.0: 0.05}, "No crossing is decided within epsilon 0.1-50."),
        (
            {0.1: 0.05, 1.0: -0.05, 50.0: 0.05},
            "So the curves cross between epsilon 0.1 and 1 and between epsilon 1 and 50.",
        ),
    ],
)
def test_no_crossing_and_several_are_told(gaps, ending):
    assert verdict(curves(gaps)).duels[0].sentence.endswith(ending)


def test_curves_that_the_seeds_never_tell_apart():
    sentence = verdict(curves({0.1: 0.0, 1.0: 0.0})).duels[0].sentence
    assert "are not told apart within epsilon 0.1-1. At 0.1 and 1 these 3 seeds" in sentence


def test_one_seed_decides_nothing():
    found = verdict(curves({0.1: -0.05, 1.0: 0.05}, seeds=1))
    assert found.duels[0].sentence == (
        "By AUC: one seed cannot decide between dp-sgd and randomized-response."
    )
    assert found.choices[0].open == ("randomized-response",)
    assert not found.choices[0].behind + found.choices[0].level


def test_the_best_label_mechanism_is_chosen_by_validation_loss_and_never_by_test_loss():
    records = curves({1.0: 0.01, 3.0: 0.05})
    for epsilon in (1.0, 3.0):
        for seed in range(3):
            loss, validation = (0.3, 0.6) if epsilon == 1 else (0.6, 0.3)
            records.append(
                trial(
                    "additive-noise", epsilon, seed, 0.9, loss, label="laplace",
                    validation=validation, guarantee=made.guarantee("laplace", epsilon),
                )
            )  # fmt: skip
    found = verdict(records)
    assert found.best == (
        "The best label mechanism by validation log loss: randomized-response at 1; laplace at 3.",
    )
    assert found.duels[0].crossover.second == "the best label mechanism"
    assert [choice.label for choice in found.choices] == ["randomized-response", "laplace"]
    assert found.choices[0].ahead == ("laplace",)
    pairs = {(p.crossover.first, p.crossover.second) for p in found.pairs}
    assert pairs == {("dp-sgd", "randomized-response"), ("dp-sgd", "laplace")}


def test_what_is_worse_than_the_constant_on_validation_rows_is_never_recommended():
    found = verdict(made.study())
    first = found.choices[0]
    assert (first.epsilon, first.label, first.useless) == (0.1, "dp-sgd", ("randomized-response",))
    records = [r for r in made.study() if r["mechanism"] == "randomized-response"]
    alone = verdict(records)
    bad = [e for e, entropy in zip(EPSILONS, made.RR_ENTROPY, strict=True) if entropy > 1]
    assert [c.epsilon for c in alone.choices if c.label is None] == bad
    (warning,) = (text for text in alone.recommendation if text.startswith("Warning"))
    assert warning.startswith("Warning: at epsilon 0.1, 0.25, 0.5 and 1 nothing beats always")


def test_a_choice_that_fails_on_the_test_rows_says_so():
    bad = [trial("dp-sgd", 1.0, seed, 0.7, 0.6, validation=0.5) for seed in range(2)]
    (choice,) = verdict(bad).choices
    assert choice.label == "dp-sgd"
    assert choice.fails_on_test
    assert "worse than the base rate all the same" in choice.sentence


def test_for_whole_rows_only_mechanisms_that_protect_them_count():
    choices = verdict(curves({1.0: 0.05})).choices
    assert (choices[0].label, choices[0].whole_row) == ("randomized-response", "dp-sgd")
    assert "If whole rows have to be protected: dp-sgd." in choices[0].sentence


def test_costs_are_those_of_the_definition():
    found = verdict(curves({1.0: 0.05}, noise=0.0))
    costs = {cost.label: cost for cost in found.costs}
    assert costs["dp-sgd"].auc_gap == pytest.approx(0.3 / 0.22 - 1)
    gain = made.BASE_ENTROPY - 0.47
    assert costs["dp-sgd"].gain_lost == pytest.approx(0.03 / gain)
    assert costs["randomized-response"].gain_lost == pytest.approx(-0.02 / gain)


def test_bids_are_measured_by_the_non_private_model():
    records = made.study()
    values = {"non-private": 0.85, "dp-sgd": 0.87, "randomized-response": 1.02}
    for r in records:
        r["test"] = r["test"] | {"calibration": values[r["label"]]}
    found = verdict(records)
    free, of_sgd, *_ = found.bids
    assert (free.label, free.right, free.as_non_private) == ("non-private", False, True)
    assert (of_sgd.right, of_sgd.as_non_private) == (False, True)
    assert of_sgd.beside_non_private == pytest.approx(0.87 / 0.85 - 1)
    response = found.bids[-1]
    assert (response.right, response.as_non_private) == (True, False)
    assert found.bidding[0].startswith("On the test rows non-private would underbid by 15%")
    assert found.bidding[1] == (
        "dp-sgd: within 5% of the non-private model at every epsilon, and like it not within it of "
        "1."
    )
    assert (
        "at no epsilon within 5% of the non-private model; would overbid by 2.0%"
        in (found.bidding[2])
    )


@pytest.mark.parametrize(
    ("excess", "text"),
    [(0.2, "would overbid by 20%"), (-0.031, "would underbid by 3.1%"), (0.0, "would bid right")],
)
def test_bids_in_words(excess, text):
    assert bid_text(excess).startswith(text)


def test_units_intervals_and_test_sample_error_stand_beside_a_crossing():
    limits = " ".join(verdict(made.study()).limits)
    assert "Equal epsilon is not equal privacy" in limits
    assert "With 3,200 positives among 12,500 test rows, the AUC of one curve" in limits
    assert "Hanley and McNeil 1982" in limits
    assert "their difference has less" in limits
    counts = " ".join(verdict(made.conversions("pconvs")).limits)
    assert "how far losses would differ on other test rows is not known" in counts
    assert "Hanley" not in counts


def test_only_curves_with_equally_many_training_rows_are_compared():
    records = curves({1.0: 0.05})
    for r in records:
        if r["label"] == "randomized-response":
            r["schedule"] = r["schedule"] | {"examples": 50_000}
    found = verdict(records)
    assert found.duels == found.pairs == ()
    assert [(c.examples, c.label) for c in found.choices] == [
        (50_000, "randomized-response"),
        (100_000, "dp-sgd"),
    ]
    assert {cost.label for cost in found.costs} == {"dp-sgd"}
    assert any("no non-private model on as many" in text for text in found.bidding)
    assert any("no whole-row" in text.lower() for text in found.limits)


def test_a_study_that_trains_nothing_has_no_utility_to_judge():
    found = verdict([made.account_record(e, "dp-sgd", 2.0, 4096) for e in (1.0, 3.0)])
    assert not found.trained
    assert found.sentences == ["This study trains nothing, so there is no utility to judge."]


def test_failures_and_undefined_values_are_survived_and_named():
    records = [
        *made.study(),
        made.failed("rr-on-bins", 1.0, 0, "it diverged"),
        record("laplace", 1.0, 0, test=metrics(None, None), validation=metrics(None, None)),
    ]
    found = verdict(records)
    at_one = next(choice for choice in found.choices if choice.epsilon == 1)
    assert at_one.unscored == ("rr-on-bins", "laplace")
    assert "Without a score: rr-on-bins, laplace." in at_one.sentence
    only_failures = verdict([made.failed("dp-sgd", 1.0, 0, "no memory")])
    assert only_failures.choices[0].sentence.startswith("Epsilon 1: no mechanism has a score.")
    assert verdict([record("non-private", math.inf, 0)]).choices == ()
    with pytest.raises(DpcompareError):
        verdict([])


def test_a_sweep_compares_settings_and_recommends_none():
    records = [
        record("dp-sgd", epsilon, seed, label=f"dp-sgd (clip_norm={norm})")
        for epsilon in (1.0, 3.0)
        for seed in range(2)
        for norm in (1, 10)
    ]
    found = verdict([*records, record("non-private", math.inf, 0)])
    assert found.trained
    assert (found.choices, found.recommendation, found.duels) == ((), (), ())
    assert len(found.costs) == 4
    assert any("none is recommended" in sentence for sentence in found.sentences)


def test_curves_of_other_relations_are_not_ranked():
    """Replace-one promises more, so that it is behind at the same number."""
    own = made.study(seeds=3)
    other = [
        r
        | {
            "label": "dp-sgd (replace one)",
            "guarantee": r["guarantee"] | {"neighboring": "replace-one"},
        }
        for r in own
        if r["label"] == "dp-sgd"
    ]
    found = verdict([*own, *other])
    assert (found.choices, found.recommendation, found.duels) == ((), (), ())
    assert any("zero-out and replace-one" in sentence for sentence in found.limits)
    assert len(found.pairs) >= 2  # each whole-row curve with the label mechanism, by itself


def test_what_spends_more_than_was_asked_for_is_never_recommended():
    spent = [
        r | {"guarantee": r["guarantee"] | {"epsilon": 3 * r["epsilon"]}}
        if r["label"] == "dp-sgd"
        else r
        for r in made.study(seeds=3)
    ]
    found = verdict(spent)
    assert {choice.label for choice in found.choices} <= {"randomized-response", None}
    assert any("dp-sgd spends more than was asked for" in line for line in found.limits)


def test_a_choice_that_has_not_run_yet_is_no_study_without_training():
    compared = [
        r | {"test": None, "configuration": {"withheld": "test"}} for r in made.study(seeds=1)
    ]
    found = verdict(compared)
    assert found.trained
    assert "none that was chosen has run yet" in found.sentences[0]
