"""Mechanisms with one fault each, of those that nobody sees in results, beside the sound ones.

The base class of each is sound, and the fault is all that it changes.
"""

import dataclasses
import math

import dp_accounting as dp
import jax
import jax.numpy as jnp
import numpy as np
from dpcompare_mechanisms.additive_noise import AdditiveNoise
from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.rr_on_bins import RROnBins
from flax import struct

from dpcompare import accounting
from dpcompare.errors import UsageError
from dpcompare.label_kernel import k_ary_randomized_response
from dpcompare.label_mechanism import LabelMechanism, pure_releases
from dpcompare.label_noise import LabelNoise
from dpcompare.mechanism import GradientRelease, diagnostic
from dpcompare.privacy import Release


class PlainResponse(LabelMechanism):
    """Randomized response, fitted as it is: sound, and quick to compile."""

    def kernel(self, task):
        return k_ary_randomized_response(float(self.calibrated_epsilon()), task.classes)


class Hybrid(DPSGD):
    """Sound: flipped labels for half of epsilon, and private gradients for most of the rest.

    Not for all: the accountant's bound on both together is above the sum by its own rounding.
    """

    epsilon: float | None = None

    def calibrate(self, budget, schedule, task):
        most = dataclasses.replace(budget, epsilon=0.495 * budget.epsilon)
        return super().calibrate(most, schedule, task).replace(epsilon=budget.epsilon / 2)

    def kernel(self, task):
        return k_ary_randomized_response(float(self.epsilon), task.classes)

    def release_labels(self, labels, features, rng, task):
        capped, _ = task.capped(labels)
        return self, task.training_labels(self.kernel(task).sample(capped, rng))

    def events(self, schedule):
        return [*pure_releases(self.epsilon, "flipped labels"), *super().events(schedule)]


# --- labels that are drawn more than once --------------------------------------------------------


class RedrawnAtEveryStep(PlainResponse):
    """Training gets the true labels, and the loss flips them anew each time."""

    def release_labels(self, labels, features, rng, task):
        return self, task.training_labels(labels)

    def loss(self, task, logits, released):
        def flipped(labels, epsilon):
            kernel = k_ary_randomized_response(float(epsilon), task.classes)
            drawn = kernel.sample(np.asarray(labels, np.int64), np.random.default_rng())
            return drawn.astype(np.float32)

        shape = jax.ShapeDtypeStruct(released.shape, jnp.float32)
        return task.loss(logits, jax.pure_callback(flipped, shape, released, self.epsilon))


class RedrawnByKey(PlainResponse):
    """The loss flips with a key that it takes from the batch, so each batch has other labels."""

    def release_labels(self, labels, features, rng, task):
        return self, task.training_labels(labels)

    def loss(self, task, logits, released):
        bits = jax.lax.bitcast_convert_type(jnp.sum(logits), jnp.int32)
        first, second = jax.random.split(jax.random.key(bits))
        keep = jnp.exp(self.epsilon) / (jnp.exp(self.epsilon) + task.classes - 1)
        flips = jax.random.uniform(first, logits.shape) > keep
        other = jax.random.randint(second, logits.shape, 1, task.classes)
        return task.loss(logits, jnp.where(flips, (released + other) % task.classes, released))


class RedrawnForEachCandidate(PlainResponse):
    """Labels of another batch size or number of steps are drawn from a seed of their own."""

    draw_seed: float | None = None

    def calibrate(self, budget, schedule, task):
        seed = float(schedule.steps * schedule.batch_size + schedule.batch_size)
        return super().calibrate(budget, schedule, task).replace(draw_seed=seed)

    def release_labels(self, labels, features, rng, task):
        mixed = np.random.default_rng([int(self.draw_seed), int(rng.integers(2**32))])
        return super().release_labels(labels, features, mixed, task)


class DrawnFromElsewhere(PlainResponse):
    """It has a generator of its own, so a trial that is repeated draws anew."""

    def release_labels(self, labels, features, rng, task):
        return super().release_labels(labels, features, np.random.default_rng(), task)


class SeveralDraws(PlainResponse):
    """Eight flips of each label, one after the other at the price of one, and their mean."""

    def release_labels(self, labels, features, rng, task):
        several = [super(SeveralDraws, self).release_labels(labels, features, rng, task)[1]
                   for _ in range(8)]  # fmt: skip
        return self, jnp.stack(several, axis=1)

    def loss(self, task, logits, released):
        return task.loss(logits, released.mean(axis=1))


