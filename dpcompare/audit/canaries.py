"""Canaries of a gradient mechanism: units whose gradients are orthogonal and always clipped.

Each canary has a row of one embedding table to itself, so its gradient lies where no other
canary's does. The loss is linear in the logit, so a gradient does not depend on what was learnt,
and its slope is so large that a mechanism gives every canary its full share. A fair coin decides
which canaries take part: tails is a row whose gradient is zero (zero-out, the number of rows stays
what it is), or the opposite gradient where the claim is about replaced rows or groups of rows.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.data.dataset import Features
from dpcompare.data.sampling import ABSENT, batch_draw
from dpcompare.embeddings import EmbeddingTables
from dpcompare.mechanism import Mechanism
from dpcompare.model import Model, Parameters
from dpcompare.privacy import Schedule
from dpcompare.tasks import Task

KERNEL_NORM = 1e3
"""Of the output layer: the bias, which all canaries share, gets a millionth of a squared norm."""

STEEPNESS = 1e6
"""Norm of a canary's gradient, in units of the sensitivity: whatever clips does so in full."""


class CanaryModel(Model):
    """A linear model on one table: the table starts at zero, the output layer large and known."""

    def init(self, key: jax.Array) -> Parameters:
        """The same numbers whatever the key."""
        kernel = jnp.full((self.tables.outputs, 1), KERNEL_NORM / math.sqrt(self.tables.outputs))
        return Parameters(
            embeddings=(jnp.zeros(self.tables.parameters, jnp.float32),),
            tower={"output": {"kernel": kernel, "bias": jnp.zeros(1, jnp.float32)}},
        )

    def rows(self, parameters: Parameters) -> np.ndarray:
        """The table, (canaries, width) float64."""
        (store,) = [buffer for buffer in parameters["embeddings"] if buffer.size]
        return np.asarray(store, np.float64).reshape(-1, self.tables.outputs)


@dataclass(frozen=True)
class Canaries:
    """The rows that a gradient attack trains on.

    Attributes:
        coins: (m,) booleans; whether each canary takes part.
        model: the network.
        features: of all rows, (n, ...); a row's id is its canary.
        slopes: (n,) float32, the derivative of each row's loss for its logit, as the released
            labels of :func:`attacked`.
    """

    coins: np.ndarray
    model: CanaryModel
    features: Features
    slopes: np.ndarray


def canaries(
    schedule: Schedule, group_size: int, opposite: bool, sensitivity: float, rng: Any, *words: Any
) -> Canaries:
    """One canary per group of rows, each with a coin of its own.

    A group is one row as a rule. In a larger one its first row is the canary and the second pulls
    half as much the other way, so that the group's clipped mean is at one or the other end of its
    range: that is all that a vanishing row can do there.

    Args:
        schedule: of the attack; its groups are those that training will draw.
        group_size: rows that are drawn and clipped together.
        opposite: whether tails is the opposite gradient, and not a zero one, in groups of one row.
        sensitivity: the largest norm that one group may add to the sum.
        rng: a generator for the coins.
        *words: the name of the random stream of the batches.
    """
    groups = groups_of(schedule, group_size, *words)
    coins = rng.integers(0, 2, len(groups)).astype(bool)
    slope = STEEPNESS * sensitivity / KERNEL_NORM * group_size
    slopes = np.zeros(schedule.examples, np.float32)
    tails = -slope if opposite and group_size == 1 else 0.0
    slopes[groups[:, 0]] = np.where(coins, slope, tails)
    if group_size > 1:
        whole = groups[:, 1] != ABSENT
        slopes[groups[whole, 1]] = -slope / 2
    ids = np.zeros((schedule.examples, 1), np.int32)
    for place in range(group_size):
        there = groups[:, place] != ABSENT
        ids[groups[there, place], 0] = np.flatnonzero(there)
    features = Features(np.zeros((schedule.examples, 0), np.float32), ids)
    model = CanaryModel(0, EmbeddingTables((len(groups),)), ())
    return Canaries(coins, model, features, slopes)


def groups_of(schedule: Schedule, group_size: int, *words: Any) -> np.ndarray:
    """The rows of every group, (groups, group_size), ABSENT where the last one lacks some.

    A step that draws every group shows them all; which rows form a group depends on no step.
    """
    everything = Schedule(schedule.examples, schedule.examples, 1, "poisson")
    if group_size == 1:
        return np.arange(schedule.examples, dtype=np.int32)[:, None]
    return batch_draw(everything, group_size, *words)(0).reshape(-1, group_size)


def attacked(mechanism: Mechanism) -> Mechanism:
    """The same mechanism with a loss that is linear in the logit, of the slopes it is given.

    All that makes gradients private stays: how they are weighed, drawn and noised.
    """
    kind = _with_linear_loss(type(mechanism))  # type: ignore[arg-type]  # classes have a hash
    fields = mechanism.__dataclass_fields__
    return kind(**{name: getattr(mechanism, name) for name in fields})


@lru_cache(maxsize=64)
def _with_linear_loss(kind: type[Mechanism]) -> type[Mechanism]:
    """One class per mechanism, for compiled programs tell classes apart."""

    def loss(self: Mechanism, task: Task, logits: jax.Array, released: Any) -> jax.Array:
        return released * logits

    return type(f"Attacked{kind.__name__}", (kind,), {"loss": loss, "__module__": kind.__module__})
