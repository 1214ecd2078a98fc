"""The Python API: a study and a training run as functions, and secret seeds."""

import math
import os
import stat
from dataclasses import replace

import numpy as np
import pytest

import dpcompare
from dpcompare import api, data, trainer, trial
from dpcompare.errors import DpcompareError, UsageError
from tests import tiny_studies as tiny


def test_run_study_returns_all_trials(tmp_path):
    lines = []
    frame = dpcompare.run_study(
        tiny.content(tiny.NON_PRIVATE, tiny.RANDOMIZED_RESPONSE),
        out=tmp_path / "out",
        epsilons=[0.5, 2],
        workers=1,
        say=lines.append,
    )
    assert sorted(frame["epsilon"]) == [0.5, 2.0, np.inf]
    assert set(frame["status"]) == {"done"}
    assert any("3 done" in line for line in lines)
    assert (tmp_path / "out" / "figures" / "utility.png").exists()


def test_train_repeats_the_trial_of_the_study(tmp_path):
    study = tiny.content(tiny.NON_PRIVATE, tiny.DP_SGD)
    frame = dpcompare.run_study(study, out=tmp_path / "out", workers=1, mechanisms=["dp-sgd"])
    model = dpcompare.train(study, "dp-sgd")
    (row,) = frame.to_dict("records")
    assert model.record["id"] == row["id"]
    assert model.guarantee.epsilon == row["guarantee_epsilon"]
    # workers see one core, this process all: sums may be cut otherwise
    assert model.record["test"]["log_loss"] == pytest.approx(row["test_log_loss"], rel=1e-4)


def test_training_leaves_the_environment_of_later_workers_alone(monkeypatch):
    before = dict(os.environ)
    dpcompare.train(tiny.content())
    assert dict(os.environ) == before


def test_the_arguments_must_name_one_trial():
    study = tiny.content(*tiny.ALL, epsilons=[1.0, 2.0])
    with pytest.raises(UsageError, match=r"several curves.*non-private, dp-sgd, rand"):
        dpcompare.train(study)
    with pytest.raises(UsageError, match=r"several epsilons; name one: 1\.0, 2\.0"):
        dpcompare.train(study, "dp-sgd")
    with pytest.raises(UsageError, match="did you mean 'dp-sgd'"):
        dpcompare.train(study, "dp-sdg", 1)
    tuned = tiny.content(tiny.DP_SGD | {"clip_norm": [1.0, 2.0]})
    with pytest.raises(UsageError, match=r"compares 2 candidates \(clip_norm\)"):
        dpcompare.train(tuned)
    with pytest.raises(UsageError, match="trains nothing"):
        dpcompare.train("accountants-noise")
    chosen = tiny.content(tiny.DP_SGD | {"private_selection": 2.0})
    with pytest.raises(UsageError, match="private selection"):
        dpcompare.train(chosen)


def secret_words(monkeypatch):
    """The secrets that are asked of the operating system, as they are given out."""
    given, urandom = [], os.urandom

    def remembered(size):
        given.append(urandom(size))
        return given[-1]

    monkeypatch.setattr(os, "urandom", remembered)
    return given


