"""The words of privacy refuse what they cannot mean."""

import math

import pytest

from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Schedule, check_delta, default_delta


def test_default_delta_stays_below_one_row():  # ACC-01
    assert default_delta(60_000) == pytest.approx(60_000**-1.1)
    assert default_delta(60_000) < 1 / 60_000
    check_delta(default_delta(60_000), 60_000)


def test_delta_of_one_row_is_accepted_and_more_is_not():  # ACC-01
    check_delta(1e-3, 1000)
    with pytest.raises(UsageError, match=r"delta 0\.01 is above 1/n = 0\.001 for n = 1,000"):
        check_delta(1e-2, 1000)
    check_delta(1e-2, 1000, allow_large_delta=True)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_deltas_outside_their_range_are_refused(delta):
    with pytest.raises(UsageError, match="delta"):
        check_delta(delta, 10, allow_large_delta=True)
    with pytest.raises(UsageError, match="delta"):
        Budget(1.0, delta)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan])
def test_epsilon_must_be_above_zero(epsilon):  # ACC-18
    with pytest.raises(UsageError, match="epsilon must be above 0"):
        Budget(epsilon, 1e-6)


def test_infinite_epsilon_asks_for_no_privacy():  # ACC-18
    assert math.isinf(Budget(math.inf, 1e-6).epsilon)


def test_unknown_relations_and_accountants_are_refused():
    with pytest.raises(UsageError, match=r"neighboring must be one of .* 'replace-one-label'"):
        Budget(1.0, 1e-6, "replace-one-label")
    with pytest.raises(UsageError, match="accountant must be one of pld, rdp, got 'gdp'"):
        Budget(1.0, 1e-6, accountant="gdp")


def test_steps_are_rounded_once_for_the_whole_run():  # ACC-02
    assert Schedule.from_epochs(60_000, 256, 61, "poisson").steps == 14_297  # not 61 * 235
    assert Schedule.from_epochs(1003, 250, 3, "poisson").steps == 12
    assert Schedule.from_epochs(1000, 1000, 0.1, "poisson").steps == 1


@pytest.mark.parametrize("epochs", [0.0, -1.0, math.nan, math.inf])
def test_epochs_must_be_a_positive_number(epochs):
    with pytest.raises(UsageError, match="epochs"):
        Schedule.from_epochs(100, 10, epochs, "poisson")


def test_batches_cannot_exceed_the_data():  # ACC-03
    with pytest.raises(UsageError, match=r"batch_size 101 is larger .* 100 rows"):
        Schedule(100, 101, 1, "poisson")
    assert Schedule(100, 100, 1, "poisson").sampling_probability() == 1


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_schedules_hold_at_least_one_of_everything(shape):
    with pytest.raises(UsageError, match="at least 1"):
        Schedule(*shape, "poisson")


def test_unknown_sampling_is_refused():
    with pytest.raises(UsageError, match="sampling must be poisson or shuffle, got 'weighted'"):
        Schedule(10, 1, 1, "weighted")


def test_sampling_probability_is_batch_over_rows():  # ACC-13
    assert Schedule(100_000, 16, 8, "poisson").sampling_probability() == pytest.approx(1.6e-4)


def test_groups_are_counted_whole_and_drawn_as_often_as_rows():
    even = Schedule(1000, 100, 1, "poisson")
    assert (even.groups(4), even.expected_groups(4)) == (250, 25)
    assert even.sampling_probability(4) == even.sampling_probability()
    ragged = Schedule(1003, 100, 1, "poisson")
    assert ragged.groups(4) == 251
    assert ragged.sampling_probability(4) * ragged.groups(4) == pytest.approx(25)
    assert Schedule(10, 10, 1, "poisson").sampling_probability(4) <= 1
