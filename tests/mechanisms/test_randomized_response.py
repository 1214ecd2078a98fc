"""Randomized response: keep rates and corrections against closed forms."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dpcompare_mechanisms.randomized_response import RandomizedResponse
from scipy.stats import nbinom, poisson

from dpcompare import accounting
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import PCTR
from dpcompare.tasks import find as find_task

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


# --- counts: K = cap + 1 labels -----------------------------------------------------------------

COUNTS = find_task("pconvs", 5)
CAPS = (1, 2, 5, 10)
F = jnp.linspace(-4, 2, 13)


def for_counts(epsilon, correction="forward", task=COUNTS):
    return RandomizedResponse(correction=correction).calibrate(
        Budget(epsilon, 1e-6), SCHEDULE, task
    )


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 10.0, 50.0])
def test_the_worst_ratio_of_k_labels_is_e_to_the_epsilon_and_attained(epsilon, cap):
    kernel = for_counts(epsilon).kernel(find_task("pconvs", cap))
    assert kernel.probabilities.shape == (cap + 1, cap + 1)
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("label", [0, 3, 5])
def test_counts_are_kept_and_replaced_with_the_stated_frequencies(label):
    n = 200_000
    mechanism = for_counts(1.0)
    _, released = mechanism.release_labels(
        np.full(n, label), NO_FEATURES, numpy_generator("counts", label), COUNTS
    )
    found = np.bincount(np.asarray(released).astype(int), minlength=6) / n
    expected = mechanism.kernel(COUNTS).probabilities[label]
    assert expected[label] == pytest.approx(math.e / (math.e + 5))
    np.testing.assert_array_less(
        np.abs(found - expected), 4 * np.sqrt(expected * (1 - expected) / n)
    )


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("cap", CAPS)
def test_the_forward_loss_of_counts_is_the_likelihood_of_the_released_label(epsilon, cap):
    """Against scipy's Poisson probabilities, with the tail in the last label, times the kernel."""
    task = find_task("pconvs", cap)
    mechanism = as_float32(for_counts(epsilon, task=task))
    means = np.exp(np.asarray(F, np.float64))
    counts = np.arange(cap + 1)
    labels = poisson.pmf(counts, means[:, None])
    labels[:, -1] = poisson.sf(cap - 1, means)
    released = labels @ for_counts(epsilon, task=task).kernel(task).probabilities
    for y in counts:
        loss = mechanism.loss(task, F, jnp.full(F.shape, float(y)))
        np.testing.assert_allclose(loss, -np.log(released[:, y]), rtol=2e-5, atol=2e-6)
        slope = jax.vmap(jax.grad(lambda f, y=y: mechanism.loss(task, f, jnp.float32(y))))(F)
        assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 5.0])
@pytest.mark.parametrize("label", [0, 2, 5])
def test_the_backward_loss_of_counts_is_unbiased(epsilon, label):
    mechanism = for_counts(epsilon, "backward")
    chances = mechanism.kernel(COUNTS).probabilities[label]
    losses = [mechanism.loss(COUNTS, F, jnp.full(F.shape, float(y))) for y in range(6)]
    expected = np.tensordot(chances, np.asarray(losses, np.float64), 1)
    np.testing.assert_allclose(expected, COUNTS.loss(F, jnp.float32(label)), rtol=1e-3, atol=1e-3)


def test_backward_reads_released_counts_as_the_kernels_unbiased_estimates():
    mechanism = for_counts(1.0, "backward")
    estimates = mechanism.kernel(COUNTS).unbiased_estimates()
    slope = [
        COUNTS.loss(F, jnp.float32(0)) - mechanism.loss(COUNTS, F, jnp.float32(y)) for y in range(6)
    ]
    # The loss is exp(f) - y f, so the difference from label 0 is y f.
    np.testing.assert_allclose(np.asarray(slope)[:, 0] / -4.0, estimates, rtol=1e-5, atol=1e-5)


def test_post_hoc_inverts_the_mean_of_released_counts():
    mechanism = for_counts(1.0, "post-hoc")
    kernel = mechanism.kernel(COUNTS)
    means = np.linspace(0.1, 4.9, 9)
    at = kernel.probabilities @ kernel.outputs  # linear in the label
    observed = at[0] + (at[5] - at[0]) * means / 5
    predicted = mechanism.predict(COUNTS, jnp.asarray(np.log(observed), jnp.float32))
    np.testing.assert_allclose(predicted, means, rtol=1e-4, atol=1e-4)
    assert float(mechanism.predict(COUNTS, jnp.array([-9.0]))[0]) > 0, "a mean is above 0"


