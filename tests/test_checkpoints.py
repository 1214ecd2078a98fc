"""Checkpoints: a resumed run equals the uninterrupted one to the last bit, or is refused."""

import json
import os
import stat

import jax
import numpy as np
import pytest
from dpcompare_mechanisms.dp_sgd import DPSGD
from dpcompare_mechanisms.non_private import NonPrivate

from dpcompare import checkpoints, missed_noise, trainer, trial
from dpcompare.checkpoints import Checkpoints, remove, remove_empty, trials_in
from dpcompare.embeddings import EmbeddingTables
from dpcompare.errors import DpcompareError
from dpcompare.optimizers import Recipe
from dpcompare.privacy import Schedule
from dpcompare.results import LOCK, ResultsFolder, encode
from dpcompare.steps import run_steps
from dpcompare.tasks import PCTR
from dpcompare.trainer import Streams, train
from tests import tiny_studies as tiny
from tests.networks import random_batch, random_model

STEPS = 200
MODEL = random_model(EmbeddingTables((7, 300, 80), (0, 1, 1, 2, 2)))[0]


class Killed(BaseException):
    """Stands for a kill of the process: nothing in the trainer catches it."""


class KilledAfter(Checkpoints):
    """Checkpoints at every block, of which the process survives `count`."""

    def __init__(self, folder, count, trial_id="trial", streams=""):
        super().__init__(folder, trial_id, 0.0, streams=streams)
        self.count = count

    def save(self, step, state):
        super().save(step, state)
        self.count -= 1
        if not self.count:
            raise Killed


@pytest.fixture(autouse=True)
def small_blocks_and_windows(monkeypatch):
    """Blocks of 16 steps and windows of 40, so that a run has many of both."""
    monkeypatch.setattr("dpcompare.batches.MOST_STEPS", 16)
    for module in (missed_noise, trainer):
        monkeypatch.setattr(module, "WINDOW", 40)


def run(mechanism, recipe, kept=None, looks=None):
    features, labels = random_batch(MODEL, 400)
    schedule = Schedule(400, 40, STEPS, mechanism.sampling)
    looks = [] if looks is None else looks

    def look(step, parameters):
        looks.append([step, float(np.sum(parameters["embeddings"][0]))])

    parameters = train(
        mechanism, PCTR, MODEL, features, labels, schedule, recipe,
        Streams(("shared",), ("noise",)), evaluate=look, checkpoints=kept,
    )  # fmt: skip
    return jax.tree.leaves(parameters)


def interrupted(mechanism, recipe, folder):
    """A run that is killed after its first checkpoint, then after two more, then goes on."""
    for count in (1, 2):
        kept = KilledAfter(folder, count)
        with pytest.raises(Killed):
            run(mechanism, recipe, kept, kept.kept)
    kept = Checkpoints(folder, "trial", 1e9)
    return run(mechanism, recipe, kept, kept.kept), kept.kept


