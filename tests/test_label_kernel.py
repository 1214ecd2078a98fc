"""Label kernels are as private as they say, and drawn as they say."""

import math

import numpy as np
import pytest

from dpcompare.errors import UsageError
from dpcompare.label_kernel import (
    LabelKernel,
    binary_randomized_response,
    k_ary_randomized_response,
)


class Words:
    """A generator that hands out chosen 128-bit numbers."""

    def __init__(self, *numbers):
        self.numbers = numbers

    def integers(self, low, high, size, dtype, endpoint):
        assert (low, high, endpoint) == (0, 2**64 - 1, True)
        assert size == (2, len(self.numbers))
        high_words = [number >> 64 for number in self.numbers]
        low_words = [number & (2**64 - 1) for number in self.numbers]
        return np.array([high_words, low_words], dtype=dtype)


@pytest.mark.parametrize(
    ("epsilon", "classes", "keep"),
    [
        (math.log(3), 2, 0.75),
        (1, 2, 0.7311),
        (1, 10, 0.23197),
        (3, 10, 0.69057),
    ],
)
def test_true_labels_are_kept_as_often_as_epsilon_allows(epsilon, classes, keep):  # LDP-01
    kernel = k_ary_randomized_response(epsilon, classes)
    assert np.allclose(np.diag(kernel.probabilities), keep, rtol=0, atol=5e-5)
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-12)
    if classes == 10 and epsilon == 1:
        assert kernel.probabilities[0, 1] == pytest.approx(0.08534, abs=5e-6)


@pytest.mark.parametrize(("classes", "rate"), [(165, 1.372e-4), (969, 8.051e-4), (2925, 2.426e-3)])
def test_rate_of_uniform_draws_counts_the_real_outputs(classes, rate):  # LDP-02
    other = k_ary_randomized_response(14, classes).probabilities[0, 1]
    assert classes * other == pytest.approx(rate, rel=1e-3)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0, 50.0, 200.0, 700.0])
def test_binary_flips_are_exact_at_any_epsilon(epsilon):
    kernel = binary_randomized_response(epsilon)
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-12)
    flip = kernel.probabilities[0, 1]
    assert flip == pytest.approx(math.exp(-epsilon) / (1 + math.exp(-epsilon)), rel=1e-14)
    assert np.array_equal(kernel.probabilities, kernel.probabilities[::-1, ::-1])


def test_infinite_epsilon_keeps_every_label():
    kernel = binary_randomized_response(math.inf)
    assert math.isinf(kernel.epsilon())
    labels = np.array([0, 1, 1, 0])
    assert np.array_equal(kernel.sample(labels, np.random.default_rng(0)), labels)
    assert np.array_equal(kernel.unbiased_estimates(), [0, 1])


def test_epsilon_is_the_worst_column():
    kernel = LabelKernel(np.array([[0.5, 0.3, 0.2, 0.0], [0.4, 0.3, 0.3, 0.0]]), np.arange(4))
    assert kernel.epsilon() == pytest.approx(math.log(1.5), rel=1e-12)
    leaky = LabelKernel(np.array([[0.5, 0.5], [1.0, 0.0]]), np.arange(2))
    assert math.isinf(leaky.epsilon())


def test_draws_follow_the_probabilities():
    n = 100_000
    probabilities = np.array([[0.6, 0.0, 0.3, 0.1], [0.0, 0.2, 0.2, 0.6], [0.25] * 4])
    kernel = LabelKernel(probabilities, np.arange(4))
    labels = np.repeat(np.arange(3), n)
    drawn = kernel.sample(labels, np.random.default_rng(1))
    for label, row in enumerate(probabilities):
        seen = np.bincount(drawn[labels == label], minlength=4) / n
        assert np.all(np.abs(seen - row) <= 4.5 * np.sqrt(row * (1 - row) / n))


def test_draws_are_reproducible_and_follow_the_generator():
    kernel = binary_randomized_response(0.5)
    labels = np.zeros(1000, dtype=np.int8)
    first = kernel.sample(labels, np.random.default_rng(7))
    assert np.array_equal(first, kernel.sample(labels, np.random.default_rng(7)))
    assert not np.array_equal(first, kernel.sample(labels, np.random.default_rng(8)))


def test_rare_flips_have_exactly_their_share_of_128_bit_numbers():
    kernel = binary_randomized_response(50)
    numerator, denominator = float(kernel.probabilities[0, 1]).as_integer_ratio()
    flips, remainder = divmod(numerator << 128, denominator)
    assert remainder == 0
    whole = 1 << 128
    drawn = kernel.sample(
        np.array([0, 0, 1, 1]), Words(whole - flips - 1, whole - flips, flips - 1, flips)
    )
    assert drawn.tolist() == [0, 1, 0, 1]


def test_flips_too_rare_for_128_bits_become_more_likely_never_less():
    kernel = binary_randomized_response(200)  # 1e-87, far below 2^-128
    drawn = kernel.sample(np.array([1, 1, 0, 0]), Words(0, 1, (1 << 128) - 1, (1 << 128) - 2))
    assert drawn.tolist() == [0, 1, 1, 0]


def test_impossible_outputs_are_never_drawn():
    kernel = LabelKernel(np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]), np.arange(4))
    ends = Words(0, (1 << 128) - 1, 0, (1 << 128) - 1)
    assert kernel.sample(np.array([0, 0, 1, 1]), ends).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 50.0])
