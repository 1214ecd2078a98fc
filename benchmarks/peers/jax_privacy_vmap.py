"""jax-privacy: per-example gradients by vmap in microbatches, and its Gaussian privatizer."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax_privacy import clipping, noise_addition
from jax_variant import JaxVariant
from references.model import Parameters, initial, losses
from references.naive import chunk_of
from workload import CLIP_NORM, LEARNING_RATE, NOISE_MULTIPLIER, Batch, Cell


class PrivateState(NamedTuple):
    """Parameters, and what noise and optimizer keep."""

    parameters: Parameters
    noise: optax.OptState
    optimizer: optax.OptState


def make(cell: Cell) -> JaxVariant:
    """A private step, with microbatches as large as those of the naive variant."""

    def mean_loss(parameters: Parameters, batch: Batch) -> jax.Array:
        return jnp.mean(losses(parameters, batch))

    gradient = clipping.clipped_grad(
        mean_loss,
        l2_clip_norm=CLIP_NORM,
        normalize_by=cell.batch,
        batch_argnums=1,
        keep_batch_dim=True,
        microbatch_size=chunk_of(cell),
    )
    privatizer = noise_addition.gaussian_privatizer(
        stddev=NOISE_MULTIPLIER * CLIP_NORM / cell.batch, prng_key=jax.random.key(1)
    )
    optimizer = optax.sgd(LEARNING_RATE)

    def initial_state(key: jax.Array) -> PrivateState:
        parameters = initial(cell, key).parameters
        return PrivateState(parameters, privatizer.init(parameters), optimizer.init(parameters))

    def update(state: PrivateState, batch: Batch) -> PrivateState:
        mean, noise = privatizer.update(gradient(state.parameters, batch), state.noise)
        updates, kept = optimizer.update(mean, state.optimizer)
        return PrivateState(optax.apply_updates(state.parameters, updates), noise, kept)

    return JaxVariant(cell, initial_state, update)


VARIANTS = {"jax_privacy": make}
