"""Trials: what is trained on, what is claimed, what is measured, and what must never be shared."""

import itertools
import json
import math
from dataclasses import replace

import jax
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dpcompare_mechanisms.dp_sgd import DPSGD

from dpcompare import data, examples, steps, tasks, trainer, trial
from dpcompare.configuration import identity
from dpcompare.errors import DpcompareError
from dpcompare.examples import load_examples
from dpcompare.mechanism import find
from dpcompare.privacy import Release
from dpcompare.randomness import jax_key, numpy_generator
from dpcompare.results import FIELDS, decode, encode
from dpcompare.trial import failed_record, label_stream, run_trial
from tests import tiny_studies as tiny
from tests.tiny_studies import ALL, DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE

N = tiny.TRAIN_ROWS
CORRECTIONS = ("none", "backward", "forward", "post-hoc")


def response(correction):
    return {**RANDOMIZED_RESPONSE, "label": correction, "correction": correction}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("trials")


@pytest.fixture(scope="module")
def records(folder):
    """One record of each mechanism, by label."""
    made = [run_trial(configuration) for configuration in tiny.trials(folder, *ALL)]
    return {record["label"]: record for record in made}


@pytest.fixture
def changed_data(monkeypatch):
    """A function that makes trials see the tiny data set with some arrays changed."""
    monkeypatch.setattr(
        examples, "_load_examples", examples._load_examples.__wrapped__
    )  # no memory
    original = data.synthetic(tiny.ROWS)

    def change(function):
        arrays = {
            "numeric": original.numeric.copy(),
            "categories": original.categories.copy(),
            "labels": {task: labels.copy() for task, labels in original.labels.items()},
        }
        function(arrays)
        monkeypatch.setattr(examples, "load_dataset", lambda settings: replace(original, **arrays))

    return change


@pytest.fixture
def seen(monkeypatch):
    """What trainings were given, in place of training: (released, features, schedule, streams)."""
    calls = []

    def record(mechanism, task, model, features, released, schedule, recipe, streams, *_):
        calls.append((np.asarray(released), features, schedule, streams))
        return model.init(jax.random.key(0))

    monkeypatch.setattr(trial, "train", record)
    return calls


# --- records -------------------------------------------------------------------------------------


def test_a_record_has_every_field_and_survives_its_file(records):
    for record in records.values():
        assert list(record) == list(FIELDS)
        line = encode(record)
        back = decode(line)
        assert encode(back) == line
        assert (back["status"], back["error"]) == ("done", None)
        assert back["rows"] == {"train": 1603, "validation": 201, "test": 200}
        assert set(back["timings"]) >= {"data", "calibrate", "train", "evaluate"}


def test_the_configuration_in_a_record_is_the_one_of_its_identity(records, folder):
    for configuration, record in zip(tiny.trials(folder, *ALL), records.values(), strict=True):
        stored = decode(encode(record))["configuration"]
        assert record["id"] == identity(configuration)
        again = {**stored, "about": configuration["about"]}
        again["budget"] = {**stored["budget"], "epsilon": configuration["budget"]["epsilon"]}
        assert identity(again) == record["id"]


def test_the_same_configuration_gives_the_same_record_to_the_last_bit(records, folder):
    np.random.seed(123)  # a global generator has no say
    for configuration in tiny.trials(folder, *ALL):
        again = run_trial(json.loads(json.dumps(configuration)))
        first = records[again["label"]]
        assert again | {"timings": 0} == first | {"timings": 0}


def test_a_failed_record_is_valid_and_says_why(folder):
    configuration = tiny.trials(folder)[0]
    record = decode(encode(failed_record(configuration, "no disk", "Traceback: ...")))
    assert (record["status"], record["error"]) == ("failed", "no disk")
    assert record["test"] is record["guarantee"] is None
    assert record["diagnostics"] == {"traceback": "Traceback: ..."}
    assert record["id"] == identity(configuration)


# --- guarantees and schedules --------------------------------------------------------------------


