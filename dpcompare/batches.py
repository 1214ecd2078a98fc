"""Drawn batches cut into chunks of a fixed size, and steps into blocks of one dispatch each.

A step's batch may have any number of rows; a compiled step takes chunks of one shape, as many as
the batch needs. What a chunk lacks is ABSENT. The rows of a block are gathered from wherever they
lie, in memory or on disk, so what is on the device does not grow with the data set.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from dpcompare.data.sampling import ABSENT, Draw
from dpcompare.privacy import Schedule

MOST_STEPS = 64
"""Of one dispatch."""

BLOCK_BYTES = 64 << 20
"""What the gathered rows of a block may take, if it holds more than one step."""

LARGEST_CHUNK = 8192


class Chunks(NamedTuple):
    """How a schedule's batches are cut.

    Attributes:
        rows: of one chunk; whole groups.
        most: chunks that a step's batch is expected never to exceed; one that does is not cut
            short, it makes its block larger.
    """

    rows: int
    most: int

    def steps_of_block(self, row_bytes: int) -> int:
        """How many steps a block holds, if a gathered row takes `row_bytes`."""
        return min(MOST_STEPS, max(1, BLOCK_BYTES // (self.rows * self.most * row_bytes)))


class Block(NamedTuple):
    """The batches of some steps; all blocks of a run have room for equally many.

    Attributes:
        first_step: the step that the block starts with.
        steps: how many steps it holds; there may be room for more.
        rows: (room, chunks, rows of a chunk), ABSENT where there is none.
        chunks: (room,) how many chunks each step's batch fills.
    """

    first_step: int
    steps: int
    rows: np.ndarray
    chunks: np.ndarray


def chunks_of(schedule: Schedule, group_size: int, wanted: int | None = None) -> Chunks:
    """The chunks of a schedule: equal ones, of at most LARGEST_CHUNK rows.

    A Poisson batch has a standard deviation s of about sqrt(batch_size * group_size) rows. The
    chunks that are filled nearly always hold 2.5 s more than expected: more would be padding that
    every step pays for, fewer would make steps take another chunk too often. Room is made for 8 s.

    Args:
        schedule: batch size and sampling.
        group_size: rows that are drawn together.
        wanted: rows of a chunk, rounded up to whole groups; None chooses.
    """
    spread = (schedule.batch_size * group_size) ** 0.5 if schedule.sampling == "poisson" else 0
    everything = schedule.groups(group_size) * group_size
    usual = min(math.ceil(schedule.batch_size + 2.5 * spread), everything)
    rows = wanted
    if rows is None:
        rows = math.ceil(usual / math.ceil(usual / LARGEST_CHUNK))
    rows = math.ceil(rows / group_size) * group_size
    most = math.ceil((schedule.batch_size + 8 * spread) / group_size) * group_size
    return Chunks(rows, math.ceil(min(most, everything) / rows))


def blocks(
    draw: Draw, borders: Iterable[int], steps: int, chunks: Chunks, room: int, start: int = 0
) -> Iterator[Block]:
    """The blocks of a training run of `steps` steps.

    Args:
        draw: the rows of each step.
        borders: where blocks must begin, so that something can be done between two steps.
        steps: of the whole run.
        chunks: how batches are cut.
        room: steps of one block.
        start: the step to begin with.

    Raises:
        ValueError: no block of the whole run begins with `start`.
    """
    ends = {
        first_step: min(first_step + room, end)
        for begin, end in itertools.pairwise(sorted({0, steps, *borders}))
        for first_step in range(begin, end, room)
    }
    if start not in ends:
        raise ValueError(f"a run must go on where a block begins, not at step {start}")
    for first_step, end in ends.items():
        if first_step >= start:
            batches = [draw(step) for step in range(first_step, end)]
            yield _block(first_step, batches, chunks, room)


def _block(first_step: int, batches: list[np.ndarray], chunks: Chunks, room: int) -> Block:
    filled = np.zeros(room, np.int32)
    filled[: len(batches)] = [-(-len(batch) // chunks.rows) for batch in batches]
    count = max(chunks.most, int(filled.max()))
    rows = np.full((room, count * chunks.rows), ABSENT, np.int32)
    for place, batch in enumerate(batches):
        rows[place, : len(batch)] = batch
    return Block(first_step, len(batches), rows.reshape(room, count, chunks.rows), filled)


def row_bytes(columns: Any) -> int:
    """What one gathered row of all columns takes."""
    return sum(
        column.dtype.itemsize * math.prod(column.shape[1:]) for column in jax.tree.leaves(columns)
    )


def gathered(columns: Any, block: Block) -> Any:
    """The rows of a block from each column, (room, chunks, rows of a chunk, ...).

    Some row stands where a filled chunk lacks one, and zeros where no chunk is filled.

    Args:
        columns: a tree of arrays, (n, ...), in memory or mapped, or views such as
            :class:`dpcompare.data.views.RowView`.
        block: which rows.
    """
    return jax.tree.map(lambda column: _gathered(column, block), columns)


def _gathered(column: Any, block: Block) -> np.ndarray:
    rows = block.rows
    found = np.zeros((*rows.shape, *column.shape[1:]), column.dtype)
    for place in range(block.steps):
        # A step without rows is computed as one chunk that is all padding.
        filled = max(1, int(block.chunks[place]))
        _take(column, rows[place, :filled], found[place, :filled])
    return found


def _take(column: Any, rows: np.ndarray, found: np.ndarray) -> None:
    if isinstance(column, np.ndarray):
        # Several times faster than column[rows]; clipping turns ABSENT into the first row.
        np.take(column, rows, axis=0, out=found, mode="clip")
    else:
        found[:] = column[np.maximum(rows, 0).ravel()].reshape(found.shape)
