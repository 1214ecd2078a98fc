"""Book-keeping against one gradient per group, jax-privacy, and the worst inputs."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax_privacy import clipping as jax_privacy_clipping

from dpcompare.clipping import clipped_sum, plain_sum, record_gradients
from dpcompare.data.dataset import Features
from dpcompare.embeddings import EmbeddingTables
from dpcompare.model import Model, Parameters
from tests.networks import (
    SHARED,
    assert_close,
    clip_to,
    dense,
    global_norm,
    logistic,
    naive_clipped_sum,
    random_batch,
    random_model,
)

TABLES = {"one table a column": None, "shared tables": SHARED}


def clipped(model, parameters, features, row_losses, present, weigh, group_size=1):
    """The clipped sum, with an array for every parameter."""
    result = clipped_sum(model, parameters, features, row_losses, present, weigh, group_size)
    return result._replace(gradient=dense(model, parameters, features, result.gradient))


jitted = jax.jit(clipped, static_argnames=("model", "row_losses", "weigh", "group_size"))


@functools.partial(jax.jit, static_argnames=("model", "group_size"))
def compiled(model, parameters, features, slope, labels, present, clip_norm, group_size=1):
    return clipped(
        model,
        parameters,
        features,
        lambda logits: slope * logistic(logits, labels),
        present,
        clip_to(clip_norm),
        group_size,
    )


def ours(model, parameters, features, labels, clip_norm, group_size=1, present=None, slope=1.0):
    present = jnp.ones(len(labels), bool) if present is None else jnp.asarray(present)
    slope = jnp.broadcast_to(jnp.float32(slope), labels.shape)
    return compiled(model, parameters, features, slope, labels, present, clip_norm, group_size)


@pytest.mark.parametrize("tables", TABLES.values(), ids=TABLES)
@pytest.mark.parametrize("group_size", [1, 4, 8])
@pytest.mark.parametrize("clip_norm", [0.05, 0.5, 1e9])
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_one_gradient_per_group(tables, group_size, clip_norm, seed):
    model, parameters = random_model(tables, seed=seed)
    features, labels = random_batch(model, 48, seed)
    result = ours(model, parameters, features, labels, clip_norm, group_size)
    expected = naive_clipped_sum(model, parameters, features, labels, clip_norm, group_size)
    assert_close(result.gradient, expected)
    assert bool(jnp.all(result.weights * result.norms <= clip_norm * (1 + 1e-5)))


@pytest.mark.parametrize("tables", TABLES.values(), ids=TABLES)
def test_the_plain_sum_is_the_ordinary_gradient(tables):
    model, parameters = random_model(tables)
    features, labels = random_batch(model, 48)
    present = jnp.arange(48) % 5 > 0

    def loss(p):
        return jnp.sum(jnp.where(present, logistic(model.logits(p, features), labels), 0.0))

    result = plain_sum(model, parameters, features, lambda z: logistic(z, labels), present)
    assert_close(dense(model, parameters, features, result), jax.grad(loss)(parameters))


@pytest.mark.parametrize("tower", [(), (5,), (16, 8, 4)])
def test_equals_jax_privacy(tower):
    model, parameters = random_model(SHARED, tower)
    features, labels = random_batch(model, 32)

    def loss(p, numeric, ids, y):
        return jnp.sum(logistic(model.logits(p, Features(numeric, ids)), y))

    clipped = jax_privacy_clipping.clipped_grad(loss, l2_clip_norm=0.3, batch_argnums=(1, 2, 3))
    expected = clipped(parameters, features.numeric, features.ids, labels)
    assert_close(ours(model, parameters, features, labels, 0.3).gradient, expected)


def test_rows_hit_twice_by_one_example_are_merged_before_the_norm():
    # ids [2, 2] with gradients (1, 0) and (3, 0): norm 4; with (1, 0) and (-1, 0): norm 0.
    tables = EmbeddingTables((3,), (0, 0))
    width = tables.outputs // 2
    ids = jnp.array([[2, 2], [2, 2], [2, 1]])
    gradients = np.zeros((3, 2 * width), np.float32)
    gradients[:, 0] = 1.0
    gradients[:, width] = [3.0, -1.0, 3.0]
    squared = tables.squared_norms(ids, jnp.asarray(gradients), 1)
    np.testing.assert_allclose(squared, [16.0, 0.0, 10.0])


@pytest.mark.parametrize("group_size", [1, 4])
def test_padding_and_absent_rows_weigh_nothing_even_when_nan(group_size):
    model, parameters = random_model()
    features, labels = random_batch(model, 24)
    present = np.random.default_rng(0).random(24) < 0.6
    expected = naive_clipped_sum(model, parameters, features, labels, 0.4, group_size, present)
    assert_close(
        ours(model, parameters, features, labels, 0.4, group_size, present).gradient, expected
    )
    poisoned = Features(jnp.where(present[:, None], features.numeric, jnp.inf), features.ids)
    result = ours(model, parameters, poisoned, labels, 0.4, group_size, present)
    assert_close(result.gradient, expected)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, 1e38])
@pytest.mark.parametrize("group_size", [1, 4])
def test_a_row_that_is_not_finite_counts_as_zero(bad, group_size):
    model, parameters = random_model()
    features, labels = random_batch(model, 24)
    present = np.ones(24, bool)
    present[[3, 10]] = False
    numeric = np.array(features.numeric)
    numeric[[3, 10], 0] = bad
    result = ours(
        model, parameters, Features(jnp.asarray(numeric), features.ids), labels, 0.4, group_size
    )
    expected = naive_clipped_sum(model, parameters, features, labels, 0.4, group_size, present)
    assert_close(result.gradient, expected)


def test_a_nan_label_counts_as_zero():
    model, parameters = random_model()
    features, labels = random_batch(model, 8)
    poisoned = labels.at[2].set(jnp.nan)
    present = np.arange(8) != 2
    result = ours(model, parameters, features, poisoned, 0.4)
    assert_close(
        result.gradient,
        naive_clipped_sum(model, parameters, features, labels, 0.4, present=present),
    )


def test_empty_batch_sums_to_zero():
    model, parameters = random_model()
    features, labels = random_batch(model, 8)
    result = ours(model, parameters, features, labels, 1.0, present=np.zeros(8, bool))
    assert all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(result.gradient))


def test_zero_gradients_stay_zero():
    model, parameters = random_model()
    features, _ = random_batch(model, 8)
    result = jitted(model, parameters, features, lambda z: 0.0 * z, jnp.ones(8, bool), clip_to(1.0))
    assert all(bool(jnp.all(leaf == 0)) for leaf in jax.tree.leaves(result.gradient))
    assert bool(jnp.all(result.norms == 0))


def test_opposite_examples_are_clipped_one_by_one():
    # Clipping the mean of the two would see a norm of 0 and clip nothing.
    model, parameters = random_model(tower=())
    features, _ = random_batch(model, 1)
    twice = jax.tree.map(lambda a: jnp.concatenate([a, a]), features)
    sign = np.array([10.0, -10.0], np.float32)
    result = jitted(model, parameters, twice, lambda z: sign * z, jnp.ones(2, bool), clip_to(1.0))
    np.testing.assert_allclose(result.weights * result.norms, 1.0, rtol=1e-6)
    assert global_norm(result.gradient) < 1e-5


@pytest.mark.parametrize("group_size", [1, 4, 8])
def test_zeroing_one_row_moves_the_sum_by_at_most_twice_the_clip_norm(group_size):
    """C for single rows, 2C for groups; and random rows come close enough that it could fail."""
    clip_norm, largest = 0.5, 0.0
    for seed in range(6):
        model, parameters = random_model(seed=seed)
        features, labels = random_batch(model, 16, seed)
        slope = np.random.default_rng(seed).choice([1.0, 30.0, -30.0], 16)
        arguments = (model, parameters, features, labels, clip_norm, group_size)
        everything = ours(*arguments, slope=slope).gradient
        for row in range(16):
            without = ours(*arguments, np.arange(16) != row, slope).gradient
            moved = global_norm(jax.tree.map(jnp.subtract, everything, without))
            largest = max(largest, moved)
    bound = clip_norm * (1 if group_size == 1 else 2)
    assert 0.8 * clip_norm < largest <= bound * (1 + 1e-4)


def test_cancelling_rows_of_a_group_cannot_hide_a_norm_above_the_clip_norm():
    model, parameters = random_model(tower=(32,))
    features, _ = random_batch(model, 4)
    same = jax.tree.map(lambda a: jnp.repeat(a[:1], 4, axis=0), features)
    numeric = same.numeric.at[0, 0].add(1e-4)
    scale = np.array([1e4, -1e4, 1e4, -1e4], np.float32)
    result = jitted(
        model, parameters, Features(numeric, same.ids), lambda z: scale * z, jnp.ones(4, bool),
        clip_to(0.01), 4,
    )  # fmt: skip
    assert global_norm(result.gradient) <= 0.01 * (1 + 1e-4)


def test_unrecorded_layer_is_refused(monkeypatch):
    class Leaky(nn.Module):
        widths: tuple[int, ...] = ()

        @nn.compact
        def __call__(self, numeric, embedded):
            from dpcompare.layers import RecordedDense

            x = nn.Dense(4)(jnp.concatenate([jnp.nan_to_num(numeric), embedded], axis=1))
            return RecordedDense(1, name="output")(x)[:, 0]

    monkeypatch.setattr(Model, "network", property(lambda self: Leaky()))
    model = Model(3, EmbeddingTables((5,)), ())
    features = Features(jnp.zeros((2, 3)), jnp.zeros((2, 1), jnp.int32))
    parameters = model.init(jax.random.key(0))
    with pytest.raises(ValueError, match="Dense_0"):
        record_gradients(model, parameters, features, lambda z: z)


def test_parameters_are_counted():
    model, parameters = random_model()
    assert model.parameters == sum(leaf.size for leaf in jax.tree.leaves(parameters))
    assert set(Parameters.__annotations__) == set(parameters)