def test_binary_estimates_are_those_of_the_closed_form(epsilon):
    kernel = binary_randomized_response(epsilon)
    values = kernel.unbiased_estimates()
    flip = kernel.probabilities[0, 1]
    assert values == pytest.approx([-flip / (1 - 2 * flip), (1 - flip) / (1 - 2 * flip)], rel=1e-9)
    assert np.abs(kernel.bias(values)).max() < 1e-9
    assert kernel.variance(values) == pytest.approx(1 / (4 * math.sinh(epsilon / 2) ** 2), rel=1e-8)


def test_estimates_of_wide_kernels_are_unbiased_and_smallest():
    probabilities = np.array([[0.5, 0.2, 0.2, 0.1], [0.2, 0.4, 0.2, 0.2], [0.1, 0.2, 0.3, 0.4]])
    kernel = LabelKernel(probabilities, np.arange(4))
    values = kernel.unbiased_estimates()
    assert probabilities @ values == pytest.approx([0, 1, 2], abs=1e-12)
    null = np.linalg.svd(probabilities)[2][-1]
    assert abs(values @ null) < 1e-12
    assert kernel.bias(np.zeros(4)).tolist() == [0, -1, -2]


def test_estimates_that_cannot_exist_are_refused():
    constant = LabelKernel(np.array([[0.5, 0.5], [0.5, 0.5]]), np.arange(2))
    with pytest.raises(UsageError, match="linearly dependent"):
        constant.unbiased_estimates()


def test_debiased_rate_finds_the_true_rate():  # LDP-03
    n, rate = 100_000, 0.02
    kernel = binary_randomized_response(1)
    labels = (np.arange(n) < rate * n).astype(np.int64)
    drawn = kernel.sample(labels, np.random.default_rng(2))
    assert drawn.mean() == pytest.approx(0.2782, abs=4.5 * math.sqrt(0.2 / n))
    estimate = kernel.unbiased_estimates()[drawn].mean()
    assert estimate == pytest.approx(rate, abs=4.5 * math.sqrt(0.9207 / n))


@pytest.mark.parametrize(
    ("rate", "epsilon", "fraction"),
    [(0.5, 0.1, 0.0025), (0.5, 1, 0.214), (0.256, 1, 0.171), (0.256, 5, 0.965), (0.03, 3, 0.345),
     (0.003, 8, 0.899)],
)  # fmt: skip
def test_effective_sample_size_of_one_rate(rate, epsilon, fraction):
    kernel = binary_randomized_response(epsilon)
    forward = kernel.effective_sample_size_fraction([rate])
    assert forward == pytest.approx(fraction, rel=0.03)
    assert kernel.effective_sample_size_fraction([rate], "backward") == pytest.approx(forward)
    flip = kernel.probabilities[0, 1]  # Fisher information of a flipped label over a clean one's
    noisy = flip + (1 - 2 * flip) * rate
    information = (1 - 2 * flip) ** 2 * rate * (1 - rate) / (noisy * (1 - noisy))
    assert forward == pytest.approx(information, rel=1e-10)


def test_effective_sample_size_of_varying_rates():
    kernel = binary_randomized_response(2)
    rates = np.array([0.01, 0.1, 0.5])
    v, c = rates * (1 - rates), 1 / (4 * math.sinh(1) ** 2)
    forward = np.mean(v**2 / (v + c)) / v.mean()
    assert kernel.effective_sample_size_fraction(rates) == pytest.approx(forward)
    backward = v.mean() / (v.mean() + c)
    assert kernel.effective_sample_size_fraction(rates, "backward") == pytest.approx(backward)
    assert forward > backward
    assert binary_randomized_response(math.inf).effective_sample_size_fraction([0, 1]) == 1
    assert kernel.effective_sample_size_fraction([0.0]) == 0
    with pytest.raises(UsageError, match="binary"):
        k_ary_randomized_response(1, 3).effective_sample_size_fraction([0.5])
    with pytest.raises(UsageError, match="probabilities"):
        kernel.effective_sample_size_fraction([1.5])
    with pytest.raises(UsageError, match="forward or backward"):
        kernel.effective_sample_size_fraction([0.5], "sideways")


@pytest.mark.parametrize(
    ("probabilities", "outputs", "message"),
    [
        ([0.5, 0.5], [0, 1], "a row per label"),
        ([[0.5, 0.5]], [0], "2 columns"),
        ([[0.5, 0.5]], [0, math.nan], "finite"),
        ([[0.5, 0.5], [0.5, 0.4]], [0, 1], "row 1 .* sum is 0.9"),
        ([[1.5, -0.5]], [0, 1], "row 0 .* smallest is -0.5"),
        ([[math.nan, 0.5]], [0, 1], "row 0"),
    ],
)
def test_wrong_kernels_are_refused(probabilities, outputs, message):
    with pytest.raises(UsageError, match=message):
        LabelKernel(np.array(probabilities), np.array(outputs))


@pytest.mark.parametrize("labels", [[0.0, 1.0], [[0, 1]]])
def test_labels_must_be_a_vector_of_integers(labels):
    with pytest.raises(UsageError, match="vector of integers"):
        binary_randomized_response(1).sample(np.array(labels), np.random.default_rng(0))


@pytest.mark.parametrize("wrong", [-1, 2])
def test_labels_out_of_range_are_named(wrong):
    with pytest.raises(UsageError, match=f"label {wrong} at position 2 is not from 0 to 1"):
        binary_randomized_response(1).sample(np.array([0, 1, wrong]), np.random.default_rng(0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 701.0])
def test_epsilons_out_of_range_are_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        binary_randomized_response(epsilon)


def test_one_class_is_refused():
    with pytest.raises(UsageError, match="2 classes"):
        k_ary_randomized_response(1.0, 1)


def test_kernels_cannot_be_changed():
    kernel = binary_randomized_response(1)
    with pytest.raises(ValueError, match="read-only"):
        kernel.probabilities[0, 0] = 1
