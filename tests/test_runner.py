import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.progress import ProgressBar
from dpcompare.runner import LocalExecutor, RunOutcome, WorkerFailure, run_missing, usable_cores

HERE = Path(__file__).resolve().parent
SQUARE = "runner_functions:square"


@pytest.fixture(autouse=True)
def functions_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture
def cores() -> Iterator[list[int]]:
    """At most two cores to use, so that one worker more stays cheap on a large machine."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    yield usable_cores()
    os.sched_setaffinity(0, before)


def run_all(
    function: str, configurations: list[dict[str, Any]], workers: int
) -> dict[int, dict[str, Any] | WorkerFailure]:
    results = list(LocalExecutor(workers).map(function, configurations))
    assert len(results) == len(configurations)
    return dict(results)


def spawned_workers(parent: int) -> list[psutil.Process]:
    children = psutil.Process(parent).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def is_alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie merely waits for the init process to notice."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# --- mapping -------------------------------------------------------------------------------------


def test_same_records_for_any_number_of_workers_and_any_order() -> None:
    configurations = [{"x": x, "seconds": 0.02 * (x % 3)} for x in range(12)]
    shuffled = random.Random(0).sample(configurations, len(configurations))
    expected = [{"x": x, "square": x * x} for x in range(12)]
    for workers in (1, 2, 3):
        results = run_all(SQUARE, shuffled, workers)
        assert [results[i]["x"] for i in range(12)] == [c["x"] for c in shuffled]
        assert sorted(results.values(), key=lambda record: record["x"]) == expected
    assert spawned_workers(os.getpid()) == []


def test_records_arrive_in_completion_order(tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    configurations = [{"waits_for": file}, {"waits_for": __file__}, {"creates": file}]
    results = LocalExecutor(2).map("runner_functions:wait_or_signal", configurations)
    order = [index for index, _ in results]
    assert order.index(0) > order.index(1)
    assert sorted(order) == [0, 1, 2]


def test_records_are_bitwise_equal_with_more_workers_than_cores(cores: list[int]) -> None:
    count = len(cores) + 1
    configurations = [{"seed": seed} for seed in range(count)]
    function = "runner_functions:weight_gradient"
    assert run_all(function, configurations, 1) == run_all(function, configurations, count)


def test_nothing_to_run_starts_nothing() -> None:
    assert run_all(SQUARE, [], 2) == {}


def test_every_worker_is_pinned_to_one_core_before_heavy_imports(
    cores: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    count = len(cores) + 1
    records = run_all("runner_functions:surroundings", [{}] * count, count).values()
    pinned = {record["pid"]: record["cores"] for record in records}
    assert sorted(pinned.values()) == sorted([core] for core in [*cores, cores[0]])
    assert all(record["openmp"] == "1" and not record["heavy"] for record in records)
    # Whatever the function's module imports, e.g. JAX, is imported on that core.
    assert all(record["cores_at_import"] == record["cores"] for record in records)
    assert sorted(os.sched_getaffinity(0)) == cores, "the parent keeps its cores"
    out, err = capfd.readouterr()
    assert out == "", "what trials print must not mix with the output of a command"
    assert err.count("a mechanism prints") == count


def test_programs_of_workers_are_kept_beside_the_calibrations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPCOMPARE_CACHE", str(tmp_path))
    surroundings = run_all("runner_functions:surroundings", [{}], 1)[0]
    folder = Path(surroundings["programs_at_import"])
    assert folder.is_dir()
    assert folder.is_relative_to(tmp_path)
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ, "the parent compiles for other cores"


def test_default_is_one_worker_per_usable_core() -> None:
    assert LocalExecutor().workers == len(os.sched_getaffinity(0))


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        LocalExecutor(0)


def test_function_that_cannot_be_imported_ends_the_map() -> None:
    with pytest.raises(DpcompareError, match=r"could not import no_such_module:run: ModuleNotF"):
        run_all("no_such_module:run", [{}] * 5, 2)
    with pytest.raises(DpcompareError, match="has no attribute 'absent'"):
        run_all("runner_functions:absent", [{}] * 5, 1)
    assert spawned_workers(os.getpid()) == []


def test_progress_is_reported_and_limited() -> None:
    seen: list[tuple[int, float]] = []
    results = LocalExecutor(2).map(
        "runner_functions:report_often", [{}, {}], lambda *report: seen.append(report)
    )
    assert all(record["calls"] > 50 for _, record in results)
    for index in (0, 1):
        fractions = [fraction for i, fraction in seen if i == index]
        assert fractions == sorted(fractions)
        assert fractions[0] == 0.0
        assert 3 <= len(fractions) <= 8  # one at the start, then five a second for a second


# --- failures ------------------------------------------------------------------------------------


def test_bad_ends_fail_only_their_own_trial() -> None:
    hows = ["well", "raise", "well", "exit", "kill", "well", "segfault", "unpicklable", "well"]
    results = run_all("runner_functions:end_badly", [{"how": how} for how in hows], 2)
    failures = {i: end for i, end in results.items() if isinstance(end, WorkerFailure)}
    reasons = {hows[i]: failure.reason for i, failure in failures.items()}
    assert reasons.pop("unpicklable").split(":")[0] in ("AttributeError", "PicklingError")
    assert reasons == {
        "raise": "ValueError: no such thing",
        "exit": "worker process ended with exit code 7",
        "kill": "worker process was killed by SIGKILL (out of memory?)",
        "segfault": "worker process was killed by SIGSEGV",
    }
    assert 'raise ValueError("no such thing")' in failures[1].traceback
    assert failures[3].traceback == ""


def test_worker_survives_an_exception_and_is_replaced_after_a_death() -> None:
    hows = ["well", "raise", "well", "exit", "well"]
    results = run_all("runner_functions:end_badly", [{"how": how} for how in hows], 1)
    assert results[0]["pid"] == results[2]["pid"] != results[4]["pid"]


def test_random_deaths_are_all_accounted_for() -> None:
    seeds = range(20)
    results = run_all("runner_functions:die_at_random", [{"seed": seed} for seed in seeds], 2)
    deaths = {seed for seed in seeds if isinstance(results[seed], WorkerFailure)}
    assert deaths == {seed for seed in seeds if random.Random(seed).random() < 0.25}
    assert 0 < len(deaths) < 20
    assert all(results[seed] == {"seed": seed} for seed in set(seeds) - deaths)


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_a_worker_that_is_killed_while_it_starts_is_started_again(
    kills: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to twice: then something is wrong with this machine, and nothing was lost."""
    (tmp_path / "killed_at_first.py").write_text(
        "import os, signal\n"
        f"starts = {str(tmp_path / 'starts')!r}\n"
        "with open(starts, 'a') as file:\n"
        "    file.write('x')\n"
        f"if os.path.getsize(starts) <= {kills}:\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def function(configuration, report):\n"
        "    return configuration\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    trials = [{"x": 0}, {"x": 1}]
    if kills == 3:
        with pytest.raises(DpcompareError, match=r"could not start.*SIGKILL"):
            run_all("killed_at_first:function", trials, 1)
    else:
        assert run_all("killed_at_first:function", trials, 1) == dict(enumerate(trials))
    assert (tmp_path / "starts").stat().st_size == min(kills + 1, 3)


def test_script_without_a_main_guard_gets_a_clear_error(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from dpcompare.errors import DpcompareError\n"
        "from dpcompare.runner import LocalExecutor\n"
        "try:\n"
        "    list(LocalExecutor(1).map('runner_functions:square', [{'x': 1}]))\n"
        "except DpcompareError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], env=environment(), capture_output=True, text=True
    )
    assert "could not start" in done.stdout
    assert "if __name__ == '__main__'" in done.stdout


# --- interruptions -------------------------------------------------------------------------------

PARENT = """
import contextlib
import os
import time
from dpcompare.runner import LocalExecutor

def say(line):  # in one write, as workers speak at the same time
    os.write(1, (line + chr(10)).encode())

def started(index, fraction):
    say(f"running {index}")

if __name__ == "__mp_main__":  # a worker imports this while it starts
    say("starting")
    time.sleep(0.3)

if __name__ == "__main__":
    with contextlib.closing(
        LocalExecutor(2).map("runner_functions:stubborn", [{}] * 4, started)
    ) as results:
        for result in results:
            say(str(result))
"""


def environment() -> dict[str, str]:
    paths = [str(HERE), str(HERE.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def is_busy(lines: list[str]) -> bool:
    return lines.count("running 0\n") == lines.count("running 1\n") == 2


def interrupted_parent(
    tmp_path: Path, number: signal.Signals, while_starting: bool = False
) -> tuple[int, str]:
    """Send a signal to a parent, by default once both of its workers are busy.

    Returns:
        Its exit code and standard error.
    """
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(script)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C can reach the whole group, as in a terminal
    )
    try:
        lines: list[str] = []
        # Each trial says that it runs when it is handed out, and again when it is busy.
        while not ("starting\n" in lines if while_starting else is_busy(lines)):
            lines.append(parent.stdout.readline())
            assert len(lines) < 9, "two workers say no more than six lines in their first minute"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert len(children) >= 2
        sent = time.monotonic()
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)
        else:
            parent.send_signal(number)
        _, errors = parent.communicate(timeout=10)
        while any(is_alive(child) for child in children):
            assert time.monotonic() - sent < 5  # a second of grace, and slack for busy machines
            time.sleep(0.01)
        return parent.returncode, errors
    finally:
        if parent.poll() is None:
            parent.kill()
            parent.communicate()


def test_ctrl_c_leaves_nothing_running(tmp_path: Path) -> None:
    code, errors = interrupted_parent(tmp_path, signal.SIGINT)
    assert code == -signal.SIGINT  # how Python ends on an uncaught KeyboardInterrupt
    assert errors.count("KeyboardInterrupt") == 1, "workers must not add their own tracebacks"


def test_ctrl_c_while_workers_start_leaves_nothing_running(tmp_path: Path) -> None:
    code, errors = interrupted_parent(tmp_path, signal.SIGINT, while_starting=True)
    assert code == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1, "workers must not add their own tracebacks"


def test_sigterm_leaves_nothing_running(tmp_path: Path) -> None:
    code, errors = interrupted_parent(tmp_path, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert errors == ""


def test_killed_parent_leaves_nothing_running(tmp_path: Path) -> None:
    code, _ = interrupted_parent(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL


def test_leaving_early_ends_the_workers_and_restores_sigterm() -> None:
    before = signal.getsignal(signal.SIGTERM)
    results = LocalExecutor(2).map(SQUARE, [{"x": 1}, {"x": 2, "seconds": 60}])
    assert next(results) == (0, {"x": 1, "square": 1})
    results.close()
    assert spawned_workers(os.getpid()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_map_works_outside_the_main_thread() -> None:
    results: list[Any] = []
    thread = threading.Thread(
        target=lambda: results.extend(LocalExecutor(1).map(SQUARE, [{"x": 3}]))
    )
    thread.start()
    thread.join()
    assert results == [(0, {"x": 3, "square": 9})]


# --- running what is missing ---------------------------------------------------------------------


class FakeFolder:
    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []

    def done_ids(self) -> Iterable[str]:
        return [record["id"] for record in self.records if record.get("status") != "failed"]

    def append(self, record: dict[str, Any]) -> None:
        self.records.append(record)


class FakeExecutor:
    """Finishes trials in reverse order, in this process."""

    def __init__(self, failing: Iterable[str] = (), stop_after: int | None = None) -> None:
        self.failing = set(failing)
        self.stop_after = stop_after
        self.ran: list[str] = []
        self.closed = False

    def map(self, function, configurations, progress=None):
        try:
            for index in reversed(range(len(configurations))):
                if len(self.ran) == self.stop_after:
                    raise KeyboardInterrupt
                name = configurations[index]["name"]
                self.ran.append(name)
                progress(index, 0.5)
                failure = WorkerFailure("ValueError: bad")
                yield index, failure if name in self.failing else {"id": name, "status": "done"}
        finally:
            self.closed = True


def failed_record(
    configuration: dict[str, Any], identity: str, failure: WorkerFailure
) -> dict[str, Any]:
    return {"id": identity, "status": "failed", "reason": failure.reason}


def run_named(folder: FakeFolder, executor: Any, names: str) -> RunOutcome:
    with ProgressBar([1.0] * len(names), "test") as bar:
        return run_missing(
            [{"name": name} for name in names],
            list(names),
            folder.done_ids(),
            folder.append,
            executor,
            SQUARE,
            failed_record,
            bar,
        )


def test_only_missing_trials_run() -> None:
    folder = FakeFolder()
    assert run_named(folder, FakeExecutor(), "ace") == RunOutcome(done=3, failed=0, skipped=0)
    executor = FakeExecutor()
    assert run_named(folder, executor, "abcde") == RunOutcome(done=2, failed=0, skipped=3)
    assert executor.ran == ["d", "b"]
    again = FakeExecutor()
    assert run_named(folder, again, "abcde") == RunOutcome(done=0, failed=0, skipped=5)
    assert again.ran == []
    assert [record["id"] for record in folder.records] == ["e", "c", "a", "d", "b"]


def test_equal_identities_run_once() -> None:
    folder = FakeFolder()
    assert run_named(folder, FakeExecutor(), "aba") == RunOutcome(done=2, failed=0, skipped=1)
    assert sorted(folder.done_ids()) == ["a", "b"]


def test_failed_trial_is_recorded_and_stops_nothing() -> None:
    folder = FakeFolder()
    outcome = run_named(folder, FakeExecutor(failing="b"), "abc")
    assert outcome == RunOutcome(done=2, failed=1, skipped=0)
    assert {"id": "b", "status": "failed", "reason": "ValueError: bad"} in folder.records
    assert run_named(folder, FakeExecutor(), "abc") == RunOutcome(done=1, failed=0, skipped=2)


def test_interrupted_run_keeps_its_records_and_resumes() -> None:
    folder = FakeFolder()
    with pytest.raises(KeyboardInterrupt):
        run_named(folder, FakeExecutor(stop_after=2), "abcde")
    assert sorted(folder.done_ids()) == ["d", "e"]
    executor = FakeExecutor()
    run_named(folder, executor, "abcde")
    assert executor.ran == ["c", "b", "a"]


def test_folder_that_cannot_append_ends_the_workers() -> None:
    class FullFolder(FakeFolder):
        def append(self, record: dict[str, Any]) -> None:
            raise DpcompareError("no space left")

    executor = FakeExecutor()
    with pytest.raises(DpcompareError, match="no space left"):
        run_named(FullFolder(), executor, "abc")
    assert executor.closed
    assert len(executor.ran) == 1


def test_configurations_and_identities_must_match() -> None:
    with pytest.raises(ValueError, match="shorter"), ProgressBar([1.0, 1.0], "test") as bar:
        run_missing([{}, {}], ["a"], [], [].append, FakeExecutor(), SQUARE, failed_record, bar)


def test_missing_trials_run_on_local_workers() -> None:
    records: list[dict[str, Any]] = [{"x": 1, "square": 1}]
    configurations = [{"x": x} for x in range(4)]
    names = [str(x) for x in range(4)]
    with ProgressBar([1.0] * 4, "test") as bar:
        outcome = run_missing(
            configurations,
            names,
            ["1"],
            records.append,
            LocalExecutor(2),
            SQUARE,
            failed_record,
            bar,
        )
    assert outcome == RunOutcome(done=3, failed=0, skipped=1)
    assert sorted(record["square"] for record in records) == [0, 1, 4, 9]
