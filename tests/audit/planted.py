"""Mechanisms that claim more than they keep, for tests of audits."""

import math

import numpy as np
from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.randomized_response import RandomizedResponse

from dpcompare import accounting
from dpcompare.mechanism import Plugin
from dpcompare.privacy import Release


class HalfTheNoise(DPSGD):
    """Half of the noise is left out, and all of it is claimed."""

    def gradient(self):
        release = super().gradient()
        return release.replace(noise_multiplier=release.noise_multiplier / 2)

    def events(self, schedule):
        event = accounting.dpsgd_event(float(self.noise_multiplier), schedule, self.group_size)
        return [Release(event, "example", self.group_size)]


class FewerFlips(RandomizedResponse):
    """Labels are flipped as at half more epsilon than the kernel says."""

    def randomize(self, labels, rng, task):
        kernel = self.replace(epsilon=1.5 * self.epsilon).kernel(task)
        return self, kernel.outputs[kernel.sample(labels, rng)]


class TwoNumbers(RandomizedResponse):
    """Releases a vector per label."""

    def release_labels(self, labels, features, rng, task):
        return self, np.zeros((len(labels), 2))


class FailsToRelease(RandomizedResponse):
    """Ends in an error that no one foresaw."""

    def release_labels(self, labels, features, rng, task):
        raise ValueError("no labels like these")


def plugin(kind):
    return Plugin(kind.__name__, kind, "planted")


def response_accuracy(epsilon):
    return 1 / (1 + math.exp(-epsilon))
