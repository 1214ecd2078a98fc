"""Lazy updates against eager ones: equal without noise, equal in distribution with it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.embeddings import EmbeddingTables
from dpcompare.lazy_tables import Noise, _first_lookups, settle_velocity, settle_weights
from dpcompare.optimizers import OPTIMIZERS
from dpcompare.table_updates import LAZY_ABOVE, TableState, TableUpdates

MOMENTUM = {"sgd": 0.0, "momentum": 0.9}
linear_optimizers = pytest.mark.parametrize("optimizer", list(MOMENTUM))


# Which tables are lazy


def test_big_tables_are_lazy_and_small_ones_eager():
    tables = EmbeddingTables((10, 100_000, 500, 30_000))
    updates = TableUpdates.choose(tables, "momentum", noisy=True, batch_size=1000)
    assert (updates.eager, updates.lazy) == (2, 2)
    at_the_limit = EmbeddingTables((int(LAZY_ABOVE * 1000), int(LAZY_ABOVE * 1000) + 1))
    assert TableUpdates.choose(at_the_limit, "sgd", True, 1000).lazy == 1
    assert TableUpdates.choose(tables, "momentum", True, 1000, "never").lazy == 0
    assert TableUpdates.choose(tables, "momentum", True, 1000, "always").lazy == 4


@pytest.mark.parametrize("optimizer", sorted(set(OPTIMIZERS) - set(MOMENTUM)))
def test_optimizers_for_which_lazy_noise_is_not_exact_are_eager(optimizer):
    tables = EmbeddingTables((10, 100_000))
    for lazy_noise in ("auto", "always"):
        assert TableUpdates.choose(tables, optimizer, True, 10, lazy_noise).lazy == 0


def test_plain_sgd_without_noise_misses_nothing():
    tables = EmbeddingTables((10, 100_000))
    assert TableUpdates.choose(tables, "sgd", noisy=False, batch_size=10).lazy == 0
    assert TableUpdates.choose(tables, "momentum", noisy=False, batch_size=10).lazy == 1


# Lookups of one row


def test_one_lookup_speaks_for_each_row():
    rows = jnp.array([[3, 1], [3, 3], [0, 1]])
    first, claim = _first_lookups(jnp.full(5, -1), rows)
    np.testing.assert_array_equal(claim, -1)
    spoken = np.asarray(rows)[np.asarray(first)]
    assert sorted(spoken) == [0, 1, 3]


# Equality in distribution

READS = (0, 1, 2, 9, 23, 24)
STEPS = 26
SIZE = 0.7
ROWS = 20_000
RATES = 0.3 * 0.5 * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS))


@partial(jax.jit, static_argnames=("optimizer", "lazy"))
def chains(optimizer: str, lazy: bool, key: jax.Array) -> jax.Array:
    """Weights at every read and at the end, and final velocities: (quantities, numbers).

    One table, all of whose rows are read at some steps and at no others; the gradient is a
    non-linear function of what was read. Eager and lazy draw independently.
    """
    tables = EmbeddingTables((ROWS,))
    updates = TableUpdates(tables, optimizer, 0 if lazy else 1)
    mu = jnp.float32(MOMENTUM[optimizer])
    state = updates.start(jnp.full(tables.parameters, 0.5), mu)
    every_row = jnp.arange(ROWS)[:, None]

    def update(step, state, gradient):
        def add(buffers, factor):
            if gradient is None:
                return buffers
            return tables.add_to_rows(buffers, every_row, factor * gradient)

        noise = Noise(jax.random.fold_in(key, 2 * step), SIZE, mu)
        return updates.after_step(state, add, step, jnp.float32(RATES)[step], noise)

    seen = []
    for step, next_read in zip(READS, (*READS[1:], STEPS), strict=True):
        read_key = jax.random.fold_in(key, 2 * step + 1)
        state = updates.before_lookup(state, every_row, step, Noise(read_key, SIZE, mu))
        weights = tables.lookup(state.weights, every_row)
        seen.append(weights)
        state = update(step, state, jnp.tanh(weights) - 0.3)
        state = jax.lax.fori_loop(step + 1, next_read, lambda t, s: update(t, s, None), state)
    if lazy:
        noise = Noise(jax.random.fold_in(key, 2 * STEPS), SIZE, mu)
        settled = settle_weights(updates.lazy_groups, state.weights[1], state.lazy, noise)
        memory = settle_velocity(updates.lazy_groups, state.lazy, noise)
        state = TableState((state.weights[0], settled), None, memory)
    seen.append(tables.lookup(state.weights, every_row))
    if optimizer == "momentum":
        velocity = state.lazy.velocity / mu if lazy else state.optimizer
        seen.append(velocity.reshape(ROWS, -1))
    return jnp.stack(seen).reshape(len(seen), -1)


@linear_optimizers
def test_means_variances_and_correlations_are_those_of_noise_at_every_step(optimizer):
    eager = np.asarray(chains(optimizer, False, jax.random.key(1)), np.float64)[1:]
    lazy = np.asarray(chains(optimizer, True, jax.random.key(2)), np.float64)[1:]
    n = eager.shape[1]
    assert n == ROWS * 23
    spread = eager.std(axis=1)
    assert np.all(spread > 0.01)
    mean_errors = (lazy.mean(axis=1) - eager.mean(axis=1)) / (spread * np.sqrt(2 / n))
    assert np.max(np.abs(mean_errors)) < 4
    kurtosis = ((eager - eager.mean(axis=1, keepdims=True)) ** 4).mean(axis=1) / spread**4
    ratio_errors = np.log(lazy.var(axis=1) / eager.var(axis=1)) / np.sqrt(2 * (kurtosis - 1) / n)
    assert np.max(np.abs(ratio_errors)) < 4
    pairs = np.triu_indices(len(eager), 1)
    with_fisher = [np.arctanh(np.corrcoef(chains)[pairs]) for chains in (eager, lazy)]
    assert np.max(np.abs(with_fisher[1] - with_fisher[0])) < 4 * np.sqrt(2 / n)
    assert np.max(np.abs(np.tanh(with_fisher[0]))) > 0.5  # there is something to miss


def test_numbers_of_one_row_and_of_neighbors_are_independent():
    lazy = np.asarray(chains("momentum", True, jax.random.key(3)), np.float64)
    end = lazy[-2].reshape(ROWS, -1)
    correlations = np.corrcoef(end.T)[np.triu_indices(end.shape[1], 1)]
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(ROWS)
    lagged = np.corrcoef(end[:-1, 0], end[1:, 0])[0, 1]
    assert abs(lagged) < 4 / np.sqrt(ROWS)
