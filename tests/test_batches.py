"""Batches are cut into equal chunks, nothing is dropped, and blocks begin where they must."""

import numpy as np
import pytest

from dpcompare.batches import LARGEST_CHUNK, STEPS_PER_DISPATCH, Chunks, blocks, chunks_of
from dpcompare.data.sampling import ABSENT, batch_draw
from dpcompare.privacy import Schedule


@pytest.mark.parametrize(
    ("schedule", "group_size", "expected"),
    [
        (Schedule(100_000, 4096, 1, "poisson"), 1, Chunks(4096 + 160, 2)),
        (Schedule(100_000, 1024, 1, "shuffle"), 1, Chunks(1024, 1)),
        (Schedule(10**6, 65_536, 1, "poisson"), 1, Chunks(7353, 10)),
        (Schedule(103, 100, 1, "poisson"), 8, Chunks(104, 1)),
        (Schedule(103, 103, 1, "poisson"), 1, Chunks(103, 1)),
    ],
)
def test_chunks_are_equal_and_hold_whole_groups(schedule, group_size, expected):
    assert chunks_of(schedule, group_size) == expected
    assert expected.rows <= LARGEST_CHUNK
    assert expected.rows % group_size == 0


def test_a_wanted_size_is_kept_and_rounded_to_whole_groups():
    assert chunks_of(Schedule(1000, 100, 1, "poisson"), 1, wanted=7) == Chunks(7, 26)
    assert chunks_of(Schedule(1000, 100, 1, "shuffle"), 8, wanted=7).rows == 8


@pytest.mark.parametrize("chunks", [Chunks(3, 1), Chunks(7, 12), Chunks(200, 1)])
def test_every_drawn_row_is_in_its_step_once(chunks):
    """Also where a batch needs more chunks than were expected."""
    draw = batch_draw(Schedule(200, 20, 100, "poisson"), 1, "words")
    seen = 0
    for block in blocks(draw, (5, 77), 100, chunks):
        assert block.first_step == seen
        for place in range(block.steps):
            rows = block.rows[place, : block.chunks[place]].ravel()
            np.testing.assert_array_equal(rows[rows != ABSENT], draw(seen))
            assert np.all(block.rows[place, block.chunks[place] :] == ABSENT)
            seen += 1
        assert np.all(block.chunks[block.steps :] == 0)
        assert block.rows.shape[0] == STEPS_PER_DISPATCH
    assert seen == 100


def test_blocks_begin_where_they_must():
    draw = batch_draw(Schedule(20, 2, 200, "shuffle"), 1, "words")
    starts = [block.first_step for block in blocks(draw, (10, 150), 200, Chunks(2, 1))]
    assert starts == [0, 10, 74, 138, 150]
