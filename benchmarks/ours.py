"""The trainer's own compiled step, one step a call, on the benchmark's batches.

The network has 13 inputs more than those of the other variants: an indicator of a missing number
beside each number.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax_variant import JaxVariant
from workload import (
    CLIP_NORM,
    DEPTH,
    LEARNING_RATE,
    MOMENTUM,
    NOISE_MULTIPLIER,
    NUMERIC,
    VOCABULARIES,
    Batch,
    Cell,
)

from dpcompare import steps
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.lazy_tables import Noise
from dpcompare.mechanism import Mechanism, find
from dpcompare.missed_noise import WINDOW
from dpcompare.model import Model
from dpcompare.optimizers import LazyNoise
from dpcompare.steps import Batches, Numbers, Program, initial_state, run_steps
from dpcompare.table_updates import TableUpdates
from dpcompare.tasks import PCTR


def variant(
    cell: Cell, mechanism: Mechanism, optimizer: str = "sgd", lazy_noise: LazyNoise = "auto"
) -> JaxVariant:
    """A variant whose state is that of the trainer and the number of steps made."""
    tables = EmbeddingTables(VOCABULARIES[cell.model])
    model = Model(NUMERIC, tables, (cell.width,) * DEPTH)
    noisy = mechanism.gradient() is not None
    updates = TableUpdates.choose(tables, optimizer, noisy, cell.batch, lazy_noise)
    program = Program(type(mechanism), PCTR, model, updates)
    momentum = MOMENTUM if optimizer == "momentum" else 0.0

    def initial(key: jax.Array) -> Any:
        return initial_state(program, model.init(key), momentum), jnp.int32(0)

    def update(state: Any, batch: Batch) -> Any:
        trained, step = state
        numbers = Numbers(
            jax.tree.map(jnp.float32, mechanism),
            jnp.float32(momentum),
            jnp.float32(cell.batch),
            jax.random.key(1),
        )
        data = (Features(batch.numeric, batch.ids), batch.labels)
        batches = Batches(
            jax.tree.map(lambda rows: rows[None, None], data),
            jnp.ones((1, 1, cell.batch), bool),
            jnp.ones(1, jnp.int32),
            jnp.full(1, LEARNING_RATE, jnp.float32),
            jnp.int32(1),
            step,
            step % WINDOW,
        )
        return run_steps(program, numbers, trained, batches)[0], step + 1

    return JaxVariant(cell, initial, update)


def without_noise(cell: Cell) -> JaxVariant:
    """Clipping alone, which no mechanism can ask the trainer for: it protects nothing."""
    steps.add_gaussian = lambda key, tree, standard_deviation, draws=1: tree
    steps._noise = lambda program, numbers, key: Noise(key, None, numbers.momentum)
    return variant(cell, DP_SGD, lazy_noise="never")


NON_PRIVATE = find("non-private").build({})
DP_SGD = find("dp-sgd").build({"clip_norm": CLIP_NORM}).replace(noise_multiplier=NOISE_MULTIPLIER)

VARIANTS: dict[str, Callable[[Cell], JaxVariant]] = {
    "non_private_sparse": lambda cell: variant(cell, NON_PRIVATE),
    "ours_without_noise": without_noise,
    "ours_eager": lambda cell: variant(cell, DP_SGD, lazy_noise="never"),
    "ours_lazy": lambda cell: variant(cell, DP_SGD),
    "ours_eager_momentum": lambda cell: variant(cell, DP_SGD, "momentum", "never"),
    "ours_lazy_momentum": lambda cell: variant(cell, DP_SGD, "momentum"),
}
