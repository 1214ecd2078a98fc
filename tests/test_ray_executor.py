"""Trials in actors of a real Ray cluster on the loopback interface."""

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from dpcompare import ray_executor
from dpcompare.cli import cli
from dpcompare.data import prepare, write_text
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.ray_executor import RayExecutor
from dpcompare.results import ResultsFolder
from dpcompare.runner import LocalExecutor, WorkerFailure
from tests import tiny_studies as tiny

HERE = Path(__file__).resolve().parent
OWN = "tests.ray_functions"
FUNCTIONS = "tests.runner_functions"
VARYING = ("timings", "versions")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed"
)


# --- requests that are wrong ---------------------------------------------------------------------


def test_without_ray_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'dpcompare\[ray\]'"):
        RayExecutor()


def test_fewer_than_one_worker_is_refused() -> None:
    with pytest.raises(UsageError, match="at least 1, got 0"):
        RayExecutor(0)


def test_an_address_goes_with_ray(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["run-study", "quickstart", "--ray-address", "auto"])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == "--ray-address goes with --executor ray"


def test_no_cluster_at_the_address() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(DpcompareError, match=f"no connection to the Ray cluster {address} "):
            list(RayExecutor(1, address).map(f"{FUNCTIONS}:square", [{"x": 1}]))


# --- a cluster for all tests ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def temporary() -> Iterator[Path]:
    """A folder of temporary files of these tests; its name is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    assert list(folder.iterdir()) == [], "neither of the cluster nor of shipped data"
    folder.rmdir()


@pytest.fixture(scope="module")
def cluster(temporary: Path) -> Iterator[None]:
    """This process is connected to a cluster with two CPUs, which every executor finds."""
    others = set(psutil.Process().children(recursive=True))  # of tests that ran before
    with RayExecutor(2)._own_cluster():
        processes = set(psutil.Process().children(recursive=True)) - others
        assert processes
        yield
    assert not any(is_alive(process) for process in processes)


def run_all(
    function: str, configurations: list[dict[str, Any]], workers: int = 2
) -> dict[int, dict[str, Any] | WorkerFailure]:
    results = list(RayExecutor(workers).map(function, configurations))
    assert len(results) == len(configurations)
    return dict(results)


def test_each_actor_has_a_core_of_its_own_before_heavy_imports(cluster: None) -> None:
    configurations = [{"seconds": 0.0}] * 6
    records = list(run_all(f"{FUNCTIONS}:surroundings", configurations).values())
    pinned = {record["pid"]: tuple(record["cores"]) for record in records}
    assert os.getpid() not in pinned
    assert all(len(cores) == 1 for cores in pinned.values())
    if len(os.sched_getaffinity(0)) > 1:
        assert len(set(pinned.values())) == len(pinned)
    assert all(record["openmp"] == "1" for record in records)
    assert all(record["cores_at_import"] == record["cores"] for record in records)
    assert all(record["programs_at_import"].endswith("-1") for record in records)


def test_records_are_bitwise_equal_to_those_of_local_workers(cluster: None, tmp_path: Path) -> None:
    (trial,) = tiny.trials(tmp_path, tiny.DP_SGD)
    configurations = [
        {"function": "dpcompare.trial:run_trial", "configuration": trial},
        # A product that XLA rounds differently on one core and on two.
        {"function": f"{FUNCTIONS}:weight_gradient", "configuration": {"seed": 0}},
    ]
    of_ray = run_all(f"{OWN}:call", configurations)
    for workers in (1, 2):
        of_local = dict(LocalExecutor(workers).map(f"{OWN}:call", configurations))
        for index in of_local:
            assert compared(of_ray[index]["result"]) == compared(of_local[index]["result"])
    assert of_ray[0]["result"]["status"] == "done"


def compared(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what may vary."""
    return {key: value for key, value in record.items() if key not in VARYING}


def test_exceptions_fail_only_their_own_trial_and_are_not_tried_again(cluster: None) -> None:
    hows = ["well", "raise", "well"]
    results = run_all(f"{FUNCTIONS}:end_badly", [{"how": how} for how in hows], 1)
    failure = results[1]
    assert isinstance(failure, WorkerFailure)
    assert failure.reason == "ValueError: no such thing"
    assert 'raise ValueError("no such thing")' in failure.traceback
    assert results[0]["pid"] == results[2]["pid"], "the actor lives on"


