"""RR-on-Bins: randomized response on bins of labels, with posterior means as outputs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np
from flax import struct
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_prior import PriorMechanism
from dpcompare.tasks import Task

Array = NDArray[np.float64]
DesignLoss = Literal["poisson", "squared"]

# Losses that differ by less are equal, and then fewer bins are taken.
_EQUAL = 1e-12


class RROnBins(PriorMechanism):
    """Regression label DP of smallest loss (Ghazi et al., arXiv 2212.06074).

    Neighboring labels are merged into bins, randomized response is done on the bins, and a bin's
    output is the mean of the labels given that output. No other epsilon-DP kernel has a smaller
    expected loss between the true label and its output, for labels drawn from the prior. The
    outputs are biased toward the overall mean, more so for rare labels and small epsilon; a network
    that is trained on them predicts shrunken means.

    Attributes:
        design_loss: what the bins minimize: "poisson" (the divergence of a Poisson mean, which the
            loss of a count task is) or "squared". Given bins, the outputs are the same for both.
    """

    design_loss: DesignLoss = struct.field(pytree_node=False, default="poisson")

    def check(self) -> None:
        """Prior, share and loss are possible."""
        super().check()
        if self.design_loss not in get_args(DesignLoss):
            raise UsageError(
                f"rr-on-bins: design_loss must be one of {', '.join(get_args(DesignLoss))}, "
                f"got {self.design_loss!r}"
            )

    def design(self, prior: Array, epsilon: float, task: Task) -> LabelKernel:
        """The kernel of smallest expected loss."""
        return _remembered(tuple(prior), epsilon, self.design_loss)

    def notes(self) -> Sequence[str]:
        """What the bias does to predictions."""
        notes = list(super().notes())
        if math.isfinite(self.calibrated_epsilon()):
            notes.append(
                "labels of rr-on-bins are biased toward their overall mean, so predictions are not "
                "calibrated row by row"
            )
        return notes


@functools.lru_cache(maxsize=32)
def _remembered(prior: tuple[float, ...], epsilon: float, loss: DesignLoss) -> LabelKernel:
    return rr_on_bins(prior, epsilon, loss)[0]


def rr_on_bins(
    prior: ArrayLike, epsilon: float, loss: DesignLoss = "poisson"
) -> tuple[LabelKernel, float]:
    """The epsilon-DP kernel of smallest expected loss, and that loss (arXiv 2212.06074, alg. 2).

    With d bins a label keeps its bin with probability ``1 / (1 + (d - 1) exp(-epsilon))``. So the
    expected loss is that factor times a sum over bins, where a bin's labels weigh their
    probability and all other labels ``exp(-epsilon)`` times theirs; dynamic programming over the
    last label of each bin minimizes it for every d, in O(K^3). Labels without mass join a bin.

    Args:
        prior: (K,) probabilities of labels 0 to K - 1.
        epsilon: finite.
        loss: "squared", ``(y - v)^2``, or "poisson", ``y log(y / v) - y + v``: the Poisson loss at
            v minus that at y.

    Returns:
        A kernel with K rows and d outputs. All K labels give the same single output, without any
        loss of privacy, only where one label has all the mass.

    Raises:
        UsageError: epsilon is not above 0, or above 700.
    """
    probabilities = np.asarray(prior, dtype=np.float64)
    if not 0 < epsilon < math.inf:
        raise UsageError(f"epsilon of rr-on-bins must be finite and above 0, got {epsilon}")
    labels = len(probabilities)
    elsewhere = math.exp(-epsilon)
    values, costs = _bins(probabilities, elsewhere, _DIVERGENCES[loss])
    cheapest = np.full((labels + 1, labels + 1), np.inf)  # by number of bins and labels so far
    cheapest[0, 0] = 0.0
    first_of_last = np.zeros((labels + 1, labels + 1), dtype=np.intp)
    for bins in range(1, labels + 1):
        for end in range(bins, labels + 1):
            options = cheapest[bins - 1, :end] + costs[:end, end - 1]
            first_of_last[bins, end] = np.argmin(options)
            cheapest[bins, end] = options.min()
    losses = cheapest[1:, labels] / (1 + np.arange(labels) * elsewhere)
    count = 1 + int(np.argmax(losses <= losses.min() * (1 + _EQUAL)))
    bin_of_label = np.zeros(labels, dtype=np.intp)
    outputs = np.zeros(count)
    end = labels
    for index in reversed(range(count)):
        start = int(first_of_last[index + 1, end])
        bin_of_label[start:end] = index
        outputs[index] = values[start, end - 1]
        end = start
    if count == 1:
        return LabelKernel(np.ones((labels, 1)), outputs), float(losses[0])
    response = k_ary_randomized_response(epsilon, count).probabilities
    return LabelKernel(response[bin_of_label], outputs), float(losses[count - 1])


def _bins(
    probabilities: Array, elsewhere: float, divergence: Callable[[Array, Array], Array]
) -> tuple[Array, Array]:
    """Output and weighted loss of every bin, by its first and last label: (K, K) each."""
    labels = np.arange(len(probabilities), dtype=np.float64)
    values = np.zeros((len(labels), len(labels)))
    costs = np.full_like(values, np.inf)
    for first in range(len(labels)):
        inside = (labels >= first) & (labels <= labels[first:, None])
        weights = np.where(inside, 1.0, elsewhere) * probabilities
        means = weights @ labels / weights.sum(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = np.where(weights > 0, weights * divergence(labels, means[:, None]), 0.0)
        values[first, first:], costs[first, first:] = means, losses.sum(axis=1)
    return values, costs


def _squared(labels: Array, values: Array) -> Array:
    return (labels - values) ** 2


def _poisson(labels: Array, values: Array) -> Array:
    """``y log(y / v) - y + v``, without cancellation where v is close to y."""
    excess = np.where(labels > 0, (values - labels) / np.maximum(labels, 1.0), np.inf)
    near = np.abs(excess) < 0.5
    close = labels * (excess - np.log1p(np.where(near, excess, 0.0)))
    return np.where(near, close, xlogy(labels, labels / values) - labels + values)


_DIVERGENCES: dict[str, Callable[[Array, Array], Array]] = {
    "poisson": _poisson,
    "squared": _squared,
}
