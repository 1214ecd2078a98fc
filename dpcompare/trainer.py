"""The one shared trainer: every mechanism trains the same model through the same compiled step.

A step sums gradients over the chunks of its batch, adds noise once to the sum if the mechanism
releases gradients, divides by the public expected batch size, and lets optax make an update. All
numbers that a study varies are traced, so trials that differ only in numbers share one program.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from dpcompare.clipping import clipped_sum
from dpcompare.data.dataset import Features
from dpcompare.data.sampling import ABSENT, Draw, batch_draw
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.mechanism import Mechanism
from dpcompare.model import Model, Parameters
from dpcompare.noise import add_gaussian
from dpcompare.privacy import Schedule
from dpcompare.randomness import jax_key
from dpcompare.tasks import Task

Decay = Literal["cosine", "constant"]

OPTIMIZERS: dict[str, Callable[[Any], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": lambda momentum: optax.trace(decay=momentum),
    "adam": lambda momentum: optax.scale_by_adam(),
    "yogi": lambda momentum: optax.scale_by_yogi(),
    "adagrad": lambda momentum: optax.scale_by_rss(),
    "rmsprop": lambda momentum: optax.scale_by_rms(),
}

STEPS_PER_DISPATCH = 64
LARGEST_CHUNK = 8192
LARGEST_PARAMETER = 1e6
"""Beyond this, training has diverged: no weight of a network that learns comes near it."""

EVALUATION_CHUNK = 8192

_traces = 0


def trace_count() -> int:
    """How many training programs this process has traced; equal trials add none."""
    return _traces


@dataclass(frozen=True)
class Recipe:
    """How updates are made from gradients; public.

    Attributes:
        optimizer: one of OPTIMIZERS.
        learning_rate: the peak learning rate.
        decay: "cosine" to zero over all steps, or "constant".
        momentum: used by the optimizer "momentum".
        chunk_size: rows per forward and backward pass; None chooses. It changes memory and
            rounding, nothing else, and has nothing to do with the paper's microbatches.
    """

    optimizer: str = "momentum"
    learning_rate: float = 0.1
    decay: Decay = "cosine"
    momentum: float = 0.9
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise UsageError(
                f"optimizer must be one of {', '.join(OPTIMIZERS)}, got {self.optimizer!r}"
            )
        if self.decay not in get_args(Decay):
            raise UsageError(f"decay must be one of {', '.join(get_args(Decay))}")
        if not 0 < self.learning_rate < float("inf"):
            raise UsageError(f"learning_rate must be above 0, got {self.learning_rate}")
        if not 0 <= self.momentum < 1:
            raise UsageError(f"momentum must be in [0, 1), got {self.momentum}")
        if self.chunk_size is not None and self.chunk_size < 1:
            raise UsageError(f"chunk_size must be at least 1, got {self.chunk_size}")

    def learning_rates(self, steps: int) -> np.ndarray:
        """The learning rate of each step, (steps,) float32."""
        if self.decay == "constant":
            return np.full(steps, self.learning_rate, np.float32)
        schedule = optax.cosine_decay_schedule(self.learning_rate, steps)
        return np.asarray(schedule(np.arange(steps)), np.float32)


@dataclass(frozen=True)
class Streams:
    """The names of the random streams of a trial (see :mod:`dpcompare.randomness`).

    Attributes:
        shared: words that name the initial weights and the batches, shared between mechanisms.
        noise: words that name the noise, which no other trial may share.
    """

    shared: tuple[Any, ...]
    noise: tuple[Any, ...]


class _State(NamedTuple):
    parameters: Parameters
    optimizer: optax.OptState


class _Program(NamedTuple):
    """What a compiled step depends on besides shapes."""

    task: Task
    model: Model
    optimizer: str


def train(
    mechanism: Mechanism,
    task: Task,
    model: Model,
    features: Features,
    released: Any,
    schedule: Schedule,
    recipe: Recipe,
    streams: Streams,
    report: Callable[[float], None] = lambda fraction: None,
) -> Parameters:
    """Train `model` on what a mechanism released; no argument carries true labels.

    Args:
        mechanism: calibrated.
        task: whose loss the mechanism may build on.
        model: the network.
        features: of the training rows, (n, ...).
        released: from :meth:`Mechanism.release_labels`, one row per example.
        schedule: batch size and steps; exactly `schedule.steps` updates are made.
        recipe: the optimizer and its learning rate.
        streams: names of the random streams.
        report: called with the fraction of steps done.

    Raises:
        DpcompareError: a parameter became infinite or nan; the message says between which steps.
    """
    gradient = mechanism.gradient()
    group_size = gradient.group_size if gradient else 1
    chunk = chunk_rows(schedule, group_size, recipe.chunk_size)
    draw = batch_draw(schedule, group_size, *streams.shared)
    rates = recipe.learning_rates(schedule.steps)

    program = _Program(task, model, recipe.optimizer)
    numbers = jax.tree.map(jnp.float32, (mechanism, recipe.momentum))
    divisor = jnp.float32(schedule.expected_groups(group_size))
    noise_key = jax_key("noise", *streams.noise)
    data = jax.tree.map(jnp.asarray, (features, released))
    parameters = model.init(jax_key("init", *streams.shared))
    state = _State(parameters, OPTIMIZERS[recipe.optimizer](recipe.momentum).init(parameters))
    # Buffers may be shared between leaves (equal zeros), and a shared one must not be donated.
    state = jax.tree.map(jnp.array, state)

    for block in _blocks(draw, schedule.steps, chunk):
        state, finite = _run_steps(
            program, numbers, state, data, block, _padded(rates, block), divisor, noise_key
        )
        done = block.first_step + block.steps
        if not bool(finite):
            raise DpcompareError(
                f"training diverged between steps {block.first_step + 1} and {done} of "
                f"{schedule.steps}: a parameter is nan or above {LARGEST_PARAMETER:g}. Lower the "
                "learning rate"
            )
        report(done / schedule.steps)
    return state.parameters


def predict(
    mechanism: Mechanism, task: Task, model: Model, parameters: Parameters, features: Features
) -> np.ndarray:
    """The mechanism's predictions for every row of `features`, (n,) float64."""
    rows = len(features.ids)
    numbers = jax.tree.map(jnp.float32, mechanism)
    parts = []
    for start in range(0, rows, EVALUATION_CHUNK):
        part = jax.tree.map(lambda a: np.asarray(a[start : start + EVALUATION_CHUNK]), features)  # noqa: B023
        missing = min(EVALUATION_CHUNK, rows) - len(part.ids)
        padded = jax.tree.map(
            lambda a: np.pad(a, [(0, missing), (0, 0)]),  # noqa: B023
            part,
        )
        predictions = _predict(_Program(task, model, ""), numbers, parameters, padded)
        parts.append(np.asarray(predictions, np.float64)[: len(part.ids)])
    return np.concatenate(parts)


