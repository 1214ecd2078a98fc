import numpy as np
import pytest

from dpcompare.data import split_rows
from dpcompare.errors import UsageError


def test_the_split_is_in_time_order_and_covers_every_row_once():
    train, validation, test = split_rows(125_000)
    assert (train, validation, test) == (
        slice(0, 100_000),
        slice(100_000, 112_500),
        slice(112_500, 125_000),
    )


@pytest.mark.parametrize("rows", [3, 7, 10, 99, 12_345])
def test_uneven_splits_leave_no_row_out(rows):
    parts = split_rows(rows, (1 / 3, 1 / 3, 1 / 3))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, rows)
    assert all(part.stop > part.start for part in parts)


@pytest.mark.parametrize(
    "shares",
    [(0.8, 0.2), (0.8, 0.1, 0.2), (0.9, 0.1, 0.0), (1.2, -0.1, -0.1), (0.8, 0.1, float("nan")), ()],
)
def test_shares_must_be_three_positive_numbers_that_add_up_to_one(shares):
    with pytest.raises(UsageError, match="three numbers above 0 that add up to 1"):
        split_rows(100, shares)


def test_shares_may_miss_one_by_rounding():
    assert split_rows(10, (0.8, 0.1, 0.1 + 5e-10))[2] == slice(9, 10)


def test_too_few_rows_for_the_split():
    with pytest.raises(UsageError, match="2 rows are too few"):
        split_rows(2)


def test_a_cut_inside_a_journey_moves_to_the_next_one():
    journeys = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 4])
    parts = split_rows(10, (0.2, 0.4, 0.4), journeys)
    assert parts == (slice(0, 3), slice(3, 8), slice(8, 10))


def test_a_cut_between_journeys_stays():
    journeys = np.arange(10)
    assert split_rows(10, (0.5, 0.3, 0.2), journeys) == split_rows(10, (0.5, 0.3, 0.2))


@pytest.mark.parametrize(
    "journeys", [[0] * 10, [0] * 5 + [1] * 5, [0, 1, 2, 3, 4, 5, 6, 7, 8, 8], [0] * 9 + [1]]
)
def test_a_part_without_a_whole_journey_is_an_error(journeys):
    with pytest.raises(UsageError, match=r"10 rows are too few .* a journey is never cut"):
        split_rows(10, (0.8, 0.1, 0.1), np.array(journeys))


@pytest.mark.parametrize("seed", range(20))
def test_no_journey_is_in_two_parts(seed):
    rng = np.random.default_rng(seed)
    journeys = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    parts = split_rows(len(journeys), (0.6, 0.2, 0.2), journeys)
    found = [set(journeys[part].tolist()) for part in parts]
    assert all(found)
    assert sum(map(len, found)) == 40  # disjoint, and together all
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert abs(parts[0].stop - 0.6 * len(journeys)) < 9
