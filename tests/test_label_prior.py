"""Priors are public, or paid for out of the budget; never the labels' own histogram for free."""

import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpcompare import accounting, tasks
from dpcompare.data.dataset import Features
from dpcompare.errors import UsageError
from dpcompare.label_kernel import LabelKernel, k_ary_randomized_response
from dpcompare.label_noise import LabelNoise
from dpcompare.label_prior import PriorMechanism, private_histogram
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator

SCHEDULE = Schedule(1000, 100, 10, "shuffle")
NO_FEATURES = Features(np.zeros((0, 0), np.float32), np.zeros((0, 0), np.int32))
TASK = tasks.find("pconvs", 2)
PUBLIC = [0.5, 0.3, 0.2]
LABELS = np.repeat([0, 1, 2], [600, 300, 100])


class MeanAsOutput(PriorMechanism):
    """Randomized response whose first output tells the prior's mean."""

    def design(self, prior, epsilon, task):
        outputs = np.arange(len(prior)) + prior @ np.arange(len(prior))
        return LabelKernel(k_ary_randomized_response(epsilon, len(prior)).probabilities, outputs)


def at(epsilon, **parameters):
    mechanism = MeanAsOutput(**parameters)
    mechanism.check()
    return mechanism.calibrate(Budget(epsilon, 1e-6), SCHEDULE, TASK)


def released(mechanism, labels=LABELS, seed=0):
    return mechanism.release_labels(labels, NO_FEATURES, numpy_generator("test", seed), TASK)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 5.0, 50.0])
