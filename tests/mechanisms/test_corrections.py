"""On the network, corrected label DP predicts the rate that non-private training predicts."""

import functools

import numpy as np
import pytest
from dpcompare_mechanisms.non_private import NonPrivate
from dpcompare_mechanisms.randomized_response import RandomizedResponse

from dpcompare.data import HashBuckets, encode, split_rows, synthetic
from dpcompare.embeddings import EmbeddingTables
from dpcompare.model import Model
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Budget, Schedule
from dpcompare.randomness import numpy_generator
from dpcompare.tasks import PCTR
from dpcompare.trainer import Streams, predict, train

SEEDS = range(3)


@functools.cache
def rows():
    dataset = synthetic(100_000)
    train_rows, _, test_rows = split_rows(dataset.rows)
    encoder = HashBuckets.for_columns(20, dataset)
    parts = [encode(dataset, part, encoder) for part in (train_rows, test_rows)]
    model = Model(13, EmbeddingTables(encoder.sizes), (16,))
    return model, parts, dataset.labels["pctr"][train_rows]


@functools.cache
def mean_prediction(mechanism, seed):
    """Of the test rows, after training at epsilon 1."""
    model, (features, test), labels = rows()
    schedule = Schedule.from_epochs(len(labels), 1024, 2, "shuffle")
    mechanism = mechanism.calibrate(Budget(1.0, 1e-6), schedule, PCTR)
    mechanism, released = mechanism.release_labels(
        labels, features, numpy_generator("labels", seed), PCTR
    )
    streams = Streams(("corrections", seed), ())
    recipe = Recipe("momentum", 0.1)
    parameters = train(mechanism, PCTR, model, features, released, schedule, recipe, streams)
    return float(np.mean(predict(mechanism, PCTR, model, parameters, test)))


def over_seeds(mechanism):
    return float(np.mean([mean_prediction(mechanism, seed) for seed in SEEDS]))


@pytest.mark.parametrize("correction", ["forward", "backward", "post-hoc"])
def test_the_mean_prediction_is_that_of_non_private_training(correction):
    """Flips at epsilon 1 leave a standard error of .0022 on the mean rate of 3 x 80,000 labels."""
    private = over_seeds(RandomizedResponse(correction=correction))
    assert private == pytest.approx(over_seeds(NonPrivate()), abs=0.01)


def test_without_correction_it_is_pulled_towards_one_half():
    plain = over_seeds(NonPrivate())
    pulled = over_seeds(RandomizedResponse(correction="none"))
    q = 1 / (1 + np.e)
    assert pulled == pytest.approx(q + (1 - 2 * q) * plain, abs=0.01)
    assert pulled - plain > 0.05
