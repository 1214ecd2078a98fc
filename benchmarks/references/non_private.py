"""Ordinary training as autodiff writes it: a dense gradient of everything, embeddings included."""

from functools import partial

import jax
import jax.numpy as jnp
from jax_variant import JaxVariant
from workload import Batch, Cell

from references.model import Parameters, State, descend, initial, losses


def dense(cell: Cell) -> JaxVariant:
    """Stochastic gradient descent along the mean gradient."""

    def update(state: State, batch: Batch) -> State:
        def total(parameters: Parameters) -> jax.Array:
            return jnp.sum(losses(parameters, batch))

        gradient_sum = jax.grad(total)(state.parameters)
        return State(descend(state.parameters, gradient_sum, cell.batch), state.step + 1)

    return JaxVariant(cell, partial(initial, cell), update)


VARIANTS = {"non_private_dense": dense}
