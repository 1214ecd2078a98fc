"""The noise has the declared size and shares nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD
from scipy.stats import kstest

from dpcompare.embeddings import EmbeddingTables
from dpcompare.noise import BLOCK, SECRET_DRAWS, add_gaussian, add_gaussian_in_place, normal
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Schedule
from dpcompare.randomness import jax_key
from dpcompare.tasks import PCTR
from dpcompare.trainer import Streams, train
from tests.networks import random_batch, random_model


@pytest.mark.parametrize("size", [1, 2, 7, 1000, 4097, 1 << 16])
def test_normals_are_those_of_jax(size):
    for seed in range(3):
        key = jax.random.fold_in(jax.random.key(seed), size)
        ours = jax.jit(normal, static_argnames="size")(key, size)
        np.testing.assert_array_equal(ours, jax.random.normal(key, (size,), jnp.float32))


@pytest.mark.parametrize("size", [1000, BLOCK, 2 * BLOCK + 77])
def test_noise_in_place_has_the_declared_size_and_repeats_nothing(size):
    start = jnp.full(size, 3.0)
    add = jax.jit(add_gaussian_in_place)
    noised = np.asarray(add(jax.random.key(1), start, jnp.float32(0.5), 0.9), np.float64)
    assert abs((noised - 2.7).std() / 0.5 - 1) < 4 / np.sqrt(2 * size)
    assert abs((noised - 2.7).mean()) < 4 * 0.5 / np.sqrt(size)
    half = BLOCK // 2
    parts = [noised[i : i + half] for i in range(0, size - half + 1, half)]
    for place, part in enumerate(parts):
        for other in parts[:place]:
            assert abs(np.corrcoef(part, other)[0, 1]) < 4.5 / np.sqrt(half)


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


def test_the_sum_of_several_draws_is_a_standard_normal():
    n = 2 * BLOCK
    four = np.asarray(normal(jax.random.key(3), n, SECRET_DRAWS), np.float64)
    one = np.asarray(normal(jax.random.key(3), n), np.float64)
    assert np.mean(four) == pytest.approx(0, abs=5 / np.sqrt(n))
    assert np.mean(four**2) == pytest.approx(1, abs=5 * np.sqrt(2 / n))
    assert np.mean(four**4) == pytest.approx(3, abs=5 * np.sqrt(96 / n))
    assert kstest(four, "norm").pvalue > 1e-6
    assert abs(np.corrcoef(one, four)[0, 1]) < 5 / np.sqrt(n)
    parts = normal(jax.random.key(5), 4 * 101).reshape(4, 101)
    np.testing.assert_allclose(normal(jax.random.key(5), 101, 4), parts.sum(axis=0) / 2, rtol=1e-5)


@pytest.mark.parametrize("lazy", ["never", "always"])
def test_a_run_with_a_secret_has_noise_of_the_declared_size(lazy):
    """Training on a loss without gradient leaves noise alone, in tables and tower."""
    model = random_model(EmbeddingTables((400, 700)))[0]
    features, labels = random_batch(model, 64)

    class Silent(DPSGD):
        def loss(self, task, logits, released):
            return 0.0 * logits

    mechanism = Silent(clip_norm=2.0, noise_multiplier=3.0)
    recipe = Recipe(optimizer="sgd", learning_rate=1.0, decay="constant", lazy_noise=lazy)
    schedule = Schedule(64, 8, 5, "poisson")

    def weights(draws):
        streams = Streams(("shared",), ("noise",), draws)
        found = train(mechanism, PCTR, model, features, labels, schedule, recipe, streams)
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(found)])

    start = model.init(jax_key("init", "shared"))
    start = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(start)])
    one, four = weights(1) - start, weights(4) - start
    size = 2.0 * 3.0 / 8 * np.sqrt(5)
    for noise in (one, four):
        assert np.std(noise) == pytest.approx(size, rel=5 / np.sqrt(2 * noise.size))
    assert abs(np.corrcoef(one, four)[0, 1]) < 5 / np.sqrt(one.size)
