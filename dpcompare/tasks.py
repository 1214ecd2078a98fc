"""Tasks: what is predicted, by which loss, and how predictions are scored."""

import math
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammainc, gammaln

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError
from dpcompare.metrics import BinaryMetrics, CountMetrics, binary_metrics, count_metrics

_SMALLEST_LOG_RATE = -10.0
_LARGEST_MULTIPLE_OF_CAP = math.e**2
_LARGEST_CAP = 1000
_TAIL_TERMS = 24


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
    classes: ClassVar[int] = 2

    def loss(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Logistic loss per row, (batch,), in nats; linear in the label, so labels may be any real.

        ``softplus(z) - y z``, the negative log-likelihood of a Bernoulli label for y in {0, 1}.
        """
        return jax.nn.softplus(logits) - labels * logits

    def penalty(self, logits: jax.Array) -> jax.Array:
        """What any loss but :meth:`loss` must add, (batch,): nothing, for log-odds are free."""
        return jnp.zeros_like(logits)

    def log_probability(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Log-probability of labels 0 or 1, (batch,); exact where it is close to 0."""
        return -(labels * jax.nn.softplus(-logits) + (1 - labels) * jax.nn.softplus(logits))

    def predict(self, logits: jax.Array) -> jax.Array:
        """The probability of label 1, (batch,)."""
        return jax.nn.sigmoid(logits)

    def possible(self, predictions: jax.Array) -> jax.Array:
        """The nearest probabilities, (batch,)."""
        return jnp.clip(predictions, 0.0, 1.0)

    def evaluate(self, labels: np.ndarray, predictions: np.ndarray) -> BinaryMetrics:
        """The task's metrics over a whole set, (n,) each."""
        return binary_metrics(labels, predictions)

    def training_labels(self, labels: np.ndarray) -> jax.Array:
        """Labels as the loss takes them: (n,) float32."""
        return jnp.asarray(np.asarray(labels), jnp.float32)

    def capped(self, labels: np.ndarray) -> tuple[np.ndarray, int]:
        """The labels as classes 0 and 1, (n,) int64, and how many had to be clipped: none.

        Raises:
            UsageError: a label is neither 0 nor 1.
        """
        return _whole(labels, 1), 0

    def link(self, base_rate: float) -> float:
        """The output at which the prediction is `base_rate`.

        Raises:
            UsageError: it is not between 0 and 1.
        """
        if not 0 < base_rate < 1:
            raise UsageError(f"base_rate of {self.name} must lie between 0 and 1, got {base_rate}")
        return math.log(base_rate) - math.log1p(-base_rate)


@dataclass(frozen=True)
class CountTask:
    """Predict the mean of a count by Poisson loss; the network's output is the log of the mean.

    Log-means are read between -10 and ``log(cap) + 2``, whatever the mechanism; a quadratic term
    pulls what lies outside back, whatever the label, so that noisy labels below 0 cannot drive a
    row to minus infinity. Labels are never bounded by the loss.

    Attributes:
        name: the task's name in study files and schemas.
        title: its name in tables and figures.
        cap: the largest count that a label mechanism keeps, from 1 to 1,000: public knowledge,
            never the largest count of the rows. Other mechanisms train on the counts as they are.
    """

    name: str
    title: str
    cap: int

    def __post_init__(self) -> None:
        if not 1 <= self.cap <= _LARGEST_CAP:
            raise UsageError(
                f"cap of {self.name} must lie between 1 and {_LARGEST_CAP:,}, got {self.cap:,}"
            )

    @property
    def classes(self) -> int:
        """How many labels a label mechanism tells apart, which are 0, 1, ..., cap."""
        return self.cap + 1

    @property
    def smallest_mean(self) -> float:
        """The smallest mean that is predicted."""
        return math.exp(_SMALLEST_LOG_RATE)

    @property
    def largest_mean(self) -> float:
        """The largest mean that is predicted."""
        return self.cap * _LARGEST_MULTIPLE_OF_CAP

    def loss(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Poisson loss per row, (batch,), in nats: ``exp(f) - y f`` (arXiv 2211.11896, eq. 1).

        The negative log-likelihood of a Poisson label without its constant ``log(y!)``. Linear in
        the label, so labels may be any real.
        """
        bounded = self._bounded(logits)
        return jnp.exp(bounded) - labels * bounded + self.penalty(logits)

    def penalty(self, logits: jax.Array) -> jax.Array:
        """What any loss but :meth:`loss` must add, (batch,): the pull back into the bounds."""
        return (logits - self._bounded(logits)) ** 2 / 2

    def log_probability(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        """Poisson log-probability of labels 0 to cap, (batch,); cap stands for "cap or more".

        Outputs are read within their bounds, where :meth:`penalty` pulls them.
        """
        f = self._bounded(logits)
        exactly = labels * f - jnp.exp(f) - gammaln(labels + 1.0)
        return jnp.where(labels == self.cap, self._log_tail(f), exactly)

    def predict(self, logits: jax.Array) -> jax.Array:
        """The mean count, (batch,)."""
        return jnp.exp(self._bounded(logits))

    def possible(self, predictions: jax.Array) -> jax.Array:
        """The nearest means that :meth:`predict` can give, (batch,)."""
        return jnp.clip(predictions, self.smallest_mean, self.largest_mean)

    def evaluate(self, labels: np.ndarray, predictions: np.ndarray) -> CountMetrics:
        """The task's metrics over a whole set, (n,) each."""
        return count_metrics(labels, predictions)

    def training_labels(self, labels: np.ndarray) -> jax.Array:
        """Labels as the loss takes them: (n,) float32."""
        return jnp.asarray(np.asarray(labels), jnp.float32)

    def capped(self, labels: np.ndarray) -> tuple[np.ndarray, int]:
        """The labels clipped to the cap, (n,) int64, and how many were above it.

        Raises:
            UsageError: a label is negative, nan or not whole.
        """
        whole = _whole(labels, None)
        return np.minimum(whole, self.cap), int(np.count_nonzero(whole > self.cap))

    def link(self, base_rate: float) -> float:
        """The output at which the prediction is `base_rate`.

        Raises:
            UsageError: it is not above 0.
        """
        if not 0 < base_rate < math.inf:
            raise UsageError(f"base_rate of {self.name} must be above 0, got {base_rate}")
        return math.log(base_rate)

    def _bounded(self, logits: jax.Array) -> jax.Array:
        return jnp.clip(logits, _SMALLEST_LOG_RATE, math.log(self.largest_mean))

    def _log_tail(self, f: jax.Array) -> jax.Array:
        """Log of the chance that a Poisson count of log-mean f is at least the cap.

        Below a mean of half the cap the incomplete gamma function may vanish in float32, so its
        series is used: ``m^cap exp(-m) / cap! * (1 + m / (cap + 1) + m^2 / ((cap + 1) (cap + 2)) +
        ...)``. Either branch reads a harmless mean where the other holds: gradients of both count.
        """
        switch = math.log(self.cap / 2)
        low = jnp.where(f < switch, f, switch)
        mean, series = jnp.exp(low), jnp.zeros_like(f)
        for term in range(_TAIL_TERMS, 0, -1):
            series = (1.0 + series) * mean / (self.cap + term)
        below = self.cap * low - mean - gammaln(self.cap + 1.0) + jnp.log1p(series)
        chance = gammainc(float(self.cap), jnp.exp(jnp.where(f < switch, switch, f)))
        above = jnp.log(jnp.maximum(chance, jnp.finfo(chance.dtype).tiny))
        return jnp.where(f < switch, below, above)


def _whole(labels: np.ndarray, largest: int | None) -> np.ndarray:
    """The labels as int64, if all are whole and from 0 to `largest`."""
    values = np.asarray(labels)
    allowed = "0 or 1" if largest == 1 else "a whole number from 0 on"
    fits = (values >= 0) & (values == np.trunc(values))
    if largest is not None:
        fits &= values <= largest
    if not np.all(fits):
        row = int(np.argmin(fits))
        raise UsageError(f"the label must be {allowed}, got {values[row]} in training row {row}")
    return values.astype(np.int64)


Task = BinaryTask | CountTask
PCTR = BinaryTask("pctr", "Predicted click-through rate")
PCVR = BinaryTask("pcvr", "Predicted conversion rate")
COUNT_TITLES = {"pconvs": "Predicted number of conversions"}
BINARY = {task.name: task for task in (PCTR, PCVR)}
TASKS = (*BINARY, *COUNT_TITLES)


def find(name: str, cap: int | None = None) -> Task:
    """The task called `name`.

    Args:
        name: one of TASKS.
        cap: of a count, the public largest count that label mechanisms keep; None for others.

    Raises:
        UsageError: there is none, with the names there are; or the cap is missing or in excess.
    """
    if name in BINARY:
        if cap is not None:
            raise UsageError(f"cap is for counts; the labels of task {name!r} are 0 and 1")
        return BINARY[name]
    if name not in COUNT_TITLES:
        raise UsageError(
            f"task {name!r} is unknown{near_miss(name, TASKS)}; there are: {', '.join(TASKS)}"
        )
    if cap is None:
        raise UsageError(
            f"task {name!r} needs cap, the largest count that label mechanisms keep: public "
            "knowledge, e.g. cap = 5, never the largest count of the rows"
        )
    return CountTask(name, COUNT_TITLES[name], cap)
