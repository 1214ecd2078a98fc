"""The checks of labels find each planted fault, and nothing in sound mechanisms."""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom

from dpcompare.testing import Subject, label_checks, row_checks
from dpcompare.testing.confidence import clopper_pearson, separation
from dpcompare.testing.outcome import outcome_of
from tests.stranger.stranger_mechanisms import SmoothClipping, TruncatedGeometric
from tests.testing import planted_label_faults as planted

FAULTS = [
    (planted.RedrawnAtEveryStep, "loss_draws_nothing"),
    (planted.RedrawnByKey, "loss_draws_nothing"),
    (planted.RedrawnForEachCandidate, "one_draw_serves_all_trials"),
    (planted.DrawnFromElsewhere, "release_follows_its_generator"),
    (planted.RedrawnAtEveryStep, "released_labels_keep_the_claim"),
    (planted.DrawsMoreThanTheKernel, "released_labels_follow_the_kernel"),
    (planted.SeveralDraws, "released_labels_keep_the_claim"),
    (planted.OneDrawForEveryEpsilon, "one_draw_serves_all_trials"),
    (planted.KernelOfTwiceTheEpsilon, "kernel_keeps_the_claim"),
    (planted.KernelOfTwiceTheEpsilon, "released_labels_keep_the_claim"),
    (planted.WrongFlipsInTheSampler, "released_labels_follow_the_kernel"),
    (planted.WrongFlipsInTheSampler, "released_labels_keep_the_claim"),
    (planted.WrongFlipsInTheKernel, "released_labels_follow_the_kernel"),
    (planted.NoiseForgetsTheCap, "released_labels_keep_the_claim"),
    (planted.PriorForFree, "nothing_is_learnt_for_free"),
    (planted.HistogramNotPaid, "nothing_is_learnt_for_free"),
    (planted.MeanForFree, "nothing_is_learnt_for_free"),
    (planted.KeepsLabels, "released_labels_keep_the_claim"),
    (planted.KeepsLabels, "nothing_is_learnt_for_free"),
    (planted.KeepsAView, "true_labels_are_out_of_reach"),
    (planted.KeepsLabelsElsewhere, "true_labels_are_out_of_reach"),
    (planted.GaussianLabelsOfTooLittleNoise, "released_labels_keep_the_claim"),
    (planted.LastLabelTrue, "every_row_keeps_the_claim"),
    (planted.OneSeedForEveryBlock, "rows_share_no_randomness"),
    (planted.PairsShareAFlip, "rows_share_no_randomness"),
    (planted.PredictsFromADiagnostic, "diagnostics_decide_nothing"),
    (planted.CountsUnderABorrowedName, "nothing_is_learnt_for_free"),
]

SOUND = {
    "non-private": Subject.of("non-private"),
    "dp-sgd": Subject.of("dp-sgd"),
    "dp-sgd in groups": Subject.of("dp-sgd", group_size=4),
    **{
        f"randomized-response {correction}": Subject.of(
            "randomized-response", correction=correction
        )
        for correction in ("forward", "backward", "post-hoc", "none")
    },
    **{
        f"{name} {kind}": Subject.of(name, **parameters)
        for name in ("rr-on-bins", "unbiased-randomizer")
        for kind, parameters in {
            "private prior": {},
            "public prior": {"prior": [0.8, 0.15, 0.05]},
        }.items()
    },
    **{
        f"additive-noise {shape} {clamp}": Subject.of("additive-noise", shape=shape, clamp=clamp)
        for shape, clamp in (
            ("laplace", False),
            ("laplace", True),
            ("discrete-laplace", True),
            ("staircase", False),
        )
    },
    "a stranger's kernel": Subject.of(TruncatedGeometric),
    "a stranger's clipping": Subject.of(SmoothClipping),
    "plain response": Subject.of(planted.PlainResponse),
    "with a diagnostic": Subject.of(planted.WithADiagnostic),
    "with row numbers": Subject.of(planted.WithRowNumbers),
    "hybrid": Subject.of(planted.Hybrid),
    "Gaussian labels": Subject.of(planted.GaussianLabels),
}