def test_labels_above_the_cap_are_clipped_counted_and_reported():
    labels = np.array([0, 7, 5, 60, 1])
    mechanism, released = for_counts(math.inf).release_labels(
        labels, NO_FEATURES, numpy_generator("test"), COUNTS
    )
    np.testing.assert_array_equal(released, [0, 5, 5, 5, 1])
    assert mechanism.clipped_labels == 2
    (note,) = mechanism.notes()
    assert note.startswith("2 training labels were above the public cap and were clipped to it")
    assert "takes 78.1% off their sum" in note  # 16 of 73 are left
    assert for_counts(1.0).notes() == []


@pytest.mark.parametrize("wrong", [-1.0, 0.5, math.nan])
def test_labels_that_are_no_counts_are_refused(wrong):
    with pytest.raises(UsageError, match=r"training row 2"):
        for_counts(1.0).release_labels(
            np.array([0, 1, wrong]), NO_FEATURES, numpy_generator("test"), COUNTS
        )


def test_without_noise_the_forward_loss_of_counts_is_the_plain_likelihood():
    """Up to the constant log y!, and except in the tail."""
    mechanism = as_float32(for_counts(50.0))
    for y in range(5):
        plain = COUNTS.loss(F, jnp.float32(y)) + math.lgamma(y + 1)
        np.testing.assert_allclose(
            mechanism.loss(COUNTS, F, jnp.full(F.shape, float(y))), plain, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("correction", ["forward", "backward"])
def test_the_effective_sample_size_is_that_of_the_kernel(correction):
    rates = np.array([0.01, 0.2, 0.5])
    mechanism = at(1.0, correction)
    expected = mechanism.kernel(PCTR).effective_sample_size_fraction(rates, correction)
    assert mechanism.effective_sample_size_fraction(PCTR, rates) == expected
    assert for_counts(1.0, correction).effective_sample_size_fraction(COUNTS, rates) is None
    assert at(1.0, "none").effective_sample_size_fraction(PCTR, rates) is None


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0])
@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("correction", ["forward", "backward", "none"])
def test_outputs_beyond_their_bounds_are_pulled_back_whatever_the_label(epsilon, cap, correction):
    task = find_task("pconvs", cap)
    mechanism = as_float32(for_counts(epsilon, correction, task))
    slope = jax.vmap(jax.grad(lambda z, y: mechanism.loss(task, z, y)), in_axes=(0, None))
    for label in (0.0, float(cap)):
        low, high = slope(jnp.array([-20.0, 20.0]), jnp.float32(label))
        assert float(low) == pytest.approx(-10, rel=0.01)
        assert float(high) == pytest.approx(20 - math.log(cap) - 2, rel=0.01)


def test_a_count_with_two_labels_has_no_effective_sample_size():
    """Its true rates are means, which may be above 1."""
    of_cap_1 = find_task("pconvs", 1)
    mechanism = for_counts(1.0, task=of_cap_1)
    assert mechanism.effective_sample_size_fraction(of_cap_1, np.array([0.2, 3.0])) is None


def test_the_forward_correction_takes_counts_for_poisson():
    """Of over-dispersed counts (the synthetic log's law) it finds a mean that is 22% too low."""
    task, mean, size = find_task("pconvs", 3), 0.19, 0.5
    mechanism = as_float32(for_counts(3.0, task=task))
    counts = np.arange(4)
    labels = nbinom.pmf(counts, size, size / (size + mean))
    labels[-1] = nbinom.sf(2, size, size / (size + mean))
    released = labels @ for_counts(3.0, task=task).kernel(task).probabilities
    log_means = jnp.linspace(-4, 0, 4001)
    losses = [mechanism.loss(task, log_means, jnp.full(4001, float(y))) for y in counts]
    expected = np.tensordot(released, np.asarray(losses, np.float64), 1)
    found = float(jnp.exp(log_means[int(np.argmin(expected))]))
    assert found / mean == pytest.approx(0.775, abs=0.01)
