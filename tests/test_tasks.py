"""The click task: its loss, its predictions and its labels."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare.errors import UsageError
from dpcompare.tasks import PCTR, BinaryTask, find

Z = jnp.linspace(-6, 6, 25)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_the_loss_is_the_negative_log_likelihood_in_nats(label):
    p = 1 / (1 + np.exp(-np.asarray(Z, np.float64)))
    expected = -np.log(p if label else 1 - p)
    np.testing.assert_allclose(PCTR.loss(Z, jnp.float32(label)), expected, rtol=1e-5, atol=1e-6)


def test_the_loss_is_linear_in_the_label_also_outside_0_and_1():
    at = [PCTR.loss(Z, jnp.float32(label)) for label in (-1.5, 0.0, 1.0)]
    np.testing.assert_allclose(at[0], at[1] - 1.5 * (at[2] - at[1]), rtol=1e-5, atol=1e-5)


def test_the_slope_is_prediction_minus_label_even_where_the_sigmoid_saturates():
    z = jnp.array([-200.0, -30.0, 0.0, 30.0, 200.0])
    slope = jax.vmap(jax.grad(lambda z: PCTR.loss(z, jnp.float32(1))))(z)
    np.testing.assert_allclose(slope, PCTR.predict(z) - 1, atol=1e-7)
    assert np.all(np.isfinite(PCTR.loss(z, jnp.float32(1))))


def test_evaluation_scores_whole_sets_against_the_labels_given():
    scores = PCTR.evaluate(np.array([0, 1, 1, 0]), np.array([0.1, 0.8, 0.6, 0.7]))
    assert scores["auc"] == pytest.approx(3 / 4)
    assert (scores["rows"], scores["positives"]) == (4, 2)


def test_labels_reach_the_loss_as_float32():
    labels = PCTR.training_labels(np.array([0, 1, 1], np.uint8))
    assert labels.dtype == jnp.float32
    np.testing.assert_array_equal(labels, [0, 1, 1])


def test_equal_tasks_are_equal_so_that_they_share_compiled_programs():
    again = BinaryTask(PCTR.name, PCTR.title)
    assert again == PCTR
    assert hash(again) == hash(PCTR)


def test_tasks_are_found_by_name():
    assert find("pctr") is PCTR
    with pytest.raises(UsageError, match=r"'pcrt' is unknown \(did you mean 'pctr'\?\); there are"):
        find("pcrt")
