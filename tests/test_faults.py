"""Whatever dies, and whenever: the final records equal those of a quiet run, each trial once."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from dpcompare.results import ResultsFolder
from tests import tiny_studies as tiny

ROOT = Path(__file__).parents[1]
TRIALS = 300
KILLS = 20


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )


def small_study(results, trials=TRIALS):
    return start("-m", "tests.faulty_run", results.path, trials)


def workers_of(process):
    """Its worker processes; not the one that only tracks resources."""
    try:
        children = psutil.Process(process.pid).children()
        return [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    except psutil.Error:
        return []


def ended(process, children, expected):
    """Wait for a process and its children, and check that it left in one of the expected ways."""
    out, err = process.communicate(timeout=120)
    psutil.wait_procs(children, timeout=30)
    assert not any(child.is_running() for child in children), "workers end with their parent"
    assert process.returncode in expected, (process.returncode, err)
    assert "Traceback" not in out + err
    return err


def lines_of(results):
    if not results.trials.exists():
        return []
    return results.trials.read_text(errors="replace").splitlines()


def done(results):
    """The done records by identity; the file holds none twice."""
    records = [
        record for record in map(json.loads, lines_of(results)) if record["status"] == "done"
    ]
    by_id = {record["id"]: record for record in records}
    assert len(by_id) == len(records), "no trial twice"
    return by_id


@pytest.fixture(scope="module")
def quiet(tmp_path_factory):
    results = ResultsFolder(tmp_path_factory.mktemp("quiet") / "results")
    ended(small_study(results), [], [0])
    return done(results)


def test_twenty_kills_at_random_moments_lose_nothing(quiet, tmp_path):
    """Of the runner and of workers, by SIGKILL, SIGTERM and Ctrl-C; and torn last records."""
    results = ResultsFolder(tmp_path / "results")
    rng = random.Random(20221120)
    ways = ["runner", "worker", "worker", "term", "interrupt"] * (KILLS // 5)
    rng.shuffle(ways)
    process, killed = None, 0
    for way in ways:
        if process is None:
            process = small_study(results)
            time.sleep(0.4)
        time.sleep(rng.uniform(0.0, 0.7))
        children = workers_of(process)
        assert process.poll() is None, ("the study ended before all kills", process.communicate())
        if way == "worker":
            if children:
                rng.choice(children).send_signal(signal.SIGKILL)
                killed += 1
            continue
        signals = {"runner": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}
        process.send_signal(signals[way])
        # A signal that comes before Python has set itself up ends it as any process.
        codes = {"runner": [-9], "term": [143, -15], "interrupt": [130, -2]}[way]
        ended(process, children, codes)
        process, killed = None, killed + 1
        if rng.random() < 0.5 and lines_of(results):
            torn = results.trials.read_bytes()
            results.trials.write_bytes(torn[: -rng.randint(1, 60)])
    if process is not None:
        process.kill()
        process.communicate()
    assert killed >= KILLS - 4
    assert len(lines_of(results)) < TRIALS
    ended(small_study(results), [], [0])
    assert done(results) == quiet


def test_a_killed_worker_costs_its_trial_one_failure_and_one_retry(quiet, tmp_path):
    results = ResultsFolder(tmp_path / "results")
    process = small_study(results)
    while len(lines_of(results)) < 5:
        time.sleep(0.02)
    workers_of(process)[0].send_signal(signal.SIGKILL)
    ended(process, [], [0])
    (lost,) = results.failed_ids()
    (record,) = [r for r in results.records() if r["id"] == lost]
    assert record["error"] == "worker process was killed by SIGKILL (out of memory?)"
    ended(small_study(results), [], [0])
    assert done(results) == quiet


def test_a_second_runner_is_refused_and_says_why(tmp_path):
    results = ResultsFolder(tmp_path / "results")
    first = small_study(results)
    while not lines_of(results):
        time.sleep(0.02)
    message = ended(small_study(results), [], [1])
    assert f"another run is writing to {results.path} (process {first.pid})" in message
    children = workers_of(first)
    first.kill()
    ended(first, children, [-9])


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("a small tmpfs can be mounted by root only")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this machine does not let root mount a tmpfs")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_message_and_the_run_goes_on_when_there_is_room(quiet, small_disk):
    results = ResultsFolder(small_disk / "results")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(44 << 10))
    message = ended(small_study(results, 60), [], [1])
    assert "No space left on device; the records before are safe" in message
    kept = done(results)
    assert 0 < len(kept) < 60
    filler.unlink()
    ended(small_study(results, 60), [], [0])
    assert done(results) == {name: quiet[name] for name in (f"trial {i}" for i in range(60))}


def test_real_trials_go_on_from_their_checkpoints_after_kills(tmp_path):
    """The whole command: a worker is killed within a long trial, then the runner, then it ends."""
    training = {"epochs": 600, "evaluations": 5}
    study = tiny.write(tmp_path, tiny.content(tiny.DP_SGD, training=training))
    command = ["-m", "dpcompare", "run-study", study, "--workers", "1", "--retry-failed"]

    def folder(name):
        return ResultsFolder(tmp_path / name)

    ended(start(*command, "--out", folder("quiet").path), [], [0])
    results = folder("killed")
    for victim in ("worker", "runner"):
        process = start(*command, "--checkpoint-minutes", "0.01", "--out", results.path)
        ends = time.monotonic() + 120
        complete = [*results.checkpoints.glob("*/*/progress")]
        before = {path.parent.name for path in complete}
        while not {p.parent.name for p in results.checkpoints.glob("*/*/progress")} - before:
            assert time.monotonic() < ends, process.communicate()
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        children = workers_of(process)
        if victim == "worker":
            children[0].send_signal(signal.SIGKILL)
            while not results.failed_ids():
                time.sleep(0.01)
        process.kill()
        ended(process, children, [-9])
    ended(start(*command, "--out", results.path), [], [0])
    assert not results.checkpoints.exists()
    quiet, resumed = (
        {r["id"]: r | {"timings": None} for r in f.records(f.plan())}
        for f in (folder("quiet"), results)
    )
    assert any("train_before_resuming" in r["timings"] for r in results.records())
    assert resumed == quiet
