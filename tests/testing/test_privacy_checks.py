"""The checks of claims find each planted fault, and nothing in sound mechanisms."""

import functools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, rdp

from dpcompare import accounting
from dpcompare.mechanism import GradientRelease
from dpcompare.privacy import Schedule, default_delta
from dpcompare.testing import Subject, privacy_checks
from dpcompare.testing.gradient_accounting import epsilon_bounds
from dpcompare.testing.outcome import outcome_of
from tests.stranger.stranger_mechanisms import SmoothClipping
from tests.testing import planted_label_faults as planted
from tests.testing.test_label_checks import SOUND

IN_GROUPS = {"group_size": 4}
FAULTS = [
    (planted.TwiceTheNoiseInEvents, {}, "claim_covers_the_gradients"),
    (planted.GroupsForgottenInEvents, IN_GROUPS, "claim_covers_the_gradients"),
    (planted.GroupsForgottenAltogether, IN_GROUPS, "claim_covers_the_gradients"),
    (planted.MoreThanTrainingCosts, {}, "claim_covers_the_gradients"),
    (planted.PlainGradientsOfFeatures, {}, "claim_covers_the_gradients"),
    (planted.HalfTheNoiseForCounts, {}, "claim_covers_the_gradients"),
    (planted.RoundedDown, {}, "calibration_keeps_the_budget"),
    (planted.NoiseGrowsWithEpsilon, {}, "noise_falls_as_epsilon_grows"),
    (planted.ClaimsAtInfinity, {}, "extreme_budgets"),
    (planted.RefusesWithoutANumber, {}, "extreme_budgets"),
    (planted.ClaimDependsOnLabels, {}, "records_keep_the_claim"),
    (planted.DrawnFromElsewhere, {}, "trials_repeat"),
    (planted.AcceptsAnyWord, {}, "parameters"),
    (planted.TextAsLeaf, {}, "pytree"),
]

TRIALS = (privacy_checks.check_trials_repeat, privacy_checks.check_records_keep_the_claim)
"""Checks that train, and so compile for seconds."""


def check_of(name):
    return getattr(privacy_checks, f"check_{name}")


@functools.cache
def status_of(mechanism, check, **parameters):
    return outcome_of(check_of(check), Subject.of(mechanism, **parameters)).status


@pytest.mark.parametrize(
    ("fault", "parameters", "check"), FAULTS, ids=[f"{f[0].__name__}: {f[2]}" for f in FAULTS]
)
def test_each_fault_is_found_by_its_check_and_the_sound_mechanism_is_not(fault, parameters, check):
    (sound,) = fault.__bases__
    if sound is planted.GroupsForgottenInEvents:
        (sound,) = sound.__bases__
    assert status_of(sound, check, **parameters) == "passed"
    outcome = outcome_of(check_of(check), Subject.of(fault, **parameters))
    assert outcome.status == "failed", outcome
    assert len(outcome.reason) > 40, "a failure says what is wrong"


def test_rdp_that_takes_a_replaced_row_for_a_removed_one_is_found(monkeypatch):
    def as_if_removed(gaussian, orders):
        accountant = rdp.RdpAccountant(list(orders), NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(accounting.sampled_gaussian_event(gaussian._replace(steps=1)))
        return np.asarray(accountant._rdp)

    subject = Subject.of("dp-sgd")
    privacy_checks.check_claim_covers_the_gradients(subject)
    monkeypatch.setattr(accounting, "_replace_one_divergences", as_if_removed)
    with pytest.raises(AssertionError, match="under replace-one by rdp"):
        privacy_checks.check_claim_covers_the_gradients(subject)


@pytest.mark.parametrize("name", [n for n in SOUND if not n.endswith(("backward", "post-hoc"))])
def test_sound_mechanisms_pass_every_check_that_trains_nothing(name):
    passed = []
    for check in privacy_checks.CHECKS:
        if check in TRIALS:
            continue
        outcome = outcome_of(check, SOUND[name])
        assert outcome.status != "failed", outcome
        assert outcome.reason
        passed += [outcome] * (outcome.status == "passed")
    assert len(passed) >= 3


@pytest.mark.parametrize("check", TRIALS, ids=["trials_repeat", "records_keep_the_claim"])
@pytest.mark.parametrize("name", ["non-private", "dp-sgd", "rr-on-bins private prior"])
def test_sound_mechanisms_pass_the_checks_that_train(name, check):
    assert check(SOUND[name])


# --- the independent accounting ------------------------------------------------------------------


@pytest.mark.parametrize("group_size", [1, 4])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_bounds_hold_what_accounting_says_and_are_close(group_size, relation):
    schedule, sigma = Schedule(2000, 200, 20, "poisson"), 1.5
    event = accounting.dpsgd_event(sigma, schedule, group_size)
    under = accounting.group_relation(relation, group_size)
    exact = accounting.epsilon(event, default_delta(2000), under)
    bounds = epsilon_bounds(GradientRelease(1.0, sigma, group_size), schedule, relation, exact)
    assert bounds.at_least < exact <= bounds.at_most * (1 + 1e-3)
    assert bounds.at_most / bounds.at_least < 1.02


def test_no_noise_proves_everything_and_shuffled_batches_cost_more_than_drawn_ones():
    schedule = Schedule(2000, 200, 20, "shuffle")
    nothing = epsilon_bounds(GradientRelease(1.0, 0.0), schedule, "zero-out", 1.0)
    assert nothing.at_least == math.inf
    shuffled = epsilon_bounds(GradientRelease(1.0, 0.5), schedule, "zero-out", 1.0)
    drawn = Schedule(2000, 200, 20, "poisson")
    assert (
        shuffled.at_least
        > epsilon_bounds(GradientRelease(1.0, 0.5), drawn, "zero-out", 10.0).at_most
    )
    part = Schedule(2000, 200, 9, "shuffle")
    assert epsilon_bounds(GradientRelease(1.0, 0.5), part, "zero-out", 1.0).at_least == 0.0


def test_a_stranger_may_bend_gradients_instead_of_cutting_them():
    assert privacy_checks.check_claim_covers_the_gradients(Subject.of(SmoothClipping))
