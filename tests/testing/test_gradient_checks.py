"""Every check of gradients finds the faults that it is for, and passes where there are none."""

import jax
import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD
from scipy import stats

from dpcompare.testing import gradient_checks
from dpcompare.testing.bounds import (
    FALSE_ALARM,
    correlation_bound,
    is_binomial,
    mean_square_bounds,
)
from dpcompare.testing.norm_search import worst_norm
from dpcompare.testing.outcome import outcome_of
from dpcompare.testing.small_training import kinds, shared_tables
from dpcompare.testing.subject import Subject
from tests.stranger.stranger_mechanisms import SmoothClipping
from tests.testing import planted_training_faults as faults

CHECKS = {check.__name__.removeprefix("check_"): check for check in gradient_checks.CHECKS}


def test_dp_sgd_of_groups_passes():
    subject = Subject.of("dp-sgd", group_size=4, clip_norm=0.02)
    found = [outcome_of(check, subject) for check in CHECKS.values()]
    assert {one.check: one.reason for one in found if one.status != "passed"} == {}


def test_only_the_step_is_checked_without_a_gradient_release():
    found = [outcome_of(check, Subject.of("non-private")) for check in CHECKS.values()]
    for one in found:
        expected = "passed" if one.check == "step_is_the_plain_computation" else "not applicable"
        assert one.status == expected, one


@pytest.mark.parametrize("clip_norm", [1e-6, 1.0, 3.7e5])
def test_weights_of_honest_mechanisms_pass_at_any_sensitivity(clip_norm):
    for kind in (DPSGD, SmoothClipping):
        subject = Subject.of(kind, clip_norm=clip_norm)
        for name in ("weights_keep_the_sensitivity", "weights_ignore_other_groups"):
            assert outcome_of(CHECKS[name], subject).status == "passed"


@pytest.mark.parametrize("fault", faults.named(CHECKS), ids=lambda fault: fault.__name__)
def test_a_planted_fault_is_found(fault, monkeypatch):
    name, subject = faults.plant(fault, monkeypatch)
    outcome = outcome_of(CHECKS[name], subject)
    assert outcome.status == "failed", outcome
    assert faults.REASONS[fault] in outcome.reason


def test_the_search_finds_a_single_bad_norm_near_the_sensitivity():
    worst = worst_norm(jax.tree.map(np.float32, faults.OneBadNorm(noise_multiplier=1.0)), 1.0)
    assert worst.norm == np.nextafter(np.float32(3.0), np.float32(4.0))
    assert worst.product == 2 * worst.norm
    assert worst.tried > 50_000_000


def test_kinds_name_every_parameter_once():
    training = shared_tables(Subject.of("dp-sgd"))
    (parameters,) = training.parameters_after(1e-30)
    places = kinds(parameters)
    assert list(places) == ["eager tables", "lazy tables", "biases", "kernels"]
    assert np.all(sum(mask.astype(int) for mask in places.values()) == 1)
    assert {name: int(mask.sum()) for name, mask in places.items()} == {
        "eager tables": 4,
        "lazy tables": 102 * 6,
        "biases": 17,
        "kernels": 18 * 16 + 16,
    }


def test_bounds_are_exact():
    """At a false alarm rate that can be counted, honest statistics pass them as often as stated."""
    low, high = mean_square_bounds(50)
    law = stats.chi2(50)
    assert law.cdf(50 * low) + law.sf(50 * high) == pytest.approx(FALSE_ALARM, rel=1e-6)
    # A correlation r of n normals is a t statistic of n - 2 degrees of freedom.
    r, n, pairs = correlation_bound(30, 10), 30, 10
    t = r * np.sqrt((n - 2) / (1 - r**2))
    assert 2 * stats.t(n - 2).sf(t) == pytest.approx(FALSE_ALARM / pairs, rel=1e-6)
    assert is_binomial([40, 60, 30, 70], 100, 0.5)
    assert not is_binomial([50, 90], 100, 0.5)
    assert not is_binomial(10, 100, 0.5)