def check_of(name):
    found = {check.__name__: check for check in (*label_checks.CHECKS, *row_checks.CHECKS)}
    return found[f"check_{name}"]


@functools.cache
def status_of(mechanism, check):
    return outcome_of(check_of(check), Subject.of(mechanism)).status


@pytest.mark.parametrize(
    ("fault", "check"), FAULTS, ids=[f"{fault.__name__}: {check}" for fault, check in FAULTS]
)
def test_each_fault_is_found_by_its_check_and_the_sound_mechanism_is_not(fault, check):
    (sound,) = fault.__bases__
    assert status_of(sound, check) == "passed"
    outcome = outcome_of(check_of(check), Subject.of(fault))
    assert outcome.status == "failed", outcome
    assert len(outcome.reason) > 40, "a failure says what is wrong"


@pytest.mark.parametrize("name", SOUND)
def test_sound_mechanisms_pass_every_check_that_applies(name):
    passed = []
    for check in (*label_checks.CHECKS, *row_checks.CHECKS):
        outcome = outcome_of(check, SOUND[name])
        assert outcome.status != "failed", outcome
        assert outcome.reason
        passed += [outcome] * (outcome.status == "passed")
    claims_labels = not any(word in name for word in ("non-private", "dp-sgd", "clipping"))
    assert len(passed) >= (5 if claims_labels else 1)


# --- what samples prove --------------------------------------------------------------------------


def test_bounds_of_a_probability_are_those_of_the_binomial():
    for trials, error in itertools.product((1, 20, 1000), (1e-9, 0.05)):
        counts = np.unique(np.linspace(0, trials, 7).astype(int))
        low, high = clopper_pearson(counts, trials, error)
        for k, p, q in zip(counts, low, high, strict=True):
            if k > 0:  # at the lower bound, as many successes are as rare as the error
                assert binom.sf(k - 1, trials, p) == pytest.approx(error, rel=1e-6)
            if k < trials:
                assert binom.cdf(k, trials, q) == pytest.approx(error, rel=1e-6)
        assert (low[0], high[-1]) == (0.0, 1.0)


def test_samples_prove_almost_the_true_epsilon_and_hardly_ever_more():
    """Randomized response of epsilon 1, with errors of 5 %: 200 bounds of 2,000 draws each."""
    rng = np.random.default_rng(3)
    keep = math.e / (1 + math.e)
    proved = []
    for _ in range(200):
        groups = [{"label": (rng.random(2000) < p).astype(float)} for p in (keep, 1 - keep)]
        proved.append(separation(groups, 0.0, 0.05).epsilon)
    too_large = np.mean(np.array(proved) > 1.0)
    assert too_large <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert 0.8 < np.median(proved) < 1.0


def test_delta_is_subtracted_and_equal_samples_prove_nothing():
    rng = np.random.default_rng(4)
    shown = [{"x": np.where(rng.random(20_000) < 0.01, k, 2.0)} for k in (0.0, 1.0)]
    assert separation(shown, 0.0, 1e-6).epsilon > 1.5, "a label is shown in 1 % of the draws"
    assert separation(shown, 0.02, 1e-6).epsilon < 0.1, "which delta = 2 % allows"
    alike = [{"x": rng.normal(size=2000)} for _ in range(2)]
    assert separation(alike, 0.0, 1e-6).epsilon == 0.0
    assert separation([{"x": np.zeros(9)}] * 2, 0.0, 1e-6).epsilon == 0.0


def test_the_event_that_tells_most_is_named():
    rng = np.random.default_rng(5)
    groups = [{"noise": rng.normal(size=4000), "label": np.full(4000, k)} for k in (0.0, 1.0)]
    proved = separation(groups, 0.0, 1e-6)
    assert str(proved).startswith("label ")
    assert proved.epsilon > 4
