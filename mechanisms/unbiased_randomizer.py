"""The optimal unbiased randomizer: epsilon-DP labels whose mean is the true label.

A column of a kernel holds the probabilities of one output, by label. Epsilon-DP says that each
column is a positive combination of extreme columns, whose entries are 1 for some labels, the
members, and ``exp(-epsilon)`` for the others. So the best kernel is a linear program over extreme
columns at all real outputs. It is solved by column generation: the program over a few columns has
dual values under which the most promising further columns are found exactly, since the reduced cost
is piecewise quadratic in the output. There is no grid of outputs, each column has the ratio
``exp(epsilon)`` by construction, and the dual values bound how far from optimal the result can be.
"""

import functools
import math
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_prior import PriorMechanism
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import Task

Array = NDArray[np.float64]

_MOST_LABELS = 51  # about half a minute on one core
_ROUNDS = 200
_TOLERANCE = 1e-5  # of reduced costs, in units of the variance of the best simple kernel
_LARGEST_COST = 1e7  # what costs more can have no weight that counts, and harms the solver
_SMALLEST_WEIGHT = 1e-9
_LARGEST_BIAS = 1e-9
_NEGLIGIBLE = 1e-14  # a variance that float32 labels do not resolve


class UnbiasedRandomizer(PriorMechanism):
    """Label DP without bias, of smallest variance (Badanidiyuru et al., arXiv 2312.05659).

    Each label is replaced by a random number whose mean is the label, whatever the label is. The
    losses of counts and of binary labels are linear in the label, so training sees them without
    bias: predictions are those of the labels, clipped to the cap. Among all epsilon-DP kernels with
    that property this one has the smallest variance for labels drawn from the prior. Outputs may be
    negative, and far outside the labels at small epsilon. For binary labels it is randomized
    response with backward correction.
    """

    def calibrate(self, budget: Budget, schedule: Schedule, task: Task) -> Self:
        """Epsilon, split as :class:`PriorMechanism` does.

        Raises:
            UsageError: there are so many labels that designing a kernel would take minutes.
        """
        if task.classes > _MOST_LABELS:
            raise UsageError(
                f"unbiased-randomizer designs kernels of up to {_MOST_LABELS} labels; the cap of "
                f"{task.name} can be at most {_MOST_LABELS - 1}, got {task.classes - 1}; "
                "additive-noise has no such limit"
            )
        return super().calibrate(budget, schedule, task)

    def design(self, prior: Array, epsilon: float, task: Task) -> LabelKernel:
        """The unbiased kernel of smallest variance."""
        return _remembered(tuple(prior), epsilon)


@functools.lru_cache(maxsize=32)
def _remembered(prior: tuple[float, ...], epsilon: float) -> LabelKernel:
    return unbiased_kernel(prior, epsilon)


def unbiased_kernel(prior: ArrayLike, epsilon: float) -> LabelKernel:
    """The unbiased epsilon-DP kernel of smallest variance (arXiv 2312.05659, section 3).

    Two simple kernels have these properties too: debiased K-ary randomized response, and debiased
    binary randomized response of the label rounded to 0 or K - 1. The optimum is found up to K *
    1e-5 of the smaller one of their variances. Ratio and mean of all three are verified on the
    finished numbers, and among those that pass the one of smallest variance is returned. The time
    grows fast with K: 0.3 s for 11 labels, 1 s for 21.

    Args:
        prior: (K,) probabilities of labels 0 to K - 1, K at least 2.
        epsilon: > 0, at most 700.

    Returns:
        A kernel with at most 2 K outputs, in rising order, whose mean is the label to 1e-9.

    Raises:
        UsageError: epsilon is not above 0, or above 700, or too small to be computed with.
    """
    probabilities = np.asarray(prior, dtype=np.float64)
    simple = [_k_ary(len(probabilities), epsilon), _rounded(len(probabilities), epsilon)]
    kernels = [kernel for kernel in simple if _holds(kernel, epsilon)]
    if not kernels:
        raise UsageError(
            f"epsilon {epsilon:g} of the labels is too small to compute an unbiased randomizer; "
            "raise it"
        )

    def variance(kernel: LabelKernel) -> float:
        return float(probabilities @ kernel.variance(kernel.outputs))

    smallest = min(map(variance, kernels))
    # With two labels everything epsilon-DP is a post-processing of randomized response.
    if len(probabilities) > 2 and smallest > _NEGLIGIBLE:
        designed = _optimum(_Problem(probabilities, epsilon, smallest))
        if designed is not None and _holds(designed, epsilon):
            kernels.append(designed)
    return min(kernels, key=variance)


