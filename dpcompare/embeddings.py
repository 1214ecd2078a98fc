"""Embedding tables, stacked by width, and their part in book-keeping.

Tables of one width lie one below the other in a single float32 matrix, so that all columns of one
width are looked up by one operation. An id column normally has a table of its own; columns that
share a table (multi-hot features are several columns on one table) are merged where one example,
or one group of examples, hits a row more than once, before any norm is taken: the norm of a sum
is not the root of the summed squares.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.errors import UsageError


def width_of(rows: int) -> int:
    """Embedding width for a table of `rows` rows: int(2 V^0.25), as in arXiv 2211.11896."""
    return max(1, int(2 * rows**0.25))


Stacks = tuple[jax.Array, ...]
"""One (rows, width) matrix per distinct width, narrow ones first."""

IN_BOUNDS = "promise_in_bounds"  # ids are checked on the host, where an error can be raised


@dataclass(frozen=True)
class _Stack:
    """The tables of one width.

    Attributes:
        width: numbers per row.
        rows: of all its tables together.
        columns: (columns,) the id columns that look up its tables.
        offsets: (columns,) where the table of each column starts.
    """

    width: int
    rows: int
    columns: np.ndarray
    offsets: np.ndarray

    @property
    def outputs(self) -> int:
        return self.columns.size * self.width

    def places(self, ids: jax.Array) -> jax.Array:
        """The row of the stack that each column hits: (batch, columns)."""
        # Static slices of neighbors: XLA gathers columns by an index list ten times slower.
        breaks = np.flatnonzero(np.diff(self.columns) != 1) + 1
        runs = np.split(self.columns, breaks)
        chosen = jnp.concatenate([ids[:, run[0] : run[-1] + 1] for run in runs], axis=1)
        return chosen + self.offsets.astype(np.int32)


@dataclass(frozen=True)
class EmbeddingTables:
    """The shape of the tables; the numbers live in the stacks that the methods take.

    Attributes:
        sizes: rows of each table.
        columns: the table that each id column looks up; by default one table per column.
    """

    sizes: tuple[int, ...]
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and not set(self.columns) <= set(range(len(self.sizes))):
            raise UsageError(f"columns {self.columns} name tables beyond the {len(self.sizes)}")

    @property
    def column_tables(self) -> tuple[int, ...]:
        """The table of each id column."""
        return tuple(range(len(self.sizes))) if self.columns is None else self.columns

    @property
    def parameters(self) -> int:
        """How many numbers all tables hold."""
        return sum(stack.rows * stack.width for stack in self._stacks)

    @property
    def outputs(self) -> int:
        """Numbers per example that a lookup returns."""
        return sum(stack.outputs for stack in self._stacks)

    @property
    def lookups_per_table(self) -> int:
        """The most columns that share one table."""
        return max(Counter(self.column_tables).values(), default=1)

    @cached_property
    def _stacks(self) -> tuple[_Stack, ...]:
        tables_of_width = defaultdict(list)
        for table, size in enumerate(self.sizes):
            tables_of_width[width_of(size)].append(table)
        return tuple(
            self._stack(width, tables) for width, tables in sorted(tables_of_width.items())
        )

    def _stack(self, width: int, tables: list[int]) -> _Stack:
        sizes = [self.sizes[table] for table in tables]
        offset_of = dict(zip(tables, np.cumsum([0, *sizes[:-1]]), strict=True))
        columns = [c for c, table in enumerate(self.column_tables) if table in offset_of]
        offsets = [offset_of[self.column_tables[column]] for column in columns]
        return _Stack(width, sum(sizes), np.array(columns, int), np.array(offsets, int))

    def init(self, key: jax.Array, scale: float) -> Stacks:
        """Normal entries of standard deviation `scale`."""
        keys = jax.random.split(key, len(self._stacks))
        return tuple(
            scale * jax.random.normal(key, (stack.rows, stack.width), jnp.float32)
            for key, stack in zip(keys, self._stacks, strict=True)
        )

    def lookup(self, tables: Stacks, ids: jax.Array) -> jax.Array:
        """The embedded examples, (batch, outputs), from (batch, columns) ids within the tables.

        Columns come ordered by table width, and the methods below take gradients in that order.
        """
        parts = [
            matrix.at[stack.places(ids)].get(mode=IN_BOUNDS).reshape(ids.shape[0], -1)
            for stack, matrix in zip(self._stacks, tables, strict=True)
        ]
        return jnp.concatenate(parts, axis=1) if parts else jnp.zeros((ids.shape[0], 0))

    def scatter_sum(self, ids: jax.Array, gradients: jax.Array) -> Stacks:
        """The gradient of the tables from (batch, outputs) gradients of the lookups."""
        return tuple(
            jnp.zeros((stack.rows, stack.width), part.dtype)
            .at[stack.places(ids)]
            .add(part.reshape(ids.shape[0], -1, stack.width), mode=IN_BOUNDS)
            for stack, part in self._split(gradients)
        )

    def squared_norms(self, ids: jax.Array, gradients: jax.Array, group_size: int) -> jax.Array:
        """Squared norm of each group's summed gradient of all tables, (batch / group_size,).

        A table's part is the sum over all pairs of its lookups within the group that hit the same
        row, of the dot products of their gradients.

        Args:
            ids: (batch, columns); consecutive `group_size` rows form a group.
            gradients: (batch, outputs).
            group_size: rows per group, 1 for single examples.
        """
        groups = ids.shape[0] // group_size
        total = jnp.zeros((groups,), jnp.float32)
        for stack, part in self._split(gradients):
            places = stack.places(ids)
            vectors = part.reshape(ids.shape[0], -1, stack.width)
            # Columns of one table, and columns whose tables hold no row in common, by turns.
            for columns in _columns_by_table(stack.offsets):
                shape = (groups, group_size, *columns.shape)
                rows = _lookups_by_table(places[:, columns].reshape(shape))
                gradient = _lookups_by_table(vectors[:, columns].reshape(*shape, stack.width))
                same_row = rows[..., :, None] == rows[..., None, :]
                products = jnp.einsum("gtid,gtjd->gtij", gradient, gradient)
                total += jnp.sum(jnp.where(same_row, products, 0.0), axis=(1, 2, 3))
        return total

    def _split(self, gradients: jax.Array) -> list[tuple[_Stack, jax.Array]]:
        ends = np.cumsum([stack.outputs for stack in self._stacks])
        return list(zip(self._stacks, jnp.split(gradients, ends[:-1], axis=1), strict=True))


def _columns_by_table(offsets: np.ndarray) -> list[np.ndarray]:
    """Positions of columns as (tables, columns per table), one array per number of columns."""
    of_table = defaultdict(list)
    for position, offset in enumerate(offsets):
        of_table[int(offset)].append(position)
    of_count = defaultdict(list)
    for positions in of_table.values():
        of_count[len(positions)].append(positions)
    return [np.array(tables) for tables in of_count.values()]


def _lookups_by_table(values: jax.Array) -> jax.Array:
    """(groups, group size, tables, columns, ...) to (groups, tables, lookups, ...)."""
    by_table = jnp.moveaxis(values, 2, 1)
    return by_table.reshape(*by_table.shape[:2], -1, *values.shape[4:])
