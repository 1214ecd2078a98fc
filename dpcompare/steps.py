"""The compiled training step: one program for every trial that differs only in numbers.

A step goes through the chunks of its batch: it settles the lazy rows that the chunk looks up, takes
the (clipped) gradient sum and keeps the part that belongs to looked-up rows as it is. When all
chunks are done, noise is added once to the sum, and the update is made: through optax for the dense
tower, and in place for the tables. So a batch of many chunks updates as one chunk would.

Several devices share the rows of each chunk. Each takes the gradient sum of its own rows; the sums
are added, and what belongs to looked-up rows is gathered, so that every device makes the same
update, with the same noise: they all hold the same parameters at every step (to the last bit where
sums have a fixed order, which those of embedding gradients do not have on GPUs).
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from dpcompare.clipping import GradientSum, clipped_sum, plain_sum
from dpcompare.data.dataset import Features
from dpcompare.embeddings import Buffers
from dpcompare.lazy_tables import Noise, settle_velocity, settle_weights
from dpcompare.mechanism import GradientRelease, Mechanism
from dpcompare.model import Model, Parameters
from dpcompare.noise import add_gaussian
from dpcompare.optimizers import OPTIMIZERS
from dpcompare.table_updates import TableState, TableUpdates
from dpcompare.tasks import Task

LARGEST_NORM = 1e6
"""Of all parameters: beyond this, or nan, training has diverged."""

SMALLEST_NORM = 1e-12
"""Far above the norm, about 1e-15, that a hundred million numbers have whose squares vanish."""

SHARDS = "shards"
"""The name of the mesh axis over which the rows of a chunk are spread."""

OF_SHARD = PartitionSpec(None, None, SHARDS)
"""How (steps, chunks, rows of a chunk, ...) is spread."""

_traces = 0


def trace_count() -> int:
    """How many training programs this process has traced; equal trials add none."""
    return _traces


class Shards(NamedTuple):
    """The devices that share the rows of each chunk.

    Attributes:
        mesh: the devices, with one axis, SHARDS.
        chunk_rows: rows of a chunk; each device holds as many, in order, the last ones padding.
            What is drawn for a chunk does not depend on the padding, so not on how many they are.
    """

    mesh: Mesh
    chunk_rows: int


class Program(NamedTuple):
    """What a compiled step depends on besides shapes.

    Attributes:
        kind: the class of the mechanism, whose answers are compiled in. It must be named: JAX
            (0.10) takes the numbers of two classes for the same structure where they have equally
            many fields, and would now and then run the program of the other.
        task: whose loss is minimized.
        model: the network.
        updates: which tables are lazy.
        decays: whether there is weight decay.
        shards: None for a single device.
        draws: float32 normals that are summed for one of the noise.
    """

    kind: type[Mechanism]
    task: Task
    model: Model
    updates: TableUpdates
    decays: bool = False
    shards: Shards | None = None
    draws: int = 1


@jax.jit
def sane(parameters: Any) -> jax.Array:
    """Whether the norm of some parameters is at most LARGEST_NORM, and not nan."""
    squares = jnp.stack([jnp.vdot(p, p) for p in jax.tree.leaves(parameters)])
    return jnp.sum(squares) < LARGEST_NORM**2


class State(NamedTuple):
    """Everything that changes from step to step.

    Attributes:
        tower: the dense layers.
        optimizer: the optax state of the tower.
        tables: the embedding tables.
    """

    tower: dict
    optimizer: optax.OptState
    tables: TableState

    @property
    def parameters(self) -> Parameters:
        """The trained numbers; meaningful to others only when the tables are settled."""
        return Parameters(embeddings=self.tables.weights, tower=self.tower)


class Numbers(NamedTuple):
    """What is traced, so that trials which differ only here share a program.

    Attributes:
        mechanism: its numeric fields as float32.
        momentum: of the optimizer; 0 for plain SGD.
        divisor: of the gradient sums: the public expected number of groups.
        noise_key: of everything random in the updates.
        weight_decay: of every weight that is no bias.
    """

    mechanism: Mechanism
    momentum: jax.Array
    divisor: jax.Array
    noise_key: jax.Array
    weight_decay: Any = 0.0


class Batches(NamedTuple):
    """The device's view of a :class:`dpcompare.batches.Block`.

    Attributes:
        data: features and released labels of the rows, (steps, chunks, rows of a chunk, ...).
        present: (steps, chunks, rows of a chunk) whether there is a row.
        chunks: (steps,).
        rates: (steps,) learning rates.
        steps: how many of the steps are to be made.
        first_step: the number of the first one.
        first_in_window: its number in the window of lazy noise.
    """

    data: tuple[Features, Any]
    present: jax.Array
    chunks: jax.Array
    rates: jax.Array
    steps: jax.Array
    first_step: jax.Array
    first_in_window: jax.Array


def initial_state(program: Program, parameters: Parameters, momentum: float) -> State:
    """The state of the first step; `parameters` holds the tables in one buffer."""
    (store,) = parameters["embeddings"]
    optimizer = OPTIMIZERS[program.updates.optimizer](momentum)
    tower = parameters["tower"]
    # Buffers may be shared between leaves (equal zeros), and a shared one must not be donated.
    tower, of_tower = jax.tree.map(jnp.array, (tower, optimizer.init(tower)))
    return State(tower, of_tower, program.updates.start(store, momentum))


@partial(jax.jit, static_argnames=("program",), donate_argnames=("state",))
def run_steps(
    program: Program,
    numbers: Numbers,
    state: State,
    batches: Batches,
) -> tuple[State, jax.Array]:
    """Make the steps of a block.

    Args:
        program: the choice of code.
        numbers: the mechanism's and the optimizer's.
        state: used up.
        batches: the rows that each step sees.

    Returns:
        The new state, and whether its tower is sane; looking at whole tables takes longer.
    """
    global _traces
    _traces += 1

    def make(numbers: Numbers, state: State, batches: Batches) -> tuple[State, jax.Array]:
        def step(index: jax.Array, state: State) -> State:
            return _step(program, numbers, state, batches, index)

        state = lax.fori_loop(0, batches.steps, step, state)
        return state, sane(state.tower)

    if program.shards is None:
        return make(numbers, state, batches)
    everywhere = PartitionSpec()
    spread = Batches(OF_SHARD, OF_SHARD, *[everywhere] * 5)  # type: ignore[arg-type]
    # That all devices hold the same state is tested, not inferred (check_vma).
    shared = jax.shard_map(
        make,
        mesh=program.shards.mesh,
        in_specs=(everywhere, everywhere, spread),
        out_specs=everywhere,
        check_vma=False,
    )
    return shared(numbers, state, batches)


def settle(program: Program, tables: TableState, numbers: Numbers, key: jax.Array) -> TableState:
    """Every lazy row settled in place, at the beginning of a new window; `tables` are used up."""
    if tables.lazy is None:
        return tables
    eager, lazy = tables.weights
    noise, groups = _noise(program, numbers, key), program.updates.lazy_groups
    lazy = _settle_weights(groups, lazy, tables.lazy, noise)
    memory = _settle_velocity(groups, tables.lazy, noise)
    return TableState((eager, lazy), tables.optimizer, memory)


_settle_weights = jax.jit(settle_weights, static_argnames="groups", donate_argnames="weights")
_settle_velocity = jax.jit(settle_velocity, static_argnames="groups", donate_argnames="state")


def _step(
    program: Program,
    numbers: Numbers,
    state: State,
    batches: Batches,
    index: jax.Array,
) -> State:
    key = jax.random.fold_in(numbers.noise_key, batches.first_step + index)
    tower_key, eager_key, lazy_key = jax.random.split(key, 3)
    in_window = batches.first_in_window + index
    rate = batches.rates[index]
    data, present = jax.tree.map(lambda rows: rows[index], (batches.data, batches.present))
    count, own_rows = present.shape
    chunk_rows = own_rows if program.shards is None else program.shards.chunk_rows
    tables = program.model.tables

    def looked_up(chunk: jax.Array | int) -> jax.Array:
        return _of_all_shards(program, data[0].ids[chunk])

    def add_chunk(chunk: jax.Array | int, carry: Any) -> Any:
        total, pending, table_state = carry
        features, released = jax.tree.map(lambda rows: rows[chunk], data)
        chunk_noise = _noise(program, numbers, jax.random.fold_in(lazy_key, chunk))
        table_state = program.updates.before_lookup(
            table_state, looked_up(chunk), in_window, chunk_noise
        )
        parameters = Parameters(embeddings=table_state.weights, tower=state.tower)
        part = _chunk_sum(
            program, numbers.mechanism, parameters, features, released, present[chunk]
        )
        total = jax.tree.map(jnp.add, total, part.tower)
        pending = lax.dynamic_update_index_in_dim(pending, part.embedded, chunk, 0)
        return total, pending, table_state

    zeros = jax.tree.map(jnp.zeros_like, state.tower)
    pending = jnp.zeros((count, chunk_rows, tables.outputs), jnp.float32)
    total, pending, table_state = _for_chunks(
        batches.chunks[index], count, add_chunk, (zeros, pending, state.tables)
    )

    def add_gradients(buffers: Buffers, factor: jax.Array) -> Buffers:
        def add(chunk: jax.Array | int, buffers: Buffers) -> Buffers:
            rows = pending[chunk] * (factor / numbers.divisor)
            return tables.add_to_rows(buffers, looked_up(chunk), rows)

        return _for_chunks(batches.chunks[index], count, add, buffers)

    release = numbers.mechanism.gradient()
    if release is not None:
        total = add_gaussian(tower_key, total, release.standard_deviation, program.draws)
    mean = jax.tree.map(lambda leaf: leaf / numbers.divisor, total)
    decay = numbers.weight_decay if program.decays else None
    if decay is not None:
        mean = jax.tree.map(lambda g, p: g + decay * p if p.ndim > 1 else g, mean, state.tower)
    optimizer = OPTIMIZERS[program.updates.optimizer](numbers.momentum)
    update, optimizer_state = optimizer.update(mean, state.optimizer, state.tower)
    tower = jax.tree.map(lambda p, u: p - rate * u, state.tower, update)
    table_state = program.updates.after_step(
        table_state, add_gradients, in_window, rate, _noise(program, numbers, eager_key), decay
    )
    return State(tower, optimizer_state, table_state)


def _for_chunks(filled: jax.Array, count: int, body: Any, carry: Any) -> Any:
    """Over the filled chunks; a batch that always fits one chunk needs no loop."""
    if count == 1:
        return body(0, carry)
    return lax.fori_loop(0, filled, body, carry)


def offset(logits: jax.Array, features: Features) -> jax.Array:
    """The network's outputs, (batch,), plus the log of the exposure where there is one."""
    return logits if features.offset is None else logits + features.offset


