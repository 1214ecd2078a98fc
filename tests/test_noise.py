"""The noise has the declared size and shares nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.noise import add_gaussian


@pytest.mark.parametrize("std", [0.01, 1.0, 100.0])
def test_standard_deviation_is_that_asked_for(std):
    n = 200_000
    noise = np.asarray(add_gaussian(jax.random.key(1), jnp.zeros(n), jnp.float32(std)))
    assert abs(noise.std() / std - 1) < 4 / np.sqrt(2 * n)
    assert abs(noise.mean() / std) < 4 / np.sqrt(n)


def test_leaves_and_keys_are_independent():
    n = 10_000
    zeros = {"a": jnp.zeros(n), "b": jnp.zeros(n)}
    first = add_gaussian(jax.random.key(0), zeros, jnp.float32(1))
    second = add_gaussian(jax.random.key(1), zeros, jnp.float32(1))
    draws = np.stack([first["a"], first["b"], second["a"], second["b"]])
    correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
    assert np.max(np.abs(correlations)) < 4.5 / np.sqrt(n)


def test_no_key_is_used_twice():
    with jax.debug_key_reuse(True):
        noised = add_gaussian(jax.random.key(0), {"a": jnp.zeros(3), "b": jnp.zeros(3)}, 1.0)
    assert not np.array_equal(noised["a"], noised["b"])


def test_noise_stays_in_float32_beside_large_values():
    values = jnp.full(50_000, 1.0, jnp.float32)
    noised = np.asarray(add_gaussian(jax.random.key(0), values, jnp.float32(1e-3)), np.float64)
    assert abs(noised.std() / 1e-3 - 1) < 0.02
