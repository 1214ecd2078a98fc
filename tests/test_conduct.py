"""Running studies: only what is missing, whatever happened before."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dpcompare import conduct, estimate, expansion, memory, runner, trial
from dpcompare.configuration import identity
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.expansion import expand
from dpcompare.randomness import jax_key
from dpcompare.redraw import show
from dpcompare.results import ResultsFolder
from dpcompare.study import load, select
from tests import tiny_studies as tiny
from tests.tiny_studies import DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE

BOTH = (NON_PRIVATE, RANDOMIZED_RESPONSE)
PLUGIN = """
from dpcompare.errors import UsageError
from dpcompare.mechanism import Mechanism

class Mine(Mechanism):
    strength: float = 2.0

    def calibrate(self, budget, schedule, task):
        if self.strength == 3:
            raise UsageError("strength 3 cannot meet this budget")
        if self.strength == 4:
            raise ZeroDivisionError("what a surprise")
        return self
"""


class Counting(tiny.InProcess):
    """An executor without processes that counts trials."""

    started = 0

    def map(self, function, configurations, progress):
        configurations = list(configurations)
        Counting.started += len(configurations)
        return super().map(function, configurations, progress)


def initial_weights(mechanism, task, model, features, released, schedule, recipe, streams, *how):
    """In place of training, so that nothing is compiled for it."""
    return model.init(jax_key("init", *streams.shared))


@pytest.fixture
def workers(monkeypatch):
    """Trials run in this process, untrained, and are counted."""
    monkeypatch.setattr(runner, "LocalExecutor", Counting)
    monkeypatch.setattr(Counting, "started", 0)
    monkeypatch.setattr(trial, "train", initial_weights)
    return Counting


@pytest.fixture
def run(workers, tmp_path):
    """A function that runs a study in the folder `results`: (trials started, failed, lines)."""

    def run_study(study, path=tmp_path / "results", **how):
        lines = []
        before = workers.started
        failed = conduct.run(study, path, conduct.How(**how), lines.append)
        return workers.started - before, failed, "\n".join(lines)

    return run_study


@pytest.fixture
def results(tmp_path):
    return ResultsFolder(tmp_path / "results")


def labels(folder):
    return [record["label"] for record in folder.records(folder.plan())]


# --- resuming ------------------------------------------------------------------------------------


def test_a_study_is_run_once_and_its_results_are_complete(run, results, tmp_path):
    study = tiny.study(tmp_path, *BOTH, epsilons=[1, 3], seeds=2)
    started, failed, text = run(study)
    assert (started, failed) == (6, 0)
    assert "6 done, 0 failed, 0 already there" in text
    assert results.plan() == [identity(c) for c in expand(study)]
    assert [r["id"] for r in results.records(results.plan())] == results.plan()
    for file in (results.summary, results.figures / "utility.png", results.figures / "utility.svg"):
        assert file.stat().st_size > 0
        assert f"wrote {file}" in text
    again = load(str(results.study))
    assert [identity(c) for c in expand(again)] == results.plan()

    content = results.trials.read_bytes()
    started, failed, text = run(study)
    assert (started, failed) == (0, 0)
    assert "0 done, 0 failed, 6 already there" in text
    assert results.trials.read_bytes() == content


def test_a_larger_study_runs_only_what_is_new(run, results, tmp_path):
    study = tiny.study(tmp_path, *BOTH, epsilons=[1, 3], seeds=2)
    assert run(select(study, seeds=1, epsilons=["1"], mechanisms=["randomized-response"]))[0] == 1
    assert labels(results) == ["randomized-response"]
    assert run(select(study, seeds=1))[0] == 2
    assert run(study)[0] == 3
    assert len(results.plan()) == 6
    assert run(select(study, epsilons=["3"]))[0] == 0
    assert len(results.plan()) == 4, "the figure shows what was asked for last"


def test_a_torn_last_line_is_named_and_exactly_its_trial_runs_again(run, results, tmp_path):
    study = tiny.study(tmp_path, NON_PRIVATE, seeds=3)
    run(study)
    whole = results.records()
    content = results.trials.read_bytes()
    results.trials.write_bytes(content[:-10])
    started, _, text = run(study)
    assert started == 1
    assert "Warning:" in text
    assert f"{results.trials}, line 3 is damaged" in text
    again = results.records()
    assert [r["seed"] for r in again] == [0, 1, 2]
    assert [r["test"] for r in again] == [r["test"] for r in whole]
    assert results.warnings == []


def test_a_file_of_one_torn_line_is_no_obstacle(run, results, tmp_path):
    study = tiny.study(tmp_path)
    run(study)
    results.trials.write_bytes(results.trials.read_bytes()[:-10])
    started, failed, text = run(study)
    assert (started, failed) == (1, 0)
    assert "line 1 is damaged" in text


def test_damage_in_the_middle_is_an_error_before_anything_runs(run, results, workers, tmp_path):
    study = tiny.study(tmp_path, seeds=2)
    run(study)
    lines = results.trials.read_bytes().splitlines(keepends=True)
    results.trials.write_bytes(lines[0][:100] + b"\n" + lines[1])
    with pytest.raises(DpcompareError, match="line 1 is damaged"):
        run(study)
    assert workers.started == 2


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"training": {"learning_rate": 0.2}}, "training.learning_rate"),
        ({"data": {"seed": 1}}, "data.seed, data.checksum"),
        ({"model": {"tower": []}, "delta": 1e-5}, "model.tower, budget.delta"),
    ],
)
def test_changed_settings_are_announced(run, results, tmp_path, changes, named):
    run(tiny.study(tmp_path))
    started, _, text = run(tiny.study(tmp_path, **changes))
    assert started == 1
    line = text.splitlines()[0]
    assert line.startswith("non-private: 1 of its trials run again")
    assert line.endswith(f"changed: {named}")
    assert len(results.records()) == 2, "the old record is kept"
    assert len(results.records(results.plan())) == 1, "and does not count"


def test_an_edited_mechanism_is_announced_and_its_records_are_made_again(run, results, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    mechanism = {"name": f"{path}:Mine", "label": "mine"}
    assert run(tiny.study(tmp_path, NON_PRIVATE, mechanism))[0] == 2
    path.write_text(PLUGIN + "# edited\n")
    started, _, text = run(tiny.study(tmp_path, NON_PRIVATE, mechanism))
    assert started == 1
    assert "mine: 1 of its trials run again" in text
    assert text.splitlines()[0].endswith("changed: mechanism.version")


def test_new_names_reach_the_records_without_training(run, results, tmp_path):
    run(tiny.study(tmp_path, *BOTH))
    named = {**RANDOMIZED_RESPONSE, "label": "flipped labels"}
    started, _, text = run(tiny.study(tmp_path, NON_PRIVATE, named, title="New title"))
    assert started == 0
    assert labels(results) == ["non-private", "flipped labels"]
    assert {r["title"] for r in results.records()} == {"New title"}
    assert "flipped labels" in text
    size = results.trials.stat().st_size
    run(tiny.study(tmp_path, NON_PRIVATE, named, title="New title"))
    assert results.trials.stat().st_size == size


def test_noise_is_calibrated_once_for_all_seeds_and_candidates(run, tmp_path, monkeypatch):
    mechanism = {**DP_SGD, "clip_norm": [1.0, 2.0]}
    study = tiny.study(tmp_path, mechanism, seeds=2, accountant="rdp")
    cache = tmp_path / "cache"
    monkeypatch.setenv("DPCOMPARE_CACHE", str(cache))
    run(select(study, seeds=1))
    files = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    assert len(files) == 1
    run(study)
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == files


# --- scheduling ----------------------------------------------------------------------------------


def test_curves_start_first_and_candidates_after_the_first_of_their_budget(tmp_path):
    tuned = {**DP_SGD, "clip_norm": [1.0, 2.0]}
    trials = expand(tiny.study(tmp_path, *BOTH, tuned, epsilons=[1, 3], seeds=2))
    ordered = conduct.in_running_order(trials)
    assert sorted(map(identity, ordered)) == sorted(map(identity, trials))
    labels = [c["about"]["label"] for c in ordered]
    assert sorted(labels[:3]) == ["dp-sgd", "non-private", "randomized-response"]
    assert [c["seed"] for c in ordered] == [0] * 7 + [1] * 7
    for seed in (0, 1):
        budgets = [
            c["budget"]["epsilon"]
            for c in ordered
            if c["seed"] == seed and c["about"]["label"] == "dp-sgd"
        ]
        assert sorted(budgets[:2]) == sorted(budgets[2:]) == [1.0, 3.0]


def test_long_trials_start_before_short_ones(tmp_path):
    epochs = [{"epsilon_up_to": 2, "value": 1}, {"value": 9}]
    mechanism = {**RANDOMIZED_RESPONSE, "training": {"epochs": epochs}}
    ordered = conduct.in_running_order(
        expand(tiny.study(tmp_path, mechanism, epsilons=[1, 3, 5], seeds=2))
    )
    assert [c["training"]["epochs"] for c in ordered] == [9, 9, 1, 9, 9, 1]


@pytest.fixture
def room_for(monkeypatch):
    """A function that lets memory suffice for so many workers, on a machine of four cores."""

    def limit(workers, trials):
        need = max(map(estimate.memory, trials))
        monkeypatch.setattr(memory, "available", lambda: int(workers * need))
        monkeypatch.setattr(runner, "usable_cores", lambda: [0, 1, 2, 3])

    return limit


def test_memory_limits_the_default_number_of_workers(tmp_path, room_for):
    trials = tiny.trials(tmp_path, seeds=6)
    room_for(4.5, trials)
    assert conduct.worker_count(trials, None) == (4, None)
    room_for(2.5, trials)
    assert conduct.worker_count(trials[:2], None) == (4, None), "there is work for two only"
    count, line = conduct.worker_count(trials, None)
    assert count == 2
    assert line.startswith("Workers: 2, for 4 x 0.")
    room_for(0.5, trials)
    assert conduct.worker_count(trials, None)[0] == 1, "it may still fit: this is an estimate"
    assert conduct.worker_count([], None) == (4, None)


def test_a_wanted_number_of_workers_is_obeyed_with_a_warning(tmp_path, room_for):
    trials = tiny.trials(tmp_path, seeds=6)
    room_for(3.5, trials)
    assert conduct.worker_count(trials, 3) == (3, None)
    count, line = conduct.worker_count(trials, 5)
    assert count == 5
    assert line.startswith("Warning: 5 x 0.")


def test_a_run_and_a_dry_run_say_that_memory_is_short(run, tmp_path, room_for):
    study = tiny.study(tmp_path, seeds=3)
    room_for(2.5, expand(study))
    assert "Workers: 2, for 3 x" in conduct.dry_run(study, conduct.How())
    assert "3 trials on 2 workers" in conduct.dry_run(study, conduct.How())
    assert "Workers: 2, for 3 x" in run(study)[2]
    assert "Workers:" not in run(study)[2], "nothing is missing any more"


def test_workers_need_not_wait_for_what_draws():
    code = "import sys; import dpcompare.conduct; print('seaborn' in sys.modules)"
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


# --- failures ------------------------------------------------------------------------------------


def test_a_failed_trial_is_recorded_and_named_while_the_others_complete(run, results, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    broken = {"name": f"{tmp_path / 'mine.py'}:Mine", "label": "broken", "strength": 3}
    study = tiny.study(tmp_path, broken, RANDOMIZED_RESPONSE)
    started, failed, text = run(study)
    assert (started, failed) == (2, 1)
    record, other = results.records(results.plan())
    assert other["status"] == "done"
    assert record["status"] == "failed"
    assert record["error"] == "strength 3 cannot meet this budget"
    assert record["test"] is None
    assert "broken" in text
    assert "seed 0: strength 3 cannot meet this budget" in " ".join(text.split())


def test_a_failed_trial_is_tried_again_only_when_asked(run, results, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    broken = {"name": f"{tmp_path / 'mine.py'}:Mine", "label": "broken", "strength": 3}
    study = tiny.study(tmp_path, broken, RANDOMIZED_RESPONSE)
    run(study)
    started, failed, text = run(study)
    assert (started, failed) == (0, 1), "what failed before has still failed"
    assert "0 done, 0 failed, 1 already there, 1 failed before (--retry-failed" in text
    assert run(study, retry_failed=True)[:2] == (1, 1)
    assert len(results.records()) == 2, "the newer record counts"
    assert results.failed_ids() == {results.plan()[0]}


def test_a_checkpoint_is_removed_when_its_trial_is_done(run, results, tmp_path):
    study = tiny.study(tmp_path, RANDOMIZED_RESPONSE, NON_PRIVATE)
    first, second = [identity(c) for c in expand(study)]
    for trial_id in (first, second, "of another study"):
        (results.checkpoints / trial_id / "10").mkdir(parents=True)
    _, _, text = run(study)
    assert [path.name for path in results.checkpoints.iterdir()] == ["of another study"]
    assert "private state of 1 trials that the study no longer has (of another study)" in text
    (results.checkpoints / first).mkdir()
    run(study)
    assert not (results.checkpoints / first).exists(), "left by a kill after the record"


def test_a_study_of_which_nothing_succeeds_still_says_what_happened(run, results, tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN)
    broken = {"name": f"{tmp_path / 'mine.py'}:Mine", "strength": 3}
    _, failed, text = run(tiny.study(tmp_path, broken, seeds=2))
    assert failed == 2
    assert "strength 3 cannot meet this budget" in text
    assert "No figure" in text
    assert results.summary.exists()


def test_errors_raised_inside_workers_come_back_as_readable_reasons(tmp_path, results):
    """With a real worker process, which survives the errors."""
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    strengths = {"usage": 3, "defect": 4, "fine": 5}
    mechanisms = [
        {"name": f"{path}:Mine", "label": label, "strength": strength}
        for label, strength in strengths.items()
    ]
    lines = []
    failed = conduct.run(
        tiny.study(tmp_path, *mechanisms), results.path, conduct.How(1), lines.append
    )
    assert failed == 2
    usage, defect, fine = results.records(results.plan())
    assert usage["error"] == "strength 3 cannot meet this budget"
    assert usage["diagnostics"] == {}
    assert defect["error"] == "ZeroDivisionError: what a surprise"
    assert "line 12, in calibrate" in defect["diagnostics"]["traceback"]
    assert fine["status"] == "done"
    assert "Traceback" not in "\n".join(lines)


def test_a_study_that_cannot_work_leaves_no_folder(run, results, tmp_path):
    with pytest.raises(UsageError, match="batch_size"):
        run(tiny.study(tmp_path, training={"batch_size": 5000}))
    assert not results.path.exists()


def test_a_folder_of_another_version_says_why_its_trials_run_again(
    run, results, tmp_path, monkeypatch
):
    study = tiny.study(tmp_path, *BOTH)
    run(study)
    old = {record["id"] for record in results.records()}
    monkeypatch.setattr(expansion, "__version__", "99.0.0")
    started, _, text = run(study)
    assert started == len(old) == 2
    assert text.count("run again, because these settings have changed: dpcompare\n") == 2
    shown = results.records(results.plan())
    assert {record["configuration"]["dpcompare"] for record in shown} == {"99.0.0"}
    assert not old & {record["id"] for record in shown}  # settings are never mixed


# --- tuning --------------------------------------------------------------------------------------


def test_the_best_of_several_candidates_is_marked_as_such(run, results, tmp_path):
    tuned = {**RANDOMIZED_RESPONSE, "training": {"learning_rate": [0.05, 0.1, 0.2]}}
    started, _, text = run(tiny.study(tmp_path, tuned, epsilons=[1, 3]))
    assert started == 6 + 2  # every candidate, and the chosen one with the test rows
    assert "selection is not counted" in " ".join(text.split())
    header, *rows = results.summary.read_text().splitlines()
    column = header.split(",").index("n_candidates")
    assert [row.count("learning_rate=") for row in rows] == [1, 1]
    assert column > 0
    assert text.count("*") >= 2


TUNED = {**RANDOMIZED_RESPONSE, "training": {"learning_rate": [0.05, 0.1, 0.2]}}


def test_the_test_rows_are_looked_at_once_for_each_choice(run, results, tmp_path):
    run(tiny.study(tmp_path, NON_PRIVATE, TUNED, seeds=3, tuning_seeds=2))
    records = results.records(results.plan())
    tuned = [record for record in records if record["label"] == "randomized-response"]
    compared = [record for record in tuned if record["test"] is None]
    finals = [record for record in tuned if record["test"] is not None]
    assert len(compared) == 3 * 2  # candidates, seeds
    assert all(record["best_possible"] is None for record in compared)
    assert [record["seed"] for record in finals] == [0, 1, 2]
    (chosen,) = {str(record["candidate"]) for record in finals}
    losses = {}
    for record in compared:
        losses.setdefault(str(record["candidate"]), []).append(record["validation"]["log_loss"])
    assert chosen == min(losses, key=lambda candidate: sum(losses[candidate]))


def test_the_final_trial_is_the_one_that_was_compared(results, tmp_path, monkeypatch):
    """With real training: the same labels, batches, weights and noise, so the same model."""
    monkeypatch.setattr(runner, "LocalExecutor", tiny.InProcess)
    tuned = {**DP_SGD, "training": {"learning_rate": [0.05, 0.5]}}
    conduct.run(tiny.study(tmp_path, tuned), results.path, conduct.How(), lambda line: None)
    *compared, final = results.records(results.plan())
    (same,) = [record for record in compared if record["candidate"] == final["candidate"]]
    assert final["validation"] == same["validation"]
    assert final["diagnostics"]["calibrated"] == same["diagnostics"]["calibrated"]
    assert (same["test"], final["id"] == same["id"]) == (None, False)


def test_a_run_that_stopped_between_comparison_and_choice_goes_on(run, results, tmp_path):
    study = tiny.study(tmp_path, TUNED)
    run(study)
    records = [record for record in results.records() if record["test"] is None]
    whole = results.trials.read_text()
    results.trials.write_text("".join(line + "\n" for line in whole.splitlines()[:3]))
    assert len(records) == 3
    assert run(study)[0] == 1
    assert sorted(results.trials.read_text().splitlines())[0]
    assert run(study)[0] == 0


def test_more_seeds_keep_what_was_compared(run, tmp_path):
    assert run(tiny.study(tmp_path, TUNED, tuning_seeds=1))[0] == 3 + 1
    assert run(tiny.study(tmp_path, TUNED, tuning_seeds=1, seeds=3))[0] == 2


def test_a_dry_run_counts_the_trials_that_follow_the_choice(tmp_path):
    text = conduct.dry_run(tiny.study(tmp_path, TUNED, seeds=3, tuning_seeds=1), conduct.How(1))
    assert "3 trials on 1 workers" in text
    assert "and 3 trials of the chosen candidates, with the test rows" in text


@pytest.fixture(scope="module")
def selected(tmp_path_factory):
    """The records of a private selection among equal candidates, really trained."""
    folder = tmp_path_factory.mktemp("selected")
    entry = {**DP_SGD, "private_selection": 4.0}
    study = tiny.study(folder, entry, seeds=3)
    results = ResultsFolder(folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "LocalExecutor", tiny.InProcess)
        lines = []
        assert conduct.run(study, results.path, conduct.How(), lines.append) == 0
    return results.records(results.plan()), "\n".join(lines)


def test_each_draw_of_a_private_selection_is_a_release_of_its_own(selected):
    draws = [record for record in selected[0] if record["test"] is None]
    assert len(draws) > 3  # twelve in the mean
    losses = [record["validation"]["log_loss"] for record in draws]
    assert len(set(losses)) == len(losses)  # noise and batches differ though the settings do not
    for record in draws:
        stated = record["guarantee"]
        assert stated["accountant"] == "rdp"
        assert 0.995 <= stated["epsilon"] <= 1.0
        assert record["diagnostics"]["candidate_epsilon"] < 0.7
        assert stated["other_relations"]["replace-one"] > stated["epsilon"]


def test_the_best_draw_of_each_seed_is_the_result(selected):
    records, text = selected
    finals = {record["seed"]: record for record in records if record["test"] is not None}
    assert sorted(finals) == [0, 1, 2]
    for seed, final in finals.items():
        draws = [r for r in records if r["seed"] == seed and r["test"] is None]
        best = min(draws, key=lambda record: record["validation"]["log_loss"])
        assert final["candidate"] == best["candidate"]
        assert final["validation"] == best["validation"]  # the same model, not another one
        assert final["guarantee"] == best["guarantee"]
    assert "outside the guarantee" in " ".join(text.split())


def test_candidates_of_a_private_selection_must_release_the_same(tmp_path):
    entry = {**DP_SGD, "private_selection": 2.0, "training": {"learning_rate": [0.1, 0.2]}}
    assert expand(tiny.study(tmp_path, entry))
    for changed in ({"training": {"epochs": [1, 2]}}, {"group_size": [1, 2]}):
        with pytest.raises(UsageError, match="must release the same"):
            expand(tiny.study(tmp_path, entry | changed))


def test_a_label_mechanism_needs_no_private_selection(run, results, tmp_path):
    entry = {**RANDOMIZED_RESPONSE, "private_selection": 2.0}
    with pytest.raises(UsageError, match="leave it out"):
        run(tiny.study(tmp_path, entry))


def test_a_study_of_the_accountant_reads_nothing_and_trains_nothing(run, results, tmp_path):
    swept = {"name": "dp-sgd", "sweep": {"training": {"batch_size": [1000, 4000]}}}
    study = tiny.study(tmp_path, swept, kind="account", epsilons=[1, 3], data={"rows": 10**6})
    started, failed, text = run(select(study, epsilons=["1", "3"]))
    assert (started, failed) == (4, 0)
    assert "nothing is trained" in text
    for record in results.records():
        assert record["validation"] is record["test"] is record["rows"] is None
        assert record["schedule"]["examples"] == 800_000
        spent = record["guarantee"]["epsilon"]
        assert 0.998 * record["epsilon"] < spent <= record["epsilon"]
        noise = record["diagnostics"]["calibrated"]["noise_multiplier"]
        clip_norm, batch = 1.0, record["schedule"]["batch_size"]
        assert record["diagnostics"]["noise_on_mean"] == pytest.approx(noise * clip_norm / batch)


# --- from records alone --------------------------------------------------------------------------


def test_everything_is_redrawn_from_records_when_data_and_mechanism_are_gone(
    run, results, tmp_path, workers, monkeypatch
):
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    run(tiny.study(tmp_path, *BOTH, {"name": f"{path}:Mine", "label": "mine"}))
    path.unlink()
    (tmp_path / "tiny.toml").unlink()
    copy = ResultsFolder(tmp_path / "copy")
    copy.path.mkdir()
    shutil.copy(results.trials, copy.trials)
    shutil.copy(results.planned, copy.planned)
    monkeypatch.setattr("dpcompare.data.synthetic", None)
    lines = []
    show(copy.path, lines.append)
    assert copy.summary.read_bytes() == results.summary.read_bytes()
    assert (copy.figures / "utility.png").stat().st_size > 0
    assert "mine" in "\n".join(lines)
    copy.planned.unlink()
    show(copy.path, lines.append)
    assert workers.started == 3


def test_a_dry_run_lists_the_trials_and_writes_nothing(workers, tmp_path, monkeypatch):
    study = tiny.study(tmp_path, *BOTH, DP_SGD, epsilons=[1, 3], seeds=2)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    text = conduct.dry_run(study, conduct.How(3))
    assert sorted(tmp_path.rglob("*")) == before
    assert workers.started == 0
    assert "10 trials on 3 workers" in text
    rows = [line for line in text.splitlines() if "seed" in line]
    assert len(rows) == 10
    assert "epsilon inf" in rows[0]
    assert "epsilon 3.0" in rows[2]
    assert "GiB of memory" in text
    assert all("lazy tables 0" in row for row in rows)