def _of_all_shards(program: Program, rows: jax.Array) -> jax.Array:
    """The rows of the whole chunk, of which each device has its own."""
    if program.shards is None:
        return rows
    return lax.all_gather(rows, SHARDS, tiled=True)[: program.shards.chunk_rows]


def _noise(program: Program, numbers: Numbers, key: jax.Array) -> Noise:
    """The noise on the mean gradient."""
    release = numbers.mechanism.gradient()
    size = None if release is None else release.standard_deviation / numbers.divisor
    return Noise(key, size, numbers.momentum, program.draws)


def _chunk_sum(
    program: Program,
    mechanism: Mechanism,
    parameters: Parameters,
    features: Features,
    released: Any,
    present: jax.Array,
) -> GradientSum:
    """The (clipped) gradient sum over one chunk of rows, shared by all devices."""

    def row_losses(logits: jax.Array) -> jax.Array:
        return mechanism.loss(program.task, offset(logits, features), released)

    release = mechanism.gradient()
    if release is None:
        own = plain_sum(program.model, parameters, features, row_losses, present)
    else:
        weights = partial(_weights, mechanism, release)
        own = clipped_sum(
            program.model, parameters, features, row_losses, present, weights, release.group_size
        ).gradient
    if program.shards is None:
        return own
    return GradientSum(lax.psum(own.tower, SHARDS), _of_all_shards(program, own.embedded))


def _weights(mechanism: Mechanism, release: GradientRelease, norms: jax.Array) -> jax.Array:
    """What the mechanism answers, cut so that no group adds more than what the noise is for.

    A weight may be negative; one that is nan weighs nothing. Norms below SMALLEST_NORM may be
    larger than they are computed: the squares of tiny numbers vanish in float32.
    """
    weights = mechanism.weights(norms)
    largest = release.sensitivity / jnp.maximum(norms, SMALLEST_NORM)
    return jnp.where(jnp.isnan(weights), 0.0, jnp.clip(weights, -largest, largest))