class OneDrawForEveryEpsilon(PlainResponse):
    """Its kernel does not say at which epsilon labels are drawn, so all epsilons share noise."""

    def kernel(self, task):
        return k_ary_randomized_response(0.1, task.classes)

    def randomize(self, labels, rng, task):
        kernel = k_ary_randomized_response(float(self.epsilon), task.classes)
        return self, kernel.outputs[kernel.sample(labels, rng)]


class WithRowNumbers(PlainResponse):
    """Sound: the number of each row is released beside its label."""

    def release_labels(self, labels, features, rng, task):
        found, released = super().release_labels(labels, features, rng, task)
        return found, {"labels": released, "rows": jnp.arange(len(labels))}

    def loss(self, task, logits, released):
        return task.loss(logits, released["labels"])


class DrawsMoreThanTheKernel(PlainResponse):
    """Noise is added to what the kernel describes."""

    def randomize(self, labels, rng, task):
        found, drawn = super().randomize(labels, rng, task)
        return found, drawn + rng.normal(size=len(labels))


# --- labels that tell more than is claimed -------------------------------------------------------


class KernelOfTwiceTheEpsilon(PlainResponse):
    def kernel(self, task):
        return k_ary_randomized_response(2 * float(self.epsilon), task.classes)


class WrongFlipsInTheSampler(PlainResponse):
    """The kernel is right, and labels are flipped half as often."""

    def randomize(self, labels, rng, task):
        mechanism, drawn = super().randomize(labels, rng, task)
        return mechanism, np.where(rng.random(len(labels)) < 0.5, labels, drawn)


class WrongFlipsInTheKernel(PlainResponse):
    """Labels are flipped as they should be, and the kernel shows another probability."""

    def kernel(self, task):
        return k_ary_randomized_response(0.9 * float(self.epsilon), task.classes)

    def randomize(self, labels, rng, task):
        kernel = super().kernel(task)
        return self, kernel.outputs[kernel.sample(labels, rng)]


class NoiseForgetsTheCap(AdditiveNoise):
    """Laplace noise of scale 1 / epsilon, whatever the largest label is."""

    def label_noise(self, task):
        return LabelNoise(self.shape, float(self.epsilon), 1, self.clamp)


class PriorForFree(RROnBins):
    """The kernel is designed for the true frequencies, with all of epsilon."""

    def calibrate(self, budget, schedule, task):
        found = super().calibrate(budget, schedule, task)
        return found.replace(prior_epsilon=0.0, label_epsilon=budget.epsilon)

    def randomize(self, labels, rng, task):
        counts = np.bincount(labels, minlength=task.classes) + 1.0
        prior = tuple(float(p) for p in counts / counts.sum())
        return LabelMechanism.randomize(self.replace(private_prior=prior), labels, rng, task)


class HistogramNotPaid(RROnBins):
    """The histogram is noisy, and what it costs is neither taken off epsilon nor listed."""

    def calibrate(self, budget, schedule, task):
        found = super().calibrate(budget, schedule, task)
        return found.replace(label_epsilon=budget.epsilon)

    def events(self, schedule):
        return pure_releases(self.label_epsilon, "randomized labels")


class MeanForFree(DPSGD):
    """Gradients are private; the true base rate that predictions are cut at is not."""

    base_rate: float | None = None

    def release_labels(self, labels, features, rng, task):
        found, released = super().release_labels(labels, features, rng, task)
        return found.replace(base_rate=float(np.mean(labels))), released

    def predict(self, task, logits):
        return jnp.minimum(task.predict(logits), 10 * self.base_rate)


# --- labels that are kept ------------------------------------------------------------------------


class KeepsLabels(PlainResponse):
    """The loss looks up the true labels in a field."""

    kept: jax.Array | None = None

    def release_labels(self, labels, features, rng, task):
        found, released = super().release_labels(labels, features, rng, task)
        rows = jnp.arange(len(labels))
        return found.replace(kept=task.training_labels(labels)), (released, rows)

    def loss(self, task, logits, released):
        flipped, rows = released
        return task.loss(logits, 0.9 * flipped + 0.1 * self.kept[rows])


