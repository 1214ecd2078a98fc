"""Drawn batches cut into chunks of a fixed size, and steps into blocks of one dispatch each.

A step's batch may have any number of rows; a compiled step takes chunks of one shape, as many as
the batch needs. What a chunk lacks is ABSENT.
"""

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dpcompare.data.sampling import ABSENT, Draw
from dpcompare.privacy import Schedule

STEPS_PER_DISPATCH = 64
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


class Block(NamedTuple):
    """The batches of up to STEPS_PER_DISPATCH steps.

    Attributes:
        first_step: the step that the block starts with.
        steps: how many steps it holds.
        rows: (STEPS_PER_DISPATCH, chunks, rows of a chunk), ABSENT where there is none.
        chunks: (STEPS_PER_DISPATCH,) how many chunks each step's batch fills.
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


def blocks(draw: Draw, first_steps: Iterable[int], steps: int, chunks: Chunks) -> Iterator[Block]:
    """The blocks of a training run of `steps` steps.

    Args:
        draw: the rows of each step.
        first_steps: where blocks must begin, so that something can be done between two steps.
        steps: of the whole run.
        chunks: how batches are cut.
    """
    borders = sorted({0, steps, *first_steps})
    for begin, end in itertools.pairwise(borders):
        for first_step in range(begin, end, STEPS_PER_DISPATCH):
            last_step = min(first_step + STEPS_PER_DISPATCH, end)
            batches = [draw(step) for step in range(first_step, last_step)]
            yield _block(first_step, batches, chunks)


def _block(first_step: int, batches: list[np.ndarray], chunks: Chunks) -> Block:
    filled = np.zeros(STEPS_PER_DISPATCH, np.int32)
    filled[: len(batches)] = [-(-len(batch) // chunks.rows) for batch in batches]
    count = max(chunks.most, int(filled.max()))
    rows = np.full((STEPS_PER_DISPATCH, count * chunks.rows), ABSENT, np.int32)
    for place, batch in enumerate(batches):
        rows[place, : len(batch)] = batch
    shaped = rows.reshape(STEPS_PER_DISPATCH, count, chunks.rows)
    return Block(first_step, len(batches), shaped, filled)
