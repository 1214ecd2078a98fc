"""Label noise is as private as it says, drawn as it says, and as noisy as it says."""

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from dpcompare.errors import UsageError
from dpcompare.label_noise import GRID, SHAPES, LabelNoise
from dpcompare.randomness import numpy_generator

DRAWS = 200_000
NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
every_shape = pytest.mark.parametrize("shape", SHAPES)
every_epsilon = pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0, 10.0])
every_cap = pytest.mark.parametrize("cap", [1, 2, 5])


class ExtremeWords:
    """A generator whose random words are all 0 or all 1."""

    def __init__(self, ones):
        self.ones = ones

    def integers(self, low, high, size, dtype, endpoint):
        assert (low, high, endpoint) == (0, 2**64 - 1, True)
        return np.full(size, high if self.ones else low, dtype)

    def random(self, size):
        return np.full(size, 1 - 2**-53 if self.ones else 0.0)

    def choice(self, values, size):
        return np.full(size, values[-1])


@cache
def drawn(shape, epsilon, cap):
    stream = numpy_generator("test", shape, epsilon, cap)
    return LabelNoise(shape, epsilon, cap).sample(DRAWS, stream)


def integral(noise, function):
    """Of a symmetric function against the noise; over pieces on which its density is smooth."""
    if noise.shape == "discrete-laplace":
        z = np.arange(-round(60 * noise.cap / noise.epsilon), 60 * noise.cap / noise.epsilon)
        return float(np.sum(function(z) * noise.density(z)))
    stairs = np.arange(math.ceil(60 / noise.epsilon) + 1.0)
    gamma = 1 / (1 + math.exp(noise.epsilon / 2))
    edges = noise.cap * np.sort(np.concatenate([stairs, stairs + gamma]))
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    x = middle[:, None] + half[:, None] * NODES
    return float(np.sum(2 * half[:, None] * WEIGHTS * function(x) * noise.density(x)))


def squares_error(sample):
    """The standard error of the sample's mean square around its mean."""
    squares = (sample - sample.mean()) ** 2
    return squares.std() / math.sqrt(len(sample))


@every_shape
@every_epsilon
@every_cap
def test_no_output_tells_labels_apart_better_than_epsilon_and_one_does(shape, epsilon, cap):
    noise, labels = LabelNoise(shape, epsilon, cap), np.arange(cap + 1)
    if shape == "discrete-laplace":
        outputs = np.arange(-4 * cap, 5 * cap + 1)
    else:
        outputs = np.linspace(-4 * cap, 5 * cap, 9001) + 0.000123
    logs = noise.log_density(outputs[:, None] - labels)
    ratios = logs.max(axis=1) - logs.min(axis=1)
    assert ratios.max() <= epsilon * (1 + 1e-9)
    assert ratios.max() == pytest.approx(epsilon, rel=1e-9)
    assert noise.worst_log_ratio() == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("shape", ["laplace", "staircase"])
@every_epsilon
@every_cap
def test_rounded_outputs_tell_labels_apart_no_better(shape, epsilon, cap):
    noise, labels = LabelNoise(shape, epsilon, cap), np.arange(cap + 1)
    outputs = np.arange(-cap / GRID, 2 * cap / GRID) * GRID
    # From below: differences of probabilities near 1 would have lost their digits.
    far = -np.abs(outputs[:, None] - labels)
    masses = noise.cdf(far + GRID / 2) - noise.cdf(far - GRID / 2)
    assert masses.min() > 0
    assert np.max(np.log(masses.max(axis=1) / masses.min(axis=1))) <= epsilon + 1e-8


@every_shape
@every_epsilon
@every_cap
def test_densities_integrate_to_one_and_variances_are_as_stated(shape, epsilon, cap):
    noise = LabelNoise(shape, epsilon, cap)
    assert integral(noise, np.ones_like) == pytest.approx(1, rel=1e-9)
    assert integral(noise, np.square) == pytest.approx(noise.variance(), rel=1e-9)


