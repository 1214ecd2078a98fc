"""What survives when `dpcompare run-study` is killed or interrupted."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil

from dpcompare import conduct, runner
from dpcompare.results import ResultsFolder
from dpcompare.study import load
from tests import tiny_studies as tiny


def start(study, results):
    command = [sys.executable, "-c", "from dpcompare.cli import main; main()", "run-study"]
    return subprocess.Popen(
        [*command, str(study), "--out", str(results.path), "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def wait_for_records(results, count, process):
    """Until the file holds at least `count` whole lines; how many."""
    ends = time.monotonic() + 120
    while time.monotonic() < ends and process.poll() is None:
        lines = results.trials.read_bytes().count(b"\n") if results.trials.exists() else 0
        if lines >= count:
            return lines
        time.sleep(0.005)
    process.kill()
    raise AssertionError(f"no {count} records in time: {process.communicate()}")


def test_a_killed_and_then_interrupted_study_loses_at_most_the_trial_it_ran(tmp_path, monkeypatch):
    study = tiny.write(tmp_path, tiny.content(seeds=30, training={"epochs": 4}))
    results = ResultsFolder(tmp_path / "results")

    process = start(study, results)
    children = []
    try:
        recorded = wait_for_records(results, 2, process)
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
    process.communicate()
    psutil.wait_procs(children, timeout=20)
    assert not any(child.is_running() for child in children), "workers end with their parent"
    after_kill = len(results.done_ids())
    assert recorded <= after_kill < 30

    process = start(study, results)
    try:
        recorded = wait_for_records(results, after_kill + 1, process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert err.splitlines()[-1].startswith("Interrupted.")
    assert err.count("Interrupted") == 1
    kept = len(results.done_ids())
    assert recorded <= kept < 30

    monkeypatch.setattr(runner, "LocalExecutor", tiny.InProcess)
    lines = []
    assert conduct.run(load(str(study)), results.path, conduct.How(), lines.append) == 0
    assert f"{30 - kept} done, 0 failed, {kept} already there" in "\n".join(lines)
    records = [json.loads(line) for line in results.trials.read_text().splitlines()]
    assert sorted(r["seed"] for r in records) == list(range(30)), "every trial ran to its end once"