def contents(folder):
    """All bytes of all files of a folder, and their names."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return b"".join(file.name.encode() + file.read_bytes() for file in files)


def test_a_secret_seed_is_never_the_same_and_leaves_nothing_behind(tmp_path, monkeypatch):
    given = secret_words(monkeypatch)
    study, log = tiny.content(tiny.DP_SGD), data.synthetic(200, seed=3)
    first = dpcompare.train(study, secret_seed=True, out=tmp_path / "model")
    second = dpcompare.train(study, secret_seed=True)
    assert not np.array_equal(first.predict(log), second.predict(log))
    secrets = [words for words in given if len(words) == 32]
    assert len(set(secrets)) == 2
    assert os.listdir(tmp_path) == ["model"]
    exported = contents(tmp_path / "model")
    for secret in secrets:
        assert secret not in exported
        assert secret.hex().encode() not in exported
        assert secret.hex() not in repr(first.record) + repr(dict(first.settings))
    assert first.settings["seed"] == first.record["seed"] == "secret"


@pytest.mark.parametrize("mechanism", [tiny.DP_SGD, tiny.RANDOMIZED_RESPONSE])
def test_every_stream_depends_on_the_secret(mechanism, monkeypatch):
    """Weights, batches, labels and noise: two runs share none."""
    seen = []

    def record(mechanism, task, model, features, released, schedule, recipe, streams, *_):
        seen.append((np.asarray(released), streams))
        return real(mechanism, task, model, features, released, schedule, recipe, streams, *_)

    real = trainer.train
    monkeypatch.setattr("dpcompare.trial.train", record)
    for _ in range(2):
        dpcompare.train(tiny.content(mechanism), secret_seed=True)
    dpcompare.train(tiny.content(mechanism))
    (labels, streams), (other_labels, others), (_, public) = seen
    assert streams.shared != others.shared
    assert streams.noise != others.noise
    assert (streams.draws, public.draws) == (4, 1)
    if mechanism is tiny.RANDOMIZED_RESPONSE:
        assert not np.array_equal(labels, other_labels)


class Killed(BaseException):
    """Stands for a kill of the process."""


def killed_at(fraction):
    def report(done):
        if done >= fraction:
            raise Killed

    return report


def test_a_killed_secret_run_goes_on_with_its_secret_only(tmp_path, monkeypatch):
    monkeypatch.setattr("dpcompare.batches.MOST_STEPS", 4)
    study, out = tiny.content(tiny.DP_SGD), tmp_path / "model"
    given = secret_words(monkeypatch)
    kept = {"secret_seed": True, "out": out, "checkpoint_minutes": 1e-9}
    with pytest.raises(Killed):
        dpcompare.train(study, **kept, report=killed_at(0.6))
    private = tmp_path / "model.private"
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    (secret,) = private.glob("*.secret")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert list((private / "checkpoints").glob("*/[0-9]*"))

    words = secret.read_bytes()
    secret.unlink()
    with pytest.raises(DpcompareError, match="not the secret of its run"):
        dpcompare.train(study, **kept)
    secret.write_bytes(words)
    asked_before = len([w for w in given if len(w) == 32])
    resumed = dpcompare.train(study, **kept)
    assert len([w for w in given if len(w) == 32]) == asked_before
    assert resumed.record["timings"]["train_before_resuming"] > 0
    assert os.listdir(tmp_path) == ["model"]

    monkeypatch.setattr(os, "urandom", lambda size: words)
    whole = dpcompare.train(study, secret_seed=True)
    log = data.synthetic(200, seed=3)
    np.testing.assert_array_equal(resumed.predict(log), whole.predict(log))


@pytest.mark.parametrize("what", ["_streams", "label_stream"])
def test_a_killed_run_does_not_go_on_with_other_draws(what, tmp_path, monkeypatch):
    """As where another library finds a kernel or a noise multiplier with other last bits."""
    monkeypatch.setattr("dpcompare.batches.MOST_STEPS", 4)
    kept = {"secret_seed": True, "out": tmp_path / "model", "checkpoint_minutes": 1e-9}
    study = tiny.content(tiny.RANDOMIZED_RESPONSE)
    with pytest.raises(Killed):
        dpcompare.train(study, **kept, report=killed_at(0.6))
    real = getattr(trial, what)

    def other(*arguments):
        words = real(*arguments)
        return (*words, 0) if what == "label_stream" else replace(words, noise=("other",))

    with monkeypatch.context() as changed:
        changed.setattr(trial, what, other)
        with pytest.raises(DpcompareError, match="noise or labels are other draws"):
            dpcompare.train(study, **kept)
    assert dpcompare.train(study, **kept).record["status"] == "done"


def test_an_export_that_fails_keeps_the_run(tmp_path, monkeypatch):
    study, kept = tiny.content(), {"secret_seed": True, "out": tmp_path / "model"}
    given = secret_words(monkeypatch)

    def full(self, folder):
        raise DpcompareError("no space left")

    with monkeypatch.context() as changed:
        changed.setattr("dpcompare.trained_model.TrainedModel.save", full)
        with pytest.raises(DpcompareError, match="no space left"):
            dpcompare.train(study, **kept)
    assert os.listdir(tmp_path) == ["model.private"]
    dpcompare.train(study, **kept)
    assert len([words for words in given if len(words) == 32]) == 1
    assert os.listdir(tmp_path) == ["model"]


def test_a_secret_trial_is_not_repeated_from_its_configuration():
    from dpcompare.trial import run_trial

    (configuration,) = api.expand(api.studies.load(tiny.content(tiny.DP_SGD)))
    configuration["seed"] = "secret"
    with pytest.raises(DpcompareError, match="needs the secret"):
        run_trial(configuration)


def test_a_released_model_must_not_hold_a_vocabulary_outside_its_guarantee():
    learnt = {"model": {"categories": "vocabulary", "min_count": 5}}
    with pytest.raises(UsageError, match=r'set model\.categories = "hash"'):
        dpcompare.train(tiny.content(tiny.DP_SGD, **learnt), secret_seed=True)
    # label DP protects no features, so its vocabulary is no leak of what it protects
    dpcompare.train(tiny.content(tiny.RANDOMIZED_RESPONSE, **learnt), secret_seed=True)


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="there already"):
        dpcompare.train(tiny.content(), out=tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


def test_the_private_folder_is_of_one_run_alone(tmp_path):
    """It is removed at the end, and whoever could write to it would choose the secret."""
    study, private = tiny.content(), tmp_path / "model.private"

    def refused(match):
        with pytest.raises(UsageError, match=match):
            dpcompare.train(study, secret_seed=True, out=tmp_path / "model")
        assert not (tmp_path / "model").exists()

    private.mkdir(mode=0o700)
    (private / "notes.txt").write_text("mine")
    refused(r"holds notes\.txt, and no run left that")
    assert (private / "notes.txt").read_text() == "mine"
    (private / "notes.txt").unlink()
    private.chmod(0o770)
    refused("others may read it or write to it")
    private.rename(tmp_path / "elsewhere")
    private.symlink_to(tmp_path / "elsewhere")
    refused("is no folder")
    private.unlink()
    (tmp_path / "model").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="there already"):
        dpcompare.train(study, out=tmp_path / "model")


def test_a_private_folder_that_stays_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.rmtree", lambda folder, ignore_errors=False: None)
    with pytest.raises(DpcompareError, match="remove it before anybody gets the model"):
        dpcompare.train(tiny.content(), secret_seed=True, out=tmp_path / "model")
    assert (tmp_path / "model" / "model.json").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": 1.5}, "seed must be a whole number"),
        ({"seed": math.nan}, "seed must be a whole number"),
        ({"seed": "secret"}, "seed must be a whole number"),
        ({"seed": True}, "seed must be a whole number"),
        ({"seed": 3, "secret_seed": True}, "either a seed or secret_seed"),
        ({"checkpoint_minutes": math.nan}, "checkpoint_minutes must be a finite number above 0"),
        ({"checkpoint_minutes": "10"}, "checkpoint_minutes must be"),
        ({"checkpoint_minutes": 0}, "checkpoint_minutes must be"),
    ],
)
def test_train_refuses_what_no_argument_may_be(tmp_path, arguments, part):
    with pytest.raises(UsageError, match=part):
        dpcompare.train(tiny.content(), out=tmp_path / "model", **arguments)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", ["seeds", "workers", "devices", "checkpoint_minutes"])
def test_run_study_refuses_what_no_argument_may_be(tmp_path, name):
    for value in (0, -1, math.nan, "1", [1]):
        with pytest.raises(UsageError, match=f"^{name} must be"):
            dpcompare.run_study(tiny.content(), out=tmp_path / "out", **{name: value})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("secret", [False, True])
def test_a_run_that_is_refused_leaves_nothing(tmp_path, secret):
    with pytest.raises(UsageError, match="can be reached"):
        dpcompare.train(
            tiny.content(tiny.DP_SGD), epsilon=1e9, out=tmp_path / "model", secret_seed=secret
        )
    assert os.listdir(tmp_path) == []


def test_a_secret_that_a_kill_left_beside_its_model_is_named(tmp_path):
    """The process died between the export and the removal of what it had kept."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model.private").mkdir()
    with pytest.raises(UsageError, match=r"Remove .*model\.private: it may hold the secret"):
        dpcompare.train(tiny.content(), out=tmp_path / "model")
