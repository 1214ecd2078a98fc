"""Label mechanisms designed for a prior: how frequent each label is, publicly known or paid for."""

import math
from collections.abc import Sequence
from typing import Any, Self, cast

import numpy as np
from flax import struct
from numpy.typing import NDArray

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel
from dpcompare.label_mechanism import LabelMechanism, pure_releases
from dpcompare.label_noise import LabelNoise
from dpcompare.privacy import Budget, Release, Schedule
from dpcompare.tasks import Task

Array = NDArray[np.float64]

_SMALLEST, _LARGEST = 2e-5, 176.0  # epsilons for which the noise of a histogram can be drawn


class PriorMechanism(LabelMechanism):
    """Label DP by a kernel that is designed for a prior of the labels.

    Without a public prior, a noisy histogram of the labels takes `prior_share` of epsilon and the
    randomized labels take the rest (Ghazi et al., arXiv 2212.06074): both are releases of every
    label, so their epsilons add up. A subclass says how to :meth:`design` the kernel.

    Attributes:
        prior: public probabilities of labels 0, 1, ..., cap. Empty: a private histogram is drawn.
        prior_share: the part of epsilon that a private histogram gets; unused with a public prior.
        prior_epsilon: of the histogram; 0 with a public prior, and where epsilon is infinite.
        label_epsilon: of the randomized labels.
        private_prior: the histogram that was drawn, normalized. It is protected by the guarantee.
    """

    prior: list[float] = struct.field(default_factory=list)
    prior_share: float = 0.05
    prior_epsilon: float | None = None
    label_epsilon: float | None = None
    private_prior: Any = None

    def check(self) -> None:
        """A public prior holds probabilities; the share leaves something for both releases."""
        if self.prior:
            _check_probabilities(self.prior)
        if not 0 < self.prior_share < 1:
            raise UsageError(
                f"prior_share must lie between 0 and 1, got {self.prior_share}: it is the part of "
                "epsilon that goes to the histogram of labels"
            )

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """Epsilon, split between the histogram, where one is drawn, and the labels."""
        if self.prior and len(self.prior) != task.classes:
            raise UsageError(
                f"prior must hold the {task.classes} probabilities of labels 0 to "
                f"{task.classes - 1} of task {task.name!r}, got {len(self.prior)}"
            )
        needs_histogram = not self.prior and math.isfinite(budget.epsilon)
        prior_epsilon = self.prior_share * budget.epsilon if needs_histogram else 0.0
        if needs_histogram and not _SMALLEST <= prior_epsilon <= _LARGEST:
            raise UsageError(
                f"the histogram of labels would get epsilon {prior_epsilon:g} (prior_share "
                f"{self.prior_share:g} of epsilon {budget.epsilon:g}), and can be drawn for "
                f"{_SMALLEST:g} to {_LARGEST:g}; change prior_share, or give a public prior"
            )
        return (
            super()
            .calibrate(budget, schedule, task)
            .replace(prior_epsilon=prior_epsilon, label_epsilon=budget.epsilon - prior_epsilon)
        )

    def design(self, prior: Array, epsilon: float, task: Task) -> LabelKernel:
        """The kernel for a prior, (K,), at a finite epsilon of the labels."""
        raise NotImplementedError("a mechanism with a prior needs design()")

    def kernel(self, task: Task) -> LabelKernel | None:
        """The designed kernel, or None before a private prior is drawn.

        Raises:
            ValueError: :meth:`calibrate` was not called.
        """
        if math.isinf(self.calibrated_epsilon()):
            return LabelKernel(np.eye(task.classes), np.arange(task.classes, dtype=np.float64))
        known = self.prior or self.private_prior
        if not known:
            return None
        prior = np.asarray(known, np.float64)
        return self.design(prior / prior.sum(), float(cast(float, self.label_epsilon)), task)

    def randomize(
        self, labels: NDArray[np.int64], rng: np.random.Generator, task: Task
    ) -> tuple[Self, Array]:
        """The mechanism with the private prior, if it had to draw one, and an outcome per label."""
        informed = self
        if self.prior_epsilon:
            drawn = private_histogram(labels, task.classes, float(self.prior_epsilon), rng)
            informed = self.replace(private_prior=tuple(float(p) for p in drawn))
        return super(PriorMechanism, informed).randomize(labels, rng, task)

    def events(self, schedule: Schedule) -> Sequence[Release]:
        """The histogram of labels, unless the prior is public, and the randomized labels."""
        self.calibrated_epsilon()
        spent = self.prior_epsilon
        histogram = pure_releases(spent, "label histogram") if spent else []
        return [*histogram, *pure_releases(self.label_epsilon, "randomized labels")]


def private_histogram(
    labels: NDArray[np.integer], classes: int, epsilon: float, rng: np.random.Generator
) -> Array:
    """Frequencies of labels under epsilon-DP for replacing one label; their number is public.

    A replaced label moves two counts by one each, so each count gets discrete Laplace noise
    P(z) proportional to ``exp(-epsilon |z| / 2)`` (Ghosh, Roughgarden, Sundararajan, arXiv
    0811.2841). The noise is whole because the low bits of a floating-point sum give the noise of
    a real-valued Laplace away (Mironov, CCS 2012). Negative counts become 0.

    Args:
        labels: (n,) integers from 0 to `classes` - 1.
        classes: K.
        epsilon: from 2e-5 to 176.
        rng: a generator; it must not draw the same numbers again.

    Returns:
        (K,) probabilities; uniform ones where no count is above 0.

    Raises:
        UsageError: a label or epsilon is out of range.
    """
    labels = np.asarray(labels)
    if np.any((labels < 0) | (labels >= classes)):
        raise UsageError(f"the labels of a histogram must be from 0 to {classes - 1}")
    noise = LabelNoise("discrete-laplace", epsilon / 2, cap=1).sample(classes, rng)
    counts = np.maximum(np.bincount(labels, minlength=classes) + noise, 0.0)
    return counts / counts.sum() if counts.any() else np.full(classes, 1 / classes)


def _check_probabilities(prior: Sequence[Any]) -> None:
    """Refuse what is not a list of probabilities."""
    allowed = "prior must hold the probability of each label, numbers from 0 on that sum to 1"
    for label, value in enumerate(prior):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < math.inf):
            raise UsageError(f"{allowed}; that of label {label} is {value!r}")
    total = math.fsum(prior)
    if not abs(total - 1) <= 1e-6:
        raise UsageError(f"{allowed}; their sum is {total:.9g}")
