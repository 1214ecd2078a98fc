"""Faults that the checks of gradients and of training must find, planted where they would sit.

Faults of the trainer are patched into it; those of a mechanism are mechanisms.
"""

from types import MappingProxyType

import jax
import jax.numpy as jnp
import numpy as np
from dpcompare_mechanisms.dp_sgd import DPSGD
from flax import struct

from dpcompare import clipping, steps, trainer
from dpcompare.data import sampling
from dpcompare.data.sampling import ABSENT
from dpcompare.noise import normal
from dpcompare.privacy import Schedule
from dpcompare.testing.subject import Subject

# Faults of the trainer


def _change_step(patch, change):
    """`change(batches, numbers, index)` gives what the real step sees instead."""
    real = steps._step

    def step(program, numbers, state, batches, index):
        numbers, batches = change(numbers, batches, index)
        return real(program, numbers, state, batches, index)

    patch.setattr(steps, "_step", step)


def noise_on_the_mean(patch):
    def change(numbers, batches, index):
        louder = numbers.mechanism.replace(noise=numbers.mechanism.noise * numbers.divisor)
        return numbers._replace(mechanism=louder), batches

    _change_step(patch, change)


def forgotten_factor_two(patch):
    real = steps.add_gaussian
    patch.setattr(steps, "add_gaussian", lambda key, tree, size, draws: real(key, tree, size / 2))


def forgotten_factor_two_on_tables(patch):
    real = steps._noise

    def noise(program, numbers, key):
        found = real(program, numbers, key)
        return found if found.size is None else found.replace(size=found.size / 2)

    patch.setattr(steps, "_noise", noise)


def one_key_for_all_steps(patch):
    _change_step(
        patch, lambda numbers, batches, index: (numbers, batches._replace(first_step=-index))
    )


def one_key_for_all_leaves(patch):
    def add_gaussian(key, tree, size, draws):
        return jax.tree.map(
            lambda leaf: leaf + size * normal(key, leaf.size).reshape(leaf.shape), tree
        )

    patch.setattr(steps, "add_gaussian", add_gaussian)


def one_noise_for_all_trials(patch):
    real = trainer.jax_key

    def key(purpose, *words):
        return real(purpose) if purpose == "noise" else real(purpose, *words)

    patch.setattr(trainer, "jax_key", key)


def drawn_batch_as_divisor(patch):
    def change(numbers, batches, index):
        release = numbers.mechanism.gradient()
        drawn = jnp.sum(batches.present[index]) / (release.group_size if release else 1)
        return numbers._replace(divisor=jnp.maximum(drawn, 1.0)), batches

    _change_step(patch, change)


def skipped_empty_batch(patch):
    real = steps._step

    def step(program, numbers, state, batches, index):
        return jax.lax.cond(
            jnp.any(batches.present[index]),
            lambda state: real(program, numbers, state, batches, index),
            lambda state: state,
            state,
        )

    patch.setattr(steps, "_step", step)


def clipping_with_the_norm_of_one_layer(patch):
    def of_output(model, record, squared, usable, group_size):
        inputs = record.inputs["output"]["value"][0]
        gradients = record.output_gradients["output"]["value"]
        of_rows = (jnp.sum(inputs**2, axis=1) + 1) * jnp.sum(gradients**2, axis=1)
        return jnp.sum(jnp.where(usable, of_rows, 0.0).reshape(-1, group_size), axis=1)

    patch.setattr(clipping, "_group_squared_norms", of_output)


def norm_of_the_sum_of_a_group(patch):
    real = clipping._group_squared_norms

    def of_sum(model, record, squared, usable, group_size):
        return real(model, record, squared, usable, group_size) * group_size**2

    patch.setattr(clipping, "_group_squared_norms", of_sum)


def padding_that_weighs(patch):
    real = steps.clipped_sum

    def clipped_sum(model, parameters, features, losses, present, weigh, group_size):
        everybody = jnp.ones_like(present)
        return real(model, parameters, features, losses, everybody, weigh, group_size)

    patch.setattr(steps, "clipped_sum", clipped_sum)


def infinite_rows_that_count(patch):
    real = steps.clipped_sum

    def clipped_sum(model, parameters, features, *others):
        numeric = jnp.where(jnp.isinf(features.numeric), 0.0, features.numeric)
        return real(model, parameters, features._replace(numeric=numeric), *others)

    patch.setattr(steps, "clipped_sum", clipped_sum)


def bad_gradients_that_leak(patch):
    patch.setattr(clipping, "_masked", lambda rows, usable: rows)


def lazy_noise_forgotten_at_settling(patch):
    patch.setattr(steps, "_settle_weights", lambda groups, weights, state, noise: weights)


