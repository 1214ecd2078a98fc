"""Is the noise what was declared, and are batches drawn as accounted?"""

from collections.abc import Iterator
from typing import Any

import dp_accounting as dp
import jax
import numpy as np

from dpcompare.data.dataset import Features
from dpcompare.testing.bounds import correlation_bound, is_binomial, mean_square_bounds
from dpcompare.testing.outcome import Check, NotApplicable
from dpcompare.testing.small_training import (
    SmallTraining,
    kinds,
    one_table_a_column,
    shared_tables,
)
from dpcompare.testing.subject import Subject

SIZE_LOOKS, PAIR_LOOKS = 200, 60
"""How often parameters are looked at for the size of the noise, and to compare it pair by pair."""

DRAWS = 300
"""Steps for statistics of batches."""

PARAMETERS = 1000
"""The most numbers whose noise is compared pair by pair."""


def check_noise_has_the_declared_size(subject: Subject) -> str:
    """The noise on every sum has standard deviation sensitivity times noise multiplier.

    Of each kind of parameter apart: tables with noise at every step, tables with lazy noise, dense
    kernels, biases.
    """
    training = shared_tables(subject)
    noise = training.noise_of_steps(SIZE_LOOKS, every=2)
    said = []
    for kind, places in kinds(training.parameters_after(1e-30)[0]).items():
        of_kind = noise[:, places]
        low, high = mean_square_bounds(of_kind.size)
        size = np.sqrt(np.mean(of_kind**2))
        assert low <= size**2 <= high, (
            f"the noise on {kind} is {size:.4g} times the declared standard deviation of "
            f"{float(training.release.standard_deviation):.4g} on the sum, measured on "
            f"{of_kind.size:,} numbers"
        )
        said.append(f"{kind} {size:.3f}")
    return f"relative to the declared one: {', '.join(said)}"


def check_noise_is_independent(subject: Subject) -> str:
    """No two numbers, steps or trials share noise; the same stream gives the same noise."""
    training = shared_tables(subject)
    noise = training.noise_of_steps(PAIR_LOOKS)
    spread = np.unique(np.linspace(0, noise.shape[1] - 1, PARAMETERS).round().astype(int))
    numbers = noise[:, spread].T
    said = []
    for what, rows in (("steps", noise), ("parameters", numbers)):
        worst, bound = _largest_correlation(rows)
        assert worst <= bound, (
            f"the noise of two {what} is correlated by {worst:.3f}; independent noise stays "
            f"below {bound:.3f}"
        )
        said.append(f"{what} {worst:.2f} (at most {bound:.2f})")
    other = training.noise_of_steps(PAIR_LOOKS, noise_stream="another noise of checks")
    both = np.corrcoef(noise, other)[:PAIR_LOOKS, PAIR_LOOKS:]
    worst, bound = np.abs(both).max(), correlation_bound(noise.shape[1], both.size)
    assert worst <= bound, (
        f"two trials with other noise streams share noise: it is correlated by {worst:.3f}"
    )
    assert np.array_equal(noise, training.noise_of_steps(PAIR_LOOKS)), (
        "the same words for the noise give another noise: a run cannot be repeated"
    )
    return f"largest correlations: {', '.join(said)}"


def check_empty_batches_take_noisy_steps(subject: Subject) -> str:
    """A Poisson batch without rows takes a step with full noise, and every step is made."""
    training = one_table_a_column(subject, batch_size=1)
    steps = 70  # more than one dispatch
    noise = training.noise_of_steps(steps)
    if training.schedule.sampling != "poisson":
        raise NotApplicable("shuffled batches are never empty")
    assert len(noise) == steps, f"{len(noise) + 1} steps were made instead of {steps + 1}"
    empty = np.logical_not(np.any(_drawn_rows(training, steps), axis=1))
    chance = training.schedule.sampling_probability(training.group_size)
    of_nobody = (1 - chance) ** training.schedule.groups(training.group_size)
    assert is_binomial(empty.sum(), steps, of_nobody), (
        f"{empty.sum()} of {steps} batches are empty; about {of_nobody:.0%} of Poisson batches are"
    )
    low, high = mean_square_bounds(noise.shape[1])
    for step, size in enumerate(np.mean(noise**2, axis=1)):
        assert low <= size <= high, (
            f"a step with {'an empty' if empty[step] else 'a'} batch has noise of "
            f"{np.sqrt(size):.4g} times the declared standard deviation"
        )
    together = training.noise_of_steps(1, every=steps)
    low, high = mean_square_bounds(together.size)
    counted = steps * float(np.mean(together**2))
    assert steps * low <= counted <= steps * high, (
        f"the noise of {steps} steps is that of {counted:.1f}: not every step is made"
    )
    return f"{empty.sum()} of {steps} batches are empty, and every step has full noise"


