"""The order of the count mechanisms on a linear Poisson model: unbiased beats low-noise.

Two public columns of 90 values each give 180 weights and an intercept; 100,000 training rows have
Poisson counts whose log-mean is a sum of effects of the two values. Each mechanism releases its
labels once; the penalized Poisson likelihood is maximized exactly (Newton's method on the cells of
the table), the ridge is chosen on clean validation rows, and the loss is that of clean test rows.
A share of 0 is what the true labels reach, 1 is the constant model.
"""

import functools
import itertools

import numpy as np
import pytest

from dpcompare.mechanism import find
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import find as find_task

TASK = find_task("pconvs", 2)
ROWS, HELD_OUT, VALUES = 100_000, 40_000, 90
RIDGES = (3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
SEEDS = range(10)  # the spread of five would be known within a third only

UNBIASED = ("unbiased-randomizer", ())
STAIRCASE = ("additive-noise", (("shape", "staircase"),))
LAPLACE = ("additive-noise", (("shape", "laplace"),))
CLAMPED = ("additive-noise", (("shape", "laplace"), ("clamp", True)))
BINS = ("rr-on-bins", ())


class Cells:
    """Rows by cell of the table: how many there are, and the sum of their labels."""

    def __init__(self, cell, labels):
        self.rows = np.bincount(cell, minlength=VALUES**2).reshape(VALUES, VALUES)
        self.total = np.bincount(cell, labels, VALUES**2).reshape(VALUES, VALUES)

    def loss(self, log_mean):
        return float((self.rows * np.exp(log_mean) - self.total * log_mean).sum() / self.rows.sum())


@functools.cache
def table():
    """Cells and counts of the training, validation and test rows; the same for all mechanisms."""
    rng = numpy_generator("the order of the count mechanisms")
    effects = 0.55 * rng.standard_normal((2, VALUES))
    n = ROWS + 2 * HELD_OUT
    columns = rng.integers(0, VALUES, (2, n))
    log_means = effects[0, columns[0]] + effects[1, columns[1]] - 1.95
    labels = rng.poisson(np.exp(log_means))
    cell = columns[0] * VALUES + columns[1]
    bounds = (0, ROWS, ROWS + HELD_OUT, n)
    return [(cell[a:b], labels[a:b]) for a, b in itertools.pairwise(bounds)]


def fitted(train, ridge, start):
    """The log-means (VALUES, VALUES) that maximize the penalized likelihood, and the weights."""
    n, (intercept, first, second) = train.rows.sum(), start
    penalty = np.r_[1e-9, np.full(2 * VALUES, ridge)]
    weights = np.r_[intercept, first, second]
    for _ in range(50):
        log_mean = weights[0] + weights[1 : VALUES + 1, None] + weights[VALUES + 1 :]
        mean = train.rows * np.exp(np.clip(log_mean, -10, 4)) / n
        excess = mean - train.total / n
        slope = np.r_[excess.sum(), excess.sum(1), excess.sum(0)] + penalty * weights
        by_row, by_column = mean.sum(1), mean.sum(0)
        curvature = np.block(
            [
                [mean.sum(), by_row, by_column],
                [by_row[:, None], np.diag(by_row), mean],
                [by_column[:, None], mean.T, np.diag(by_column)],
            ]
        )
        step = np.linalg.solve(curvature + np.diag(penalty), slope)
        weights -= step * min(1.0, 1.0 / np.abs(step).max())
        if np.abs(step).max() < 1e-6:
            break
    return log_mean, (weights[0], weights[1 : VALUES + 1], weights[VALUES + 1 :])


def loss_after(released):
    """Of the fit on released labels whose ridge is best on the validation rows."""
    (cell, _), validation, test = table()
    train, validation, test = Cells(cell, released), Cells(*validation), Cells(*test)
    start = (np.log(max(0.01, released.mean())), np.zeros(VALUES), np.zeros(VALUES))
    found = []
    for ridge in RIDGES:
        log_mean, start = fitted(train, ridge, start)
        found.append((validation.loss(log_mean), test.loss(log_mean)))
    return min(found)[1]


@functools.cache
def shares(mechanism, epsilon):
    """The excess loss as a share of the constant model's gap, (seeds,)."""
    (_, labels), _, test = table()
    mean = test[1].mean()
    constant = mean - mean * np.log(labels.mean())
    clean = loss_after(labels)
    name, parameters = mechanism
    schedule = Schedule(ROWS, 1000, 100, "shuffle")
    calibrated = find(name).build(dict(parameters)).calibrate(Budget(epsilon, 1e-6), schedule, TASK)
    losses = []
    for seed in SEEDS:
        rng = numpy_generator("order", name, str(parameters), epsilon, seed)
        _, released = calibrated.release_labels(labels, None, rng, TASK)
        losses.append(loss_after(np.asarray(released, np.float64)))
    return (np.array(losses) - clean) / (constant - clean)


def standard_error(values):
    return values.std(ddof=1) / len(values) ** 0.5


def mean_share(mechanism, epsilon=1.0):
    return shares(mechanism, epsilon).mean()


def test_the_unbiased_randomizer_is_below_laplace_by_five_standard_errors():
    ahead = shares(LAPLACE, 1.0) - shares(UNBIASED, 1.0)  # draws are independent
    spread = np.hypot(*(shares(m, 1.0).std(ddof=1) for m in (LAPLACE, UNBIASED)))
    assert ahead.mean() > 5 * spread / 5**0.5, "for five draws, their spread estimated from ten"


def test_the_excess_of_laplace_is_at_most_half_of_that_of_rr_on_bins():
    assert 2 * mean_share(LAPLACE) <= mean_share(BINS)


def test_clamping_noisy_labels_is_worst_and_worse_than_the_constant():
    others = [mean_share(m) for m in (UNBIASED, STAIRCASE, LAPLACE, BINS)]
    assert mean_share(CLAMPED) > max(*others, 1.0)


def test_the_staircase_is_below_laplace_at_epsilon_3():
    assert mean_share(STAIRCASE, 3.0) < mean_share(LAPLACE, 3.0)


def test_the_low_noise_labels_are_far_closer_to_the_truth_and_yet_lose():
    """Which is why the error of the labels must not choose the mechanism."""
    (_, labels), _, _ = table()
    schedule = Schedule(ROWS, 1000, 100, "shuffle")
    errors = {}
    for name, parameters in (BINS, UNBIASED):
        mechanism = find(name).build(dict(parameters))
        mechanism = mechanism.calibrate(Budget(1.0, 1e-6), schedule, TASK)
        rng = numpy_generator("order", name)
        released = np.asarray(mechanism.release_labels(labels, None, rng, TASK)[1], np.float64)
        errors[name] = float(np.mean((released - labels) ** 2))
    assert errors["rr-on-bins"] < errors["unbiased-randomizer"] / 10
    assert mean_share(UNBIASED) < mean_share(BINS)


@pytest.mark.parametrize("mechanism", [UNBIASED, STAIRCASE, LAPLACE])
def test_unbiased_labels_leave_something_learnt_at_epsilon_1(mechanism):
    assert mean_share(mechanism) < 0.7