def _holds(kernel: LabelKernel, epsilon: float) -> bool:
    """Whether the kernel is epsilon-DP and unbiased, as exactly as double precision can tell."""
    bias = np.max(np.abs(kernel.bias(kernel.outputs)))
    return bool(bias <= _LARGEST_BIAS and kernel.epsilon() <= epsilon * (1 + 1e-9))


def _k_ary(labels: int, epsilon: float) -> LabelKernel:
    """K-ary randomized response with the outputs that make it unbiased."""
    probabilities = k_ary_randomized_response(epsilon, labels).probabilities
    y, other = np.arange(labels, dtype=np.float64), probabilities[0, 1]
    contrast = probabilities[0, 0] * -math.expm1(-epsilon)
    return LabelKernel(probabilities, (y - other * y.sum()) / contrast)


def _rounded(labels: int, epsilon: float) -> LabelKernel:
    """Labels rounded to 0 or the cap without bias, then debiased randomized response."""
    small, cap = math.exp(-epsilon), labels - 1
    to_cap = np.arange(labels) / cap
    rounded = np.stack([1 - to_cap, to_cap], axis=1)
    outputs = np.array([-cap * small, cap]) / -math.expm1(-epsilon)
    return LabelKernel((small + (1 - small) * rounded) / (1 + small), outputs)


class _Columns(NamedTuple):
    """Extreme columns: their outputs, (J,), and which labels are members, (J, K)."""

    outputs: Array
    members: NDArray[np.bool_]

    def joined(self, other: "_Columns") -> "_Columns":
        return _Columns(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))

    def where(self, chosen: NDArray[np.bool_]) -> "_Columns":
        return _Columns(self.outputs[chosen], self.members[chosen])


class _Problem(NamedTuple):
    """Minimize the variance over weights of columns, with sums 1 and means y in every row.

    Attributes:
        prior: (K,) probabilities of the labels.
        epsilon: of the labels.
        scale: the variance in units of which costs are counted.
    """

    prior: Array
    epsilon: float
    scale: float

    @property
    def labels(self) -> Array:
        return np.arange(len(self.prior), dtype=np.float64)

    def entries(self, members: NDArray[np.bool_]) -> Array:
        """The columns' entries, (J, K)."""
        return np.where(members, 1.0, math.exp(-self.epsilon))

    def costs(self, columns: _Columns) -> Array:
        """What weight 1 of each column adds to the variance, (J,)."""
        squares = (columns.outputs[:, None] - self.labels) ** 2
        return self.entries(columns.members) * squares @ self.prior / self.scale


def _optimum(problem: _Problem) -> LabelKernel | None:
    """The kernel of smallest variance, or None where the solver fails."""
    columns = _first_columns(problem)
    solution: tuple[_Columns, Array] | None = None
    wanted = np.concatenate([np.ones_like(problem.labels), problem.labels])
    for _ in range(_ROUNDS):
        columns = columns.where(problem.costs(columns) <= _LARGEST_COST)
        entries = problem.entries(columns.members).T
        constraints = np.concatenate([entries, entries * columns.outputs])
        result = linprog(problem.costs(columns), A_eq=constraints, b_eq=wanted, method="highs-ds")
        if result.x is None:
            break
        solution = columns, result.x
        of_sums, of_means = np.split(result.eqlin.marginals, 2)
        further, reduced_costs = _candidates(problem, of_sums, of_means)
        if reduced_costs.min(initial=0.0) >= -_TOLERANCE:
            break
        columns = columns.joined(further.where(reduced_costs < -_TOLERANCE / 10))
    return _exact(problem, *solution) if solution else None


