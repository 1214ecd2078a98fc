"""The ads network of arXiv 2211.11896: embeddings, a dense tower, one output.

Numeric features and embedded categories are concatenated and pass through dense ReLU layers to
one number, the log-odds of the task.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import TypedDict

import jax
import jax.numpy as jnp
from flax import linen as nn

from dpcompare.data.dataset import Features
from dpcompare.embeddings import Buffers, EmbeddingTables
from dpcompare.errors import UsageError
from dpcompare.layers import RecordedDense

EMBEDDING_SCALE = 0.05


class Parameters(TypedDict):
    """Trainable numbers, and gradients of them.

    Attributes:
        embeddings: the tables, in one buffer or several.
        tower: the dense layers, as flax names them.
    """

    embeddings: Buffers
    tower: dict


def finite_relu(x: jax.Array) -> jax.Array:
    """max(x, 0), and 0 for what is infinite or nan.

    So the recorded inputs of every layer are finite for finite parameters, whatever the row: a
    row is silenced by a weight of zero, where 0 * nan would poison the whole sum.
    """
    return jnp.where(jnp.isfinite(x), nn.relu(x), 0.0)


class Tower(nn.Module):
    """Dense ReLU layers of the given widths and a linear output of one number per example."""

    widths: tuple[int, ...]

    @nn.compact
    def __call__(self, numeric: jax.Array, embedded: jax.Array) -> jax.Array:
        """Log-odds (batch,) from (batch, numeric columns) and (batch, embedding outputs).

        A missing number is a zero beside an indicator of one.
        """
        missing = jnp.isnan(numeric)
        known = jnp.where(jnp.isfinite(numeric), numeric, 0.0)
        x = jnp.concatenate([known, missing.astype(numeric.dtype), embedded], axis=1)
        for index, width in enumerate(self.widths):
            x = finite_relu(RecordedDense(width, name=f"dense_{index}")(x))
        output = RecordedDense(1, nn.initializers.lecun_normal(), name="output")(x)
        return output[:, 0]


@dataclass(frozen=True)
class Model:
    """The shape of the network; compared by value, so that equal models share compiled programs.

    Attributes:
        numeric: number of numeric columns.
        tables: the embedding tables.
        tower: widths of the dense layers; empty for a linear model on the embeddings.
    """

    numeric: int
    tables: EmbeddingTables
    tower: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.tower):
            raise UsageError(f"tower widths must be at least 1, got {list(self.tower)}")

    @property
    def network(self) -> Tower:
        """The dense part as a flax module."""
        return Tower(self.tower)

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        return self.tables.parameters + self.dense_parameters

    @property
    def dense_parameters(self) -> int:
        """How many of them lie in the dense tower."""
        widths = [2 * self.numeric + self.tables.outputs, *self.tower, 1]
        return sum((a + 1) * b for a, b in pairwise(widths))

    def init(self, key: jax.Array) -> Parameters:
        """Initial weights: He for the tower, small normals for the tables."""
        table_key, tower_key = jax.random.split(key)
        variables = self.network.init(
            tower_key,
            jnp.zeros((1, self.numeric), jnp.float32),
            jnp.zeros((1, self.tables.outputs), jnp.float32),
        )
        return Parameters(
            embeddings=self.tables.init(table_key, EMBEDDING_SCALE), tower=variables["params"]
        )

    def logits(self, parameters: Parameters, features: Features) -> jax.Array:
        """Log-odds, (batch,)."""
        embedded = self.tables.lookup(parameters["embeddings"], jnp.asarray(features.ids))
        return self.logits_of(parameters["tower"], features.numeric, embedded)

    def logits_of(self, tower: dict, numeric: jax.Array, embedded: jax.Array) -> jax.Array:
        """Log-odds, (batch,), of rows whose embeddings are looked up already."""
        logits: jax.Array = self.network.apply(  # type: ignore[assignment]  # nothing is mutable
            {"params": tower}, numeric, embedded
        )
        return logits
