"""The matrix products of a training step and nothing else: what no variant can be faster than.

Each dense layer takes three products of equal size: outputs, gradient of the kernel, gradient of
the inputs. Share of the machine's floor = examples/s of a variant / examples/s of this one.
"""

from typing import NamedTuple

import jax
from jax_variant import JaxVariant
from workload import Batch, Cell


class State(NamedTuple):
    """Kernels of the dense layers, and the first layer's inputs."""

    kernels: list[jax.Array]
    inputs: jax.Array


def products(cell: Cell) -> JaxVariant:
    """The products, chained as in a step so that none can be left out."""

    def initial(key: jax.Array) -> State:
        kernels = [jax.random.normal(key, shape) * (1 / shape[0]) ** 0.5 for shape in cell.layers]
        return State(kernels, jax.random.normal(key, (cell.batch, cell.layers[0][0])))

    def update(state: State, batch: Batch) -> State:
        values, inputs = state.inputs, []
        for kernel in state.kernels:
            inputs.append(values)
            values = values @ kernel
        kernels = []
        for kernel, value in zip(reversed(state.kernels), reversed(inputs), strict=True):
            kernels.append(kernel + 1e-9 * (value.T @ values))
            values = values @ kernel.T
        return State(kernels[::-1], state.inputs + 1e-9 * values)

    return JaxVariant(cell, initial, update)


VARIANTS = {"matmul_floor": products}
