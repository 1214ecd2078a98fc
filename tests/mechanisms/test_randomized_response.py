"""Randomized response: keep rates and corrections against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare_mechanisms.randomized_response import RandomizedResponse

from dpcompare import accounting
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import PCTR

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
Z = jnp.linspace(-8, 8, 33)


def at(epsilon, correction="forward"):
    mechanism = RandomizedResponse(correction=correction)
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, PCTR)


def flip_probability(epsilon):
    return 1 / (1 + math.exp(epsilon))


def as_float32(mechanism):
    return jax.tree.map(jnp.float32, mechanism)


@pytest.mark.parametrize("epsilon", [0.1, math.log(3), 1.0, 3.0])
@pytest.mark.parametrize("label", [0, 1])
def test_labels_are_kept_with_the_stated_probability(epsilon, label):
    n = 200_000
    labels = np.full(n, label)
    _, released = at(epsilon).release_labels(
        labels, NO_FEATURES, numpy_generator("test", epsilon, label), PCTR
    )
    kept = float(np.mean(np.asarray(released) == label))
    expected = math.exp(epsilon) / (1 + math.exp(epsilon))
    assert abs(kept - expected) < 4 * math.sqrt(expected * (1 - expected) / n)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0, 50.0])
def test_the_guarantee_is_epsilon_exactly_and_covers_labels_only(epsilon):
    guarantee = accounting.guarantee(at(epsilon).events(SCHEDULE), 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (guarantee.delta, guarantee.unit) == (0.0, "label")
    assert guarantee.neighboring == "replace-one-label"
    assert set(guarantee.other_relations.values()) == {None}
    assert at(epsilon).kernel(PCTR).epsilon() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_backward_loss_is_unbiased(epsilon):
    mechanism, q = at(epsilon, "backward"), flip_probability(epsilon)
    for label in (0.0, 1.0):
        expected = (1 - q) * mechanism.loss(PCTR, Z, jnp.float32(label)) + q * mechanism.loss(
            PCTR, Z, jnp.float32(1 - label)
        )
        np.testing.assert_allclose(expected, PCTR.loss(Z, jnp.float32(label)), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_forward_loss_is_the_likelihood_of_the_flipped_label(epsilon):
    mechanism, q = at(epsilon), flip_probability(epsilon)
    flipped_one = q + (1 - 2 * q) * np.asarray(jax.nn.sigmoid(Z), np.float64)
    np.testing.assert_allclose(
        mechanism.loss(PCTR, Z, jnp.float32(1)), -np.log(flipped_one), rtol=1e-5
    )
    np.testing.assert_allclose(
        mechanism.loss(PCTR, Z, jnp.float32(0)), -np.log1p(-flipped_one), rtol=1e-5
    )


def test_forward_loss_and_its_slope_are_exact_where_the_sigmoid_saturates():
    mechanism = as_float32(at(50.0))
    z = jnp.array([-35.0, -25.0, 25.0, 35.0])
    for label in (0.0, 1.0):
        y = jnp.float32(label)
        loss, slope = (f(z) for f in _loss_and_slope(mechanism, y))
        plain = np.logaddexp(0, np.where(label == 1, -z, z).astype(np.float64))
        plain_slope = np.where(label == 1, -jax.nn.sigmoid(-z), jax.nn.sigmoid(z))
        np.testing.assert_allclose(loss, plain, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(slope, plain_slope, rtol=1e-5, atol=1e-12)


def _loss_and_slope(mechanism, y):
    return (
        lambda z: mechanism.loss(PCTR, z, y),
        jax.vmap(jax.grad(lambda z: mechanism.loss(PCTR, z, y))),
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
def test_post_hoc_inverts_the_flip(epsilon):
    mechanism, q = at(epsilon, "post-hoc"), flip_probability(epsilon)
    rate = np.linspace(0.01, 0.99, 9)
    observed = q + (1 - 2 * q) * rate
    logits = jnp.asarray(np.log(observed / (1 - observed)), jnp.float32)
    np.testing.assert_allclose(mechanism.predict(PCTR, logits), rate, atol=1e-5)
    assert float(mechanism.predict(PCTR, jnp.array([-20.0]))[0]) == 0.0
    assert float(mechanism.predict(PCTR, jnp.array([20.0]))[0]) == 1.0


def test_without_correction_the_result_is_marked():
    assert any("not calibrated" in note for note in at(1.0, "none").notes())
    assert not at(1.0).notes()


@pytest.mark.parametrize("correction", ["none", "backward", "post-hoc"])
def test_at_epsilon_50_nothing_is_flipped_and_the_loss_is_bitwise_the_plain_one(correction):
    mechanism = at(50.0, correction)
    labels = (np.random.default_rng(0).random(100_000) < 0.25).astype(np.float64)
    mechanism, released = mechanism.release_labels(
        labels, NO_FEATURES, numpy_generator("test"), PCTR
    )
    np.testing.assert_array_equal(released, labels)
    few = as_float32(mechanism), jnp.asarray(released[: len(Z)])
    np.testing.assert_array_equal(few[0].loss(PCTR, Z, few[1]), PCTR.loss(Z, few[1]))


def test_unknown_corrections_are_refused():
    with pytest.raises(UsageError, match="forward, backward, post-hoc, none"):
        RandomizedResponse(correction="sideways").check()


def test_uncalibrated_use_is_an_error():
    with pytest.raises(ValueError, match="calibrate"):
        RandomizedResponse().kernel(PCTR)
