"""Embedding tables in flat buffers, and their part in book-keeping.

All tables lie one behind the other in a single row of float32 numbers, small tables first. A
lookup copies windows out of it and a gradient is added to windows of it, so the cost of a step
depends on the rows that a batch touches and not on the size of the tables. The row may be cut at
table borders into several buffers, so that small and big tables can be updated differently; every
method takes the buffers as they are cut.

An id column normally has a table of its own; columns that share a table (multi-hot features are
several columns on one table) are merged where one example, or one group of examples, hits a row
more than once, before any norm is taken: the norm of a sum is not the root of the summed squares.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from dpcompare.errors import UsageError

LARGEST_STORE = 2**31 - 1
"""Numbers in all tables together; positions are 32-bit integers."""


def width_of(rows: int) -> int:
    """Embedding width for a table of `rows` rows: int(2 V^0.25), as in arXiv 2211.11896."""
    return max(1, int(2 * rows**0.25))


Buffers = tuple[jax.Array, ...]
"""The numbers of all tables, in order of table size, cut at table borders into 1-D arrays."""

IN_BOUNDS = lax.GatherScatterMode.PROMISE_IN_BOUNDS  # ids are checked on the host

_GATHER = lax.GatherDimensionNumbers(
    offset_dims=(2,), collapsed_slice_dims=(), start_index_map=(0,)
)
_SCATTER = lax.ScatterDimensionNumbers(
    update_window_dims=(2,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
)


def gather(buffer: jax.Array, starts: jax.Array, width: int) -> jax.Array:
    """Windows of `width` numbers: (batch, columns, width) from (batch, columns) positions."""
    return lax.gather(buffer, starts[..., None], _GATHER, (width,), mode=IN_BOUNDS)


def scatter_add(buffer: jax.Array, starts: jax.Array, values: jax.Array) -> jax.Array:
    """Add (batch, columns, width) values to the windows at (batch, columns) positions."""
    return lax.scatter_add(buffer, starts[..., None], values, _SCATTER, mode=IN_BOUNDS)


@dataclass(frozen=True)
class Group:
    """Tables of one width in one buffer, which one operation serves.

    Attributes:
        buffer: the index of the buffer.
        width: numbers per row.
        first_row: the row of the buffer at which the group starts, counting rows of any width.
        start: the number of the buffer at which the group starts.
        rows: rows of all its tables together.
        columns: the id columns that look up its tables.
        offsets: (columns,) row of the group at which the table of each column starts.
        first_output: where the group's part of a lookup's outputs starts.
    """

    buffer: int
    width: int
    first_row: int
    start: int
    rows: int
    columns: tuple[int, ...]
    offsets: tuple[int, ...]
    first_output: int

    @property
    def outputs(self) -> slice:
        """The group's part of a lookup's outputs."""
        return slice(self.first_output, self.first_output + len(self.columns) * self.width)

    def places(self, ids: jax.Array) -> jax.Array:
        """The row of the group that each column hits: (batch, columns)."""
        # Static slices of neighbors: XLA gathers columns by an index list ten times slower.
        breaks = np.flatnonzero(np.diff(self.columns) != 1) + 1
        runs = np.split(np.array(self.columns), breaks)
        chosen = jnp.concatenate([ids[:, run[0] : run[-1] + 1] for run in runs], axis=1)
        return chosen + np.array(self.offsets, np.int32)

    def starts(self, ids: jax.Array) -> jax.Array:
        """The number of the buffer at which each row that is hit starts: (batch, columns)."""
        return self.places(ids) * self.width + self.start

    def windows(self, outputs: jax.Array) -> jax.Array:
        """The group's part of (batch, outputs) values: (batch, columns, width)."""
        part = outputs[:, self.outputs]
        return part.reshape(part.shape[0], len(self.columns), self.width)


