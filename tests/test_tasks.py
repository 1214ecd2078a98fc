"""Tasks: their losses, predictions, labels and how they are found."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from dpcompare.errors import UsageError
from dpcompare.tasks import PCTR, PCVR, TASKS, BinaryTask, CountTask, find

Z = jnp.linspace(-6, 6, 25)
CAPS = [1, 2, 5, 20]
ALL_CAPS = [*CAPS, 50, 300]  # the chance of the cap at a mean of 1 is below float32


def counts(cap: int) -> CountTask:
    return CountTask("pconvs", "Predicted number of conversions", cap)


def log_means(cap: int) -> np.ndarray:
    """Outputs inside the bounds, among them 0 and where the two formulas of the tail meet."""
    special = [0.0, np.log(cap / 2)]
    return np.append(np.linspace(-9.9, np.log(cap) + 1.9, 61), special).astype(np.float32)


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
    with pytest.raises(UsageError, match=r"'pctrs' is unknown \(did you mean 'pctr'\?\); there"):
        find("pctrs")


@pytest.mark.parametrize("name", ["pctr", "pcvr"])
def test_binary_tasks_have_two_classes_and_no_cap(name):
    task = find(name)
    assert task.name == name
    assert task.classes == 2
    with pytest.raises(UsageError, match="cap is for counts"):
        find(name, 5)


def test_counts_need_a_cap():
    assert find("pconvs", 5) == counts(5)
    assert hash(find("pconvs", 5)) == hash(counts(5))
    assert find("pconvs", 5) != find("pconvs", 6)
    assert find("pconvs", 5).classes == 6
    with pytest.raises(UsageError, match="'pconvs' needs cap"):
        find("pconvs")
    with pytest.raises(UsageError, match="between 1 and 1,000, got 0"):
        find("pconvs", 0)
    assert TASKS == ("pctr", "pcvr", "pconvs")


def test_binary_log_probabilities_sum_to_one():
    total = sum(jnp.exp(PCVR.log_probability(Z, jnp.float32(label))) for label in (0, 1))
    np.testing.assert_allclose(total, 1, rtol=1e-6)


@pytest.mark.parametrize("cap", CAPS)
def test_the_count_loss_is_the_negative_poisson_log_likelihood(cap):
    f = log_means(cap)
    for label in (0, 1, cap):
        expected = -stats.poisson.logpmf(label, np.exp(f.astype(np.float64))) - gammaln(label + 1)
        found = counts(cap).loss(jnp.asarray(f), jnp.float32(label))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cap", CAPS)
def test_predicted_counts_are_the_means(cap):
    f = log_means(cap)
    np.testing.assert_allclose(counts(cap).predict(jnp.asarray(f)), np.exp(f), rtol=1e-6)


@pytest.mark.parametrize("cap", ALL_CAPS)
def test_count_log_probabilities_are_those_of_poisson_with_the_tail_at_the_cap(cap):
    f = log_means(cap)
    means = np.exp(f.astype(np.float64))
    for label in sorted({0, 1, cap // 2, cap - 1} - {cap}):
        found = counts(cap).log_probability(jnp.asarray(f), jnp.float32(label))
        np.testing.assert_allclose(found, stats.poisson.logpmf(label, means), rtol=2e-5, atol=2e-4)
    found = np.asarray(counts(cap).log_probability(jnp.asarray(f), jnp.float32(cap)))
    expected = stats.poisson.logsf(cap - 1, means)
    known = np.isfinite(expected)  # below 1e-308 SciPy gives up
    np.testing.assert_allclose(found[known], expected[known], rtol=2e-5, atol=2e-4)
    assert known.sum() > 10
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("cap", CAPS)
def test_count_probabilities_sum_to_one(cap):
    f = jnp.asarray(log_means(cap))
    logs = [counts(cap).log_probability(f, jnp.float32(label)) for label in range(cap + 1)]
    np.testing.assert_allclose(jnp.exp(jnp.stack(logs)).sum(axis=0), 1, rtol=2e-5)


@pytest.mark.parametrize("cap", ALL_CAPS)
def test_the_slope_at_the_cap_is_the_one_of_the_tail(cap):
    """d log P(Y >= cap) / df is m P(Y = cap - 1) / P(Y >= cap)."""
    f = log_means(cap)
    means = np.exp(f.astype(np.float64))
    likely = stats.poisson.logpmf(cap - 1, means) - stats.poisson.logsf(cap - 1, means)
    slope = jax.grad(lambda z: counts(cap).log_probability(z, jnp.float32(cap)))
    found = np.asarray(jax.vmap(slope)(jnp.asarray(f)))
    known = np.isfinite(likely)
    expected = means[known] * np.exp(likely[known])
    np.testing.assert_allclose(found[known], expected, rtol=1e-3, atol=1e-4)
    assert known.sum() > 10
    assert np.all(np.isfinite(found))


@pytest.mark.parametrize("cap", [*ALL_CAPS, 1000])
@pytest.mark.parametrize("method", ["loss", "log_probability"])
def test_count_losses_and_slopes_are_finite_everywhere(cap, method):
    function = getattr(counts(cap), method)
    z = jnp.array([-100.0, -10.0, -1.0, 0.0, 1.0, 90.0, 100.0])
    for label in (0.0, 1.0, float(cap)):
        assert np.all(np.isfinite(function(z, jnp.full_like(z, label))))
        slopes = jax.vmap(jax.grad(lambda f, y=label: function(f, jnp.float32(y))))(z)
        assert np.all(np.isfinite(slopes))


@pytest.mark.parametrize("label", [-7.0, 0.0, 3.0, 40.0])
def test_noisy_counts_have_a_lowest_loss_at_a_finite_output(label):
    """Without the quadratic term a label of -7 would drive the loss to minus infinity."""
    slope = jax.grad(lambda f: counts(5).loss(f, jnp.float32(label)))
    z = jnp.array([-1000.0, -100.0, -20.0])
    assert np.all(np.asarray(jax.vmap(slope)(z)) < 0)  # downhill is back towards the bounds
    assert np.all(np.asarray(jax.vmap(slope)(-z)) > 0)
    losses = np.asarray(counts(5).loss(jnp.linspace(-200, 200, 401), jnp.float32(label)))
    assert np.all(np.isfinite(losses))
    assert 0 < losses.argmin() < 400


def test_the_count_loss_is_linear_in_the_label():
    at = [counts(5).loss(Z, jnp.float32(label)) for label in (-7.0, 0.0, 1.0)]
    np.testing.assert_allclose(at[0], at[1] - 7 * (at[2] - at[1]), rtol=1e-5, atol=1e-4)


def test_predictions_are_bounded_and_scored():
    task = counts(5)
    means = np.asarray(task.predict(jnp.array([-1000.0, 0.0, 1000.0])))
    np.testing.assert_allclose(means, [np.exp(-10), 1, 5 * np.e**2], rtol=1e-5)
    scores = task.evaluate(np.array([0, 1, 7]), means)
    assert scores["total"] == 8
    assert np.isfinite(scores["poisson_loss"])


def test_labels_are_clipped_to_the_cap_and_counted():
    labels, clipped = counts(3).capped(np.array([0, 2, 3, 4, 90]))
    np.testing.assert_array_equal(labels, [0, 2, 3, 3, 3])
    assert labels.dtype == np.int64
    assert clipped == 2
    labels, clipped = PCVR.capped(np.array([0.0, 1.0]))
    np.testing.assert_array_equal(labels, [0, 1])
    assert clipped == 0


@pytest.mark.parametrize("bad", [-1, 0.5, np.nan])
def test_what_is_no_label_is_named_with_its_row(bad):
    with pytest.raises(UsageError, match=r"whole number from 0 on, got .* in training row 2"):
        counts(3).capped(np.array([0.0, 1.0, bad]))
    with pytest.raises(UsageError, match=r"0 or 1, got .* in training row 1"):
        PCVR.capped(np.array([0.0, bad]))
    with pytest.raises(UsageError, match=r"0 or 1, got 2 in training row 0"):
        PCVR.capped(np.array([2, 1]))


def test_the_link_gives_the_base_rate():
    assert PCVR.predict(jnp.float32(PCVR.link(0.03))) == pytest.approx(0.03, rel=1e-5)
    assert counts(5).predict(jnp.float32(counts(5).link(0.06))) == pytest.approx(0.06, rel=1e-5)
    for task, rate in ((PCVR, 0.0), (PCVR, 1.0), (counts(5), 0.0), (counts(5), np.inf)):
        with pytest.raises(UsageError, match="base_rate"):
            task.link(rate)
