"""Per-example and per-group clipped gradient sums by book-keeping: one backward pass, no vmap.

With a layer's input a and output gradient g of one example (see :mod:`dpcompare.layers`), the
gradient of a dense kernel is the outer product of a and g and that of its bias is g. So the
squared norm is ``(|a|^2 + 1) |g|^2``, and a weighted sum over examples is ``a' diag(w) g``: the
product that ordinary training computes anyway. For the sum over a group of rows i, j the squared
norm is ``sum_ij (a_i.a_j + 1) (g_i.g_j)``. Embeddings: see :mod:`dpcompare.embeddings`.
(Bu et al., "Differentially Private Optimization on Large Model at Small Cost", arXiv 2210.00038.)
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from dpcompare.layers import INPUTS, OUTPUTS
from dpcompare.model import Features, Model, Parameters

# The bound on what a row adds holds to float32; accelerators would multiply with fewer bits.
jax.config.update("jax_default_matmul_precision", "highest")

# Rounding of a Gram sum relative to the rows' own squared norms: eight float32 roundings.
CANCELLATION = 8 * 2.0**-23


class Record(NamedTuple):
    """What one backward pass leaves behind, from which every clipped sum can be made.

    Attributes:
        inputs: the inputs of each recorded layer, (batch, in), nested as flax names the layers.
        output_gradients: gradients of the summed loss for each layer's output, (batch, out).
        embedded_gradients: the same for the embedding lookups, (batch, outputs).
        ids: the rows looked up, (batch, columns).
    """

    inputs: dict
    output_gradients: dict
    embedded_gradients: jax.Array
    ids: jax.Array


class GradientSum(NamedTuple):
    """A sum over a batch that holds no array of the size of the tables.

    Attributes:
        tower: the sum for the dense layers.
        embedded: (batch, outputs) what each row adds to the table rows that it looks up.
    """

    tower: dict
    embedded: jax.Array


class ClippedSum(NamedTuple):
    """The result of :func:`clipped_sum`.

    Attributes:
        gradient: the weighted sum over the batch.
        norms: (groups,) norm of each group's mean gradient before weighing.
        weights: (groups,) the weight that each got.
    """

    gradient: GradientSum
    norms: jax.Array
    weights: jax.Array


def clipped_sum(
    model: Model,
    parameters: Parameters,
    features: Features,
    row_losses: Callable[[jax.Array], jax.Array],
    present: jax.Array,
    weigh: Callable[[jax.Array], jax.Array],
    group_size: int = 1,
) -> ClippedSum:
    """Sum over groups of ``weigh(norm) * (group's gradient sum / group_size)``.

    The norm is one global norm over all parameters. A row that is absent (padding), has
    an infinite number or a gradient that is not finite counts as zero, and the other rows of its
    group still count.

    Args:
        model: the network.
        parameters: where the gradient is taken.
        features: (batch, ...) rows; consecutive `group_size` rows form a group.
        row_losses: the loss of each row, (batch,), from the logits, (batch,).
        present: (batch,) booleans; False marks padding, whatever its features hold.
        weigh: how much each group weighs, (groups,), from the norms, (groups,).
        group_size: rows whose gradients are averaged before they are weighed; divides batch.
    """
    usable = present & ~jnp.any(jnp.isinf(features.numeric), axis=1)
    record = record_gradients(
        model, parameters, features, lambda logits: jnp.where(usable, row_losses(logits), 0.0)
    )
    squared = _row_squared_norms(record)
    usable &= jnp.isfinite(squared)
    squared = jnp.where(usable, squared, 0.0)
    norms = jnp.sqrt(_group_squared_norms(model, record, squared, usable, group_size)) / group_size
    weights = weigh(norms)
    row_weights = jnp.repeat(weights / group_size, group_size)
    gradient = _weighted_sum(record, row_weights, usable)
    return ClippedSum(gradient, norms, weights)


def plain_sum(
    model: Model,
    parameters: Parameters,
    features: Features,
    row_losses: Callable[[jax.Array], jax.Array],
    present: jax.Array,
) -> GradientSum:
    """The gradient sum of ordinary training: nothing is clipped, absent rows do not count.

    Args: as those of :func:`clipped_sum`.
    """
    embedded = _looked_up(model, parameters, features)

    def summed_loss(tower: dict, embedded: jax.Array) -> jax.Array:
        logits = model.logits_of(tower, features.numeric, embedded)
        return jnp.sum(jnp.where(present, row_losses(logits), 0.0))

    return GradientSum(*jax.grad(summed_loss, argnums=(0, 1))(parameters["tower"], embedded))


def record_gradients(
    model: Model,
    parameters: Parameters,
    features: Features,
    row_losses: Callable[[jax.Array], jax.Array],
) -> Record:
    """One forward and one backward pass that keep each layer's inputs and output gradients.

    Raises:
        ValueError: a layer of the network is not recorded, so its gradient would go unclipped.
    """
    embedded = _looked_up(model, parameters, features)
    shapes = jax.eval_shape(
        lambda: model.network.init(jax.random.key(0), features.numeric, embedded)
    )
    _check_all_recorded(parameters["tower"], shapes[OUTPUTS])
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes[OUTPUTS])

    def summed_loss(embedded: jax.Array, perturbations: dict) -> tuple[jax.Array, dict]:
        logits, recorded = model.network.apply(
            {"params": parameters["tower"], OUTPUTS: perturbations},
            features.numeric,
            embedded,
            mutable=[INPUTS],
        )
        return jnp.sum(row_losses(logits)), recorded[INPUTS]

    gradient = jax.grad(summed_loss, argnums=(0, 1), has_aux=True)
    (embedded_gradients, output_gradients), inputs = gradient(embedded, zeros)
    return Record(inputs, output_gradients, embedded_gradients, jnp.asarray(features.ids))


def _looked_up(model: Model, parameters: Parameters, features: Features) -> jax.Array:
    """(batch, outputs), as one array: its rows are updated in place after they were read."""
    embedded = model.tables.lookup(parameters["embeddings"], jnp.asarray(features.ids))
    return lax.optimization_barrier(embedded)


def _dense_layers(record: Record) -> Iterator[tuple[str, jax.Array, jax.Array]]:
    """(name, inputs, output gradients) of each dense layer."""
    for name, gradients in record.output_gradients.items():
        yield name, record.inputs[name]["value"][0], gradients["value"]


def _check_all_recorded(tower: dict, perturbations: dict) -> None:
    missing = sorted(set(tower) - set(perturbations))
    if missing:
        raise ValueError(f"layers {missing} do not record their inputs; use RecordedDense")


def _row_squared_norms(record: Record) -> jax.Array:
    """(batch,) squared norms without merging repeated rows: finite only if everything is."""
    total = jnp.sum(record.embedded_gradients**2, axis=1)
    for _, inputs, gradients in _dense_layers(record):
        total += (jnp.sum(inputs**2, axis=1) + 1.0) * jnp.sum(gradients**2, axis=1)
    return total


def _masked(rows: jax.Array, usable: jax.Array) -> jax.Array:
    return jnp.where(usable[:, None], rows, 0.0)


def _weighted_sum(record: Record, row_weights: jax.Array, usable: jax.Array) -> GradientSum:
    """The sum over rows of weight times gradient; inputs are finite, so a zero silences a row."""

    # As finished vectors: else they are computed again for every number that they weigh.
    row_weights, usable = lax.optimization_barrier((row_weights, usable))

    def weighted(gradients: jax.Array) -> jax.Array:
        return _masked(gradients, usable) * row_weights[:, None]

    def kernel(inputs: jax.Array, gradients: jax.Array) -> jax.Array:
        # In this order XLA need not transpose the inputs of a layer with a single output.
        return (weighted(gradients).T @ inputs).T

    tower = {
        name: {
            "bias": jnp.sum(weighted(gradients), axis=0),
            "kernel": kernel(inputs, gradients),
        }
        for name, inputs, gradients in _dense_layers(record)
    }
    return GradientSum(tower, weighted(record.embedded_gradients))


def _group_squared_norms(
    model: Model, record: Record, row_squared_norms: jax.Array, usable: jax.Array, group_size: int
) -> jax.Array:
    """(groups,) squared norms of the groups' gradient sums over all parameters."""
    terms = group_size * model.tables.lookups_per_table
    if terms == 1:
        return row_squared_norms
    embedded = _masked(record.embedded_gradients, usable)
    squared = model.tables.squared_norms(record.ids, embedded, group_size)
    for _, inputs, gradients in _dense_layers(record):
        # Inputs too: the square of a large one may be infinite, and infinity times zero is nan.
        of_inputs = _products_within(_masked(inputs, usable), group_size)
        of_gradients = _products_within(_masked(gradients, usable), group_size)
        squared += jnp.sum((of_inputs + 1.0) * of_gradients, axis=(1, 2))
    # Where rows cancel, rounding could hide a norm above the clip norm: err on the large side.
    rounding = CANCELLATION * terms * row_squared_norms.reshape(-1, group_size).sum(axis=1)
    return jnp.maximum(squared, 0.0) + rounding


def _products_within(rows: jax.Array, group_size: int) -> jax.Array:
    """Dot products of all pairs within each group: (groups, group_size, group_size)."""
    grouped = rows.reshape(-1, group_size, rows.shape[-1])
    return jnp.einsum("gid,gjd->gij", grouped, grouped)
