"""What is drawn is what is accounted: Poisson batches, whole groups, shuffles that drop no row."""

import numpy as np
import pytest

from dpcompare.data.sampling import ABSENT, batch_draw
from dpcompare.privacy import Schedule


def draws(schedule, steps, group_size=1, words=("test",)):
    draw = batch_draw(schedule, group_size, *words)
    return [draw(step) for step in range(steps)]


def test_poisson_batch_sizes_are_binomial():
    schedule = Schedule(60_000, 256, 2000, "poisson")
    sizes = np.array([len(rows) for rows in draws(schedule, 2000)])
    assert abs(sizes.mean() - 256) < 4 * np.sqrt(254.9 / 2000)
    assert abs(sizes.var() / 254.9 - 1) < 0.13  # 4 standard errors of a variance


def test_poisson_rows_are_distinct_and_equally_likely():
    schedule = Schedule(50, 10, 4000, "poisson")
    batches = draws(schedule, 4000)
    assert all(len(set(rows)) == len(rows) for rows in batches)
    counts = np.bincount(np.concatenate(batches), minlength=50)
    assert np.max(np.abs(counts / 4000 - 0.2)) < 5 * np.sqrt(0.2 * 0.8 / 4000)


def test_poisson_rows_are_drawn_independently_of_each_other():
    schedule = Schedule(20, 10, 4000, "poisson")
    present = np.zeros((4000, 20))
    for step, rows in enumerate(draws(schedule, 4000)):
        present[step, rows] = 1
    correlations = np.corrcoef(present.T)[np.triu_indices(20, 1)]
    assert np.max(np.abs(correlations)) < 5 / np.sqrt(4000)


def test_an_epoch_of_poisson_batches_covers_63_percent_of_the_rows():
    schedule = Schedule.from_epochs(59_904, 128, 1, "poisson")
    rows = np.concatenate(draws(schedule, schedule.steps))
    assert schedule.steps == 468
    assert abs(len(np.unique(rows)) / 59_904 - 0.632) < 0.01


def test_empty_poisson_batches_occur():
    schedule = Schedule(100, 1, 50, "poisson")
    assert any(len(rows) == 0 for rows in draws(schedule, 50))


def test_q_of_one_takes_every_row():
    assert len(draws(Schedule(30, 30, 1, "poisson"), 1)[0]) == 30


@pytest.mark.parametrize(("examples", "batch_size"), [(1003, 250), (100, 100), (7, 3)])
def test_shuffled_epochs_hold_every_row_once(examples, batch_size):
    steps = 3 * examples
    schedule = Schedule(examples, batch_size, steps, "shuffle")
    batches = draws(schedule, steps)
    assert {len(rows) for rows in batches} == {batch_size}
    stream = np.concatenate(batches)
    for epoch in range(len(stream) // examples):
        part = stream[epoch * examples : (epoch + 1) * examples]
        np.testing.assert_array_equal(np.sort(part), np.arange(examples))


@pytest.mark.parametrize("sampling", ["poisson", "shuffle"])
def test_a_step_does_not_depend_on_the_steps_before_it(sampling):
    schedule = Schedule(500, 60, 100, sampling)
    np.testing.assert_array_equal(
        batch_draw(schedule, 1, "x")(37), draws(schedule, 38, words=("x",))[37]
    )


def test_streams_of_other_names_differ():
    schedule = Schedule(500, 60, 1, "shuffle")
    assert not np.array_equal(batch_draw(schedule, 1, 0)(0), batch_draw(schedule, 1, 1)(0))


def test_groups_are_fixed_and_drawn_whole():
    schedule = Schedule(103, 20, 300, "poisson")
    seen: dict[int, frozenset[int]] = {}
    counts = []
    for rows in draws(schedule, 300, group_size=4):
        groups = rows.reshape(-1, 4)
        counts.append(len(groups))
        for group in groups:
            members = frozenset(int(row) for row in group if row != ABSENT)
            for row in members:
                assert seen.setdefault(row, members) == members
    assert sum(len(members) for members in set(seen.values())) == 103
    # 26 groups, of which 5 are expected: the rows of the last one are partly absent.
    assert abs(np.mean(counts) - 5) < 4 * np.sqrt(5 * (1 - 5 / 26) / 300)