def chunk_rows(schedule: Schedule, group_size: int, wanted: int | None = None) -> int:
    """Rows of one chunk: whole groups; by default one chunk holds nearly every drawn batch.

    A Poisson batch has a standard deviation of about sqrt(batch_size * group_size) rows; one that
    is more than four of them larger than expected takes a second chunk, and nothing is dropped.
    """
    rows = wanted
    if rows is None:
        spread = (schedule.batch_size * group_size) ** 0.5 if schedule.sampling == "poisson" else 0
        everything = schedule.groups(group_size) * group_size
        rows = min(int(schedule.batch_size + 4 * spread), LARGEST_CHUNK, everything)
    return -(-rows // group_size) * group_size


class _Block(NamedTuple):
    """The chunks of up to STEPS_PER_DISPATCH steps.

    Attributes:
        first_step: the step that the block starts with.
        steps: how many steps it holds.
        rows: (chunks, chunk) rows, ABSENT where there is none.
        first_chunks: (STEPS_PER_DISPATCH + 1,) where each step's chunks start and end.
    """

    first_step: int
    steps: int
    rows: np.ndarray
    first_chunks: np.ndarray


def _blocks(draw: Draw, steps: int, chunk: int) -> Iterator[_Block]:
    for first_step in range(0, steps, STEPS_PER_DISPATCH):
        last_step = min(first_step + STEPS_PER_DISPATCH, steps)
        chunks, first_chunks = [], [0]
        for step in range(first_step, last_step):
            rows = draw(step)
            for start in range(0, len(rows), chunk):
                part = rows[start : start + chunk]
                chunks.append(np.pad(part, (0, chunk - len(part)), constant_values=ABSENT))
            first_chunks.append(len(chunks))
        # Few distinct lengths, so few compiled programs, however many chunks were drawn.
        expected = max(1, len(chunks))
        length = -(-expected // STEPS_PER_DISPATCH) * STEPS_PER_DISPATCH
        chunks += [np.full(chunk, ABSENT, np.int32)] * (length - len(chunks))
        ends = first_chunks + [first_chunks[-1]] * (STEPS_PER_DISPATCH + 1 - len(first_chunks))
        yield _Block(
            first_step,
            last_step - first_step,
            np.stack(chunks).astype(np.int32),
            np.array(ends, np.int32),
        )


def _padded(rates: np.ndarray, block: _Block) -> np.ndarray:
    part = rates[block.first_step : block.first_step + block.steps]
    return np.pad(part, (0, STEPS_PER_DISPATCH - len(part)))


def _run_steps(
    program: _Program,
    numbers: tuple[Mechanism, jax.Array],
    state: _State,
    data: tuple[Features, Any],
    block: _Block,
    rates: np.ndarray,
    divisor: jax.Array,
    noise_key: jax.Array,
) -> tuple[_State, jax.Array]:
    return _compiled_steps(
        program,
        numbers,
        state,
        data,
        block.rows,
        block.first_chunks,
        np.int32(block.first_step),
        np.int32(block.steps),
        rates,
        divisor,
        noise_key,
    )


@partial(jax.jit, static_argnames=("program",), donate_argnames=("state",))
def _compiled_steps(
    program: _Program,
    numbers: tuple[Mechanism, jax.Array],
    state: _State,
    data: tuple[Features, Any],
    rows: jax.Array,
    first_chunks: jax.Array,
    first_step: jax.Array,
    steps: jax.Array,
    rates: jax.Array,
    divisor: jax.Array,
    noise_key: jax.Array,
) -> tuple[_State, jax.Array]:
    global _traces
    _traces += 1
    mechanism, momentum = numbers
    optimizer = OPTIMIZERS[program.optimizer](momentum)
    gradient = mechanism.gradient()

    def add_chunk(index: jax.Array, carry: tuple[Parameters, Parameters]) -> Any:
        parameters, total = carry
        part = _chunk_sum(program, mechanism, parameters, data, rows[index])
        return parameters, jax.tree.map(jnp.add, total, part)

    def step(index: jax.Array, state: _State) -> _State:
        zeros = jax.tree.map(jnp.zeros_like, state.parameters)
        _, total = lax.fori_loop(
            first_chunks[index], first_chunks[index + 1], add_chunk, (state.parameters, zeros)
        )
        if gradient is not None:
            key = jax.random.fold_in(noise_key, first_step + index)
            total = add_gaussian(key, total, gradient.standard_deviation)
        mean = jax.tree.map(lambda leaf: leaf / divisor, total)
        updates, optimizer_state = optimizer.update(mean, state.optimizer, state.parameters)
        parameters = jax.tree.map(lambda p, u: p - rates[index] * u, state.parameters, updates)
        return _State(parameters, optimizer_state)

    state = lax.fori_loop(0, steps, step, state)
    sane = [jnp.all(jnp.abs(p) < LARGEST_PARAMETER) for p in jax.tree.leaves(state.parameters)]
    return state, jnp.all(jnp.stack(sane))


def _chunk_sum(
    program: _Program,
    mechanism: Mechanism,
    parameters: Parameters,
    data: tuple[Features, Any],
    rows: jax.Array,
) -> Parameters:
    """The (clipped) gradient sum over one chunk of rows."""
    present = rows != ABSENT
    features, released = jax.tree.map(lambda column: column[jnp.maximum(rows, 0)], data)

    def row_losses(logits: jax.Array) -> jax.Array:
        return mechanism.loss(program.task, logits, released)

    gradient = mechanism.gradient()
    if gradient is None:
        return jax.grad(
            lambda p: jnp.sum(
                jnp.where(present, row_losses(program.model.logits(p, features)), 0.0)
            )
        )(parameters)

    def weights(norms: jax.Array) -> jax.Array:
        # Whatever a plug-in answers, no group adds more than the sensitivity that noise is for.
        largest = gradient.sensitivity / jnp.maximum(norms, jnp.finfo(jnp.float32).tiny)
        return jnp.minimum(mechanism.weights(norms), largest)

    return clipped_sum(
        program.model, parameters, features, row_losses, present, weights, gradient.group_size
    ).gradient


@partial(jax.jit, static_argnames=("program",))
def _predict(
    program: _Program, mechanism: Mechanism, parameters: Parameters, features: Features
) -> jax.Array:
    return mechanism.predict(program.task, program.model.logits(parameters, features))
