"""Tasks: what is predicted, by which loss, and how predictions are scored."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError
from dpcompare.metrics import BinaryMetrics, binary_metrics


@dataclass(frozen=True)
class BinaryTask:
    """Predict a label in {0, 1} by logistic loss; the network's output is the log-odds.

    Tasks are compared by value, so equal tasks share one compiled program.

    Attributes:
        name: the task's name in study files and schemas.
        title: its name in tables and figures.
    """

    name: str
    title: str
    classes: int = 2

    def loss(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Logistic loss per row, (batch,), in nats; linear in the label, so labels may be any real.

        ``softplus(z) - y z``, the negative log-likelihood of a Bernoulli label for y in {0, 1}.
        """
        return jax.nn.softplus(logits) - labels * logits

    def predict(self, logits: jax.Array) -> jax.Array:
        """The probability of label 1, (batch,)."""
        return jax.nn.sigmoid(logits)

    def evaluate(self, labels: np.ndarray, predictions: np.ndarray) -> BinaryMetrics:
        """The task's metrics over a whole set, (n,) each."""
        return binary_metrics(labels, predictions)

    def training_labels(self, labels: np.ndarray) -> jax.Array:
        """Labels as the loss takes them: (n,) float32."""
        return jnp.asarray(np.asarray(labels), jnp.float32)


Task = BinaryTask
PCTR = BinaryTask("pctr", "Predicted click-through rate")
TASKS: dict[str, Task] = {PCTR.name: PCTR}


def find(name: str) -> Task:
    """The task called `name`.

    Raises:
        UsageError: there is none, with the names there are.
    """
    if name not in TASKS:
        raise UsageError(
            f"task {name!r} is unknown{near_miss(name, TASKS)}; there are: {', '.join(TASKS)}"
        )
    return TASKS[name]
