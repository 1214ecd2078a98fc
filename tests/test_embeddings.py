"""The stacked tables against plain ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.embeddings import EmbeddingTables, width_of
from dpcompare.errors import UsageError

CASES = {
    "equal widths": EmbeddingTables((300, 300, 300)),
    "many widths": EmbeddingTables((3, 1000, 24, 3)),
    "shared": EmbeddingTables((5, 40), (1, 0, 1)),
}


def plain_lookup(tables, stacks, ids):
    """The same rows from a list of tables, as one list of columns."""
    separate = {}
    for stack in stacks:
        same_width = [t for t, size in enumerate(tables.sizes) if width_of(size) == stack.shape[1]]
        ends = np.cumsum([tables.sizes[t] for t in same_width])
        separate |= dict(zip(same_width, np.split(np.asarray(stack), ends[:-1]), strict=True))
    return [separate[table][ids[:, c]] for c, table in enumerate(tables.column_tables)]


def test_width_is_the_papers():
    assert [width_of(v) for v in (1, 3, 300, 10_000, 10_131_227)] == [2, 2, 8, 20, 112]


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
def test_lookup_returns_the_rows_of_each_column(tables):
    stacks = tables.init(jax.random.key(0), 1.0)
    rng = np.random.default_rng(0)
    ids = np.stack([rng.integers(0, tables.sizes[t], 17) for t in tables.column_tables], 1)
    found = np.asarray(tables.lookup(stacks, jnp.asarray(ids)))
    expected = np.concatenate(plain_lookup(tables, stacks, ids), axis=1)
    assert found.shape == (17, tables.outputs)
    np.testing.assert_array_equal(np.sort(found, axis=1), np.sort(expected, axis=1))


@pytest.mark.parametrize("tables", CASES.values(), ids=CASES)
def test_scatter_sum_is_the_gradient_of_lookup(tables):
    stacks = tables.init(jax.random.key(0), 1.0)
    rng = np.random.default_rng(0)
    ids = jnp.asarray(
        np.stack([rng.integers(0, tables.sizes[t], 17) for t in tables.column_tables], 1)
    )
    gradients = jnp.asarray(rng.normal(size=(17, tables.outputs)).astype(np.float32))
    expected = jax.grad(lambda s: jnp.vdot(tables.lookup(s, ids), gradients))(stacks)
    for ours, autodiff in zip(tables.scatter_sum(ids, gradients), expected, strict=True):
        np.testing.assert_allclose(ours, autodiff, atol=1e-5)


def test_examples_that_share_a_row_are_not_merged_with_each_other():
    tables = EmbeddingTables((4,))
    ids = jnp.array([[2], [2]])
    squared = tables.squared_norms(ids, jnp.ones((2, tables.outputs)), 1)
    np.testing.assert_allclose(squared, tables.outputs)


def test_columns_beyond_the_tables_are_refused():
    with pytest.raises(UsageError, match="beyond the 2"):
        EmbeddingTables((3, 4), (0, 2))
