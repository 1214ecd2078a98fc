"""Which rows each step sees: Poisson-drawn or shuffled batches, of rows or of whole groups.

What is drawn here is what accounting assumes. A step's draw depends only on the words that name
its stream and on the step, so it can be made again, or resumed, without the steps before it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dpcompare.privacy import Schedule
from dpcompare.randomness import numpy_generator

ABSENT = -1
"""A place in a batch that holds no row: padding, or the missing rows of the last group."""

Draw = Callable[[int], np.ndarray]


def batch_draw(schedule: Schedule, group_size: int, *words: Any) -> Draw:
    """The function that gives the rows of step t, (rows drawn,) int32.

    Groups are cut once from a random permutation of the rows, whatever the rows hold, and are
    drawn whole; consecutive `group_size` entries of a draw are one group.

    Args:
        schedule: examples, batch size and the kind of sampling.
        group_size: rows per group; 1 draws single rows.
        *words: the name of the random stream.
    """
    count = schedule.groups(group_size)
    if schedule.sampling == "poisson":
        draw = _poisson(count, schedule.sampling_probability(group_size), *words)
    else:
        draw = _shuffle(count, max(1, round(schedule.expected_groups(group_size))), *words)
    if group_size == 1:
        return draw
    groups = _groups(schedule.examples, group_size, *words)
    return lambda step: groups[draw(step)].ravel()


def _groups(examples: int, group_size: int, *words: Any) -> np.ndarray:
    """(groups, group_size) rows; places beyond the last row are ABSENT."""
    order = _permutation(numpy_generator("groups", *words), examples)
    padding = np.full(-examples % group_size, ABSENT, np.int32)
    return np.concatenate([order, padding]).reshape(-1, group_size)


def _permutation(rng: np.random.Generator, count: int) -> np.ndarray:
    """The numbers below `count` in random order, (count,) int32: half of what int64 takes."""
    numbers = np.arange(count, dtype=np.int32)
    rng.shuffle(numbers)
    return numbers


def _poisson(groups: int, probability: float, *words: Any) -> Draw:
    """Each group independently with `probability`: a binomial count, then without replacement."""

    def draw(step: int) -> np.ndarray:
        rng = numpy_generator("poisson", *words, counter=step)
        count = rng.binomial(groups, probability)
        return rng.choice(groups, count, replace=False, shuffle=False).astype(np.int32)

    return draw


def _shuffle(groups: int, per_step: int, *words: Any) -> Draw:
    """Batches cut from one permutation per epoch, laid end to end, so that no row is dropped."""
    remembered: dict[int, np.ndarray] = {}

    def permutation(epoch: int) -> np.ndarray:
        if epoch not in remembered:
            for past in [e for e in remembered if e < epoch - 1]:
                del remembered[past]
            rng = numpy_generator("shuffle", *words, counter=epoch)
            remembered[epoch] = _permutation(rng, groups)
        return remembered[epoch]

    def draw(step: int) -> np.ndarray:
        first, last = step * per_step, (step + 1) * per_step
        parts = []
        for epoch in range(first // groups, (last - 1) // groups + 1):
            start = epoch * groups
            parts.append(permutation(epoch)[max(first - start, 0) : last - start])
        return np.concatenate(parts)

    return draw