@pytest.mark.parametrize("share", [0.01, 0.05, 0.7])
def test_both_releases_together_cost_the_budget(epsilon, share):
    mechanism = at(epsilon, prior_share=share)
    assert mechanism.prior_epsilon == share * epsilon
    assert mechanism.prior_epsilon + mechanism.label_epsilon == pytest.approx(epsilon, rel=1e-15)
    events = mechanism.events(SCHEDULE)
    assert [event.name for event in events] == ["label histogram", "randomized labels"]
    assert {event.unit for event in events} == {"label"}
    guarantee = accounting.guarantee(events, 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (guarantee.delta, guarantee.unit) == (0.0, "label")
    after = released(mechanism)[0]
    assert after.kernel(TASK).epsilon() == pytest.approx(mechanism.label_epsilon, rel=1e-9)
    assert after.events(SCHEDULE) == events


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_with_a_public_prior_all_of_epsilon_goes_to_the_labels(epsilon):
    mechanism = at(epsilon, prior=PUBLIC)
    assert (mechanism.prior_epsilon, mechanism.label_epsilon) == (0.0, epsilon)
    (event,) = mechanism.events(SCHEDULE)
    assert event.name == "randomized labels"
    guarantee = accounting.guarantee([event], 1e-6, "zero-out")
    assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert mechanism.kernel(TASK).epsilon() == pytest.approx(epsilon, rel=1e-9)


def test_a_private_kernel_is_known_once_its_prior_was_drawn():
    mechanism = at(1.0)
    assert mechanism.kernel(TASK) is None
    after, _ = released(mechanism)
    mean = np.dot(after.private_prior, [0, 1, 2])
    assert after.kernel(TASK).outputs[0] == pytest.approx(mean, rel=1e-12)
    assert mechanism.private_prior is None


def test_histogram_and_labels_are_drawn_from_different_parts_of_the_stream():
    after, values = released(at(1.0), seed=3)
    rng = numpy_generator("test", 3)
    drawn = private_histogram(LABELS, 3, 0.05, rng)
    assert after.private_prior == tuple(drawn)
    kernel = after.kernel(TASK)
    np.testing.assert_array_equal(
        values, kernel.outputs[kernel.sample(LABELS, rng)].astype(np.float32)
    )


def test_infinite_epsilon_keeps_labels_and_needs_no_prior():
    for mechanism in (at(math.inf), at(math.inf, prior=PUBLIC)):
        after, values = released(mechanism)
        np.testing.assert_array_equal(values, LABELS)
        assert after.events(SCHEDULE) == []
        assert after.private_prior is None


def test_mechanisms_have_leaves_that_compiled_code_can_read():
    for mechanism in (at(1.0, prior=PUBLIC), released(at(1.0))[0]):
        numbers = jax.tree.map(jnp.float32, mechanism)
        assert {leaf.dtype for leaf in jax.tree.leaves(numbers)} == {jnp.dtype(jnp.float32)}


def test_with_a_public_prior_nothing_of_the_kernel_depends_on_labels():  # LDP-04
    mechanism = at(1.0, prior=PUBLIC)
    before = mechanism.kernel(TASK)
    for labels in (LABELS, LABELS[::-1].copy(), np.full(1000, 2)):
        kernel = released(mechanism, labels)[0].kernel(TASK)
        np.testing.assert_array_equal(kernel.probabilities, before.probabilities)
        np.testing.assert_array_equal(kernel.outputs, before.outputs)


def test_a_private_prior_is_the_histogram_with_its_noise():  # LDP-04
    for seed in range(20):
        drawn = private_histogram(LABELS, 3, 0.5, numpy_generator("test", seed))
        noise = LabelNoise("discrete-laplace", 0.25, 1).sample(3, numpy_generator("test", seed))
        counts = np.maximum(np.array([600, 300, 100]) + noise, 0)
        np.testing.assert_array_equal(drawn, counts / counts.sum())


def test_the_raw_histogram_is_never_released():  # LDP-04
    raw = np.array([0.6, 0.3, 0.1])
    drawn = {
        tuple(private_histogram(LABELS, 3, 0.05, numpy_generator("test", seed)))
        for seed in range(200)
    }
    assert len(drawn) == 200
    assert tuple(raw) not in drawn


def test_one_changed_label_changes_the_histogram_by_no_more_than_epsilon():
    epsilon = 0.7
    noise = LabelNoise("discrete-laplace", epsilon / 2, 1)
    z = np.arange(-60, 61)
    # Two counts differ by one each, in opposite directions; the others have equal noise.
    first = noise.log_density(z) - noise.log_density(z + 1)
    second = noise.log_density(z) - noise.log_density(z - 1)
    worst = max(abs(a + b) for a, b in product(first, second))
    assert worst == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_noise_of_the_histogram_is_discrete_laplace(epsilon):
    draws = 200_000
    z = LabelNoise("discrete-laplace", epsilon / 2, 1).sample(draws, numpy_generator("noise"))
    a = math.exp(-epsilon / 2)
    variance = 2 * a / (1 - a) ** 2
    fourth = 2 * (1 - a) / (1 + a) * sum(k**4 * a**k for k in range(1, 2000))
    error = math.sqrt((fourth - variance**2) / draws)
    assert abs(np.mean(z**2) - variance) < 4 * error
    assert abs(np.mean(z)) < 4 * math.sqrt(variance / draws)
    for k in (-2, -1, 0, 1, 2, 3):
        p = (1 - a) / (1 + a) * a ** abs(k)
        assert abs(np.mean(z == k) - p) < 4 * math.sqrt(p * (1 - p) / draws)


def test_the_histogram_itself_has_the_variance_of_that_noise():
    labels, epsilon, draws = np.repeat([0, 1], [60_000, 40_000]), 0.1, 2_000
    rng = numpy_generator("histogram")
    shares = np.array([private_histogram(labels, 2, epsilon, rng)[0] for _ in range(draws)])
    a = math.exp(-epsilon / 2)
    variance = 2 * a / (1 - a) ** 2 * (0.6**2 + 0.4**2) / 100_000**2
    # The kurtosis of a sum of discrete Laplace numbers is at most 6.
    assert abs(np.mean((shares - 0.6) ** 2) / variance - 1) < 4 * math.sqrt(5 / draws)
    assert abs(np.mean(shares) - 0.6) < 4 * math.sqrt(variance / draws)


def test_negative_counts_become_zero_and_no_counts_a_uniform_prior():
    drawn = np.array(
        [private_histogram(np.zeros(0, int), 3, 1.0, numpy_generator("t", i)) for i in range(200)]
    )
    assert np.all(drawn >= 0)
    assert drawn.sum(axis=1) == pytest.approx(1.0)
    assert np.any(np.all(drawn == 1 / 3, axis=1))
    assert np.any(drawn == 0)


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0]])
def test_labels_outside_the_histogram_are_refused(labels):
    with pytest.raises(UsageError, match="from 0 to 2"):
        private_histogram(np.array(labels), 3, 1.0, np.random.default_rng(0))


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 1e-6, 2e3])
def test_epsilons_that_no_histogram_can_have_are_refused(epsilon):
    with pytest.raises(UsageError, match="epsilon"):
        private_histogram(LABELS, 3, epsilon, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([0.5, 0.6], "sum to 1; their sum is 1.1"),
        ([0.5, 0.499], "their sum is 0.999"),
        ([1.5, -0.5], "numbers from 0 on that sum to 1; that of label 1 is -0.5"),
        ([math.nan, 1.0], "label 0 is nan"),
        ([math.inf, 0.0], "label 0 is inf"),
        (["0.5", 0.5], "label 0 is '0.5'"),
        ([True, 0.0], "label 0 is True"),
    ],
)
def test_priors_that_are_no_probabilities_are_refused(prior, message):
    with pytest.raises(UsageError, match=message):
        MeanAsOutput(prior=prior).check()


def test_priors_that_sum_to_one_up_to_rounding_are_normalized():
    kernel = at(1.0, prior=[0.5, 0.3, 0.2000005]).kernel(TASK)
    assert kernel.outputs[0] == pytest.approx((0.3 + 2 * 0.2000005) / 1.0000005, rel=1e-12)


def test_a_prior_must_have_an_entry_for_each_label():
    with pytest.raises(UsageError, match="the 3 probabilities of labels 0 to 2 of task 'pconvs'"):
        at(1.0, prior=[0.5, 0.5])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, math.nan])
def test_a_share_must_leave_something_for_both_releases(share):
    with pytest.raises(UsageError, match="prior_share must lie between 0 and 1"):
        MeanAsOutput(prior_share=share).check()


def test_uncalibrated_use_is_an_error():
    for question in (lambda m: m.kernel(TASK), lambda m: m.events(SCHEDULE), released):
        with pytest.raises(ValueError, match="calibrate"):
            question(MeanAsOutput())


def test_a_mechanism_without_design_says_so():
    bare = PriorMechanism(prior=PUBLIC).calibrate(Budget(1.0, 1e-6), SCHEDULE, TASK)
    with pytest.raises(NotImplementedError, match="design"):
        bare.kernel(TASK)
