"""The one shared trainer: every mechanism trains the same model through the same compiled step.

A step sums gradients over the chunks of its batch, adds noise once to the sum if the mechanism
releases gradients, divides by the public expected batch size, and makes an update. All numbers
that a study varies are traced, so trials that differ only in numbers share one program.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dpcompare.ahead import one_ahead
from dpcompare.batches import blocks, chunks_of, row_bytes
from dpcompare.checkpoints import Checkpoints
from dpcompare.data.dataset import Features
from dpcompare.data.sampling import batch_draw
from dpcompare.data.views import RowView
from dpcompare.devices import batches_on, replicated
from dpcompare.errors import DpcompareError
from dpcompare.mechanism import Mechanism
from dpcompare.missed_noise import WINDOW
from dpcompare.model import Model, Parameters
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Schedule
from dpcompare.randomness import jax_key
from dpcompare.steps import (
    LARGEST_NORM,
    Batches,
    Numbers,
    Program,
    Shards,
    initial_state,
    offset,
    run_steps,
    sane,
    settle,
)
from dpcompare.table_updates import TableUpdates
from dpcompare.tasks import Task

EVALUATION_CHUNK = 8192


@dataclass(frozen=True)
class Streams:
    """The names of the random streams of a trial (see :mod:`dpcompare.randomness`).

    Attributes:
        shared: words that name the initial weights and the batches, shared between mechanisms.
        noise: words that name the noise, which no other trial may share.
        draws: float32 normals that are summed for one of the noise, see
            :data:`dpcompare.noise.SECRET_DRAWS`.
    """

    shared: tuple[Any, ...]
    noise: tuple[Any, ...]
    draws: int = 1


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
    evaluate: Callable[[int, Parameters], None] = lambda step, parameters: None,
    mesh: Mesh | None = None,
    checkpoints: Checkpoints | None = None,
) -> Parameters:
    """Train `model` on what a mechanism released; no argument carries true labels.

    Batches are gathered on the host, by a second thread while the device makes the steps before, so
    features may be larger than any memory.

    Args:
        mechanism: calibrated.
        task: whose loss the mechanism may build on.
        model: the network.
        features: of the training rows, (n, ...); in memory, mapped, or views.
        released: from :meth:`Mechanism.release_labels`, one row per example.
        schedule: batch size and steps; exactly `schedule.steps` updates are made.
        recipe: the optimizer and its learning rate.
        streams: names of the random streams.
        report: called with the fraction of steps done.
        evaluate: called after each of `recipe.evaluation_steps` with the step and the parameters,
            which are used up when training goes on. A resumed run does not repeat the calls of
            the steps before.
        mesh: the devices that share the work, from :func:`dpcompare.devices.mesh_of`; None for
            one. Their number changes the order of sums, so the last bits, and no noise.
        checkpoints: where the private state is kept from time to time, and from where the run goes
            on if there is one; the result is equal to the last bit.

    Raises:
        DpcompareError: a parameter became infinite or nan (the message says between which steps),
            or the checkpoint is not one of this run.
    """
    gradient = mechanism.gradient()
    group_size = gradient.group_size if gradient else 1
    updates = table_updates(mechanism, model, schedule, recipe)
    chunks = chunks_of(schedule, group_size, recipe.chunk_size)
    shards = None if mesh is None else Shards(mesh, chunks.rows)
    program = Program(
        type(mechanism), task, model, updates, recipe.weight_decay > 0, shards, streams.draws
    )
    momentum = recipe.momentum if recipe.optimizer == "momentum" else 0.0
    numbers = Numbers(
        jax.tree.map(jnp.float32, mechanism),
        jnp.float32(momentum),
        jnp.float32(schedule.expected_groups(group_size)),
        jax_key("noise", *streams.noise),
        jnp.float32(recipe.weight_decay),
    )
    numbers, settle_key = replicated((numbers, jax_key("settle", *streams.noise)), mesh)
    draw = batch_draw(schedule, group_size, *streams.shared)
    rates = recipe.learning_rates(schedule.steps)
    columns = jax.tree.map(_on_host, (features, released))
    parameters = model.init(jax_key("init", *streams.shared))
    if recipe.base_rate:
        parameters["tower"]["output"]["bias"] += task.link(recipe.base_rate)
    state = replicated(initial_state(program, parameters, momentum), mesh)
    start = 0
    if checkpoints is not None:
        start, state = checkpoints.restored(state)
    to_evaluate = recipe.evaluation_steps(schedule.steps)
    to_settle = _settling_steps(to_evaluate)
    room = chunks.steps_of_block(row_bytes(columns))

    def ready_blocks() -> Iterator[tuple[int, int, Batches]]:
        for block in blocks(draw, to_settle, schedule.steps, chunks, room, start):
            window_start = max((s for s in to_settle if s <= block.first_step), default=0)
            batches = batches_on(mesh, block, group_size, columns, rates, window_start)
            yield block.first_step, block.first_step + block.steps, batches

    for first_step, done, batches in one_ahead(ready_blocks()):
        state, tower_is_sane = run_steps(program, numbers, state, batches)
        if not bool(tower_is_sane):
            raise _diverged(first_step, done, schedule.steps)
        if done in to_settle:
            key = jax.random.fold_in(settle_key, done)
            state = state._replace(tables=settle(program, state.tables, numbers, key))
        if done in to_evaluate:
            if not bool(sane(state.parameters)):
                last_evaluation = max((s for s in to_evaluate if s < done), default=0)
                raise _diverged(last_evaluation, done, schedule.steps)
            evaluate(done, state.parameters)
        report(done / schedule.steps)
        if checkpoints is not None and done < schedule.steps and checkpoints.is_due():
            checkpoints.save(done, state)
    return state.parameters


def _on_host(column: Any) -> Any:
    return column if isinstance(column, RowView) else np.asarray(column)


def _diverged(after: int, done: int, steps: int) -> DpcompareError:
    return DpcompareError(
        f"training diverged between steps {after + 1} and {done} of {steps}: the norm of the "
        f"parameters is nan or above {LARGEST_NORM:g}. Lower the learning rate"
    )


def table_updates(
    mechanism: Mechanism, model: Model, schedule: Schedule, recipe: Recipe
) -> TableUpdates:
    """Which tables a training run updates eagerly and which lazily."""
    noisy = mechanism.gradient() is not None
    return TableUpdates.choose(
        model.tables,
        recipe.optimizer,
        noisy,
        schedule.batch_size,
        recipe.lazy_noise,
        recipe.weight_decay,
    )


def _settling_steps(evaluations: list[int]) -> set[int]:
    """All evaluations, and in between whenever a window of lazy noise is full."""
    steps, last = set(evaluations), 0
    for step in evaluations:
        steps.update(range(last + WINDOW, step, WINDOW))
        last = step
    return steps


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
            lambda a: np.pad(a, [(0, missing)] + [(0, 0)] * (a.ndim - 1)),  # noqa: B023
            part,
        )
        predictions = _predict(type(mechanism), task, model, numbers, parameters, padded)
        parts.append(np.asarray(predictions, np.float64)[: len(part.ids)])
    return np.concatenate(parts)


@partial(jax.jit, static_argnames=("kind", "task", "model"))
def _predict(
    kind: type[Mechanism],  # for JAX to tell mechanisms apart, see Program
    task: Task,
    model: Model,
    mechanism: Mechanism,
    parameters: Parameters,
    features: Features,
) -> jax.Array:
    return mechanism.predict(task, offset(model.logits(parameters, features), features))
