"""Finite label kernels: exact likelihood ratios, exact sampling, unbiased estimates."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from dpcompare.errors import UsageError

Array = NDArray[np.float64]
WORD = 2**64


@dataclass(frozen=True)
class LabelKernel:
    """The probability of every output for every label.

    Attributes:
        probabilities: (labels, outputs), rows sum to 1. Small entries are exact to their own
            relative precision; rounding to sum 1 falls on the largest entry of a row.
    """

    probabilities: Array

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 2 or not np.all((p >= 0) & (p <= 1)):
            raise UsageError("a label kernel is a matrix of probabilities, (labels, outputs)")
        if not np.allclose(p.sum(axis=1), 1.0, rtol=0, atol=1e-12):
            raise UsageError("the rows of a label kernel must sum to 1")

    def epsilon(self) -> float:
        """The exact pure epsilon: the worst log ratio of two labels' probabilities of one output.

        Infinite where one label can give an output that another cannot.
        """
        used = self.probabilities[:, self.probabilities.max(axis=0) > 0]
        smallest, largest = used.min(axis=0), used.max(axis=0)
        if np.any(smallest == 0):
            return math.inf
        return float(np.max(np.log(largest) - np.log(smallest)))

    def sample(self, labels: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.int64]:
        """An output for each label, (n,).

        Each draw compares 128 random bits with thresholds that are the exact sums of the row's
        probabilities, rarest output first, so that an output of probability 1e-22 is as exact as
        any. An output's threshold is rounded up: in a row the rare ones, which are what hides the
        label, never become less likely than stated; the most likely one takes the difference.

        Raises:
            UsageError: a label is not the index of a row.
        """
        labels = np.asarray(labels)
        if labels.size and not (labels.min() >= 0 and labels.max() < len(self.probabilities)):
            raise UsageError(
                f"labels must be 0 to {len(self.probabilities) - 1}, found "
                f"{labels.min()} to {labels.max()}"
            )
        high, low = rng.integers(0, WORD, size=(2, labels.size), dtype=np.uint64)
        outputs = np.empty(labels.size, np.int64)
        for label, row in enumerate(self.probabilities):
            mine = np.flatnonzero(labels == label)
            outputs[mine] = _outputs_of(row, high[mine], low[mine])
        return outputs

    def unbiased_estimates(self) -> Array:
        """A value v for each output with ``E[v | label y] = y``, (outputs,), of smallest norm.

        Raises:
            UsageError: no such values exist, for the kernel confuses labels too much.
        """
        wanted = np.arange(len(self.probabilities), dtype=np.float64)
        values = np.linalg.lstsq(self.probabilities, wanted, rcond=None)[0]
        if not np.allclose(self.probabilities @ values, wanted, atol=1e-6):
            raise UsageError("the label kernel has no unbiased estimates")
        return values


def _outputs_of(
    row: Array, high: NDArray[np.uint64], low: NDArray[np.uint64]
) -> NDArray[np.int64]:
    order = np.argsort(row, kind="stable")
    chosen = np.full(len(high), order[-1], np.int64)
    undecided = np.ones(len(high), bool)
    threshold = 0
    for output in order[:-1]:
        numerator, denominator = float(row[output]).as_integer_ratio()
        threshold += -(-numerator * WORD**2 // denominator)
        first, second = (np.uint64(min(part, WORD - 1)) for part in divmod(threshold, WORD))
        below = (high < first) | ((high == first) & (low < second))
        chosen[undecided & below] = output
        undecided &= ~below
    return chosen


def binary_randomized_response(epsilon: float) -> LabelKernel:
    """Each of two labels, flipped with probability ``sigmoid(-epsilon)``.

    Args:
        epsilon: > 0; infinite never flips.
    """
    return k_ary_randomized_response(epsilon, 2)


def k_ary_randomized_response(epsilon: float, classes: int) -> LabelKernel:
    """The label with probability ``e^eps / (e^eps + K - 1)``, else one of the K - 1 others.

    Warner (1965) for K = 2; each other label has probability ``1 / (e^eps + K - 1)``.

    Raises:
        UsageError: epsilon is not above 0, or there are fewer than two classes.
    """
    if not epsilon > 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")
    if classes < 2:
        raise UsageError(f"randomized response needs at least 2 classes, got {classes}")
    # 1 / (e^eps + K - 1), stable at any epsilon.
    other = float(expit(-epsilon + math.log(classes - 1))) / (classes - 1)
    matrix = np.full((classes, classes), other)
    np.fill_diagonal(matrix, 1.0 - (classes - 1) * other)
    return LabelKernel(matrix)


def effective_sample_share(epsilon: float, rates: ArrayLike) -> dict[str, float]:
    """What share of the rows randomized response leaves, by Fisher information of the log-odds.

    With v = p (1 - p) and c = 1 / (4 sinh^2(epsilon / 2)), the variance that flips add to an
    unbiased label: ``forward`` E[v^2 / (v + c)] / E[v]; ``backward`` E[v] / (E[v] + c).

    Args:
        epsilon: > 0.
        rates: (n,) label probabilities of the rows.
    """
    p = np.asarray(rates, dtype=np.float64)
    v = p * (1 - p)
    c = 0.0 if epsilon > 1400 else 1 / (4 * math.sinh(epsilon / 2) ** 2)
    mean = float(v.mean())
    return {
        "forward": float(np.mean(v**2 / (v + c))) / mean,
        "backward": mean / (mean + c),
    }