def test_each_mechanism_states_what_it_guarantees(records):
    nothing = records["non-private"]["guarantee"]
    assert nothing["epsilon"] == math.inf
    rows = records["dp-sgd"]["guarantee"]
    assert 0.99 < rows["epsilon"] <= 1.0
    assert rows["delta"] == pytest.approx(N**-1.1)
    assert (rows["unit"], rows["neighboring"]) == ("example", "zero-out")
    assert rows["other_relations"]["replace-one"] > rows["epsilon"]
    labels = records["randomized-response"]["guarantee"]
    assert labels["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert (labels["delta"], labels["unit"]) == (0.0, "label")
    assert labels["neighboring"] == "replace-one-label"
    assert set(labels["other_relations"].values()) == {None}


def test_as_many_steps_are_run_as_are_stated_and_accounted(folder, monkeypatch):
    drawn = []

    def counting(*arguments):
        draw = data_sampling(*arguments)
        return lambda step: drawn.append(step) or draw(step)

    data_sampling = trainer.batch_draw
    monkeypatch.setattr(trainer, "batch_draw", counting)
    done = []
    # Three epochs of 1,603 rows in batches of 100 are 48.09 steps.
    configuration = tiny.trials(folder, DP_SGD, accountant="rdp", training={"epochs": 3})[0]
    record = run_trial(configuration, done.append)
    assert record["schedule"]["steps"] == 48
    assert drawn == list(range(48))
    assert done == [1.0]
    assert "48" in record["guarantee"]["events"][0]


def test_mechanisms_of_one_study_make_equally_many_updates_of_equal_expected_size(records):
    schedules = [record["schedule"] for record in records.values()]
    assert {(s["steps"], s["batch_size"], s["examples"]) for s in schedules} == {(16, 100, N)}
    assert [s["sampling"] for s in schedules] == ["shuffle", "poisson", "shuffle"]


@pytest.mark.parametrize("share", [1.0, 1.5])
def test_a_delta_that_is_not_below_1_over_n_is_marked(folder, seen, records, share):
    configuration = tiny.trials(
        folder, DP_SGD, delta=share / N, allow_large_delta=share > 1, accountant="rdp"
    )[0]
    record = run_trial(configuration)
    assert any("1/n" in note for note in record["notes"])
    assert record["configuration"]["budget"]["allow_large_delta"] == (share > 1)
    assert records["dp-sgd"]["notes"] == [], "the default lies below"


def test_a_large_delta_is_not_held_against_those_who_do_not_use_it(folder, seen):
    mechanisms = (NON_PRIVATE, RANDOMIZED_RESPONSE)
    for configuration in tiny.trials(folder, *mechanisms, delta=0.1, allow_large_delta=True):
        assert run_trial(configuration)["notes"] == []


def test_a_large_delta_is_refused_by_the_trial_itself(folder, seen):
    configuration = tiny.trials(folder, DP_SGD)[0]
    configuration["budget"]["delta"] = 0.01
    with pytest.raises(DpcompareError, match="above 1/n"):
        run_trial(configuration)
    assert seen == []


def test_the_record_holds_every_evaluation_that_the_configuration_names(folder):
    configuration = tiny.trials(folder, DP_SGD, training={"evaluations": 3, "epochs": 1})[0]
    record = run_trial(configuration)
    seen = record["diagnostics"]["evaluations"]
    assert [each["step"] for each in seen] == [5, 11, 16]
    assert {k: v for k, v in seen[-1].items() if k != "step"} == record["validation"]
    assert len({each["log_loss"] for each in seen}) == 3


# --- what must never be shared -------------------------------------------------------------------


def many_trials(folder):
    """Trials that differ in mechanism, epsilon, seed, and in what only training reads."""
    return tiny.trials(
        folder,
        {**DP_SGD, "clip_norm": [1.0, 2.0], "training": {"learning_rate": [0.1, 0.2]}},
        {**RANDOMIZED_RESPONSE, "training": {"learning_rate": [0.1, 0.2], "epochs": [1, 2]}},
        response("none"),
        epsilons=[1, 1.5, 3],
        seeds=2,
    )


def test_no_two_trials_share_their_noise(folder):
    configurations = many_trials(folder)
    names = [
        trial._streams(c, DPSGD(noise_multiplier=1.0), c["seed"]).noise for c in configurations
    ]
    keys = {jax.random.key_data(jax_key("noise", *name)).tobytes() for name in names}
    assert len(keys) == len(configurations) == 2 * 3 * (4 + 4 + 1)


def test_noise_does_not_depend_on_places(folder):
    configuration = tiny.trials(folder, DP_SGD)[0]
    mechanism = DPSGD(noise_multiplier=1.0)
    noise = trial._streams(configuration, mechanism, configuration["seed"]).noise
    configuration["data"]["path"] = "elsewhere"
    assert trial._streams(configuration, mechanism, configuration["seed"]).noise == noise


def test_other_code_or_another_size_of_noise_draws_other_noise(folder):
    """Two releases with the same normals at two sizes would reveal what they hide."""
    configuration = tiny.trials(folder, DP_SGD)[0]
    noise = trial._streams(configuration, DPSGD(noise_multiplier=1.0), configuration["seed"]).noise
    assert (
        trial._streams(configuration, DPSGD(noise_multiplier=1.5), configuration["seed"]).noise
        != noise
    )
    configuration["mechanism"]["version"] = "2.0"
    assert (
        trial._streams(configuration, DPSGD(noise_multiplier=1.0), configuration["seed"]).noise
        != noise
    )


def test_batches_groups_and_weights_do_not_depend_on_what_rows_hold(folder):
    configuration = tiny.trials(folder, DP_SGD)[0]
    mechanism = DPSGD(noise_multiplier=1.0)
    shared = trial._streams(configuration, mechanism, configuration["seed"]).shared
    configuration["data"]["checksum"] = "another row"
    assert trial._streams(configuration, mechanism, configuration["seed"]).shared == shared


def test_claims_that_training_cannot_bear_are_refused(folder, monkeypatch):
    configuration = tiny.trials(folder, DP_SGD)[0]
    monkeypatch.setattr(DPSGD, "gradient", lambda self: None)
    monkeypatch.setattr(
        DPSGD, "events", lambda self, schedule: [Release(GaussianDpEvent(1.0), "example")]
    )
    with pytest.raises(DpcompareError, match="plain gradients"):
        run_trial(configuration)


def test_groups_that_the_events_do_not_mention_are_refused(folder, monkeypatch):
    configuration = tiny.trials(folder, {**DP_SGD, "group_size": 4})[0]
    monkeypatch.setattr(
        DPSGD, "events", lambda self, schedule: [Release(GaussianDpEvent(1.0), "example")]
    )
    with pytest.raises(DpcompareError, match="groups of 4 rows"):
        run_trial(configuration)


def test_trials_of_one_seed_share_initial_weights_and_batches(folder, seen):
    for configuration in tiny.trials(folder, *ALL, seeds=2):
        run_trial(configuration)
    shared = [streams.shared for *_, streams in seen]
    assert shared[0] == shared[1] == shared[2] != shared[3] == shared[4] == shared[5]


def test_trials_that_differ_only_in_training_share_one_draw_of_the_labels(folder, seen):
    groups = {}
    for configuration in many_trials(folder):
        if configuration["mechanism"]["name"] == "randomized-response":
            run_trial(configuration)
            key = (configuration["budget"]["epsilon"], configuration["seed"])
            groups.setdefault(key, []).append(seen[-1][0])
    truth = data.synthetic(tiny.ROWS).labels["pctr"][:N]
    flips = {}
    for key, draws in groups.items():
        assert len(draws) == 5, "four candidates and another correction"
        for draw in draws[1:]:
            np.testing.assert_array_equal(draw, draws[0])
        flips[key] = draws[0] != truth
    assert len(flips) == 6
    for (key, a), (other, b) in itertools.combinations(flips.items(), 2):
        # Independent flips coincide with probability q1 q2; shared uniforms would nest them.
        expected = flip_probability(key) * flip_probability(other)
        deviation = abs(np.mean(a & b) - expected) / math.sqrt(expected * (1 - expected) / N)
        assert deviation < 4.5, f"{key} and {other} coincide, {deviation} standard errors"


def flip_probability(key):
    return 1 / (1 + math.exp(key[0]))


def test_labels_of_two_tasks_are_not_flipped_together(folder):
    configuration = tiny.trials(folder, RANDOMIZED_RESPONSE)[0]
    mechanism = find("randomized-response").build({}).replace(epsilon=1.0)
    clicks = label_stream(configuration, mechanism, tasks.PCTR)
    purchases = label_stream(configuration, mechanism, replace(tasks.PCTR, name="pcvr"))
    assert numpy_generator(*clicks).bytes(8) != numpy_generator(*purchases).bytes(8)


# --- what is trained on and what is measured -----------------------------------------------------


def test_training_sees_the_training_rows_and_released_labels_only(folder, seen):
    configuration = tiny.trials(folder, RANDOMIZED_RESPONSE, epsilons=[0.1])[0]
    run_trial(configuration)
    released, features, schedule, _ = seen[0]
    dataset = data.synthetic(tiny.ROWS)
    np.testing.assert_array_equal(features.numeric, dataset.numeric[:N])
    assert len(released) == len(features.ids) == schedule.examples == N
    flipped = np.mean(released != dataset.labels["pctr"][:N])
    q = 1 / (1 + math.exp(0.1))
    assert abs(flipped - q) < 4.5 * math.sqrt(q * (1 - q) / N), "4.5 standard errors"


def few_values(categories):
    """Two values a column, so that learnt vocabularies are small and of one size."""
    return categories % 2 + 5


@pytest.mark.parametrize("categories", ["hash", "vocabulary"])
def test_validation_and_test_rows_do_not_enter_training(folder, changed_data, categories):
    configuration = tiny.trials(folder, model={"categories": categories})[0]

    def scramble(part):
        def change(arrays):
            arrays["categories"][:] = few_values(arrays["categories"])
            arrays["numeric"][part] = 3.0
            arrays["categories"][part] = 77
            arrays["labels"]["pctr"][part] ^= 1

        return change

    validation, test = slice(1603, 1804), slice(1804, 2004)
    outcomes = {}
    for name, part in {"nothing": slice(0, 0), "validation": validation, "test": test}.items():
        changed_data(scramble(part))
        outcomes[name] = run_trial(configuration)
    plain = outcomes["nothing"]
    assert outcomes["test"]["validation"] == plain["validation"]
    assert outcomes["validation"]["test"] == plain["test"]
    assert outcomes["test"]["test"] != plain["test"], "the change shows where it should"


def test_training_rows_do_enter_training(folder, changed_data):
    configuration = tiny.trials(folder)[0]
    plain = run_trial(configuration)

    def change(arrays):
        arrays["labels"]["pctr"][:200] ^= 1

    changed_data(change)
    assert run_trial(configuration)["test"] != plain["test"]


def test_evaluation_uses_true_labels(folder):
    record = run_trial(tiny.trials(folder, RANDOMIZED_RESPONSE, epsilons=[0.1])[0])
    labels = data.synthetic(tiny.ROWS).labels["pctr"]
    assert record["validation"]["positives"] == labels[1603:1804].sum()
    assert record["test"]["positives"] == labels[1804:].sum()
    assert record["test"]["rows"] == 200
    rates = data.synthetic(tiny.ROWS).true_rates["pctr"][1804:]
    best = tasks.PCTR.evaluate(labels[1804:], rates)
    assert record["best_possible"] == best


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_in_the_test_rows_is_a_missing_auc_and_no_failure(folder, changed_data, label):
    def one_class(arrays):
        arrays["labels"]["pctr"][1804:] = label

    changed_data(one_class)
    record = decode(encode(run_trial(tiny.trials(folder)[0])))
    assert record["status"] == "done"
    assert record["test"]["auc"] is None
    assert record["test"]["log_loss"] > 0
    assert record["validation"]["auc"] is not None


def test_a_learnt_vocabulary_comes_from_training_rows_and_is_marked(folder, changed_data, seen):
    def only_later(arrays):
        arrays["categories"][:] = few_values(arrays["categories"])
        arrays["categories"][N:] = 77

    changed_data(only_later)
    configuration = tiny.trials(folder, model={"categories": "vocabulary"})[0]
    record = run_trial(configuration)
    assert any("vocabulary was learnt" in note for note in record["notes"])
    examples = load_examples(configuration)
    later = examples.features["test"].ids
    assert np.all(later == data.dataset.UNSEEN_ID)
    assert set(examples.features["train"].ids.ravel().tolist()) == {2, 3}
    assert set(examples.model.tables.sizes) == {4}
    hashed = run_trial(tiny.trials(folder)[0])
    assert not any("vocabulary" in note for note in hashed["notes"])


# --- epsilon 50, and what a correction corrects --------------------------------------------------


def test_at_epsilon_50_randomized_response_is_training_without_privacy(folder):
    reference, *others = (
        run_trial(configuration)
        for configuration in tiny.trials(
            folder, NON_PRIVATE, *map(response, ("none", "backward", "forward")), epsilons=[50]
        )
    )
    none, backward, forward = others
    for record in (none, backward):
        assert record["test"] == reference["test"], record["label"]
        assert record["validation"] == reference["validation"], record["label"]
        mean = record["diagnostics"]["mean_prediction"]
        assert mean == reference["diagnostics"]["mean_prediction"]
    for part in ("validation", "test"):
        assert forward[part]["auc"] == pytest.approx(reference[part]["auc"], abs=1e-5)
        assert forward[part]["log_loss"] == pytest.approx(reference[part]["log_loss"], abs=1e-5)


def test_corrected_predictions_have_the_true_mean_where_uncorrected_ones_miss_it(folder):
    """Logistic regression on 100,000 rows; .01 is 2.5 standard errors of the mean's label noise.

    The synthetic log drifts in time while its features do not, so what a model of the features
    can know is the rate of the training rows.
    """
    configurations = tiny.trials(
        folder,
        *map(response, CORRECTIONS),
        data={"rows": 125_000},
        model={"tower": []},
        training={"learning_rate": 0.2, "batch_size": 2000, "epochs": 8},
    )
    means = {
        configuration["about"]["label"]: run_trial(configuration)["diagnostics"]["mean_prediction"]
        for configuration in configurations
    }
    truth = float(np.mean(data.synthetic(125_000).true_rates["pctr"][:100_000]))
    assert abs(means["none"] - truth) > 0.05
    for correction in ("forward", "backward", "post-hoc"):
        assert abs(means[correction] - truth) < 0.01, correction


# --- failures ------------------------------------------------------------------------------------


def test_training_that_diverges_is_one_clear_error(folder):
    configuration = tiny.trials(folder, training={"learning_rate": 1e30})[0]
    with pytest.raises(DpcompareError, match=r"diverged between steps 1 and 16 of 16.*learning"):
        run_trial(configuration)


def test_predictions_that_are_nan_are_an_error_and_not_a_score(folder, monkeypatch):
    monkeypatch.setattr(trial, "predict", lambda *a: np.full(len(a[-1].ids), np.nan))
    with pytest.raises(DpcompareError, match="predictions are nan"):
        run_trial(tiny.trials(folder)[0])


def test_a_data_set_that_has_changed_is_refused(folder):
    text, place = folder / "log.txt", folder / "prepared"
    data.write_text(text, 500)
    manifest = data.prepare("criteo-kaggle", [text], place)
    configuration = tiny.trials(folder)[0]
    settings = {"source": "prepared", "path": str(place), "rows": 500, "columns": [13, 26]}
    settings |= {"split": [0.8, 0.1, 0.1], "parts": [400, 50, 50]}
    configuration["data"] = {**settings, "checksum": manifest.checksum}
    record = run_trial(configuration)
    assert record["rows"]["train"] == 400
    assert record["best_possible"] is None, "nobody knows the true rates of a real log"
    assert str(place) not in encode(record), "records say nothing of the machine they come from"
    configuration["data"]["checksum"] = "0" * 64
    with pytest.raises(DpcompareError, match=r"prepared has changed since .* run the study again"):
        run_trial(configuration)


def test_a_task_that_the_data_lack_is_named(folder, changed_data):
    changed_data(lambda arrays: arrays["labels"].update(pcvr=arrays["labels"].pop("pctr")))
    with pytest.raises(DpcompareError, match=r"no label for task 'pctr'; it has: pcvr"):
        run_trial(tiny.trials(folder)[0])


def test_a_mechanism_whose_code_has_changed_is_refused(folder, seen):
    path = folder / "mine.py"
    path.write_text(
        "from dpcompare.mechanism import Mechanism\n\nclass Mine(Mechanism):\n    pass\n"
    )
    configuration = tiny.trials(folder, {"name": f"{path}:Mine"})[0]
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(DpcompareError, match="has changed since the study was expanded"):
        run_trial(configuration)


def test_a_mechanism_named_by_file_is_compiled_once_for_all_its_trials(folder):
    path = folder / "own.py"
    path.write_text(
        "from dpcompare.mechanism import Mechanism\n\n"
        "class Own(Mechanism):\n    unset: float | None = None\n"
    )
    before = steps.trace_count()
    for configuration in tiny.trials(folder, {"name": f"{path}:Own"}, seeds=3):
        record = run_trial(configuration)
        assert record["diagnostics"]["calibrated"] == {}
    assert steps.trace_count() == before + 1


def test_calibration_may_find_words_and_lists_too():
    class Found(DPSGD):
        way: str | None = None
        sizes: tuple[float, ...] | None = None

    found = Found(noise_multiplier=np.float32(2), way="fast", sizes=(1.0, 2.0))
    assert trial._calibrated(found) == {"noise_multiplier": 2.0}