@every_shape
@every_epsilon
def test_the_cdf_adds_up_the_density(shape, epsilon):
    noise = LabelNoise(shape, epsilon, 2)
    assert noise.cdf([-1e9, 1e9]) == pytest.approx([0, 1])
    x = np.arange(-7, 7, 0.25)
    if shape == "discrete-laplace":
        whole = np.arange(-7, 7)
        np.testing.assert_allclose(
            noise.cdf(whole) - noise.cdf(whole - 1), noise.density(whole), atol=1e-15
        )
        np.testing.assert_array_equal(noise.cdf(x), noise.cdf(np.floor(x)))
    else:
        fine = np.linspace(-7, 7, 280_001)
        steps = (fine[1:] - fine[:-1]) * noise.density((fine[1:] + fine[:-1]) / 2)
        total = noise.cdf(-7.0) + np.concatenate([[0], np.cumsum(steps)])
        np.testing.assert_allclose(noise.cdf(fine), total, atol=1e-4 * float(noise.density(0)))
        np.testing.assert_allclose(noise.cdf(x), 1 - noise.cdf(-x), atol=1e-12)


@every_shape
@every_epsilon
@every_cap
def test_draws_are_as_frequent_as_the_cdf_says(shape, epsilon, cap):
    noise, sample = LabelNoise(shape, epsilon, cap), drawn(shape, epsilon, cap)
    # Halfway between multiples of the grid, or of 1, so that rounding moves no draw across.
    step = 1 if shape == "discrete-laplace" else GRID
    wanted = np.linspace(-5, 5, 21) * math.sqrt(noise.variance())
    edges = np.unique((np.floor(wanted / step) + 0.5) * step)
    for low, high in pairwise([-np.inf, *edges, np.inf]):
        expected = float(noise.cdf(high) - noise.cdf(low))
        seen = float(np.mean((sample > low) & (sample <= high)))
        assert abs(seen - expected) <= 4 * math.sqrt(expected * (1 - expected) / DRAWS) + 1e-12


@every_shape
@every_epsilon
@every_cap
def test_draws_have_the_stated_variance_and_mean_zero(shape, epsilon, cap):
    noise, sample = LabelNoise(shape, epsilon, cap), drawn(shape, epsilon, cap)
    assert abs(sample.mean()) <= 4 * math.sqrt(noise.variance() / DRAWS)
    assert abs(sample.var() - noise.variance()) <= 4 * squares_error(sample) + GRID**2


@pytest.mark.parametrize(
    ("epsilon", "cap", "variance"),
    [(1, 1, 2), (1, 2, 8), (1, 5, 50), (1, 10, 200), (3, 1, 0.22), (3, 2, 0.89), (3, 5, 5.6)],
)
def test_laplace_variances_are_those_of_the_literature(epsilon, cap, variance):
    assert LabelNoise("laplace", epsilon, cap).variance() == pytest.approx(variance, rel=0.011)


def test_the_staircase_is_better_where_epsilon_is_large_and_the_same_where_it_is_small():
    def ratio(epsilon):
        staircase, laplace = (
            LabelNoise(s, epsilon, 5).variance() for s in ("staircase", "laplace")
        )
        return staircase / laplace

    assert ratio(0.1) == pytest.approx(1, abs=1e-3)
    assert ratio(1) == pytest.approx(0.95984, abs=1e-5)
    assert ratio(3) == pytest.approx(0.71999, abs=1e-5)
    assert ratio(10) < 0.12


@every_epsilon
def test_the_staircase_has_the_mean_absolute_value_that_is_proved_least(epsilon):
    least = 2 * math.exp(epsilon / 2) / math.expm1(epsilon)  # arXiv 1212.1186, sensitivity 2
    assert integral(LabelNoise("staircase", epsilon, 2), np.abs) == pytest.approx(least, rel=1e-9)


@every_shape
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
@pytest.mark.parametrize("cap", [1, 5])
def test_clamped_moments_are_those_of_clamped_draws(shape, epsilon, cap):
    bias, variance = LabelNoise(shape, epsilon, cap).clamped_moments()
    assert bias.shape == variance.shape == (cap + 1,)
    for label in range(cap + 1):
        clamped = np.clip(label + drawn(shape, epsilon, cap), 0, cap)
        error = clamped.std() / math.sqrt(DRAWS)
        assert abs(clamped.mean() - label - bias[label]) <= 4 * error
        assert abs(clamped.var() - variance[label]) <= 4 * squares_error(clamped) + GRID**2


@every_shape
def test_clamping_lifts_zeros_and_lowers_the_largest_label(shape):
    bias, variance = LabelNoise(shape, 1.0, 5).clamped_moments()
    np.testing.assert_allclose(bias, -bias[::-1], atol=1e-12)
    np.testing.assert_allclose(variance, variance[::-1], rtol=1e-12)
    assert bias[0] > 1
    assert np.all(variance < LabelNoise(shape, 1.0, 5).variance() / 4)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 50.0, 88.0, math.inf])
