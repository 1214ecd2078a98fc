"""Small random models, batches and a slow, obvious oracle of clipping, for the tests."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.clipping import GradientSum
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.model import Model, Parameters

SIZES = (7, 9, 20, 5, 5)
SHARED = EmbeddingTables((7, 9, 20), (0, 0, 1, 2, 2))
"""Five columns on three tables: ids may repeat within an example."""


def random_model(
    tables: EmbeddingTables | None = None, tower: tuple[int, ...] = (16, 8), seed: int = 0
) -> tuple[Model, Parameters]:
    model = Model(3, tables or EmbeddingTables(SIZES), tower)
    parameters = model.init(jax.random.key(seed))
    # Larger rows than the initial ones, and biases that are not zero.
    noise = jax.random.split(jax.random.key(seed + 1), 100)
    leaves, structure = jax.tree.flatten(parameters)
    leaves = [
        leaf + 0.3 * jax.random.normal(key, leaf.shape)
        for leaf, key in zip(leaves, noise, strict=False)
    ]
    return model, jax.tree.unflatten(structure, leaves)


def random_batch(model: Model, rows: int, seed: int = 0) -> tuple[Features, jax.Array]:
    rng = np.random.default_rng(seed)
    numeric = rng.normal(size=(rows, model.numeric)).astype(np.float32)
    numeric[rng.random(numeric.shape) < 0.2] = np.nan
    sizes = [model.tables.sizes[table] for table in model.tables.column_tables]
    ids = np.stack([rng.integers(0, size, rows) for size in sizes], axis=1).astype(np.int32)
    labels = (rng.random(rows) < 0.3).astype(np.float32)
    return Features(jnp.asarray(numeric), jnp.asarray(ids)), jnp.asarray(labels)


def dense(
    model: Model, parameters: Parameters, features: Features, total: GradientSum
) -> Parameters:
    """A gradient sum as an array for every parameter, zero where nothing was looked up."""
    zeros = jax.tree.map(jnp.zeros_like, parameters["embeddings"])
    tables = model.tables.add_to_rows(zeros, features.ids, total.embedded)
    return Parameters(embeddings=tables, tower=total.tower)


def logistic(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return jax.nn.softplus(logits) - labels * logits


def clip_to(norm: float) -> Callable[[jax.Array], jax.Array]:
    return lambda norms: jnp.minimum(1.0, norm / jnp.maximum(norms, 1e-30))


@functools.partial(jax.jit, static_argnames="model")
def row_gradients(
    model: Model, parameters: Parameters, features: Features, labels: jax.Array
) -> Parameters:
    """An ordinary gradient for each row alone: leaves (rows, ...)."""

    def loss(p: Parameters, numeric: jax.Array, ids: jax.Array, label: jax.Array) -> jax.Array:
        return logistic(model.logits(p, Features(numeric[None], ids[None])), label)[0]

    gradient = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0, 0))
    return gradient(parameters, features.numeric, features.ids, labels)


def naive_clipped_sum(
    model: Model,
    parameters: Parameters,
    features: Features,
    labels: jax.Array,
    clip_norm: float,
    group_size: int = 1,
    present: np.ndarray | None = None,
) -> Parameters:
    """The sum of clipped group means, from one ordinary gradient per row."""
    keep = np.ones(len(labels)) if present is None else np.asarray(present, float)
    rows = [
        np.asarray(leaf, np.float64).reshape(len(labels), -1)
        for leaf in jax.tree.leaves(row_gradients(model, parameters, features, labels))
    ]
    flat = np.concatenate(rows, axis=1) * keep[:, None]
    means = flat.reshape(-1, group_size, flat.shape[1]).mean(axis=1)
    norms = np.linalg.norm(means, axis=1)
    total = (means * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-30))[:, None]).sum(axis=0)
    leaves, structure = jax.tree.flatten(parameters)
    parts = np.split(total, np.cumsum([leaf.size for leaf in leaves])[:-1])
    shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def global_norm(tree: Parameters) -> float:
    return float(np.sqrt(sum(float(np.vdot(leaf, leaf)) for leaf in jax.tree.leaves(tree))))


def assert_close(actual: Parameters, expected: Parameters, tolerance: float = 1e-4) -> None:
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        scale = max(float(jnp.max(jnp.abs(e), initial=0.0)), 1e-3)
        np.testing.assert_allclose(a, e, atol=tolerance * scale, rtol=tolerance)