class KeepsAView(PlainResponse):
    """A field holds the array of the labels itself."""

    kept: np.ndarray | None = struct.field(pytree_node=False, default=None)

    def release_labels(self, labels, features, rng, task):
        found, released = super().release_labels(labels, features, rng, task)
        return found.replace(kept=np.asarray(labels)), released

    def predict(self, task, logits):
        return jnp.minimum(task.predict(logits), float(self.kept.max()) + float(self.kept[0]))


class KeepsLabelsElsewhere(PlainResponse):
    """The last labels are remembered outside of the mechanism."""

    def release_labels(self, labels, features, rng, task):
        _REMEMBERED["mean of the labels"] = float(labels.mean())
        return super().release_labels(labels, features, rng, task)

    def predict(self, task, logits):
        return jnp.minimum(task.predict(logits), _REMEMBERED["mean of the labels"])


_REMEMBERED = {}


# --- claims --------------------------------------------------------------------------------------


class TwiceTheNoiseInEvents(DPSGD):
    """The events name twice the noise that training uses."""

    def gradient(self):
        return GradientRelease(self.clip_norm, self.noise_multiplier / 2, self.group_size)

    def events(self, schedule):
        event = accounting.dpsgd_event(float(self.noise_multiplier), schedule, self.group_size)
        return [Release(event, "example", self.group_size)]


class GroupsForgottenInEvents(DPSGD):
    """Groups are drawn and clipped, and accounted as if a row could only vanish."""

    def events(self, schedule):
        event = accounting.dpsgd_event(float(self.noise_multiplier), schedule, self.group_size)
        return [Release(event, "example")]


class GroupsForgottenAltogether(GroupsForgottenInEvents):
    """Neither the probability that a group is drawn nor its relation is accounted."""

    def events(self, schedule):
        return [Release(accounting.dpsgd_event(float(self.noise_multiplier), schedule), "example")]


class MoreThanTrainingCosts(DPSGD):
    """The events name a third of the noise that training uses: a claim, but of something else."""

    def calibrate(self, budget, schedule, task):
        found = super().calibrate(budget, schedule, task)
        return found.replace(noise_multiplier=found.noise_multiplier * 3)

    def events(self, schedule):
        event = accounting.dpsgd_event(float(self.noise_multiplier) / 3, schedule)
        return [Release(event, "example")]


class RoundedDown(DPSGD):
    """Noise of three digits, rounded down."""

    def calibrate(self, budget, schedule, task):
        found = super().calibrate(budget, schedule, task)
        return found.replace(noise_multiplier=found.noise_multiplier * 0.99)


class HalfTheNoiseForCounts(DPSGD):
    """Counts get half of the noise that the events tell of."""

    accounted: float | None = None

    def calibrate(self, budget, schedule, task):
        calibrated = super().calibrate(budget, schedule, task)
        sigma = calibrated.noise_multiplier
        used = sigma / 2 if task.classes > 2 else sigma
        return calibrated.replace(accounted=sigma, noise_multiplier=used)

    def events(self, schedule):
        return DPSGD.events(self.replace(noise_multiplier=self.accounted), schedule)


class NoiseGrowsWithEpsilon(DPSGD):
    """A table of noise multipliers whose lines are in the wrong order."""

    def calibrate(self, budget, schedule, task):
        found = super().calibrate(budget, schedule, task)
        return found.replace(noise_multiplier=max(found.noise_multiplier, budget.epsilon))


class PlainGradientsOfFeatures(DPSGD):
    """It claims to protect examples, and its gradients are not released with noise."""

    def gradient(self):
        return None

    def events(self, schedule):
        event = accounting.dpsgd_event(float(self.noise_multiplier), schedule)
        return [Release(event, "example")]


class ClaimsAtInfinity(PlainResponse):
    """No label is flipped at epsilon infinity, and 30 is claimed."""

    def events(self, schedule):
        return pure_releases(min(30.0, float(self.epsilon)), "randomized labels")


class ClaimDependsOnLabels(PlainResponse):
    """The claim is larger where there are more ones."""

    share: float | None = None

    def release_labels(self, labels, features, rng, task):
        found, released = super().release_labels(labels, features, rng, task)
        return found.replace(share=float(np.mean(labels))), released

    def events(self, schedule):
        share = 0.0 if self.share is None else self.share
        return pure_releases((1 + share) * float(self.epsilon), "randomized labels")


