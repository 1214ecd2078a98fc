"""Calibrated noise: right values, on the safe side, close, remembered, quick to refuse."""

import json
import math
import os
import stat

import numpy as np
import pytest

from dpcompare import calibration
from dpcompare.accounting import SampledGaussian, dpsgd_event, epsilon, guarantee
from dpcompare.calibration import TOLERANCE, calibration_report, noise_multiplier
from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.saddle_point import estimated_log_delta

SCHEDULE = Schedule(100_000, 1000, 1000, "poisson")
PAPER = Schedule(36_672_493, 65_536, 83_937, "poisson")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DPCOMPARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fits(sigma, budget, schedule):
    event = dpsgd_event(sigma, schedule)
    return epsilon(event, budget.delta, budget.neighboring, budget.accountant) <= budget.epsilon


@pytest.mark.parametrize(
    ("target", "pld", "rdp"),
    [
        (0.1, 11.571, 13.172),
        (0.5, 2.7026, 2.9005),
        (1.0, 1.5627, 1.6596),
        (3.0, 0.8653, 0.9171),
        (8.0, 0.6167, 0.6451),
        (10.0, 0.5741, 0.5996),
        (50.0, 0.3464, 0.3604),
    ],
)
def test_known_multipliers(target, pld, rdp):
    for accountant, expected in (("pld", pld), ("rdp", rdp)):
        budget = Budget(target, 1e-6, "add-or-remove-one", accountant)
        assert noise_multiplier(budget, SCHEDULE) == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize(
    ("target", "true"),
    [
        (0.1, 22.786),
        (0.5, 4.973),
        (1.0, 2.650),
        (3.0, 1.135),
        (5.0, 0.857),
        (10.0, 0.6585),
        (30.0, 0.4928),
        (50.0, 0.4385),
    ],
)
def test_the_papers_configuration(target, true):
    """True multipliers by an independent contour integral, to the digits shown."""
    last_digit = 5e-4 if true > 0.7 else 5e-5
    sigma = noise_multiplier(Budget(target, 1 / 36_672_493), PAPER)
    assert true - last_digit <= sigma <= true * 1.002


@pytest.mark.parametrize("neighboring", ["zero-out", "replace-one"])
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("target", [0.05, 1.0, 20.0])
def test_what_is_returned_fits_and_a_little_less_does_not(neighboring, accountant, target):
    budget = Budget(target, 1e-6, neighboring, accountant)
    sigma = noise_multiplier(budget, SCHEDULE)
    assert fits(sigma, budget, SCHEDULE)
    assert not fits(sigma * 0.999, budget, SCHEDULE)


def test_noise_falls_as_epsilon_grows():
    sigmas = [noise_multiplier(Budget(e, 1e-6), SCHEDULE) for e in (0.1, 0.3, 1, 3, 10, 50)]
    assert sigmas == sorted(sigmas, reverse=True)


@pytest.mark.parametrize("target", [0.1, 0.5, 1.0, 3.0, 8.0, 10.0, 50.0])
def test_almost_the_whole_budget_is_spent_and_no_more(target):
    report = calibration_report(Budget(target, 1e-6), SCHEDULE)
    assert target * (1 - TOLERANCE) <= report["epsilon"] <= target


@pytest.mark.parametrize(
    ("budget", "schedule"),
    [
        (Budget(0.1, 1e-5), Schedule(1000, 100, 1, "poisson")),
        (Budget(30.0, 1e-5, "replace-one"), Schedule(1000, 100, 2, "poisson")),
        (Budget(5.0, 1e-2), Schedule(8, 4, 30, "poisson")),
        (Budget(0.01, 1e-6), Schedule(8, 1, 8, "poisson")),
        (Budget(1.0, 1e-6), Schedule(50, 50, 1000, "poisson")),
        (Budget(1e-4, 1e-6), SCHEDULE),
        (Budget(3.0, 3e-6), Schedule.from_epochs(100_000, 4096, 20, "poisson")),
        (Budget(0.1, 1e-8), Schedule.from_epochs(100_000_000, 1024, 150, "poisson")),
    ],
)
def test_no_schedule_is_overspent_and_what_is_stated_is_what_was_certified(budget, schedule):
    sigma = noise_multiplier(budget, schedule)
    event = dpsgd_event(sigma, schedule)
    stated = guarantee([Release(event, "example")], budget.delta, budget.neighboring)
    assert budget.epsilon * (1 - TOLERANCE) <= stated.epsilon <= budget.epsilon
    assert sigma == np.float32(sigma)


