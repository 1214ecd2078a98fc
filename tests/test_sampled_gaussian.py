"""The law of one step's privacy loss against closed forms."""

import math

import numpy as np
import pytest

from dpcompare.sampled_gaussian import SampledGaussian, loss_deviation, loss_quadrature

DIRECTIONS = ("remove", "add", "replace")


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize(("sigma", "q"), [(0.3, 0.01), (1.0, 1e-5), (20.0, 0.3), (2.0, 1.0)])
def test_weights_and_likelihood_ratios_integrate_to_one(direction, sigma, q):
    losses, log_weights = loss_quadrature(SampledGaussian(sigma, q, 1), direction)
    assert math.fsum(np.exp(log_weights)) == pytest.approx(1, abs=1e-12)
    assert math.fsum(np.exp(log_weights - losses)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 10.0])
def test_without_sampling_the_loss_is_normal(sigma):
    gaussian = SampledGaussian(sigma, 1.0, 1)
    assert loss_deviation(gaussian, "remove") == pytest.approx(1 / sigma)
    assert loss_deviation(gaussian, "add") == pytest.approx(1 / sigma)
    assert loss_deviation(gaussian, "replace") == pytest.approx(2 / sigma)


def test_small_samples_have_the_deviation_of_the_likelihood_ratio():
    gaussian = SampledGaussian(2.0, 1e-5, 1)
    expected = 1e-5 * math.sqrt(math.expm1(2.0**-2))
    assert loss_deviation(gaussian, "remove") == pytest.approx(expected, rel=1e-3)
    assert loss_deviation(gaussian, "add") == pytest.approx(expected, rel=1e-3)
