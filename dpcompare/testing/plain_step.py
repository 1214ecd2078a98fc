"""One training step as plainly as it can be written: the oracle that the trainer is held to.

An ordinary gradient for each row alone, group means, one norm, one weight, one sum. It shares
nothing with the trainer but the network, the mechanism and the drawn rows.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.data.dataset import Features
from dpcompare.data.sampling import ABSENT
from dpcompare.mechanism import Mechanism
from dpcompare.model import Model, Parameters
from dpcompare.tasks import Task
from dpcompare.testing.small_training import SmallTraining, flat


def mean_gradient(training: SmallTraining, parameters: Parameters, drawn: np.ndarray) -> np.ndarray:
    """What a step without noise moves the parameters along, (numbers,).

    Args:
        training: whose mechanism, network and rows they are.
        parameters: where the step begins.
        drawn: the rows of the step, group by group, ABSENT where a group lacks one.
    """
    drawn = np.asarray(drawn)
    rows = np.maximum(drawn, 0)
    taken = jax.tree.map(lambda column: column[rows], (training.features, training.released))
    gradients = _row_gradients(training, parameters, *taken)
    gradients[drawn == ABSENT] = 0.0
    if training.mechanism.gradient() is None:
        return gradients.sum(axis=0) / training.schedule.batch_size
    size = training.group_size
    of_groups = gradients.reshape(-1, size, gradients.shape[1]).sum(axis=1) / size
    norms = np.sqrt((of_groups**2).sum(axis=1))
    weights = weigh(_in_float32(training.mechanism), norms)
    total = (of_groups * weights[:, None].astype(np.float64)).sum(axis=0)
    return total / (training.schedule.batch_size / size)


def _row_gradients(
    training: SmallTraining, parameters: Parameters, features: Features, released: Any
) -> np.ndarray:
    """(rows, numbers) float64."""
    store = jnp.concatenate([jnp.asarray(part) for part in parameters["embeddings"]])
    of_rows = [
        flat(
            _row_gradient(
                training.task,
                training.model,
                type(training.mechanism),
                _in_float32(training.mechanism),
                Parameters(embeddings=(store,), tower=parameters["tower"]),
                *jax.tree.map(lambda column: column[row : row + 1], (features, released)),  # noqa: B023
            )
        )
        for row in range(len(features.ids))
    ]
    return np.stack(of_rows) if of_rows else np.zeros((0, len(flat(parameters))))


def _in_float32(mechanism: Mechanism) -> Mechanism:
    return jax.tree.map(jnp.float32, mechanism)


@partial(jax.jit, static_argnames=("task", "model", "kind"))
def _row_gradient(
    task: Task,
    model: Model,
    kind: type[Mechanism],
    mechanism: Mechanism,
    parameters: Parameters,
    features: Features,
    released: Any,
) -> Parameters:
    """The gradient of one row's loss, of a batch that holds nothing else."""

    def loss(parameters: Parameters) -> jax.Array:
        return mechanism.loss(task, model.logits(parameters, features), released)[0]

    return jax.grad(loss)(parameters)


def weigh(mechanism: Mechanism, norms: np.ndarray) -> np.ndarray:
    """The weights that a mechanism with float32 numbers gives in compiled code, (groups,)."""
    return np.asarray(_weigh(type(mechanism), mechanism, jnp.asarray(norms, jnp.float32)))


@partial(jax.jit, static_argnames="kind")
def _weigh(kind: type[Mechanism], mechanism: Mechanism, norms: jax.Array) -> jax.Array:
    return mechanism.weights(norms)