@pytest.mark.parametrize("cap", [1, 2, 5, 40])
def test_the_truncated_geometric_mechanism_attains_epsilon_and_has_the_clamped_moments(
    epsilon, cap
):
    noise = LabelNoise("discrete-laplace", epsilon, cap)
    kernel = noise.clamped_kernel()
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)
    bias, variance = noise.clamped_moments()
    np.testing.assert_allclose(kernel.bias(kernel.outputs), bias, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(kernel.variance(kernel.outputs), variance, rtol=1e-9, atol=1e-300)


def test_only_whole_noise_has_finitely_many_clamped_outputs():
    with pytest.raises(UsageError, match="laplace has infinitely many"):
        LabelNoise("laplace", 1.0, 1).clamped_kernel()


@every_shape
@pytest.mark.parametrize("epsilon", [5e-5, 1.0, 88.0])
def test_every_label_reaches_the_same_values(shape, epsilon):
    noise = LabelNoise(shape, epsilon, 5).sample(20_000, numpy_generator("test", shape, epsilon))
    for label, other in [(0, 5), (5, 0), (3, 2)]:
        difference = (label + noise - other) / (1.0 if shape == "discrete-laplace" else GRID)
        np.testing.assert_array_equal(difference, np.rint(difference))
        np.testing.assert_array_equal((label + noise) - label, noise)


@every_shape
@pytest.mark.parametrize("epsilon", [5e-5, 1.0, 50.0, 88.0])
@pytest.mark.parametrize("ones", [False, True])
def test_the_rarest_draws_are_finite(shape, epsilon, ones):
    noise = LabelNoise(shape, epsilon, 5)
    sample = noise.sample(3, ExtremeWords(ones))
    assert np.all(np.isfinite(sample))
    if not ones and shape == "laplace":
        assert sample == pytest.approx([129 * math.log(2) * 5 / epsilon] * 3, abs=GRID)


@every_shape
@pytest.mark.parametrize("epsilon", [50.0, 88.0])
@every_cap
@pytest.mark.filterwarnings("error")
def test_nothing_overflows_at_large_epsilon(shape, epsilon, cap):
    noise = LabelNoise(shape, epsilon, cap)
    assert noise.worst_log_ratio() == pytest.approx(epsilon, rel=1e-9)
    assert 0 < noise.variance() < 1
    bias, variance = noise.clamped_moments()
    assert np.all(np.isfinite(bias))
    assert np.all(variance > 0)
    assert np.all(np.diff(noise.cdf(np.linspace(-10, 10, 4001))) >= 0)
    sample = noise.sample(10_000, numpy_generator("test", shape, epsilon, cap))
    assert np.abs(sample).max() <= 20 * cap / epsilon


@every_shape
@pytest.mark.filterwarnings("error")
def test_infinite_epsilon_is_no_noise(shape):
    noise = LabelNoise(shape, math.inf, 3)
    np.testing.assert_array_equal(noise.sample(100, numpy_generator("test")), np.zeros(100))
    np.testing.assert_array_equal(noise.cdf([-1e-9, 0, 1]), [0, 1, 1])
    np.testing.assert_array_equal(noise.density([-1.0, 0.0]), [0, 1])
    assert noise.variance() == 0
    assert noise.worst_log_ratio() == math.inf
    for moment in noise.clamped_moments():
        np.testing.assert_array_equal(moment, np.zeros(4))


def test_blocks_are_drawn_one_after_the_other():
    noise = LabelNoise("laplace", 1.0, 1)
    sample = noise.sample(2**18 + 3, numpy_generator("test"))
    assert len(np.unique(sample[-3:])) == 3
    np.testing.assert_array_equal(sample[: 2**18], noise.sample(2**18, numpy_generator("test")))


@pytest.mark.parametrize(
    ("shape", "epsilon", "cap", "message"),
    [
        ("gaussian", 1.0, 1, "laplace, discrete-laplace, staircase, got 'gaussian'"),
        ("laplace", 1.0, 0, "cap of labels must be at least 1, got 0"),
        ("laplace", 0.0, 1, "epsilon must be above 0, got 0.0"),
        ("laplace", math.nan, 1, "epsilon must be above 0, got nan"),
        ("laplace", 89.0, 1, "at most 88, or inf"),
        ("laplace", 1e-6, 5, "take at least 5e-05"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(shape, epsilon, cap, message):
    with pytest.raises(UsageError, match=message):
        LabelNoise(shape, epsilon, cap)
