"""Trials on conversions: counts, caps, priors, shared draws and effective sample sizes."""

import math

import jax
import numpy as np
import pytest
from dpcompare_mechanisms.additive_noise import AdditiveNoise

from dpcompare import data, tasks, trial
from dpcompare.errors import DpcompareError
from dpcompare.examples import load_examples
from dpcompare.mechanism import find
from dpcompare.privacy import Budget, Schedule
from dpcompare.summary import summarize
from dpcompare.trial import label_stream, run_trial
from dpcompare.wording import table
from tests import tiny_studies as tiny
from tests.tiny_studies import NON_PRIVATE, RANDOMIZED_RESPONSE

N = tiny.TRAIN_ROWS


@pytest.fixture
def seen(monkeypatch):
    """What a training was given, in place of training: (released, features, schedule)."""
    calls = []

    def record(mechanism, task, model, features, released, schedule, *_):
        calls.append((np.asarray(released), features, schedule))
        return model.init(jax.random.key(0))

    monkeypatch.setattr(trial, "train", record)
    return calls


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trials")


COUNTS: dict = {"task": "pconvs", "cap": 3}
COUNT_MECHANISMS = (
    {"name": "randomized-response", "label": "forward"},
    {"name": "randomized-response", "label": "backward", "correction": "backward"},
    {"name": "rr-on-bins"},
    {"name": "unbiased-randomizer"},
    {"name": "unbiased-randomizer", "label": "public", "prior": [0.9, 0.07, 0.02, 0.01]},
    {"name": "additive-noise"},
    {"name": "additive-noise", "label": "staircase", "shape": "staircase"},
    {"name": "additive-noise", "label": "discrete", "shape": "discrete-laplace", "clamp": True},
)


@pytest.mark.parametrize("mechanism", COUNT_MECHANISMS, ids=lambda m: m.get("label", m["name"]))
def test_every_count_mechanism_spends_its_epsilon_and_is_scored_on_true_counts(folder, mechanism):
    (configuration,) = tiny.trials(folder, mechanism, epsilons=[0.7], **COUNTS)
    record = run_trial(configuration)
    guarantee = record["guarantee"]
    assert guarantee["epsilon"] == pytest.approx(0.7, rel=1e-9)
    assert (guarantee["unit"], guarantee["delta"]) == ("label", 0.0)
    labels = data.synthetic(tiny.ROWS).labels["pconvs"]
    assert record["test"]["total"] == labels[1804:].sum(), "true counts, not capped ones"
    above = int(np.sum(labels[:N] > 3))
    assert above > 0
    assert any(f"{above} training labels were above the public cap" in n for n in record["notes"])
    paid_for = mechanism["name"] in ("rr-on-bins", "unbiased-randomizer")
    assert len(guarantee["events"]) == (2 if paid_for and "prior" not in mechanism else 1)


def test_the_best_possible_count_model_is_that_of_the_true_means(folder):
    record = run_trial(tiny.trials(folder, **COUNTS)[0])
    dataset = data.synthetic(tiny.ROWS)
    labels, means = (part["pconvs"][1804:] for part in (dataset.labels, dataset.true_rates))
    assert record["best_possible"] == pytest.approx(tasks.find("pconvs", 3).evaluate(labels, means))


def draw_of(configuration):
    plugin = find(configuration["mechanism"]["name"])
    mechanism = plugin.build(configuration["mechanism"]["parameters"])
    task = tasks.find(configuration["task"], configuration["cap"])
    budget = Budget(configuration["budget"]["epsilon"], 1e-5)
    mechanism = mechanism.calibrate(budget, Schedule(N, 100, 16, "shuffle"), task)
    return label_stream(configuration, mechanism, task)


@pytest.mark.parametrize("name", ["additive-noise", "rr-on-bins", "randomized-response"])
def test_candidates_share_one_draw_of_the_labels(folder, name):
    """Also where no kernel is known beforehand: redrawing per candidate would cost epsilon each."""
    training = {"learning_rate": [0.1, 0.2], "weight_decay": [0.0, 0.1], "epochs": [1, 2]}
    configurations = tiny.trials(folder, {"name": name, "training": training}, **COUNTS)
    assert len(configurations) == 8
    assert len({str(draw_of(c)) for c in configurations}) == 1


@pytest.mark.parametrize("name", ["additive-noise", "rr-on-bins", "randomized-response"])
def test_nothing_else_shares_a_draw(folder, name):
    other_parameters = {
        "additive-noise": {"shape": "staircase"},
        "rr-on-bins": {"prior_share": 0.2},
        "randomized-response": {},
    }[name]
    variants = [
        tiny.trials(folder, {"name": name}, epsilons=[0.5, 1.0], seeds=2, **COUNTS),
        tiny.trials(folder, {"name": name}, task="pconvs", cap=2),
        tiny.trials(folder, {"name": name}, data={"seed": 1}, **COUNTS),
        tiny.trials(folder, {"name": name}, training={"examples": 500}, **COUNTS),
    ]
    if other_parameters:
        variants.append(tiny.trials(folder, {"name": name, **other_parameters}, **COUNTS))
    draws = [str(draw_of(c)) for configurations in variants for c in configurations]
    assert len(set(draws)) == len(draws)


def test_two_corrections_of_one_kernel_share_the_released_labels(folder):
    configurations = tiny.trials(folder, *COUNT_MECHANISMS[:2], **COUNTS)
    assert len({str(draw_of(c)) for c in configurations}) == 1


