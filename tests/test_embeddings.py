"""The flat store against plain tables, however it is cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.embeddings import LARGEST_STORE, EmbeddingTables, width_of
from dpcompare.errors import UsageError

CASES = {
    "equal sizes": EmbeddingTables((300, 300, 300)),
    "many widths": EmbeddingTables((3, 1000, 24, 3, 1001)),
    "shared": EmbeddingTables((5, 40), (1, 0, 1)),
    "a table without a column": EmbeddingTables((40, 5, 30), (2, 0)),
}
every_case = pytest.mark.parametrize("tables", CASES.values(), ids=CASES)


def plain_tables(tables, store):
    """The store as one (rows, width) matrix per table."""
    matrices, place = {}, 0
    for table in tables.order:
        rows, width = tables.sizes[table], width_of(tables.sizes[table])
        matrices[table] = np.asarray(store[place : place + rows * width]).reshape(rows, width)
        place += rows * width
    return matrices


def random_ids(tables, rows=17):
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, tables.sizes[t], rows) for t in tables.column_tables], 1)


def columns_in_order(tables):
    """Id columns as a lookup returns them: by the place of their table, then as they stand."""
    return [c for table in tables.order for c, t in enumerate(tables.column_tables) if t == table]


def every_cut(tables, store):
    return [(store,), *(tables.cut(store, small) for small in range(len(tables.sizes) + 1))]


def test_width_is_the_papers():
    assert [width_of(v) for v in (1, 3, 300, 10_000, 10_131_227)] == [2, 2, 8, 20, 112]


@every_case
def test_lookup_returns_the_rows_of_each_column(tables):
    (store,) = tables.init(jax.random.key(0), 1.0)
    ids, matrices = random_ids(tables), plain_tables(tables, store)
    expected = np.concatenate(
        [matrices[tables.column_tables[c]][ids[:, c]] for c in columns_in_order(tables)], axis=1
    )
    assert expected.shape == (17, tables.outputs)
    for buffers in every_cut(tables, store):
        np.testing.assert_array_equal(tables.lookup(buffers, jnp.asarray(ids)), expected)


@every_case
def test_adding_to_rows_is_the_gradient_of_lookup(tables):
    (store,) = tables.init(jax.random.key(0), 1.0)
    ids = jnp.asarray(random_ids(tables))
    values = np.random.default_rng(1).normal(size=(17, tables.outputs)).astype(np.float32)
    expected = jax.grad(lambda s: jnp.vdot(tables.lookup((s,), ids), values))(store)
    for buffers in every_cut(tables, jnp.zeros_like(store)):
        added = jnp.concatenate(tables.add_to_rows(buffers, ids, jnp.asarray(values)))
        np.testing.assert_allclose(added, expected, atol=1e-5)


@every_case
def test_groups_cover_each_looked_up_row_once(tables):
    (store,) = tables.init(jax.random.key(0), 1.0)
    for buffers in every_cut(tables, store):
        every_group = tables.groups([buffer.size for buffer in buffers])
        for place, buffer in enumerate(buffers):
            groups = [g for g in every_group if g.buffer == place]
            ends = [g.start + g.rows * g.width for g in groups]
            assert all(end <= g.start for end, g in zip(ends, groups[1:], strict=False))
            assert max(ends, default=0) <= buffer.size
            rows = [g.first_row + g.rows for g in groups]
            assert all(end <= g.first_row for end, g in zip(rows, groups[1:], strict=False))
        assert every_group[-1].outputs.stop == tables.outputs


def test_small_tables_come_first():
    tables = EmbeddingTables((50, 3, 700, 3))
    assert tables.order == (1, 3, 0, 2)
    small, large = tables.cut(jnp.arange(tables.parameters), 2)
    assert small.size == 2 * 3 * width_of(3)
    assert large[0] == small.size


def test_buffers_that_are_no_cut_of_the_store_are_refused():
    tables = EmbeddingTables((50, 3))
    for wrong in ((7, tables.parameters - 7), (tables.parameters - 1,)):
        with pytest.raises(ValueError, match="are not the tables"):
            tables.lookup(tuple(jnp.zeros(n) for n in wrong), jnp.zeros((1, 2), jnp.int32))


def test_examples_that_share_a_row_are_not_merged_with_each_other():
    tables = EmbeddingTables((4,))
    ids = jnp.array([[2], [2]])
    squared = tables.squared_norms(ids, jnp.ones((2, tables.outputs)), 1)
    np.testing.assert_allclose(squared, tables.outputs)


def test_columns_beyond_the_tables_are_refused():
    with pytest.raises(UsageError, match="beyond the 2"):
        EmbeddingTables((3, 4), (0, 2))


def test_a_store_beyond_32_bit_positions_is_refused():
    EmbeddingTables((9_000_000,) * 2)  # 1.96 billion numbers
    with pytest.raises(UsageError, match=f"more than the {LARGEST_STORE:,}"):
        EmbeddingTables((9_000_000,) * 3)
