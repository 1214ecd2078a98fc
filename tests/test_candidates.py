"""Choosing by validation rows alone, whatever the test rows say."""

import math

import pytest

from dpcompare.candidates import chosen_candidates, shown
from tests.fabricated_records import count_scores, metrics, record


def compared(clip_norm, seed, loss, **changes):
    """A record that compares candidates; `loss` is its normalized entropy on validation rows."""
    changes = {"epsilon": 1.0, "label": "dp-sgd"} | changes
    return record(
        "dp-sgd",
        changes.pop("epsilon"),
        seed,
        candidate={"clip_norm": clip_norm},
        configuration={"withheld": "test", **changes.pop("configuration", {})},
        test=None,
        **{"validation": metrics(0.7, loss), **changes},
    )


def final(clip_norm, seed, **changes):
    candidate = changes.pop("candidate", {"clip_norm": clip_norm})
    return record("dp-sgd", 1.0, seed, candidate=candidate, **changes)


def candidates_of(trials):
    return [trial["candidate"]["clip_norm"] for trial in trials]


def test_the_candidate_with_the_lowest_mean_validation_loss_is_chosen():
    trials = [compared(1.0, 0, 0.80), compared(1.0, 1, 0.90)]
    trials += [compared(2.0, 0, 0.84), compared(2.0, 1, 0.85)]
    assert candidates_of(chosen_candidates(trials)) == [2.0]


def test_test_rows_have_no_say():
    trials = [compared(1.0, 0, 0.80), compared(2.0, 0, 0.81)]
    finals = [final(1.0, 0, test=metrics(0.5, 1.0)), final(2.0, 0, test=metrics(0.99, 0.1))]
    assert candidates_of(shown([*trials, *finals])) == [1.0]


def test_a_candidate_must_not_win_by_the_seeds_it_survived():
    trials = [compared(1.0, 0, 0.10), compared(1.0, 1, None), compared(2.0, 0, 0.9)]
    trials += [compared(2.0, 1, 0.9), compared(3.0, 0, 0.1) | {"status": "failed"}]
    assert candidates_of(chosen_candidates(trials)) == [2.0]


def test_where_none_has_a_score_none_is_chosen():
    trials = [compared(1.0, 0, None), compared(2.0, 0, math.nan)]
    assert chosen_candidates(trials) == []
    assert shown([*trials, final(1.0, 0)]) == []


def test_each_curve_and_epsilon_chooses_for_itself():
    trials = [compared(1.0, 0, 0.8), compared(2.0, 0, 0.9)]
    trials += [compared(c, 0, -c, epsilon=3.0) for c in (1.0, 2.0)]
    trials += [compared(c, 0, -c, label="other") for c in (1.0, 2.0)]
    found = {(t["label"], t["epsilon"]): t["candidate"] for t in chosen_candidates(trials)}
    assert found == {
        ("dp-sgd", 1.0): {"clip_norm": 1.0},
        ("dp-sgd", 3.0): {"clip_norm": 2.0},
        ("other", 1.0): {"clip_norm": 2.0},
    }


def test_counts_are_chosen_by_poisson_loss():
    trials = [compared(c, 0, 0.5, task="pconvs", validation=count_scores(c / 100)) for c in (1, 5)]
    assert candidates_of(chosen_candidates(trials)) == [5]


def test_the_shown_trials_are_the_finals_of_the_choice_by_seed():
    trials = [compared(1.0, 0, 0.8), compared(2.0, 0, 0.7)]
    finals = [final(2.0, 1), final(2.0, 0), final(1.0, 0)]
    assert [(t["candidate"]["clip_norm"], t["seed"]) for t in shown([*trials, *finals])] == [
        (2.0, 0),
        (2.0, 1),
    ]
    assert shown(trials) == []  # a comparison alone has nothing to show


@pytest.mark.parametrize("losses", [(0.7, 0.9), (0.9, 0.7)])
def test_a_private_selection_chooses_seed_by_seed(losses):
    selection = {"selection": {"mean": 2.0, "draw": 0}}
    trials = [compared(1.0, 0, losses[0], configuration=selection)]
    trials += [compared(2.0, 0, 0.8, configuration=selection)]
    trials += [compared(3.0, 1, losses[1], configuration=selection)]
    best = {trial["seed"]: trial["candidate"]["clip_norm"] for trial in chosen_candidates(trials)}
    assert best == {0: 1.0 if losses[0] < 0.8 else 2.0, 1: 3.0}
    finals = [
        final(best[0], 0, configuration={"selection": {"mean": 2.0, "draw": 0}}),
        final(best[0], 1, configuration={"selection": {"mean": 2.0, "draw": 0}}),
    ]
    assert [trial["seed"] for trial in shown([*trials, *finals])] == [0]