def test_a_lost_worker_is_replaced_and_its_trial_starts_again(
    cluster: None, tmp_path: Path
) -> None:
    configurations = []
    for name, deaths in {"once": 1, "always": 99, "never": 0}.items():
        (tmp_path / name).mkdir()
        configurations.append({"marks": str(tmp_path / name), "deaths": deaths})
    results = run_all(f"{OWN}:die_until", configurations)
    assert results[0] == {"starts": 2}
    assert results[2] == {"starts": 1}
    failure = results[1]
    assert isinstance(failure, WorkerFailure)
    assert failure.reason.startswith("3 workers were lost: ")
    assert "worker process has died" in failure.reason
    assert "\n" not in failure.reason
    assert "actor_id" not in failure.reason
    assert len(list((tmp_path / "always").iterdir())) == ray_executor.ATTEMPTS


def test_function_that_cannot_be_imported_ends_the_map(cluster: None) -> None:
    with pytest.raises(DpcompareError, match=r"could not import no_such_module:run: ModuleNotF"):
        run_all("no_such_module:run", [{}] * 3)


def test_modules_and_files_are_found_where_the_driver_finds_them(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "only_here.py").write_text(
        "from pathlib import Path\n"
        "def read(configuration, report):\n"
        "    return {'text': Path('beside.txt').read_text()}\n"
    )
    (tmp_path / "beside.txt").write_text("found")
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    monkeypatch.chdir(tmp_path)
    assert run_all("only_here:read", [{}], 1) == {0: {"text": "found"}}


def test_progress_is_reported_and_limited(cluster: None) -> None:
    seen: list[tuple[int, float]] = []
    results = RayExecutor(2).map(
        f"{FUNCTIONS}:report_often", [{}, {}], lambda *report: seen.append(report)
    )
    assert all(record["calls"] > 50 for _, record in results)
    for index in (0, 1):
        fractions = [fraction for i, fraction in seen if i == index]
        assert fractions == sorted(fractions)
        assert fractions[0] == 0.0
        assert 3 <= len(fractions) <= 8


def test_leaving_early_kills_the_actors_and_leaves_the_cluster(cluster: None) -> None:
    import ray

    configurations = [{"x": 1}, {"x": 2, "seconds": 60}]
    results = RayExecutor(2).map(f"{FUNCTIONS}:square", configurations)
    assert next(results) == (0, {"x": 1, "square": 1})
    assert actors()
    results.close()
    assert actors_end()
    assert ray.is_initialized()


def actors_end() -> bool:
    """Whether no actor is left after a while, at most ten seconds."""
    ends = time.monotonic() + 10
    while actors():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


def actors() -> list[psutil.Process]:
    """The actors of the cluster that is a child of this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if is_alive(process) and "TrialActor" in "".join(process.cmdline()):
                found.append(process)
    return found


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


PARENT = """
import os
import sys
from dpcompare.ray_executor import RayExecutor
started = lambda index, fraction: os.write(1, b"running\\n")
trials = [{"x": 1, "seconds": 60}]
for result in RayExecutor(2, sys.argv[1]).map("tests.runner_functions:square", trials, started):
    print(result)