@dataclass(frozen=True)
class EmbeddingTables:
    """The shape of the tables; the numbers live in the buffers that the methods take.

    Attributes:
        sizes: rows of each table.
        columns: the table that each id column looks up; by default one table per column.

    Raises:
        UsageError: a column names no table, or there are more than LARGEST_STORE numbers.
    """

    sizes: tuple[int, ...]
    columns: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and not set(self.columns) <= set(range(len(self.sizes))):
            raise UsageError(f"columns {self.columns} name tables beyond the {len(self.sizes)}")
        if self.parameters > LARGEST_STORE:
            raise UsageError(
                f"the embedding tables hold {self.parameters:,} numbers, more than the "
                f"{LARGEST_STORE:,} that positions of 32 bits can tell apart; use fewer buckets"
            )

    @property
    def column_tables(self) -> tuple[int, ...]:
        """The table of each id column."""
        return tuple(range(len(self.sizes))) if self.columns is None else self.columns

    @property
    def order(self) -> tuple[int, ...]:
        """The tables as they lie in the store: by number of rows, equal ones as they are named."""
        return tuple(sorted(range(len(self.sizes)), key=self.sizes.__getitem__))

    @property
    def parameters(self) -> int:
        """How many numbers all tables hold."""
        return sum(size * width_of(size) for size in self.sizes)

    @property
    def outputs(self) -> int:
        """Numbers per example that a lookup returns."""
        return sum(width_of(self.sizes[table]) for table in self.column_tables)

    @property
    def lookups_per_table(self) -> int:
        """The most columns that share one table."""
        return max(Counter(self.column_tables).values(), default=1)

    def init(self, key: jax.Array, scale: float) -> Buffers:
        """Normal entries of standard deviation `scale`, in one buffer."""
        return (scale * jax.random.normal(key, (self.parameters,), jnp.float32),)

    def cut(self, buffer: jax.Array, tables: int) -> Buffers:
        """The whole store as two buffers, of which the first holds the `tables` smallest tables."""
        place = self.cut_sizes(tables)[0]
        return buffer[:place], buffer[place:]

    def cut_sizes(self, tables: int) -> tuple[int, int]:
        """The sizes of the two buffers of :meth:`cut`."""
        sizes = [self.sizes[table] for table in self.order[:tables]]
        small = sum(size * width_of(size) for size in sizes)
        return small, self.parameters - small

    def groups(self, buffer_sizes: Sequence[int]) -> tuple[Group, ...]:
        """The tables of each width in each of the buffers, in the order of a lookup's outputs."""
        return _groups(self, tuple(buffer_sizes))

    def lookup(self, buffers: Buffers, ids: jax.Array) -> jax.Array:
        """The embedded examples, (batch, outputs), from (batch, columns) ids within the tables.

        Columns come in the order of their tables in the store, and the methods below take
        gradients in that order, however the store is cut.
        """
        parts = [
            gather(buffers[group.buffer], group.starts(ids), group.width).reshape(len(ids), -1)
            for group in self.groups([buffer.size for buffer in buffers])
        ]
        return jnp.concatenate(parts, axis=1) if parts else jnp.zeros((len(ids), 0))

    def add_to_rows(self, buffers: Buffers, ids: jax.Array, values: jax.Array) -> Buffers:
        """Add (batch, outputs) values to the rows that the examples look up."""
        new = list(buffers)
        for group in self.groups([buffer.size for buffer in buffers]):
            place = group.buffer
            new[place] = scatter_add(new[place], group.starts(ids), group.windows(values))
        return tuple(new)

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
        for group in self.groups([self.parameters]):
            places, vectors = group.places(ids), group.windows(gradients)
            # Columns of one table, and columns whose tables hold no row in common, by turns.
            for columns in _columns_by_table(group.offsets):
                shape = (groups, group_size, *columns.shape)
                rows = _lookups_by_table(places[:, columns].reshape(shape))
                gradient = _lookups_by_table(vectors[:, columns].reshape(*shape, group.width))
                same_row = rows[..., :, None] == rows[..., None, :]
                products = jnp.einsum("gtid,gtjd->gtij", gradient, gradient)
                total += jnp.sum(jnp.where(same_row, products, 0.0), axis=(1, 2, 3))
        return total


@lru_cache(maxsize=64)
def _groups(tables: EmbeddingTables, buffer_sizes: tuple[int, ...]) -> tuple[Group, ...]:
    """See :meth:`EmbeddingTables.groups`.

    Raises:
        ValueError: the buffers are not the store, cut at table borders.
    """
    sizes = [tables.sizes[table] for table in tables.order]
    ends = list(accumulate(size * width_of(size) for size in sizes))
    buffer_ends = list(accumulate(buffer_sizes))
    if not set(buffer_ends) <= {0, *ends} or buffer_ends[-1:] != [tables.parameters]:
        raise ValueError(f"buffers of {buffer_sizes} numbers are not the tables {tables.sizes}")
    in_buffer = [next(b for b, last in enumerate(buffer_ends) if end <= last) for end in ends]
    groups: list[Group] = []
    rows_before = dict.fromkeys(in_buffer, 0)
    outputs = 0
    keyed = groupby(range(len(sizes)), key=lambda place: (in_buffer[place], width_of(sizes[place])))
    for (buffer, width), run in keyed:
        places = list(run)
        rows = sum(sizes[place] for place in places)
        start = ends[places[0]] - sizes[places[0]] * width
        group_columns = list(_columns_of(tables, places, sizes))
        if group_columns:
            groups.append(
                Group(
                    buffer,
                    width,
                    rows_before[buffer],
                    start - (buffer_ends[buffer] - buffer_sizes[buffer]),
                    rows,
                    tuple(column for column, _ in group_columns),
                    tuple(offset for _, offset in group_columns),
                    outputs,
                )
            )
        rows_before[buffer] += rows
        outputs += len(group_columns) * width
    return tuple(groups)


def _columns_of(
    tables: EmbeddingTables, places: Sequence[int], sizes: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """(id column, row of the group at which its table starts), in the order of the places."""
    offset = 0
    for place in places:
        for column, table in enumerate(tables.column_tables):
            if table == tables.order[place]:
                yield column, offset
        offset += sizes[place]


def _columns_by_table(offsets: Sequence[int]) -> list[np.ndarray]:
    """Positions of columns as (tables, columns per table), one array per number of columns."""
    of_table = defaultdict(list)
    for position, offset in enumerate(offsets):
        of_table[offset].append(position)
    of_count = defaultdict(list)
    for positions in of_table.values():
        of_count[len(positions)].append(positions)
    return [np.array(tables) for tables in of_count.values()]


def _lookups_by_table(values: jax.Array) -> jax.Array:
    """(groups, group size, tables, columns, ...) to (groups, tables, lookups, ...)."""
    by_table = jnp.moveaxis(values, 2, 1)
    return by_table.reshape(*by_table.shape[:2], -1, *values.shape[4:])