NOISY = DPSGD(clip_norm=1.0, noise_multiplier=1.0)
PATHS = {
    "lazy momentum": (NOISY, Recipe("momentum", 0.3, lazy_noise="always", evaluations=3)),
    "lazy sgd, groups": (
        DPSGD(clip_norm=1.0, noise_multiplier=1.0, group_size=4),
        Recipe("sgd", 0.3, lazy_noise="always"),
    ),
    "eager adam": (NOISY, Recipe("adam", 0.01, lazy_noise="never")),
    "no privacy": (NonPrivate(), Recipe("momentum", 0.3, evaluations=2)),
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_a_resumed_run_equals_an_uninterrupted_one_to_the_last_bit(path, tmp_path):
    looks = []
    whole = run(*path, looks=looks)
    resumed, kept = interrupted(*path, tmp_path)
    for a, b in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(a, b)
    assert kept == looks, "evaluations of the steps before are remembered"


def test_no_step_is_made_twice_after_its_checkpoint(tmp_path, monkeypatch):
    first_steps = []

    def counted(program, numbers, state, batches):
        first_steps.append(int(batches.first_step))
        return run_steps(program, numbers, state, batches)

    monkeypatch.setattr(trainer, "run_steps", counted)
    with pytest.raises(Killed):
        run(*PATHS["lazy sgd, groups"], KilledAfter(tmp_path, 3))
    before = len(first_steps)
    run(*PATHS["lazy sgd, groups"], Checkpoints(tmp_path, "trial", 1e9))
    assert before == 3
    assert first_steps == sorted(set(first_steps))


def test_nothing_is_settled_for_a_checkpoint(tmp_path):
    """What is stored is the unsettled state, which lacks noise, and is marked as private."""
    kept = KilledAfter(tmp_path / "checkpoints", 1)
    settled_at = []

    def look_and_save(step, state):
        settled_at.append(np.array(state.tables.lazy.last))
        Checkpoints.save(kept, step, state)

    kept.save = look_and_save
    kept.is_due = lambda: not settled_at
    run(*PATHS["lazy momentum"], kept)
    assert settled_at[0].max() > 0, "rows were settled when they were read"
    assert settled_at[0].min() == 0, "others were not"
    assert "Private" in (tmp_path / "checkpoints" / "PRIVATE.txt").read_text()
    for folder in ("checkpoints", "checkpoints/trial"):
        assert stat.S_IMODE(os.stat(tmp_path / folder).st_mode) == 0o700


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    with pytest.raises(Killed):
        run(*PATHS["eager adam"], KilledAfter(tmp_path, 1))
    (tmp_path / "trial").rename(tmp_path / "other")
    with pytest.raises(DpcompareError, match="trial was 'trial' and is 'other'"):
        run(*PATHS["eager adam"], Checkpoints(tmp_path, "other", 1e9))
    (tmp_path / "other").rename(tmp_path / "trial")
    with pytest.raises(
        DpcompareError,
        match=r"devices was 1 and is 2.*delete that folder and run",
    ):
        Checkpoints(tmp_path, "trial", 1e9, devices=2).restored(None)


def test_a_damaged_checkpoint_is_one_clear_message(tmp_path):
    with pytest.raises(Killed):
        run(*PATHS["eager adam"], KilledAfter(tmp_path, 1))
    damaged = [path for path in tmp_path.rglob("d/*") if path.is_file()]
    assert damaged
    for path in damaged:
        path.write_bytes(b"nonsense")
    with pytest.raises(DpcompareError, match=r"cannot be read.*delete that folder"):
        run(*PATHS["eager adam"], Checkpoints(tmp_path, "trial", 1e9))


def test_a_checkpoint_that_was_cut_off_while_written_does_not_count(tmp_path):
    with pytest.raises(Killed):
        run(*PATHS["eager adam"], KilledAfter(tmp_path, 2))
    (step,) = [path for path in (tmp_path / "trial").iterdir() if path.name.isdigit()]
    step.rename(step.with_name(f"{step.name}.orbax-checkpoint-tmp"))
    whole = run(*PATHS["eager adam"])
    again = run(*PATHS["eager adam"], Checkpoints(tmp_path, "trial", 1e9))
    for a, b in zip(again, whole, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_disk_that_is_full_is_one_clear_message(tmp_path, monkeypatch):
    def full(self, state):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Checkpoints, "_contents", full)
    with pytest.raises(DpcompareError, match=r"cannot be written.*No space left.*--retry-failed"):
        run(*PATHS["eager adam"], KilledAfter(tmp_path, 1))


def test_only_what_lies_there_is_removed(tmp_path):
    folder = tmp_path / "checkpoints"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    (folder / "PRIVATE.txt").touch()
    (tmp_path / "precious").mkdir()
    remove(folder, ["a", "c", "", "..", "../precious", str(tmp_path / "precious")])
    assert trials_in(folder) == {"b"}
    assert (tmp_path / "precious").exists(), "a record may hold any text as its identity"
    remove_empty(folder)
    assert folder.exists()
    remove(folder, ["b"])
    assert folder.exists(), "a trial may be about to write there"
    remove_empty(folder)
    assert not folder.exists()
    remove(folder, ["b"])


def test_a_trial_that_does_not_see_the_results_folder_keeps_no_checkpoint(tmp_path):
    """A node of a cluster may have another folder at the same place."""
    (configuration,) = tiny.trials(tmp_path)
    folder = ResultsFolder(tmp_path / "results")
    how = {"devices": 1, "checkpoints": str(folder.checkpoints), "checkpoint_seconds": 0.0}
    how["token"] = folder.token
    assert trial._checkpoints(configuration | {"run": how}, "") is None
    with folder.lock():
        assert trial._checkpoints(configuration | {"run": how}, "") is not None
        other = how | {"token": "of another run"}
        assert trial._checkpoints(configuration | {"run": other}, "") is None


def test_a_whole_trial_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """The record of a killed and resumed trial equals that of a quiet one."""
    (configuration,) = tiny.trials(
        tmp_path, tiny.DP_SGD, training={"epochs": 6, "evaluations": 4, "batch_size": 100}
    )
    quiet = trial.run_trial(configuration)
    made = []

    def killed_after_three(*arguments):
        made.append(KilledAfter(tmp_path / "checkpoints", 3, arguments[1], arguments[4]))
        return made[-1]

    monkeypatch.setattr(trial, "Checkpoints", killed_after_three)
    how = {"devices": 1, "checkpoints": str(tmp_path / "checkpoints"), "checkpoint_seconds": 0.0}
    how["token"] = "word"
    (tmp_path / LOCK).write_text("123 word\n")
    with pytest.raises(Killed):
        trial.run_trial(configuration | {"run": how})
    monkeypatch.setattr(trial, "Checkpoints", checkpoints.Checkpoints)
    how["checkpoint_seconds"] = 1e9
    resumed = trial.run_trial(configuration | {"run": how})
    assert resumed["timings"].pop("train_before_resuming") > 0
    quiet, resumed = (json.loads(encode(r | {"timings": {}})) for r in (quiet, resumed))
    assert resumed == quiet
    assert [look["step"] for look in resumed["diagnostics"]["evaluations"]] == [24, 48, 72, 96]
