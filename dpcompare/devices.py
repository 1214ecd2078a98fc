"""The devices that share one trial: who holds what.

Parameters and everything that is not about single rows are held by every device alike; the rows of
a chunk are cut into as many parts. A mesh may also span the processes of `jax.distributed`: each of
them then calls the trainer with the same arguments, and reads only the rows of its own devices.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dpcompare.batches import Block, gathered
from dpcompare.data.sampling import ABSENT
from dpcompare.errors import UsageError
from dpcompare.steps import OF_SHARD, SHARDS, Batches


def mesh_of(count: int) -> Mesh | None:
    """A mesh of `count` devices; None for a single one.

    Raises:
        UsageError: there are not that many.
    """
    there = jax.devices()
    _check(count, len(there), there[0].device_kind)
    return None if count == 1 else Mesh(np.array(there[:count]), (SHARDS,))


def check_devices(count: int) -> None:
    """Whether a worker of this machine will find `count` devices.

    Asked in a process of its own: whoever looks at a GPU holds much of its memory.

    Raises:
        UsageError: it will not.
    """
    if count == 1:
        return
    code = "import jax; d = jax.devices(); print(len(d), d[0].device_kind)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if asked.returncode:
        reason = asked.stderr.strip() or f"the process that asks ended with {asked.returncode}"
        raise UsageError(f"JAX finds no device here: {reason.splitlines()[-1]}")
    there, kind = asked.stdout.splitlines()[-1].split(" ", 1)
    _check(count, int(there), kind)


def _check(count: int, there: int, kind: str) -> None:
    if not 1 <= count <= there:
        hint = ""
        if kind == "cpu":
            hint = f"; XLA_FLAGS=--xla_force_host_platform_device_count={count} makes a CPU be many"
        raise UsageError(
            f"devices must lie between 1 and {there}, which is what JAX finds here ({kind}), got "
            f"{count}{hint}"
        )


def replicated(tree: Any, mesh: Mesh | None) -> Any:
    """The same arrays, held by every device of the mesh."""
    if mesh is None:
        return tree
    everywhere = NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> jax.Array:
        if jax.dtypes.issubdtype(jnp.asarray(leaf).dtype, jax.dtypes.prng_key):
            data = place(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, everywhere, lambda index: values[index])

    return jax.tree.map(place, tree)


def batches_on(
    mesh: Mesh | None,
    block: Block,
    group_size: int,
    columns: Any,
    rates: np.ndarray,
    window_start: int,
) -> Batches:
    """A block with its rows gathered, where the compiled steps want it.

    Args:
        mesh: the devices.
        block: which rows.
        group_size: consecutive rows that stay on one device.
        columns: features and released labels of all training rows, on the host.
        rates: (steps of the whole run,) learning rates.
        window_start: the step at which the window of lazy noise began.
    """
    of_block = np.zeros(len(block.chunks), np.float32)
    of_block[: block.steps] = rates[block.first_step : block.first_step + block.steps]
    numbers = (
        np.asarray(block.chunks),
        of_block,
        np.int32(block.steps),
        np.int32(block.first_step),
        np.int32(block.first_step - window_start),
    )
    if mesh is None:
        data, present = gathered(columns, block), block.rows != ABSENT
        return Batches(*jax.tree.map(jnp.asarray, (data, present, *numbers)))
    return Batches(
        *_spread(mesh, _padded(block, group_size * mesh.size), columns), *replicated(numbers, mesh)
    )


def _padded(block: Block, multiple: int) -> Block:
    """The block with chunks that can be cut into equal parts of whole groups."""
    missing = -block.rows.shape[2] % multiple
    padded = np.pad(block.rows, [(0, 0), (0, 0), (0, missing)], constant_values=ABSENT)
    return block._replace(rows=padded)


def _spread(mesh: Mesh, block: Block, columns: Any) -> tuple[Any, jax.Array]:
    """The gathered rows and where there are any; each process reads those of its own devices."""
    sharding = NamedSharding(mesh, OF_SHARD)

    def place(shape: tuple[int, ...], rows_of: Callable[[Block], np.ndarray]) -> jax.Array:
        def part(index: Any) -> np.ndarray:
            return rows_of(block._replace(rows=block.rows[:, :, index[2]]))

        return jax.make_array_from_callback((*block.rows.shape, *shape), sharding, part)

    data = jax.tree.map(
        lambda column: place(column.shape[1:], lambda part: gathered(column, part)), columns
    )
    return data, place((), lambda part: part.rows != ABSENT)