"""


def test_sigterm_kills_the_actors_of_a_driver_and_leaves_the_cluster(cluster: None) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, address],
        cwd=HERE.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(2):
            assert parent.stdout is not None
            assert parent.stdout.readline() == "running\n"
        parent.send_signal(signal.SIGTERM)
        out, errors = parent.communicate(timeout=20)
    finally:
        parent.kill()
    assert parent.returncode == 128 + signal.SIGTERM
    assert errors == ""
    assert set(out.split()) <= {"running"}
    assert actors_end()
    assert run_all(f"{FUNCTIONS}:square", [{"x": 3}], 1) == {0: {"x": 3, "square": 9}}


def test_nothing_to_run_starts_nothing() -> None:
    assert run_all(f"{FUNCTIONS}:square", []) == {}


# --- data ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    write_text(folder / "raw.txt", tiny.ROWS)
    prepare("criteo-kaggle", [folder / "raw.txt"], folder / "data")
    return folder / "data"


@pytest.fixture
def seen_by_the_driver_only(prepared: Path) -> Iterator[str]:
    """A path of a prepared folder that no other process has: an open directory of this one."""
    opened = os.open(prepared, os.O_RDONLY)
    os.dup2(opened, 900)
    yield "/proc/self/fd/900"
    os.close(900)
    os.close(opened)


def test_data_are_read_where_they_are_seen_or_shipped_once_and_removed(
    cluster: None,
    temporary: Path,
    prepared: Path,
    seen_by_the_driver_only: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shipped: list[Path] = []

    def parts_of(path: Path, put: Any) -> Any:
        shipped.append(path)
        return from_here(path, put)

    from_here = ray_executor.parts_of
    monkeypatch.setattr(ray_executor, "parts_of", parts_of)
    monkeypatch.setattr("dpcompare.shipped_data.BYTES_OF_A_PART", 10_000)
    before = list(temporary.iterdir())
    trials = tiny.trials(prepared.parent, data={"source": str(prepared)}, seeds=4)
    for trial in trials[2:]:
        trial["data"] = trial["data"] | {"path": seen_by_the_driver_only}
    answers = run_all(f"{OWN}:train_and_look", trials)
    assert shipped == [Path(seen_by_the_driver_only)]
    assert list(temporary.iterdir()) == before
    files = {file.name: file.stat().st_size for file in prepared.iterdir()}
    assert max(files.values()) > 20_000, "of several parts"
    assert all(answer["files"] == files for answer in answers.values())
    assert [answers[i]["path"] for i in (0, 1)] == [str(prepared)] * 2
    assert answers[2]["path"] == answers[3]["path"]
    assert Path(answers[2]["path"]).name == trials[0]["data"]["checksum"]
    for trial in trials:
        trial["data"] = trial["data"] | {"path": str(prepared)}
    for index, record in LocalExecutor(1).map("dpcompare.trial:run_trial", trials):
        assert compared(answers[index]["record"]) == compared(record)


def test_data_that_nobody_has_fail_the_trial(cluster: None, prepared: Path) -> None:
    (trial,) = tiny.trials(prepared.parent, data={"source": str(prepared)})
    trial["data"]["checksum"] = "another"
    failure = run_all(f"{OWN}:train_and_look", [trial], 1)[0]
    assert isinstance(failure, WorkerFailure)
    assert failure.reason.startswith(f"DpcompareError: the data set {prepared} is gone, or has ch")


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """A folder of temporary files whose name is short enough for sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
    (folder / "home").mkdir()
    yield folder
    shutil.rmtree(folder)


def nothing_is_left(own_folder: Path) -> bool:
    return (
        list(own_folder.iterdir()) == [own_folder / "home"]
        and not (own_folder / "home" / ".ray").exists()
    )


def start(arguments: list[str], own_folder: Path) -> subprocess.Popen[str]:
    code = "from dpcompare.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "run-study", *arguments, "--executor", "ray"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(own_folder), "HOME": str(own_folder / "home")},
        start_new_session=True,  # so that Ctrl-C can reach the whole group, as in a terminal
    )


def stopped(process: subprocess.Popen[str], number: signal.Signals, results: Path) -> str:
    """Send a signal once a record is there; standard error. All processes must end soon."""
    try:
        ends = time.monotonic() + 60
        while not (results / "trials.jsonl").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < ends
            time.sleep(0.05)
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) >= 3
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert not any(is_alive(child) for child in children)
    return errors


def test_a_study_is_interrupted_and_goes_on(tmp_path: Path, own_folder: Path) -> None:
    study = tiny.write(tmp_path, tiny.content(seeds=12))
    results = tmp_path / "results"
    arguments = [str(study), "--out", str(results), "--workers", "2"]

    process = start(arguments, own_folder)
    errors = stopped(process, signal.SIGINT, results)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert errors.splitlines()[-1].startswith("Interrupted.")
    assert nothing_is_left(own_folder)
    done = len(ResultsFolder(results).done_ids())
    assert 1 <= done < 12

    process = start(arguments, own_folder)
    out, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert out.startswith(f"Trials: {12 - done} done, 0 failed, {done} already there.")
    assert all(line.startswith("tiny: ") for line in errors.splitlines()), errors
    assert nothing_is_left(own_folder)
