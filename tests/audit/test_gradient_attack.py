"""Scores of canaries through the trainer, schedules, and planted violations."""

import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD

from dpcompare import accounting, tasks
from dpcompare.audit.canaries import attacked, canaries, groups_of
from dpcompare.audit.claims import audit_mechanism
from dpcompare.audit.finding import HOLDS, VIOLATED
from dpcompare.audit.gradient_attack import (
    MOST_ROWS,
    affordable,
    is_gaussian,
    scores,
)
from dpcompare.data.sampling import ABSENT
from dpcompare.errors import UsageError
from dpcompare.mechanism import find
from dpcompare.privacy import Release, Schedule
from tests.audit.planted import HalfTheNoise, plugin

CANARIES = 4000


def mechanism(sigma, **parameters):
    return DPSGD(**parameters).replace(noise_multiplier=sigma)


def assert_moments(found, noise, most, width=5.0):
    """Heads and tails are `most` apart in the mean, around noise of the given deviation."""
    heads, tails = found.values[found.coins], found.values[~found.coins]
    error = noise * (1 / len(heads) + 1 / len(tails)) ** 0.5
    assert heads.mean() - tails.mean() == pytest.approx(most, abs=width * error)
    assert tails.std() == pytest.approx(noise, rel=width / (2 * len(tails)) ** 0.5)
    assert found.shared < 1e-5


@pytest.mark.parametrize("clip_norm", [1.0, 1e-3])
def test_scores_of_full_participation_are_the_ideal_gaussian(clip_norm):
    schedule = Schedule(CANARIES, CANARIES, 4, "poisson")
    found = scores(mechanism(2.0, clip_norm=clip_norm), schedule, opposite=False, seed=0)
    assert_moments(found, noise=2 * 4**0.5, most=4.0)
    tails = found.values[~found.coins]
    assert tails.mean() == pytest.approx(0, abs=5 * 4 / len(tails) ** 0.5)
    assert found.signal == pytest.approx(1, abs=5 * 4 * 2 / CANARIES**0.5 / 4)


def test_scores_of_sampled_steps_and_lazy_tables_are_the_ideal_gaussian():
    schedule = Schedule(CANARIES, CANARIES // 20, 40, "poisson")
    found = scores(mechanism(0.5), schedule, opposite=False, seed=1)
    assert_moments(found, noise=0.5 * 40**0.5, most=40 / 20)
    heads = found.values[found.coins]
    assert heads.var() == pytest.approx(0.25 * 40 + 40 * 0.05 * 0.95, rel=0.2)


def test_without_noise_every_canary_adds_its_full_share():
    schedule = Schedule(500, 500, 3, "poisson")
    found = scores(mechanism(0.0), schedule, opposite=False, seed=0)
    assert found.values == pytest.approx(np.where(found.coins, 3.0, 0.0), abs=1e-4)
    other_side = scores(mechanism(0.0), schedule, opposite=True, seed=0)
    assert other_side.values == pytest.approx(np.where(other_side.coins, 3.0, -3.0), abs=1e-4)


@pytest.mark.parametrize("size", [2, 7])
def test_a_row_of_a_group_moves_it_from_one_end_to_the_other(size):
    schedule = Schedule(300 * size, 300 * size, 2, "poisson")
    found = scores(mechanism(0.0, group_size=size), schedule, opposite=True, seed=0)
    assert found.values == pytest.approx(np.where(found.coins, 2.0, -2.0), abs=1e-3)


def test_groups_are_those_that_training_draws():
    groups = groups_of(Schedule(10, 10, 1, "poisson"), 3, "word")
    assert groups.shape == (4, 3)
    assert sorted(groups[groups != ABSENT]) == list(range(10))
    made = canaries(Schedule(10, 5, 1, "poisson"), 3, True, 1.0, np.random.default_rng(0), "word")
    assert np.array_equal(made.features.ids[groups[0], 0], [0, 0, 0])
    assert len(made.coins) == 4


def test_the_attacked_mechanism_keeps_everything_but_its_loss():
    own = mechanism(2.0, clip_norm=0.5)
    other = attacked(own)
    assert type(attacked(own)) is type(other)
    assert other.gradient() == own.gradient()
    assert np.array_equal(other.loss(tasks.PCTR, np.array([2.0, 3.0]), np.array([0.5, 0])), [1, 0])


@pytest.mark.parametrize(
    ("schedule", "size", "count", "canaries_left", "steps"),
    [
        (Schedule(100_000, 4000, 100, "poisson"), 1, 50_000, 50_000, 100),
        (Schedule(100_000, 4000, 750, "poisson"), 1, 100_000, MOST_ROWS / 30, 750),
        (Schedule(1000, 1000, 10_000, "poisson"), 1, 100_000, 10_000, MOST_ROWS / 10_000),
        (Schedule(1000, 1000, 10_000, "poisson"), 1, 2000, 2000, MOST_ROWS / 2000),
        (Schedule(64_000, 3200, 20, "poisson"), 16, 100_000, MOST_ROWS / 16, 20),
    ],
)
def test_affordable_schedules_keep_the_sampling(schedule, size, count, canaries_left, steps):
    found = affordable(schedule, size, count)
    assert found.groups(size) == pytest.approx(canaries_left, abs=1)
    assert found.steps == pytest.approx(steps, abs=1)
    q = schedule.sampling_probability(size)
    assert found.sampling_probability(size) == pytest.approx(q, rel=1e-3)
    assert found.steps * found.batch_size <= MOST_ROWS * 1.01


def test_huge_groups_take_no_more_rows_than_all_steps_may():
    schedule = Schedule(10**9, 10**6, 10, "poisson")
    assert affordable(schedule, 10_000, 100_000).examples <= MOST_ROWS
    with pytest.raises(UsageError, match="groups of 20,000 rows are too large to attack"):
        affordable(schedule, 20_000, 100_000)


def test_only_gaussians_on_all_rows_have_a_gaussian_trade_off():
    def release(batch_size):
        event = accounting.dpsgd_event(1.0, Schedule(100, batch_size, 5, "poisson"))
        return Release(event, "example")

    assert is_gaussian([release(100)])
    assert not is_gaussian([release(50)])
    assert not is_gaussian([release(100), release(50)])


@pytest.mark.parametrize(
    ("kind", "count", "verdict"), [(HalfTheNoise, 100_000, VIOLATED), (DPSGD, 20_000, HOLDS)]
)
def test_half_the_noise_is_found_at_epsilon_one_and_all_of_it_is_not(kind, count, verdict):
    found = audit_mechanism(plugin(kind), {}, 1.0, tasks.PCTR, count, seed=0)
    assert found.verdict == verdict
    assert (found.lower_bound > 1) == (kind is HalfTheNoise)
    assert found.expected_at_claim < found.epsilon < found.expected_if_half
    assert found.epsilon == pytest.approx(1, rel=1e-3)
    expected = found.expected_if_half if kind is HalfTheNoise else found.expected_at_claim
    assert found.lower_bound == pytest.approx(expected, abs=0.5)


def test_the_claim_of_grouped_rows_is_attacked_from_end_to_end():
    found = audit_mechanism(find("dp-sgd"), {"group_size": 4}, 3.0, tasks.PCTR, 2000)
    assert found.verdict == HOLDS
    assert found.schedule["group_size"] == 4
    assert found.canaries == 2000
    assert found.schedule["examples"] == 8000
    assert 0.2 < found.lower_bound < 3
    assert found.signal == pytest.approx(1, abs=0.2)
