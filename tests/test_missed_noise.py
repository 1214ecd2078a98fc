"""The recurrence of missed noise against linear algebra in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.missed_noise import WINDOW, MissedNoise


def cosine(steps, peak=0.3):
    return peak * 0.5 * (1 + np.cos(np.pi * np.arange(steps) / steps))


@jax.jit
def after_steps(rates, momentum):
    """What has been missed after all the rates."""

    def step(missed, numbered):
        return missed.after_step(*numbered, momentum), None

    numbered = (jnp.arange(len(rates)), rates)
    return jax.lax.scan(step, MissedNoise.nothing(), numbered)[0]


def brute_force(rates, momentum):
    """The 2 x 2 map of (mu v, theta) and the covariance of (v, theta), step by step.

    One step, with p = mu v: v' = p + n, theta' = theta - eta v'.
    """
    linear, covariance = np.eye(2), np.zeros((2, 2))
    for rate in rates:
        of_state = np.array([[momentum, 0.0], [-rate * momentum, 1.0]])  # of (v, theta)
        of_noise = np.array([1.0, -rate])
        covariance = of_state @ covariance @ of_state.T + np.outer(of_noise, of_noise)
        linear = np.array([[momentum, 0.0], [-rate, 1.0]]) @ linear  # of (mu v, theta)
    return linear, covariance


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("steps", [60, WINDOW])
def test_equals_step_by_step_linear_algebra(momentum, steps):
    rates = cosine(steps)
    missed = after_steps(jnp.asarray(rates, jnp.float32), jnp.float32(momentum))
    ages = [age for age in (1, 2, 3, 7, 30, 60, 1000, 5000, steps) if age <= steps]
    for age in ages:
        linear, covariance = brute_force(rates[steps - age :], momentum)
        found = [float(values[steps - age]) for values in missed]
        expected = [linear[0, 0], -linear[1, 0], *covariance[np.tril_indices(2)]]
        scale = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-4, atol=1e-30)
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-4)
        np.testing.assert_allclose(found[3], expected[3], rtol=1e-4, atol=1e-5 * scale.prod())
        np.testing.assert_allclose(found[4], expected[4], rtol=1e-4)


def test_the_end_of_a_long_schedule_keeps_its_variance():
    """Differences of prefix sums in float32 lose up to three quarters of it there."""
    rates = cosine(WINDOW)
    missed = after_steps(jnp.asarray(rates, jnp.float32), jnp.float32(0.9))
    for age in (1, 2, 3, 10):
        _, covariance = brute_force(rates[WINDOW - age :], 0.9)
        assert float(missed.weight_variance[WINDOW - age]) == pytest.approx(
            covariance[1, 1], rel=1e-4
        )


def test_rows_of_this_step_have_missed_nothing():
    missed = after_steps(jnp.asarray(cosine(30), jnp.float32), jnp.float32(0.9))
    catchup = missed.catchup(jnp.array([30, 31, WINDOW]), jnp.float32(0.9))
    np.testing.assert_array_equal(catchup.decay, 1.0)
    for change in (catchup.drift, catchup.velocity, *catchup.weight):
        np.testing.assert_array_equal(change, 0.0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_factors_give_the_covariance(momentum):
    rates = cosine(40)
    missed = after_steps(jnp.asarray(rates, jnp.float32), jnp.float32(momentum))
    catchup = missed.catchup(jnp.array([0, 30, 38, 39]), jnp.float32(momentum))
    for place, start in enumerate((0, 30, 38, 39)):
        _, covariance = brute_force(rates[start:], momentum)
        l21, l22 = (float(values[place]) for values in catchup.weight)
        of_velocity = float(catchup.velocity[place])  # of mu v
        found = [of_velocity**2, of_velocity * l21, l21**2 + l22**2]
        expected = [
            momentum**2 * covariance[0, 0], momentum * covariance[0, 1], covariance[1, 1]
        ]  # fmt: skip
        np.testing.assert_allclose(found, expected, rtol=2e-4, atol=1e-12)