class RefusesWithoutANumber(PlainResponse):
    def calibrate(self, budget, schedule, task):
        if budget.epsilon < 0.1:
            raise UsageError("that is too private")
        return super().calibrate(budget, schedule, task)


# --- parameters and fields -----------------------------------------------------------------------


class AcceptsAnyWord(PlainResponse):
    """It has a choice that nobody checks."""

    correction: str = struct.field(pytree_node=False, default="none")


class TextAsLeaf(PlainResponse):
    """Text is declared as a number is."""

    correction: str = "none"


# --- claims with a delta -------------------------------------------------------------------------


class GaussianLabels(LabelMechanism):
    """Sound: normal noise on labels, of the classical scale for epsilon up to 1."""

    delta: float | None = None

    def calibrate(self, budget, schedule, task):
        return super().calibrate(budget, schedule, task).replace(delta=budget.delta)

    def multiplier(self):
        if math.isinf(self.epsilon):
            return 0.0
        return math.sqrt(2 * math.log(1.25 / self.delta)) / min(1.0, self.epsilon)

    def randomize(self, labels, rng, task):
        return self, labels + (task.classes - 1) * self.multiplier() * rng.normal(size=len(labels))

    def events(self, schedule):
        # Accounting takes a replaced label to move a sum by twice the unit of its noise.
        sigma = self.multiplier()
        return [Release(dp.GaussianDpEvent(2 * sigma), "label")] if sigma else []


class GaussianLabelsOfTooLittleNoise(GaussianLabels):
    """A fifth of the noise that the events name."""

    def randomize(self, labels, rng, task):
        noise = (task.classes - 1) * self.multiplier() / 5
        return self, labels + noise * rng.normal(size=len(labels))


# --- labels that are not randomized one by one ---------------------------------------------------


class LastLabelTrue(PlainResponse):
    """The last label of a release is the true one, as after an off-by-one."""

    def randomize(self, labels, rng, task):
        mechanism, values = super().randomize(labels, rng, task)
        values[-1] = labels[-1]
        return mechanism, values


class OneSeedForEveryBlock(PlainResponse):
    """Each block of 4,096 labels is drawn by a generator of the same seed."""

    def randomize(self, labels, rng, task):
        kernel, seed = self.kernel(task), int(rng.integers(2**63))
        blocks = [labels[start : start + 4096] for start in range(0, len(labels), 4096)]
        drawn = [kernel.sample(block, np.random.default_rng(seed)) for block in blocks]
        return self, kernel.outputs[np.concatenate(drawn)]


class PairsShareAFlip(PlainResponse):
    """Two neighboring labels are kept both, or replaced both."""

    def randomize(self, labels, rng, task):
        total = math.exp(float(self.epsilon)) + task.classes - 1
        flipped = np.repeat(rng.random(-(-len(labels) // 2)) < (task.classes - 1) / total, 2)
        other = (labels + rng.integers(1, task.classes, len(labels))) % task.classes
        return self, np.where(flipped[: len(labels)], other, labels).astype(float)


# --- what is counted outside the guarantee -------------------------------------------------------


class PredictsFromADiagnostic(PlainResponse):
    """The share of clipped labels holds their true mean, to which predictions are shrunk."""

    def release_labels(self, labels, features, rng, task):
        mechanism, released = super().release_labels(labels, features, rng, task)
        return mechanism.replace(clipped_share=float(np.mean(labels))), released

    def predict(self, task, logits):
        return (task.predict(logits) + self.clipped_share) / 2


class CountsUnderABorrowedName(DPSGD):
    """The true mean of the labels, in a field that only has the name of a diagnostic."""

    clipped_labels: float | None = None

    def release_labels(self, labels, features, rng, task):
        mechanism, released = super().release_labels(labels, features, rng, task)
        return mechanism.replace(clipped_labels=float(np.mean(labels))), released


class WithADiagnostic(PlainResponse):
    """Sound: how many labels are 1, told as a diagnostic."""

    positives: int | None = diagnostic()

    def release_labels(self, labels, features, rng, task):
        mechanism, released = super().release_labels(labels, features, rng, task)
        return mechanism.replace(positives=int(np.sum(labels == 1))), released