def check_batches_are_drawn_as_accounted(subject: Subject) -> str:
    """Poisson batches: each group is drawn at each step independently, with the accounted chance.

    Batch sizes have the mean and the variance of a binomial draw, groups are drawn equally often,
    pairs of groups as often as by chance, and steps know nothing of each other.
    """
    training = shared_tables(subject)
    accounted = list(_accounted_probabilities(training))
    if training.schedule.sampling != "poisson" and not accounted:
        raise NotApplicable("it neither draws nor accounts Poisson batches")
    probability = training.schedule.sampling_probability(training.group_size)
    assert all(chance >= probability * (1 - 1e-6) for chance in accounted), (
        f"the events count on chances of {accounted}, and groups are drawn with {probability:g}"
    )
    drawn = _drawn_groups(training)
    steps, groups = drawn.shape
    sizes = drawn.sum(axis=1)
    expected = groups * probability
    assert is_binomial(sizes.sum(), steps * groups, probability), (
        f"batches hold {sizes.mean():.2f} groups on average instead of {expected:.2f}"
    )
    low, high = mean_square_bounds(steps)
    variance = float(np.mean((sizes - expected) ** 2))
    of_binomial = expected * (1 - probability)
    assert low <= variance / of_binomial <= high, (
        f"the number of groups in a batch varies by {variance:.3g}; that of Poisson batches has "
        f"variance {of_binomial:.3g}"
    )
    assert is_binomial(drawn.sum(axis=0), steps, probability), (
        f"some groups are drawn {drawn.sum(axis=0).max()} times in {steps} steps, others "
        f"{drawn.sum(axis=0).min()} times: not with one chance of {probability:.3g}"
    )
    together = (drawn.T.astype(int) @ drawn)[np.triu_indices(groups, 1)]
    assert is_binomial(together, steps, probability**2), (
        f"some pairs of groups are in {together.max()} of {steps} batches together, others in "
        f"{together.min()}: they are not drawn independently"
    )
    again = int(np.sum(drawn[0::2] & drawn[1::2]))
    assert is_binomial(again, steps // 2 * groups, probability**2), (
        f"{again} groups of a batch are in the next one too, instead of about "
        f"{steps // 2 * groups * probability**2:.0f}: steps are not drawn independently"
    )
    return (
        f"{sizes.mean():.2f} of {expected:.2f} expected groups a batch, variance {variance:.2f} "
        f"of {of_binomial:.2f}, over {steps} steps"
    )


def check_groups_are_formed_once(subject: Subject) -> str:
    """Groups are drawn whole, are the same at every step, and do not depend on what rows hold."""
    training = shared_tables(subject)
    size = training.release.group_size
    if size == 1:
        raise NotApplicable("its groups are single rows")
    drawn = _drawn_rows(training)
    groups, sizes = np.unique(drawn, axis=1, return_counts=True)
    expected = training.schedule.groups(size)
    assert (groups.shape[1], sizes.max()) == (expected, size), (
        f"over {len(drawn)} steps there are {groups.shape[1]} sets of rows that are always drawn "
        f"together, of up to {sizes.max()} rows, instead of {expected} groups of {size}"
    )
    rows = training.features._replace(numeric=-3.0 * training.features.numeric[::-1])
    released = jax.tree.map(lambda column: column[::-1], training.released)
    assert np.array_equal(drawn, _drawn_rows(training, features=rows, released=released)), (
        "other rows are drawn if rows hold other features or labels"
    )
    return f"{expected} groups of {size} rows, the same over {len(drawn)} steps"


def check_epochs_show_every_row_once(subject: Subject) -> str:
    """Shuffled batches: every epoch shows each row once, and each epoch in another order."""
    training = shared_tables(subject)
    if training.schedule.sampling != "shuffle":
        raise NotApplicable("it draws Poisson batches")
    if training.group_size > 1:
        raise NotApplicable("how groups are shuffled is not looked at")
    per_epoch, epochs = training.schedule.examples // training.schedule.batch_size, 10
    first = per_epoch - 1  # the very first step is not seen, so the second epoch begins here
    drawn = _drawn_rows(training, steps=first + per_epoch * epochs)[first:]
    by_epoch = drawn.reshape(epochs, per_epoch, -1)
    seen = by_epoch.sum(axis=1)
    assert np.all(seen == 1), (
        f"in an epoch of {per_epoch} steps a row is seen {seen.min()} to {seen.max()} times"
    )
    assert not np.array_equal(by_epoch[0], by_epoch[1]), "two epochs have the same order"
    return f"{seen.shape[1]} rows, once in each of {epochs} epochs"


def _largest_correlation(rows: np.ndarray) -> tuple[float, float]:
    """In absolute value between two of (count, samples), and what it stays below by chance."""
    count, samples = rows.shape
    pairs = np.abs(np.corrcoef(rows)[np.triu_indices(count, 1)])
    return float(pairs.max()), correlation_bound(samples, len(pairs))


def _drawn_rows(
    training: SmallTraining, steps: int = DRAWS, features: Features | None = None, **other: Any
) -> np.ndarray:
    """(steps, n) booleans: which rows of the table a step moves, if every row has its own."""
    features = features or training.features
    ids = np.array(features.ids)
    ids[:, 1:] = np.arange(len(ids))[:, None]
    moved = training.changes(
        1e-3 * (training.unit_rate if training.mechanism.gradient() else 1.0),
        steps + 1,
        footprint=True,
        features=features._replace(ids=ids),
        **other,
    )
    tables = training.model.tables
    first = tables.cut_sizes(1)[0]  # the smaller table is not looked at
    return np.any(moved[:, first : tables.parameters].reshape(steps, len(ids), -1) != 0, axis=2)


def _drawn_groups(training: SmallTraining) -> np.ndarray:
    """(steps, groups) booleans; rows that are always drawn together are a group."""
    drawn = _drawn_rows(training)
    return drawn if training.group_size == 1 else np.unique(drawn, axis=1)


def _accounted_probabilities(training: SmallTraining) -> Iterator[float]:
    """Of all Poisson-sampled events that the mechanism states."""
    waiting = [release.event for release in training.mechanism.events(training.schedule)]
    while waiting:
        event = waiting.pop()
        if isinstance(event, dp.PoissonSampledDpEvent):
            yield event.sampling_probability
        waiting += getattr(event, "events", [])
        if hasattr(event, "event"):
            waiting.append(event.event)


CHECKS: tuple[Check, ...] = (
    check_noise_has_the_declared_size,
    check_noise_is_independent,
    check_empty_batches_take_noisy_steps,
    check_batches_are_drawn_as_accounted,
    check_groups_are_formed_once,
    check_epochs_show_every_row_once,
)