@pytest.mark.parametrize(
    ("rows", "batch", "target", "most"),
    [
        (32_000_000, 65_536, 0.1, 1.0015),
        (32_000_000, 65_536, 1.0, 1.0015),
        (32_000_000, 65_536, 10.0, 1.0015),
        (32_000_000, 65_536, 50.0, 1.0015),
        (32_000_000, 1024, 0.5, 1.01),
        (100_000_000, 1024, 0.1, 1.0015),
    ],
)
def test_a_little_less_noise_would_overspend(rows, batch, target, most):
    """By an estimate that shares no code with the accountant, over 73,000 to 14.6 million steps."""
    schedule = Schedule.from_epochs(rows, batch, 150, "poisson")
    sigma = noise_multiplier(Budget(target, 1 / rows), schedule)

    def largest_log_delta(sigma):
        gaussian = SampledGaussian(sigma, schedule.sampling_probability(), schedule.steps)
        return max(estimated_log_delta(gaussian, target, d) for d in ("remove", "add"))

    assert largest_log_delta(sigma) <= math.log(1 / rows)
    assert largest_log_delta(sigma / most) > math.log(1 / rows)


def test_a_calibration_composes_two_or_three_times(monkeypatch):
    calls = []
    monkeypatch.setattr(calibration, "epsilon", lambda *a: calls.append(a) or epsilon(*a))
    for target in (0.1, 1.0, 10.0, 50.0):
        calls.clear()
        noise_multiplier(Budget(target, 1e-6), SCHEDULE)
        assert len(calls) <= 3


def test_a_bad_estimate_only_costs_time(monkeypatch):
    budget = Budget(1.0, 1e-6)
    expected = noise_multiplier(budget, SCHEDULE)
    for wrong in (0.01, 0.6, 3.0, 1e9):
        monkeypatch.setattr(calibration, "estimated_noise", lambda *_, wrong=wrong: wrong)
        found = calibration._search(budget, "zero-out", 0.01, 1000)
        assert found == pytest.approx(expected, rel=TOLERANCE)
        assert fits(found, budget, SCHEDULE)


def test_a_tiny_epsilon_is_quick_and_sharp():
    # The default grid of dp-accounting asks for 105.5; a contour integral says 96.93.
    assert noise_multiplier(Budget(0.01, 1e-6), SCHEDULE) == pytest.approx(96.93, rel=0.002)


def test_accumulation_that_does_not_divide_an_epoch():
    """Batches of 100 of 1,003 rows, three to an update: 4 updates an epoch, and no division."""
    schedule = Schedule.from_epochs(1003, 300, 12, "poisson")
    assert (schedule.steps, schedule.sampling_probability()) == (40, 300 / 1003)
    sigma = noise_multiplier(Budget(4.0, 1e-4), schedule)
    assert epsilon(dpsgd_event(sigma, schedule), 1e-4, "zero-out") <= 4.0


@pytest.mark.parametrize("pair", [(128, 8), (64, 16), (1024, 1)])
def test_chunks_of_a_batch_do_not_enter(pair):
    physical, accumulated = pair
    schedule = Schedule.from_epochs(14_732, physical * accumulated, 3, "poisson")
    sigma = noise_multiplier(Budget(4.0, 2e-5, "add-or-remove-one"), schedule)
    assert sigma == pytest.approx(0.901, rel=0.01)


def test_every_row_in_every_batch():
    sigma = noise_multiplier(Budget(4.3772, 1e-5), Schedule(50, 50, 1, "poisson"))
    assert sigma == pytest.approx(1.0, rel=1e-3)


def test_groups_need_the_noise_of_replaced_rows():
    grouped = Schedule(800_000, 8000, 1000, "poisson")  # 100,000 groups of 8 at q = .01
    replaced = noise_multiplier(Budget(2.0, 1e-6, "replace-one"), SCHEDULE)
    assert noise_multiplier(Budget(2.0, 1e-6), grouped, 8) == pytest.approx(replaced, rel=1e-3)
    with pytest.raises(UsageError, match="groups are fixed"):
        noise_multiplier(Budget(2.0, 1e-6, "add-or-remove-one"), grouped, 8)