def test_the_effective_sample_size_is_stated_where_the_true_rates_are_known(folder):
    (configuration,) = tiny.trials(folder, RANDOMIZED_RESPONSE)
    found = run_trial(configuration)["diagnostics"]["effective_examples"]
    rates = data.synthetic(tiny.ROWS).true_rates["pctr"][:N]
    v, c = rates * (1 - rates), 1 / (4 * math.sinh(0.5) ** 2)
    assert found == pytest.approx(N * np.mean(v**2 / (v + c)) / np.mean(v))
    assert "effective_examples" not in run_trial(tiny.trials(folder)[0])["diagnostics"]


def test_fewer_examples_are_spread_evenly_over_the_training_rows(folder, seen):
    run_trial(tiny.trials(folder, training={"examples": 300})[0])
    released, features, schedule = seen[0]
    dataset = data.synthetic(tiny.ROWS)
    kept = [place * N // 300 for place in range(300)]
    assert len(set(kept)) == 300
    np.testing.assert_array_equal(features.numeric, dataset.numeric[kept])
    np.testing.assert_array_equal(released, dataset.labels["pctr"][kept])
    assert schedule.examples == 300


def test_a_vocabulary_is_learnt_from_the_rows_that_are_trained_on(folder, monkeypatch):
    learnt_from = []

    def learn(dataset, rows, min_count):
        learnt_from.append(rows)
        return data.Vocabulary((np.zeros(0, np.uint32),) * 26)

    monkeypatch.setattr(data.Vocabulary, "learn", learn)
    changes = {"training": {"examples": 300}, "model": {"categories": "vocabulary"}}
    load_examples(tiny.trials(folder, **changes)[0])
    np.testing.assert_array_equal(learnt_from, [[place * N // 300 for place in range(300)]])


@pytest.mark.parametrize("task", [{"task": "pcvr"}, {"task": "pconvs", "cap": 60}])
def test_backward_at_epsilon_50_is_training_without_privacy(folder, task):
    """No label is above the cap and none is replaced, so even the bits agree."""
    backward = {**RANDOMIZED_RESPONSE, "correction": "backward"}
    plain, private = tiny.trials(folder, NON_PRIVATE, backward, epsilons=[50.0], **task)
    expected, found = run_trial(plain), run_trial(private)
    assert found["test"] == pytest.approx(expected["test"], rel=1e-5)
    if task["task"] == "pcvr":
        assert found["test"] == expected["test"]


UNDERSTATED = """
import numpy as np

from dpcompare.label_kernel import LabelKernel
from dpcompare.label_mechanism import LabelMechanism, pure_releases


class Understated(LabelMechanism):
    factor: float = 1.0

    def kernel(self, task):
        keep = 1 / (1 + np.exp(-self.factor * float(self.epsilon)))
        return LabelKernel([[keep, 1 - keep], [1 - keep, keep]], [0.0, 1.0])
"""


def test_a_claim_that_the_label_kernel_does_not_keep_is_refused(tmp_path):
    """A kernel of epsilon 1.5 under a stated epsilon of 1 must not become a curve."""
    (tmp_path / "mine.py").write_text(UNDERSTATED)
    name = f"{tmp_path / 'mine.py'}:Understated"
    honest, wrong = tiny.trials(
        tmp_path, {"name": name, "label": "honest"}, {"name": name, "label": "wrong", "factor": 1.5}
    )
    assert run_trial(honest)["guarantee"]["epsilon"] == pytest.approx(1.0)
    with pytest.raises(DpcompareError, match=r"claims epsilon 1, but .* exp\(1\.5\)"):
        run_trial(wrong)


GENTLE = {"learning_rate": 0.002, "weight_decay": 0.1}
"""Noise of variance 200 makes larger steps diverge."""


@pytest.mark.parametrize(
    ("task", "mechanism"),
    [
        ({"task": "pctr"}, RANDOMIZED_RESPONSE),
        ({"task": "pcvr"}, RANDOMIZED_RESPONSE),
        ({"task": "pcvr"}, {**RANDOMIZED_RESPONSE, "correction": "backward"}),
        ({"task": "pcvr"}, {"name": "additive-noise", "training": GENTLE}),
    ],
    ids=["pctr forward", "pcvr forward", "pcvr backward", "pcvr laplace"],
)
def test_at_epsilon_a_tenth_labels_teach_nothing_and_the_table_shows_a_loss(
    tmp_path, task, mechanism
):
    """10,000 labels are worth at most 25 clean ones: nothing is learnt beyond noise."""
    changes = {
        "epsilons": [0.1],
        "seeds": 3,
        "data": {"rows": 12_500},
        "model": {"tower": [8]},
        "training": {"epochs": 2, "learning_rate": 0.03, "base_rate": 0.1},
    }
    records = [run_trial(c) for c in tiny.trials(tmp_path, mechanism, **task, **changes)]
    assert {record["rows"]["train"] for record in records} == {10_000}
    entropies = np.array([record["test"]["normalized_entropy"] for record in records])
    constant = 1.0
    error = entropies.std(ddof=1) / math.sqrt(len(entropies))
    assert entropies.mean() > constant - 3 * error - 0.005
    summary = summarize(records)
    row = next(line for line in table(summary).splitlines() if line.startswith(mechanism["name"]))
    assert ("!" in row) == (entropies.mean() > 1)


def test_releases_that_differ_anywhere_in_a_long_array_share_no_stream(folder):
    """The text of an array of 2,000 numbers shows six of them."""
    (configuration,) = tiny.trials(folder, {"name": "additive-noise"}, **COUNTS)
    task = tasks.find("pconvs", 3)
    plain, other = np.zeros(2000), np.zeros(2000)
    other[1000] = 1.0
    streams = {
        str(label_stream(configuration, AdditiveNoise(epsilon=1.0, clipped_share=array), task))
        for array in (plain, other)
    }
    assert len(streams) == 2
