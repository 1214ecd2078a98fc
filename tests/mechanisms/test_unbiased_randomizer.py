"""The unbiased randomizer: exact mean and ratio, and no larger variance than anything else."""

import math

import numpy as np
import pytest
from dpcompare_mechanisms import unbiased_randomizer
from dpcompare_mechanisms.unbiased_randomizer import UnbiasedRandomizer, unbiased_kernel
from scipy.optimize import linprog
from scipy.sparse import block_array, coo_array, hstack, kron
from scipy.stats import poisson

from dpcompare import accounting, tasks
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0]
CAPS = [1, 2, 5, 10]


def zero_inflated(cap):
    """90 % zeros, else a geometric count cut to 10: mean .1665; what is above the cap is capped."""
    counts = 0.4 ** np.arange(10)
    full = np.concatenate([[0.9], 0.1 * counts / counts.sum()])
    return np.append(full[:cap], full[cap:].sum())


def poisson_prior(cap):
    prior = poisson.pmf(np.arange(cap + 1), 0.3)
    return prior / prior.sum()


def with_gaps(cap):
    prior = np.zeros(cap + 1)
    prior[0] = 0.7
    prior[(cap + 1) // 2] = 0.3
    return prior


PRIORS = {
    "poisson": poisson_prior,
    "zero-inflated": zero_inflated,
    "uniform": lambda cap: np.full(cap + 1, 1 / (cap + 1)),
    "with gaps": with_gaps,
}


def variance(prior, kernel):
    return float(np.dot(prior, kernel.variance(kernel.outputs)))


def debiased_k_ary(labels, epsilon):
    kernel = k_ary_randomized_response(epsilon, labels)
    return LabelKernel(kernel.probabilities, kernel.unbiased_estimates())


def rounded_to_the_ends(labels, epsilon):
    share = np.arange(labels)[:, None] / (labels - 1)
    ends = debiased_k_ary(2, epsilon)
    rows = np.concatenate([1 - share, share], axis=1) @ ends.probabilities
    return LabelKernel(rows, ends.outputs * (labels - 1))


def least_variance_on_grid(prior, epsilon, outputs):
    """The optimum over all unbiased epsilon-DP kernels with these outputs.

    With a variable per output that is its least probability over labels, and a variable per label
    and output for what the probability exceeds it by.
    """
    rows, columns = len(prior), len(outputs)
    labels = np.arange(rows, dtype=float)
    cells = (outputs - labels[:, None]) ** 2 * np.asarray(prior)[:, None]
    identity = coo_array(np.eye(columns))
    above = hstack(
        [
            kron(coo_array(np.eye(rows)), identity),
            kron(coo_array(np.ones((rows, 1))), -math.expm1(epsilon) * identity),
        ]
    )
    sums = hstack([kron(coo_array(np.eye(rows)), np.ones((1, columns))), np.ones((rows, columns))])
    means = hstack([kron(coo_array(np.eye(rows)), outputs[None, :]), np.tile(outputs, (rows, 1))])
    result = linprog(
        np.concatenate([cells.ravel(), cells.sum(axis=0)]),
        A_ub=above,
        b_ub=np.zeros(rows * columns),
        A_eq=block_array([[sums], [means]]),
        b_eq=np.concatenate([np.ones(rows), labels]),
        method="highs",
    )
    assert result.success
    return float(result.fun)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("name", PRIORS)
def test_mean_is_the_label_and_the_ratio_is_spent_but_not_exceeded(name, cap, epsilon):
    prior = PRIORS[name](cap)
    kernel = unbiased_kernel(prior, epsilon)
    assert np.abs(kernel.bias(kernel.outputs)).max() < 1e-10
    assert epsilon * (1 - 1e-9) <= kernel.epsilon() <= epsilon * (1 + 1e-9)
    assert len(kernel.outputs) <= 2 * (cap + 1)
    assert np.all(np.diff(kernel.outputs) >= 0)
    achieved = variance(prior, kernel)
    assert achieved <= variance(prior, debiased_k_ary(cap + 1, epsilon)) * (1 + 1e-9)
    assert achieved <= variance(prior, rounded_to_the_ends(cap + 1, epsilon)) * (1 + 1e-9)
    assert achieved < 2 * (cap / epsilon) ** 2  # Laplace noise
    rate = epsilon / cap  # of discrete Laplace noise
    assert achieved < 1 / (2 * math.sinh(rate / 2) ** 2)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1, 3, 10, 30])
@pytest.mark.parametrize("prior", [[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]])
def test_binary_labels_get_debiased_randomized_response(prior, epsilon):
    kernel = unbiased_kernel(prior, epsilon)
    assert variance(prior, kernel) == pytest.approx(1 / (4 * math.sinh(epsilon / 2) ** 2), rel=1e-9)
    flip = 1 / (1 + math.exp(epsilon))
    assert kernel.probabilities[0] == pytest.approx([1 - flip, flip], rel=1e-9)
    assert kernel.outputs == pytest.approx(
        [-flip / (1 - 2 * flip), (1 - flip) / (1 - 2 * flip)], rel=1e-9
    )