def _first_columns(problem: _Problem) -> _Columns:
    """Those of the simple kernels: single labels, and labels below and above each threshold."""
    labels = len(problem.prior)
    single = _k_ary(labels, problem.epsilon).outputs
    low, high = _rounded(labels, problem.epsilon).outputs
    above = problem.labels >= problem.labels[1:, None]
    return _Columns(
        np.concatenate([single, np.full(labels - 1, high), np.full(labels - 1, low)]),
        np.concatenate([np.eye(labels, dtype=np.bool_), above, ~above]),
    )


def _candidates(problem: _Problem, of_sums: Array, of_means: Array) -> tuple[_Columns, Array]:
    """The columns of locally smallest reduced cost, the globally smallest among them.

    At output o, label y as a member adds ``g = p (o - y)^2 - of_sums - o of_means`` to the reduced
    cost, and ``exp(-epsilon) g`` otherwise, so it should be a member where g < 0. Between the roots
    of all g the members are fixed and the reduced cost is one parabola. At a root its slope falls,
    so no minimum lies there.

    Args:
        problem: whose columns are wanted.
        of_sums: (K,) dual values of the rows' sums.
        of_means: (K,) dual values of the rows' means.
    """
    labels, curvature = problem.labels, problem.prior / problem.scale
    roots = _roots(curvature, of_means, of_sums + of_means * labels, labels)
    middles = np.concatenate([roots[:1] - 1, (roots[1:] + roots[:-1]) / 2, roots[-1:] + 1])

    def gains(outputs: Array) -> Array:
        o = outputs[:, None]
        return curvature * (o - labels) ** 2 - of_sums - o * of_means

    members = gains(middles) < 0
    entries = problem.entries(members)
    outputs = entries @ (curvature * labels + of_means / 2) / (entries @ curvature)
    inside = (np.append(-np.inf, roots) <= outputs) & (outputs <= np.append(roots, np.inf))
    reduced_costs = np.sum(entries * gains(outputs), axis=1)
    return _Columns(outputs, members).where(inside), reduced_costs[inside]


def _roots(curvature: Array, slope: Array, constant: Array, labels: Array) -> Array:
    """Where ``curvature d^2 - slope d - constant`` vanishes, d being the distance to the label."""
    discriminant = slope**2 + 4 * curvature * constant
    curved = (curvature > 0) & (discriminant >= 0)
    straight = (curvature == 0) & (slope != 0)
    root = np.sqrt(discriminant[curved])
    distances = [
        (slope[curved] - root) / (2 * curvature[curved]),
        (slope[curved] + root) / (2 * curvature[curved]),
        -constant[straight] / slope[straight],
    ]
    origins = [labels[curved], labels[curved], labels[straight]]
    found = np.concatenate(distances) + np.concatenate(origins)
    return np.unique(found) if len(found) else np.zeros(1)


def _exact(problem: _Problem, columns: _Columns, weights: Array) -> LabelKernel | None:
    """The kernel of a solution whose constraints hold to the solver's tolerance only.

    Columns with the same members are merged at their mean output, which keeps sums, means and
    ratios and lowers the variance. Then weights, and weights times outputs, get the smallest
    relative correction after which sums and means are right.
    """
    used = weights > _SMALLEST_WEIGHT
    columns, weights = columns.where(used), weights[used]
    members, group = np.unique(columns.members, axis=0, return_inverse=True)
    entries = problem.entries(members).T
    masses = np.bincount(group.ravel(), weights)
    moments = np.bincount(group.ravel(), weights * columns.outputs)
    trust = np.sqrt(masses)
    for _ in range(2):
        for values, wanted in ((masses, np.ones(len(entries))), (moments, problem.labels)):
            missing = wanted - entries @ values
            values += trust * np.linalg.lstsq(entries * trust, missing, rcond=None)[0]
    if np.any(masses <= 0) or np.any(np.abs(entries @ masses - 1) > 1e-12):
        return None
    outputs = moments / masses
    order = np.argsort(outputs)
    return LabelKernel((entries * masses)[:, order], outputs[order])