def test_no_budget_needs_no_noise():
    assert noise_multiplier(Budget(math.inf, 1e-6), SCHEDULE) == 0.0


def test_shuffled_batches_are_refused():
    with pytest.raises(UsageError, match="shuffled"):
        noise_multiplier(Budget(1.0, 1e-6), Schedule(100, 10, 5, "shuffle"))


@pytest.mark.parametrize("epsilon", [1e6, 1e9, 1e308])
def test_what_no_noise_can_reach_is_refused_with_the_range(epsilon):
    with pytest.raises(UsageError, match="can be reached"):
        noise_multiplier(Budget(epsilon, 1e-6), SCHEDULE)


class TestCache:
    budget = Budget(1.0, 1e-6)

    def stored(self, folder):
        files = list(folder.iterdir())
        assert len(files) == 1
        return files[0]

    def count_searches(self, monkeypatch):
        calls = []
        search = calibration._search
        monkeypatch.setattr(calibration, "_search", lambda *a: calls.append(a) or search(*a))
        return calls

    def test_a_second_call_does_not_search(self, monkeypatch):
        calls = self.count_searches(monkeypatch)
        first = noise_multiplier(self.budget, SCHEDULE)
        assert noise_multiplier(Budget(1, 1e-6), SCHEDULE) == first
        # The two relations have the same loss distributions.
        assert noise_multiplier(Budget(1, 1e-6, "add-or-remove-one"), SCHEDULE) == first
        assert len(calls) == 1

    def test_other_settings_are_other_entries(self, own_cache):
        noise_multiplier(self.budget, SCHEDULE)
        noise_multiplier(Budget(1.0, 1e-7), SCHEDULE)
        noise_multiplier(Budget(1.0, 1e-6, "replace-one"), SCHEDULE)
        noise_multiplier(Budget(1.0, 1e-6, accountant="rdp"), SCHEDULE)
        noise_multiplier(self.budget, Schedule(100_000, 1000, 999, "poisson"))
        assert len(list(own_cache.iterdir())) == 5

    @pytest.mark.parametrize("damage", ["", "{", "[]", '{"key": 1, "noise_multiplier": 0.1}'])
    def test_a_damaged_entry_is_made_again(self, own_cache, damage):
        first = noise_multiplier(self.budget, SCHEDULE)
        self.stored(own_cache).write_text(damage)
        assert noise_multiplier(self.budget, SCHEDULE) == first
        assert json.loads(self.stored(own_cache).read_text())["noise_multiplier"] == first

    def test_an_entry_of_other_settings_under_its_name_is_not_believed(self, own_cache):
        first = noise_multiplier(self.budget, SCHEDULE)
        entry = json.loads(self.stored(own_cache).read_text())
        entry["key"]["steps"] += 1
        entry["noise_multiplier"] = 0.1
        self.stored(own_cache).write_text(json.dumps(entry))
        assert noise_multiplier(self.budget, SCHEDULE) == first

    def test_a_folder_that_cannot_be_written_only_costs_time(self, tmp_path, monkeypatch):
        blocked = tmp_path / "file"
        blocked.write_text("not a folder")
        monkeypatch.setenv("DPCOMPARE_CACHE", str(blocked / "cache"))
        assert noise_multiplier(self.budget, SCHEDULE) == pytest.approx(1.5627, rel=0.005)

    def test_entries_can_be_read_by_their_owner_only(self, own_cache):
        noise_multiplier(self.budget, SCHEDULE)
        mode = stat.S_IMODE(os.stat(self.stored(own_cache)).st_mode)
        assert mode & 0o077 == 0


def test_the_report_is_strict_json_and_states_the_other_relations():
    report = calibration_report(Budget(1.0, 1e-6), SCHEDULE)
    json.loads(json.dumps(report, allow_nan=False))
    assert 0.99 < report["epsilon"] <= 1.0
    others = report["epsilon_under_other_relations"]
    assert others["add-or-remove-one"] == pytest.approx(report["epsilon"])
    assert 1.3 < others["replace-one"] < 2.2
    grouped = calibration_report(Budget(1.0, 1e-6), SCHEDULE, 4)
    assert grouped["epsilon_under_other_relations"]["add-or-remove-one"] is None