def fixed_size_batches(patch):
    def poisson(groups, probability, *words):
        return sampling._shuffle(groups, round(groups * probability), *words)

    patch.setattr(sampling, "_poisson", poisson)


def batches_of_fixed_size_drawn_afresh(patch):
    def poisson(groups, probability, *words):
        def draw(step):
            rng = sampling.numpy_generator("poisson", *words, counter=step)
            return rng.choice(groups, round(groups * probability), replace=False).astype(np.int32)

        return draw

    patch.setattr(sampling, "_poisson", poisson)


def neighbors_drawn_together(patch):
    def poisson(groups, probability, *words):
        def draw(step):
            rng = sampling.numpy_generator("poisson", *words, counter=step)
            drawn = np.repeat(rng.random(-(-groups // 2)) < probability, 2)[:groups]
            return np.flatnonzero(drawn).astype(np.int32)

        return draw

    patch.setattr(sampling, "_poisson", poisson)


def empty_batches_drawn_again(patch):
    real = sampling._poisson

    def poisson(groups, probability, *words):
        draw = real(groups, probability, *words)

        def until_somebody(step):
            while not len(draw(step)):
                step += 10_000
            return draw(step)

        return until_somebody

    patch.setattr(sampling, "_poisson", poisson)


def groups_formed_after_sampling(patch):
    real = trainer.batch_draw

    def batch_draw(schedule, group_size, *words):
        draw = real(schedule, 1, *words)

        def grouped(step):
            rows = draw(step)
            return np.append(rows, np.full(-len(rows) % group_size, ABSENT, rows.dtype))

        return grouped

    patch.setattr(trainer, "batch_draw", batch_draw)


def groups_formed_at_every_step(patch):
    def batch_draw(schedule, group_size, *words):
        def draw(step):
            groups = sampling._groups(schedule.examples, group_size, step, *words)
            rng = sampling.numpy_generator("poisson", *words, counter=step)
            chance = schedule.sampling_probability(group_size)
            return groups[rng.random(len(groups)) < chance].ravel()

        return draw

    patch.setattr(trainer, "batch_draw", batch_draw)


# Faults of a mechanism


class NarrowBump(DPSGD):
    """Too large a weight for one norm in 30,000."""

    def weights(self, norms):
        inside = (norms > 2.0 * self.clip_norm) & (norms < 2.0001 * self.clip_norm)
        return jnp.where(inside, 1.0, super().weights(norms))


class BumpAtTinyNorms(DPSGD):
    """Too large a weight where hardly anybody looks."""

    def weights(self, norms):
        return jnp.where((norms > 0) & (norms < 1e-30), 1e37, super().weights(norms))


class ClippedTooLate(DPSGD):
    """Clips at twice the norm."""

    def weights(self, norms):
        return jnp.minimum(1.0, 2 * self.clip_norm / jnp.maximum(norms, 1e-12))


class NormalizedWithoutCare(DPSGD):
    """Infinite for a gradient of 0."""

    def weights(self, norms):
        return self.clip_norm / norms


class NormalizedByTheLargest(DPSGD):
    """Every weight keeps the sensitivity, and each depends on the longest gradient of the batch."""

    def weights(self, norms):
        return self.clip_norm / jnp.maximum(jnp.max(norms), 1e-12) * jnp.ones_like(norms)


class BatchMeanInTheLoss(DPSGD):
    """The loss of a row looks at the others."""

    def loss(self, task, logits, released):
        return task.loss(logits - jnp.mean(logits), released)


class PoissonOnPaper(DPSGD):
    """Shuffled batches, accounted as if they were Poisson-sampled."""

    sampling: str = struct.field(pytree_node=False, default="shuffle")

    def calibrate(self, budget, schedule, task):
        return super().calibrate(budget, _as_poisson(schedule), task)

    def events(self, schedule):
        return super().events(_as_poisson(schedule))


def _as_poisson(schedule):
    return Schedule(schedule.examples, schedule.batch_size, schedule.steps, "poisson")


class Noiseless(DPSGD):
    """Clipping without noise is no fault: nothing is declared."""

    def gradient(self):
        return super().gradient().replace(noise_multiplier=0.0)


class OneBadNorm(DPSGD):
    """A weight of 2 for a single float32 number."""

    def weights(self, norms):
        bad = norms == np.nextafter(np.float32(3.0), np.float32(4.0))
        return jnp.where(bad, 2.0, super().weights(norms))


# Which check has to find which fault

HOST, COMPILED = "host", "compiled"
"""Where a fault of the trainer sits."""

_OF_GROUPS = {
    norm_of_the_sum_of_a_group,
    groups_formed_after_sampling,
    groups_formed_at_every_step,
}

_PLACES = {
    noise_on_the_mean: COMPILED,
    forgotten_factor_two: COMPILED,
    forgotten_factor_two_on_tables: COMPILED,
    lazy_noise_forgotten_at_settling: HOST,
    one_key_for_all_steps: COMPILED,
    one_key_for_all_leaves: COMPILED,
    one_noise_for_all_trials: HOST,
    skipped_empty_batch: COMPILED,
    empty_batches_drawn_again: HOST,
    fixed_size_batches: HOST,
    batches_of_fixed_size_drawn_afresh: HOST,
    neighbors_drawn_together: HOST,
    drawn_batch_as_divisor: COMPILED,
    padding_that_weighs: COMPILED,
    clipping_with_the_norm_of_one_layer: COMPILED,
    infinite_rows_that_count: COMPILED,
    bad_gradients_that_leak: COMPILED,
    norm_of_the_sum_of_a_group: COMPILED,
    groups_formed_after_sampling: HOST,
    groups_formed_at_every_step: HOST,
}

_FOUND = {
    noise_on_the_mean: ("noise_has_the_declared_size", "times the declared"),
    forgotten_factor_two: ("noise_has_the_declared_size", "noise on biases is 0.49"),
    forgotten_factor_two_on_tables: ("noise_has_the_declared_size", "on eager tables is 0.50"),
    lazy_noise_forgotten_at_settling: ("noise_has_the_declared_size", "on lazy tables is 0.50"),
    one_key_for_all_steps: ("noise_is_independent", "noise of two steps"),
    one_key_for_all_leaves: ("noise_is_independent", "noise of two parameters"),
    one_noise_for_all_trials: ("noise_is_independent", "two trials"),
    skipped_empty_batch: ("empty_batches_take_noisy_steps", "an empty batch has noise of 0"),
    empty_batches_drawn_again: ("empty_batches_take_noisy_steps", "0 of 70 batches are empty"),
    fixed_size_batches: ("batches_are_drawn_as_accounted", "varies by 0"),
    batches_of_fixed_size_drawn_afresh: ("batches_are_drawn_as_accounted", "varies by 0"),
    neighbors_drawn_together: ("batches_are_drawn_as_accounted", "varies by"),
    drawn_batch_as_divisor: ("step_is_the_plain_computation", "instead of"),
    padding_that_weighs: ("step_is_the_plain_computation", "instead of"),
    clipping_with_the_norm_of_one_layer: (
        "one_row_moves_the_sum_within_the_sensitivity",
        "a row that leaves",
    ),
    infinite_rows_that_count: ("rows_that_are_not_finite_count_as_zero", "features inf"),
    bad_gradients_that_leak: ("rows_that_are_not_finite_count_as_zero", "diverged"),
    norm_of_the_sum_of_a_group: ("step_is_the_plain_computation", "instead of"),
    groups_formed_after_sampling: ("groups_are_formed_once", "instead of 26 groups of 4"),
    groups_formed_at_every_step: ("groups_are_formed_once", "instead of 26 groups of 4"),
    NarrowBump: ("weights_keep_the_sensitivity", "2.0001 times the sensitivity"),
    BumpAtTinyNorms: ("weights_keep_the_sensitivity", "norm 9.9999"),
    ClippedTooLate: ("weights_keep_the_sensitivity", "2 times the sensitivity"),
    NormalizedWithoutCare: ("weights_keep_the_sensitivity", "norm 0.0 is inf"),
    NormalizedByTheLargest: ("weights_ignore_other_groups", "one row changes what others add"),
    BatchMeanInTheLoss: ("step_is_the_plain_computation", "instead of 0"),
    PoissonOnPaper: ("batches_are_drawn_as_accounted", "varies by 0"),
}
"""The check that has to find each fault, and what its reason says."""

REASONS = MappingProxyType({fault: reason for fault, (_, reason) in _FOUND.items()})


def named(checks):
    """The faults that the checks of these names have to find."""
    return [fault for fault, (check, _) in _FOUND.items() if check in checks]


def plant(fault, patch):
    """Plant a fault; the name of the check that must find it, and the subject in which it is."""
    check, _ = _FOUND[fault]
    if isinstance(fault, type):
        return check, Subject.of(fault)
    fault(patch)
    place = _PLACES[fault]
    # A mechanism that no program was compiled for, if it is compiled code that is patched.
    mechanism = "dp-sgd" if place == HOST else type("FaultyDPSGD", (DPSGD,), {})
    return check, Subject.of(mechanism, group_size=4 if fault in _OF_GROUPS else 1)
