"""Whether the mechanism keeps its promise: all checks of dpcompare, and what only it promises."""

import math
from collections.abc import Callable
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare import accounting
from dpcompare.privacy import Budget, Schedule
from dpcompare.tasks import PCTR
from dpcompare.testing import parametrize_with_checks

from gradient_template import GradientTemplate

SCHEDULE = Schedule(examples=10_000, batch_size=500, steps=100, sampling="poisson")
DELTA = 1e-6


def calibrated(epsilon: float, clip_norm: float = 10.0) -> GradientTemplate:
    mechanism = GradientTemplate(clip_norm=clip_norm)
    return mechanism.calibrate(Budget(epsilon, DELTA), SCHEDULE, PCTR)


@parametrize_with_checks(GradientTemplate)
def test_it_keeps_the_contract(run_check: Callable[[], None]) -> None:
    run_check()


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_the_guarantee_fits_the_budget_and_uses_it_up(epsilon: float) -> None:
    releases = calibrated(epsilon).events(SCHEDULE)
    claim = accounting.guarantee(releases, DELTA, "zero-out")
    assert 0.99 * epsilon < claim.epsilon <= epsilon
    assert (claim.unit, claim.delta) == ("example", DELTA)


def test_one_step_on_all_rows_is_the_gaussian_mechanism() -> None:
    everything = Schedule(examples=1000, batch_size=1000, steps=1, sampling="poisson")
    sigma, epsilon, phi = 2.0, 0.2, NormalDist().cdf
    # Balle and Wang (arXiv 1805.06530), theorem 8, at sensitivity 1.
    delta = phi(0.5 / sigma - epsilon * sigma)
    delta -= math.exp(epsilon) * phi(-0.5 / sigma - epsilon * sigma)
    releases = GradientTemplate(noise_multiplier=sigma).events(everything)
    claim = accounting.guarantee(releases, delta, "zero-out")
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize("clip_norm", [0.01, 1.0, 100.0])
def test_no_gradient_adds_more_than_the_sensitivity(clip_norm: float) -> None:
    mechanism = calibrated(1.0, clip_norm)
    norms = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-20, 1e20, 200)])
    added = np.asarray(mechanism.weights(norms) * norms)
    assert added.max() <= clip_norm * (1 + 1e-6)
    assert added.max() > 0.99 * clip_norm


def test_small_gradients_are_hardly_changed() -> None:
    weights = calibrated(1.0).weights(jnp.array([0.0, 0.1, 10.0]))
    np.testing.assert_allclose(weights, [1.0, 1 - 0.00005, np.sqrt(0.5)], rtol=1e-6)
