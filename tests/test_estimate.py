"""Estimates of time and memory: rough, but they must order trials and never lack a term."""

import pytest

from dpcompare import estimate
from dpcompare.examples import load_examples
from dpcompare.expansion import expand
from dpcompare.study import load
from tests import tiny_studies as tiny
from tests.tiny_studies import DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE


def cost(folder, mechanism=NON_PRIVATE, **changes):
    return estimate.cost(tiny.trials(folder, mechanism, **changes)[0])


def memory(folder, **changes):
    return estimate.memory(tiny.trials(folder, **changes)[0])


def test_longer_trials_cost_more(tmp_path):
    plain = cost(tmp_path)
    assert plain > 0
    assert cost(tmp_path, training={"epochs": 50}) > plain
    assert cost(tmp_path, model={"tower": [500, 500]}) > plain
    assert cost(tmp_path, model={"buckets": 5000}) > plain
    assert cost(tmp_path, DP_SGD) > plain, "noise is drawn"
    assert cost(tmp_path, RANDOMIZED_RESPONSE) == plain


def test_work_is_proportional_to_the_examples_seen(tmp_path):
    def work(epochs):
        return cost(tmp_path, training={"epochs": epochs}) - estimate.START

    assert work(200) == pytest.approx(10 * work(20), rel=0.01)


def test_a_slower_machine_takes_longer_in_proportion(tmp_path):
    configuration = tiny.trials(tmp_path)[0]
    fast = estimate.seconds(configuration, estimate.REFERENCE_SPEED)
    assert estimate.seconds(configuration, estimate.REFERENCE_SPEED / 4) == pytest.approx(4 * fast)


def test_memory_counts_runtime_rows_parameters_and_chunks(tmp_path):
    plain = memory(tmp_path)
    assert plain > estimate.RUNTIME_BYTES
    assert memory(tmp_path, data={"rows": 1_000_000}) > plain + 800_000 * 40 * 4
    assert memory(tmp_path, model={"buckets": 100_000}) > plain
    assert memory(tmp_path, training={"batch_size": 1500}) > plain
    large = {"batch_size": 1500, "chunk_size": 10}
    assert memory(tmp_path, training=large) < memory(tmp_path, training={"batch_size": 1500})


def test_the_model_is_the_one_that_is_trained(tmp_path):
    configuration = tiny.trials(tmp_path)[0]
    assert estimate.model_of(configuration) == load_examples(configuration).model
    learnt = tiny.trials(tmp_path, model={"categories": "vocabulary"})[0]
    assert estimate.model_of(learnt).tables.sizes == (10_000,) * 26


def test_the_speed_of_this_machine_is_a_plausible_one():
    assert 1e8 < estimate.measured_speed() < 1e13


def test_the_bundled_quickstart_is_estimated_at_minutes():
    configurations = expand(load("quickstart"))
    minutes = sum(map(estimate.cost, configurations)) / 60
    assert 1 < minutes < 60
    assert max(map(estimate.memory, configurations)) < 4 * 2**30


def test_lazy_noise_makes_big_tables_cheap(tmp_path):
    def seconds(lazy_noise):
        training = {"lazy_noise": lazy_noise, "batch_size": 64}
        of_model = {"buckets": 100_000}
        trials = tiny.trials(tmp_path, tiny.DP_SGD, model=of_model, training=training)
        return estimate.cost(trials[0])

    assert seconds("auto") < seconds("never") / 2
