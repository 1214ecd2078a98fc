"""Batches are cut into equal chunks, nothing is dropped, and blocks begin where they must."""

import numpy as np
import pytest

from dpcompare.batches import LARGEST_CHUNK, Chunks, blocks, chunks_of, gathered, row_bytes
from dpcompare.data.sampling import ABSENT, batch_draw
from dpcompare.data.views import RowView
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
    for block in blocks(draw, (5, 77), 100, chunks, 64):
        assert block.first_step == seen
        for place in range(block.steps):
            rows = block.rows[place, : block.chunks[place]].ravel()
            np.testing.assert_array_equal(rows[rows != ABSENT], draw(seen))
            assert np.all(block.rows[place, block.chunks[place] :] == ABSENT)
            seen += 1
        assert np.all(block.chunks[block.steps :] == 0)
        assert block.rows.shape[0] == 64
    assert seen == 100


def test_blocks_begin_where_they_must():
    draw = batch_draw(Schedule(20, 2, 200, "shuffle"), 1, "words")
    starts = [block.first_step for block in blocks(draw, (10, 150), 200, Chunks(2, 1), 64)]
    assert starts == [0, 10, 74, 138, 150]


def test_a_run_goes_on_where_a_block_begins():
    draw = batch_draw(Schedule(20, 2, 200, "poisson"), 1, "words")
    whole = list(blocks(draw, (10, 150), 200, Chunks(2, 4), 64))
    rest = list(blocks(draw, (10, 150), 200, Chunks(2, 4), 64, start=74))
    assert [block.first_step for block in rest] == [74, 138, 150]
    for block, same in zip(rest, whole[2:], strict=True):
        np.testing.assert_array_equal(block.rows, same.rows)
    with pytest.raises(ValueError, match="not at step 75"):
        next(blocks(draw, (10, 150), 200, Chunks(2, 4), 64, start=75))


def test_a_block_is_bounded_in_bytes_but_holds_a_step():
    assert Chunks(4256, 2).steps_of_block(160) == (64 << 20) // (2 * 4256 * 160)
    assert Chunks(100, 1).steps_of_block(160) == 64
    assert Chunks(8192, 1000).steps_of_block(160) == 1


def test_gathered_rows_are_the_drawn_ones():
    n = 200
    columns = {
        "wide": np.arange(3 * n, dtype=np.float32).reshape(n, 3),
        "view": RowView(np.arange(2 * n)[:, None], np.arange(n)[::-1], lambda rows: 10 * rows),
        "flat": np.arange(n, dtype=np.uint8),
    }
    draw = batch_draw(Schedule(n, 20, 30, "poisson"), 1, "words")
    chunks = Chunks(16, 3)
    for block in blocks(draw, (), 30, chunks, 8):
        found = gathered(columns, block)
        half = gathered(columns, block._replace(rows=block.rows[:, :, 8:]))
        present = block.rows != ABSENT
        rows = block.rows[present]
        np.testing.assert_array_equal(found["wide"][present], columns["wide"][rows])
        np.testing.assert_array_equal(found["view"][present][:, 0], 10 * (n - 1 - rows))
        np.testing.assert_array_equal(found["flat"][present], rows)
        for name, values in found.items():
            np.testing.assert_array_equal(half[name], values[:, :, 8:])
            assert values.dtype == columns[name].dtype
    assert row_bytes(columns) == 12 + 8 + 1
