"""The one shared trainer: every mechanism trains the same model through the same compiled step.

A step sums gradients over the chunks of its batch, adds noise once to the sum if the mechanism
releases gradients, divides by the public expected batch size, and makes an update. All numbers
that a study varies are traced, so trials that differ only in numbers share one program.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.batches import STEPS_PER_DISPATCH, Block, blocks, chunks_of
from dpcompare.data.dataset import Features
from dpcompare.data.sampling import batch_draw
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
    """

    shared: tuple[Any, ...]
    noise: tuple[Any, ...]


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
        evaluate: called after each of `recipe.evaluation_steps` with the step and the parameters,
            which are used up when training goes on.

    Raises:
        DpcompareError: a parameter became infinite or nan; the message says between which steps.
    """
    gradient = mechanism.gradient()
    group_size = gradient.group_size if gradient else 1
    updates = table_updates(mechanism, model, schedule, recipe)
    program = Program(task, model, updates, recipe.weight_decay > 0)
    momentum = recipe.momentum if recipe.optimizer == "momentum" else 0.0
    numbers = Numbers(
        jax.tree.map(jnp.float32, mechanism),
        jnp.float32(momentum),
        jnp.float32(schedule.expected_groups(group_size)),
        jax_key("noise", *streams.noise),
        jnp.float32(recipe.weight_decay),
    )
    settle_key = jax_key("settle", *streams.noise)
    draw = batch_draw(schedule, group_size, *streams.shared)
    rates = recipe.learning_rates(schedule.steps)
    data = jax.tree.map(jnp.asarray, (features, released))
    parameters = model.init(jax_key("init", *streams.shared))
    if recipe.base_rate:
        parameters["tower"]["output"]["bias"] += task.link(recipe.base_rate)
    state = initial_state(program, parameters, momentum)
    to_evaluate = recipe.evaluation_steps(schedule.steps)
    to_settle = _settling_steps(to_evaluate)
    window_start = last_evaluation = 0
    chunks = chunks_of(schedule, group_size, recipe.chunk_size)
    for block in blocks(draw, to_settle, schedule.steps, chunks):
        batches = _batches(block, rates, window_start)
        state, tower_is_sane = run_steps(program, numbers, state, data, batches)
        done = block.first_step + block.steps
        if not bool(tower_is_sane):
            raise _diverged(block.first_step, done, schedule.steps)
        if done in to_settle:
            key = jax.random.fold_in(settle_key, done)
            state = state._replace(tables=settle(updates, state.tables, numbers, key))
            window_start = done
        if done in to_evaluate:
            if not bool(sane(state.parameters)):
                raise _diverged(last_evaluation, done, schedule.steps)
            evaluate(done, state.parameters)
            last_evaluation = done
        report(done / schedule.steps)
    return state.parameters


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


def _batches(block: Block, rates: np.ndarray, window_start: int) -> Batches:
    part = rates[block.first_step : block.first_step + block.steps]
    return Batches(
        jnp.asarray(block.rows),
        jnp.asarray(block.chunks),
        jnp.asarray(np.pad(part, (0, STEPS_PER_DISPATCH - len(part)))),
        jnp.int32(block.steps),
        jnp.int32(block.first_step),
        jnp.int32(block.first_step - window_start),
    )


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
        predictions = _predict(task, model, numbers, parameters, padded)
        parts.append(np.asarray(predictions, np.float64)[: len(part.ids)])
    return np.concatenate(parts)


@partial(jax.jit, static_argnames=("task", "model"))
def _predict(
    task: Task, model: Model, mechanism: Mechanism, parameters: Parameters, features: Features
) -> jax.Array:
    return mechanism.predict(task, offset(model.logits(parameters, features), features))
