"""The network as a plain function: a list of tables and a list of dense layers."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax_variant import JaxVariant
from workload import CLIP_NORM, LEARNING_RATE, NOISE_MULTIPLIER, Batch, Cell

Layer = tuple[jax.Array, jax.Array]


class Parameters(NamedTuple):
    """Trained numbers, and gradients of them.

    Attributes:
        tables: (rows, width) each.
        layers: (inputs, outputs) kernel and (outputs,) bias each.
    """

    tables: list[jax.Array]
    layers: list[Layer]


ClippedSum = Callable[[Parameters, Batch, float], Parameters]
"""Sums the batch's gradients, each scaled down to at most the given norm."""


class State(NamedTuple):
    """What lasts from step to step."""

    parameters: Parameters
    step: jax.Array


def initial(cell: Cell, key: jax.Array) -> State:
    """Small normal tables, He kernels, zero biases, step zero."""
    shapes = cell.tables + cell.layers
    sizes = [rows * columns for rows, columns in shapes]
    # One draw for all: 31 of them would take XLA ten times as long to compile.
    parts = jnp.split(jax.random.normal(key, (sum(sizes),)), np.cumsum(sizes)[:-1])
    matrices = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    tables = [0.05 * matrix for matrix in matrices[: len(cell.tables)]]
    layers = [
        ((2 / kernel.shape[0]) ** 0.5 * kernel, jnp.zeros(kernel.shape[1]))
        for kernel in matrices[len(cell.tables) :]
    ]
    return State(Parameters(tables, layers), jnp.int32(0))


def embed(tables: list[jax.Array], ids: jax.Array) -> jax.Array:
    """The tables' rows side by side, (batch, sum of widths)."""
    rows = [
        table.at[ids[:, column]].get(mode="promise_in_bounds")
        for column, table in enumerate(tables)
    ]
    return jnp.concatenate(rows, axis=1)


def forward(
    layers: list[Layer], values: jax.Array, offsets: list[jax.Array] | None = None
) -> tuple[jax.Array, list[jax.Array]]:
    """Log-odds (batch,) and each layer's inputs; `offsets` are added to each layer's outputs."""
    inputs = []
    for index, (kernel, bias) in enumerate(layers):
        inputs.append(values)
        values = values @ kernel + bias
        if offsets is not None:
            values += offsets[index]
        if index < len(layers) - 1:
            values = jax.nn.relu(values)
    return values[:, 0], inputs


def losses(parameters: Parameters, batch: Batch) -> jax.Array:
    """Logistic loss of each example, (batch,)."""
    embedded = embed(parameters.tables, batch.ids)
    logits, _ = forward(parameters.layers, jnp.concatenate([batch.numeric, embedded], axis=1))
    return logistic(logits, batch.labels)


def logistic(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Logistic loss from log-odds."""
    return jax.nn.softplus(logits) - labels * logits


def descend(parameters: Parameters, gradient_sum: Parameters, examples: int) -> Parameters:
    """One step of stochastic gradient descent along the mean."""
    scale = LEARNING_RATE / examples
    return jax.tree.map(lambda p, g: p - scale * g, parameters, gradient_sum)


def private_variant(cell: Cell, clipped_sum: ClippedSum, noisy: bool) -> JaxVariant:
    """Descent along a clipped sum, with or without noise."""

    def update(state: State, batch: Batch) -> State:
        total = clipped_sum(state.parameters, batch, CLIP_NORM)
        if noisy:
            key = jax.random.fold_in(jax.random.key(1), state.step)
            total = with_noise(key, total, NOISE_MULTIPLIER * CLIP_NORM)
        return State(descend(state.parameters, total, cell.batch), state.step + 1)

    return JaxVariant(cell, partial(initial, cell), update)


def with_noise(key: jax.Array, gradient: Parameters, deviation: float) -> Parameters:
    """Independent normal noise on every number, one draw per array."""
    leaves, structure = jax.tree.flatten(gradient)
    keys = jax.random.split(key, len(leaves))
    noisy = [
        leaf + deviation * jax.random.normal(k, leaf.shape)
        for leaf, k in zip(leaves, keys, strict=True)
    ]
    return jax.tree.unflatten(structure, noisy)