@pytest.mark.parametrize(
    ("epsilon", "cap", "expected"),
    [
        (1, 1, 0.92),
        (1, 2, 3.74),
        (1, 5, 23.5),
        (1, 10, 93),
        (3, 1, 0.055),
        (3, 2, 0.257),
        (3, 5, 1.55),
    ],
)
def test_variances_of_zero_inflated_counts(epsilon, cap, expected):
    prior = zero_inflated(cap)
    assert variance(prior, unbiased_kernel(prior, epsilon)) == pytest.approx(expected, rel=6e-3)


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.parametrize(("cap", "epsilon"), [(2, 0.5), (2, 3.0), (5, 1.0), (5, 3.0), (5, 5.0)])
def test_no_kernel_on_a_grid_of_outputs_has_a_smaller_variance(name, cap, epsilon):
    prior = PRIORS[name](cap)
    kernel = unbiased_kernel(prior, epsilon)
    width = kernel.outputs[-1] - kernel.outputs[0]
    wide = np.linspace(kernel.outputs[0] - width / 4, kernel.outputs[-1] + width / 4, 45)
    best = least_variance_on_grid(prior, epsilon, np.union1d(wide, kernel.outputs))
    assert variance(prior, kernel) == pytest.approx(best, rel=1e-4)


def test_the_optimum_beats_the_simple_kernels_by_far_where_counts_are_rare():
    prior = poisson_prior(10)
    simple = (debiased_k_ary(11, 5.0), rounded_to_the_ends(11, 5.0))
    best = min(variance(prior, kernel) for kernel in simple)
    assert variance(prior, unbiased_kernel(prior, 5.0)) < 0.3 * best


@pytest.mark.parametrize("seed", range(15))
def test_random_priors_and_epsilons(seed):
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(rng.integers(2, 10), 10 ** rng.uniform(-1.5, 1)))
    prior[rng.random(len(prior)) < 0.2] = 0
    prior = prior / prior.sum() if prior.any() else np.eye(len(prior))[0]
    epsilon = 10 ** rng.uniform(-3, 2.7)
    kernel = unbiased_kernel(prior, epsilon)
    assert np.abs(kernel.bias(kernel.outputs)).max() <= 1e-9
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)


def test_a_kernel_that_fails_the_check_is_not_returned(monkeypatch):
    leaky = LabelKernel(np.eye(3), np.arange(3))
    biased = LabelKernel(k_ary_randomized_response(1.0, 3).probabilities, np.arange(3))
    for wrong in (leaky, biased, None):
        monkeypatch.setattr(unbiased_randomizer, "_optimum", lambda problem, wrong=wrong: wrong)
        kernel = unbiased_kernel([0.8, 0.1, 0.1], 1.0)
        assert kernel.epsilon() == pytest.approx(1.0, rel=1e-9)
        assert np.abs(kernel.bias(kernel.outputs)).max() < 1e-12


def test_a_solver_that_fails_leaves_the_simple_kernels(monkeypatch):
    class Failed:
        x = None

    monkeypatch.setattr(unbiased_randomizer, "linprog", lambda *args, **kwargs: Failed)
    prior = poisson_prior(5)
    kernel = unbiased_kernel(prior, 3.0)
    simple = (debiased_k_ary(6, 3.0), rounded_to_the_ends(6, 3.0))
    assert variance(prior, kernel) == pytest.approx(min(variance(prior, k) for k in simple))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 701.0, 1e-12, 1e-17])
def test_epsilons_out_of_range_are_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        unbiased_kernel([0.5, 0.3, 0.2], epsilon)


def at(epsilon, task, **parameters):
    mechanism = UnbiasedRandomizer(**parameters)
    mechanism.check()
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, task)


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_outputs_are_drawn_as_the_kernel_says_and_are_right_on_average(epsilon):
    task, draws = tasks.find("pconvs", 3), 200_000
    mechanism = at(epsilon, task, prior=zero_inflated(3).tolist())
    kernel = mechanism.kernel(task)
    variances = kernel.variance(kernel.outputs)
    for label in range(4):
        _, values = mechanism.release_labels(
            np.full(draws, label), NO_FEATURES, numpy_generator("unbiased", epsilon, label), task
        )
        values = np.asarray(values)
        assert values.dtype == np.float32
        for output, p in zip(kernel.outputs, kernel.probabilities[label], strict=True):
            seen = np.mean(values == np.float32(output))
            assert abs(seen - p) < 4 * math.sqrt(p * (1 - p) / draws)
        error = math.sqrt(variances[label] / draws)
        assert abs(np.mean(values, dtype=np.float64) - label) < 4 * error


def test_with_a_private_prior_labels_above_the_cap_are_clipped_and_the_rest_is_unbiased():
    task = tasks.find("pconvs", 3)
    labels = np.repeat([0, 1, 2, 3, 7], [180_000, 12_000, 5_000, 2_000, 1_000])
    after, values = at(1.0, task).release_labels(
        labels, NO_FEATURES, numpy_generator("private"), task
    )
    assert after.clipped_labels == 1_000
    capped = np.minimum(labels, 3)
    kernel = after.kernel(task)
    error = math.sqrt(kernel.variance(kernel.outputs)[capped].sum())
    assert abs(np.sum(np.asarray(values), dtype=np.float64) - capped.sum()) < 4 * error
    guarantee = accounting.guarantee(after.events(SCHEDULE), 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(1.0, rel=1e-9)
    assert guarantee.unit == "label"


def test_a_design_is_made_once():
    mechanism = at(1.0, tasks.find("pconvs", 3), prior=[0.4, 0.3, 0.2, 0.1])
    first = mechanism.kernel(tasks.find("pconvs", 3))
    assert mechanism.kernel(tasks.find("pconvs", 3)) is first
