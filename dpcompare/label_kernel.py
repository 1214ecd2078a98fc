"""Finite label kernels: how probable each output is for each label, and what that is good for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpcompare.errors import UsageError

Array = NDArray[np.float64]

_DRAW_BITS = 128
_WORD = 2**64 - 1
_BLOCK = 2**18  # labels drawn at a time
# exp(-epsilon) must stay a normal double, or a finite epsilon would turn into no privacy at all.
_LARGEST_EPSILON = 700.0


@dataclass(frozen=True, eq=False)
class LabelKernel:
    """A randomized map from labels 0, 1, ..., K - 1 to finitely many outputs.

    Attributes:
        probabilities: (K, O); row y holds the probabilities of the outputs for label y.
        outputs: (O,) the values that stand for the outputs.
    """

    probabilities: Array
    outputs: Array

    def __post_init__(self) -> None:
        probabilities = np.array(self.probabilities, dtype=np.float64)
        outputs = np.array(self.outputs, dtype=np.float64)
        if probabilities.ndim != 2 or 0 in probabilities.shape:
            raise UsageError(
                f"a label kernel needs a row per label, got shape {probabilities.shape}"
            )
        if outputs.shape != probabilities.shape[1:] or not np.all(np.isfinite(outputs)):
            raise UsageError(
                f"a label kernel with {probabilities.shape[1]} columns needs as many finite "
                f"outputs, got shape {outputs.shape}"
            )
        sums = probabilities.sum(axis=1)
        wrong = ~np.all(probabilities >= 0, axis=1) | ~(np.abs(sums - 1) <= 1e-12)
        if np.any(wrong):
            row = int(np.argmax(wrong))
            raise UsageError(
                f"row {row} of a label kernel must hold probabilities that sum to 1; their "
                f"sum is {sums[row]:.12g}, the smallest is {probabilities[row].min():g}"
            )
        probabilities.flags.writeable = outputs.flags.writeable = False
        object.__setattr__(self, "probabilities", probabilities)
        object.__setattr__(self, "outputs", outputs)

    def epsilon(self) -> float:
        """The largest log likelihood ratio of an output between two labels.

        Infinite where an output is possible for one label only; outputs that are impossible for
        all labels do not count.
        """
        possible = self.probabilities[:, self.probabilities.max(axis=0) > 0]
        with np.errstate(divide="ignore"):
            return float(np.max(np.log(possible.max(axis=0)) - np.log(possible.min(axis=0))))

    def sample(self, labels: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.intp]:
        """Draw an output for each label.

        A draw compares 128 random bits with integer thresholds, so outputs as rare as 3e-39 get
        their probability. What is finer is rounded up, at the cost of the most probable output of
        the row: privacy is lost where an output is too rare for some label, never where it is
        more common than stated.

        Args:
            labels: (n,) integers from 0 to K - 1.
            rng: a generator that nothing else uses.

        Returns:
            (n,) indices into `outputs`.

        Raises:
            UsageError: a label is out of range.
        """
        labels = np.asarray(labels)
        if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
            raise UsageError(
                f"labels must be a vector of integers, got shape {labels.shape}, {labels.dtype}"
            )
        outside = (labels < 0) | (labels >= len(self.probabilities))
        if np.any(outside):
            position = int(np.argmax(outside))
            raise UsageError(
                f"label {labels[position]} at position {position} is not from 0 to "
                f"{len(self.probabilities) - 1}"
            )
        thresholds = self._thresholds()
        last_possible = np.array([np.flatnonzero(row)[-1] for row in self.probabilities])
        drawn = np.zeros(len(labels), dtype=np.intp)
        for start in range(0, len(labels), _BLOCK):
            block = slice(start, start + _BLOCK)
            rows = labels[block]
            words = rng.integers(0, _WORD, size=(2, len(rows)), dtype=np.uint64, endpoint=True)
            for high, low in thresholds:
                equal = words[0] == high[rows]
                drawn[block] += (words[0] > high[rows]) | (equal & (words[1] >= low[rows]))
            drawn[block] = np.minimum(drawn[block], last_possible[rows])
        return drawn

    def unbiased_estimates(self) -> Array:
        """Values of the outputs whose mean is the label: the smallest such, (O,).

        Raises:
            UsageError: no values are unbiased for every label.
        """
        labels = np.arange(len(self.probabilities), dtype=np.float64)
        solution = np.linalg.lstsq(self.probabilities, labels, rcond=None)[0]
        values = np.asarray(solution, dtype=np.float64)
        worst = float(np.max(np.abs(self.bias(values))))
        if not worst <= 1e-9 * max(1.0, float(labels[-1])):
            raise UsageError(
                "no values of this label kernel's outputs have the label as their mean; the best "
                f"are off by {worst:.3g}, because some labels have linearly dependent rows"
            )
        return values

    def bias(self, values: ArrayLike) -> Array:
        """Mean of `values`, (O,), minus the label, for each label: (K,)."""
        labels = np.arange(len(self.probabilities), dtype=np.float64)
        return self.probabilities @ np.asarray(values, dtype=np.float64) - labels

    def variance(self, values: ArrayLike) -> Array:
        """Variance of `values`, (O,), for each label: (K,)."""
        values = np.asarray(values, dtype=np.float64)
        means = self.probabilities @ values
        return np.sum(self.probabilities * (values - means[:, None]) ** 2, axis=1)

    def effective_sample_size_fraction(
        self, rates: ArrayLike, correction: Literal["forward", "backward"] = "forward"
    ) -> float:
        """How many clean labels a flipped label is worth, as a fraction.

        With v = p (1 - p) the variance of a clean label and c = q (1 - q) / (1 - 2q)^2 =
        1 / (4 sinh^2(epsilon / 2)) what flipping with probability q adds to an unbiased estimate
        of it, the Fisher information about logits that the forward likelihood keeps is
        E[v^2 / (v + c)] / E[v]; a loss with unbiased labels keeps E[v] / (E[v] + c). They agree
        when all rates are equal. (Derived for this project; no published source.)

        Args:
            rates: the rows' true probabilities of label 1.
            correction: what training does about the flips.

        Raises:
            UsageError: this is not binary randomized response, or a rate is not from 0 to 1.
        """
        if self.probabilities.shape != (2, 2) or not np.array_equal(
            self.probabilities, self.probabilities[::-1, ::-1]
        ):
            raise UsageError("an effective sample size is known for binary randomized response")
        p = np.asarray(rates, dtype=np.float64)
        if p.size == 0 or not np.all((p >= 0) & (p <= 1)):
            raise UsageError("rates must be probabilities, at least one")
        if correction not in ("forward", "backward"):
            raise UsageError(f"correction must be forward or backward, got {correction!r}")
        flip, keep = self.probabilities[0, 1], self.probabilities[0, 0]
        if flip == 0:
            return 1.0
        added = flip * keep / (keep - flip) ** 2
        v = p * (1 - p)
        if correction == "backward":
            return float(v.mean() / (v.mean() + added))
        return float(np.mean(v**2 / (v + added)) / v.mean()) if v.any() else 0.0

    def _thresholds(self) -> Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """Per boundary between outputs, the 128-bit numbers from which the next output is drawn.

        Each as its high and low 64 bits, (K,). A threshold of 2^128 is cut to the largest number;
        :meth:`sample` takes what this lets through back to the last possible output.
        """
        whole = 1 << _DRAW_BITS
        cumulative = []
        for row in self.probabilities:
            parts = [_scaled_up(probability) for probability in row]
            parts[int(np.argmax(row))] += whole - sum(parts)
            cumulative.append([min(total, whole - 1) for total in accumulate(parts)])
        boundaries = zip(*cumulative, strict=True)
        return [
            (
                np.array([number >> 64 for number in numbers], dtype=np.uint64),
                np.array([number & _WORD for number in numbers], dtype=np.uint64),
            )
            for numbers in list(boundaries)[:-1]
        ]


def binary_randomized_response(epsilon: float) -> LabelKernel:
    """Labels 0 and 1, flipped with probability ``sigmoid(-epsilon)`` (Warner 1965).

    Args:
        epsilon: > 0; infinity keeps every label.

    Raises:
        UsageError: epsilon is not above 0, or finite and above 700.
    """
    return k_ary_randomized_response(epsilon, 2)


def k_ary_randomized_response(epsilon: float, classes: int) -> LabelKernel:
    """Labels 0 to K - 1; each other label has probability ``1 / (exp(epsilon) + K - 1)``.

    Args:
        epsilon: > 0; infinity keeps every label.
        classes: K, at least 2.

    Raises:
        UsageError: epsilon is not above 0, or finite and above 700; or fewer than 2 classes.
    """
    check_label_epsilon(epsilon)
    if classes < 2:
        raise UsageError(f"randomized response needs at least 2 classes, got {classes}")
    small = math.exp(-epsilon)
    probabilities = np.full((classes, classes), small / (1 + (classes - 1) * small))
    np.fill_diagonal(probabilities, 1 / (1 + (classes - 1) * small))
    return LabelKernel(probabilities, np.arange(classes, dtype=np.float64))


def check_label_epsilon(epsilon: float, largest: float = _LARGEST_EPSILON) -> None:
    """Refuse an epsilon of a label that is not above 0, or finite and above `largest`.

    Raises:
        UsageError: it is, with what is allowed.
    """
    if not epsilon > 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}; write inf for no privacy")
    if math.isfinite(epsilon) and epsilon > largest:
        raise UsageError(
            f"epsilon {epsilon:g} of a label cannot be told from no privacy; take at most "
            f"{largest:g}, or inf"
        )


def _scaled_up(probability: float) -> int:
    """``probability * 2^128``, rounded up to an integer without any other rounding."""
    numerator, denominator = float(probability).as_integer_ratio()
    return -(-(numerator << _DRAW_BITS) // denominator)
