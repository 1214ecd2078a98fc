"""DP-SGD: what it refuses, what it calibrates, what it says it released."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD

from dpcompare import accounting
from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import PCTR

SCHEDULE = Schedule(10_000, 500, 200, "poisson")
BUDGET = Budget(1.0, 1e-6)


def test_weights_never_let_a_norm_exceed_the_clip_norm():
    norms = jnp.asarray(np.geomspace(1e-30, 1e30, 200), jnp.float32)
    mechanism = DPSGD(clip_norm=0.7, noise_multiplier=1.0)
    contributions = np.asarray(mechanism.weights(norms) * norms)
    assert contributions.max() <= 0.7 * (1 + 1e-6)
    small = norms < 0.7
    np.testing.assert_array_equal(contributions[small], np.asarray(norms)[small])
    assert float(mechanism.weights(jnp.zeros(1))[0]) == 1.0


def test_calibrated_noise_fits_the_budget_after_rounding_to_float32():
    mechanism = DPSGD().calibrate(BUDGET, SCHEDULE, PCTR)
    assert float(np.float32(mechanism.noise_multiplier)) == mechanism.noise_multiplier
    guarantee = accounting.guarantee(mechanism.events(SCHEDULE), 1e-6, "zero-out")
    assert 0.99 < guarantee.epsilon <= 1.0
    assert (guarantee.unit, guarantee.neighboring) == ("example", "zero-out")


def test_epsilon_does_not_depend_on_the_clip_norm():
    epsilons = {
        accounting.guarantee(
            DPSGD(clip_norm=c, noise_multiplier=1.0).events(SCHEDULE), 1e-6, "zero-out"
        ).epsilon
        for c in (0.1, 1.0, 10.0)
    }
    assert len(epsilons) == 1


def test_groups_are_charged_for_a_row_that_changes_its_group():
    single = DPSGD(noise_multiplier=1.0)
    # The same sampling rate for groups: q = .01 over 1,000 steps.
    schedule = Schedule(8_000, 80, 1000, "poisson")
    grouped = DPSGD(noise_multiplier=1.0, group_size=8)
    alone = accounting.guarantee(single.events(schedule), 1e-6, "zero-out").epsilon
    together = accounting.guarantee(grouped.events(schedule), 1e-6, "zero-out")
    assert alone == pytest.approx(2.12, abs=0.01)
    assert together.epsilon == pytest.approx(3.21, abs=0.01)
    assert together.other_relations["add-or-remove-one"] is None


def test_no_budget_means_no_noise():
    mechanism = DPSGD(clip_norm=math.inf).calibrate(Budget(math.inf, 1e-6), SCHEDULE, PCTR)
    assert mechanism.noise_multiplier == 0.0
    assert float(mechanism.gradient().standard_deviation) == 0.0
    assert math.isinf(accounting.guarantee(mechanism.events(SCHEDULE), 1e-6, "zero-out").epsilon)


def test_infinite_clip_norm_with_noise_is_refused():
    with pytest.raises(UsageError, match="clip_norm = inf"):
        DPSGD(clip_norm=math.inf).calibrate(BUDGET, SCHEDULE, PCTR)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, math.nan])
def test_clip_norms_that_cannot_be_are_refused(clip_norm):
    with pytest.raises(UsageError, match="clip_norm"):
        DPSGD(clip_norm=clip_norm).check()


def test_groups_of_no_rows_are_refused():
    with pytest.raises(UsageError, match="group_size"):
        DPSGD(group_size=0).check()


def test_shuffled_batches_are_refused():
    with pytest.raises(UsageError, match="shuffle"):
        DPSGD().calibrate(BUDGET, Schedule(10_000, 500, 200, "shuffle"), PCTR)
