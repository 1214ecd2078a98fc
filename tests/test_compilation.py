"""The cache of compiled programs changes no bit, and no state of its folder does harm."""

import os
import time
import warnings
from pathlib import Path

import pytest

from dpcompare import calibration, compilation
from dpcompare.compilation import use_cache
from dpcompare.runner import LocalExecutor
from tests import tiny_studies as tiny

HERE = Path(__file__).resolve().parent
X86 = "processor : {core}\nmodel name : One\ncpu MHz : {core}000.0\nflags : sse avx{more}\n\n"


@pytest.fixture(autouse=True)
def surroundings(tmp_path, monkeypatch):
    """A cache folder, an environment and warning filters of its own for each test."""
    monkeypatch.setenv("DPCOMPARE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.syspath_prepend(str(HERE))
    with warnings.catch_warnings():
        yield


@pytest.fixture
def chosen(monkeypatch):
    """A function that calls use_cache in a copy of the environment: the folder, or None."""

    def choose():
        monkeypatch.setattr(os, "environ", dict(os.environ))
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        use_cache()
        folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
        return folder and Path(folder)

    return choose


@pytest.fixture
def cpu_info(tmp_path, monkeypatch):
    """The file that describes the processor; to be written by the test."""
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(compilation, "CPU_INFO", path)
    return path


def run(function, configuration, workers=1):
    """Run it once on each of so many new workers, at the same time."""
    wrapped = {"function": function, "configuration": configuration}
    executor = LocalExecutor(workers)
    return [
        result
        for _, result in executor.map("runner_functions:with_cache_counts", [wrapped] * workers)
    ]


def entries(tmp_path):
    return sorted((tmp_path / "cache" / "programs").glob("*/*"))


# --- results -------------------------------------------------------------------------------------


def test_a_trial_is_the_same_to_the_last_bit_with_read_programs(tmp_path, capfd):
    (trial,) = tiny.trials(tmp_path, tiny.DP_SGD, accountant="rdp")
    (compiled,) = run("dpcompare.trial:run_trial", trial)
    written = {file: file.stat().st_mtime_ns for file in entries(tmp_path)}
    (read,) = run("dpcompare.trial:run_trial", trial)
    assert compiled["cache_misses"] == len(written) > 0
    assert read["cache_misses"] == 0
    assert read["cache_hits"] >= len(written)
    assert {file: file.stat().st_mtime_ns for file in entries(tmp_path)} == written
    for result in (compiled, read):
        del result["result"]["timings"]
    assert compiled["result"] == read["result"]
    assert "compilation cache" not in capfd.readouterr().err


def test_workers_that_write_at_once_leave_a_sound_entry(tmp_path, monkeypatch):
    both = run("runner_functions:weight_gradient", {"seed": 0}, workers=2)
    (later,) = run("runner_functions:weight_gradient", {"seed": 0})
    assert later["cache_misses"] == 0
    assert later["cache_hits"] > 0
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")
    (without,) = run("runner_functions:weight_gradient", {"seed": 0})
    assert without["cache_hits"] == without["cache_misses"] == 0
    for result in (*both, later):
        assert result["result"] == without["result"]


def test_damaged_entries_are_compiled_again_in_silence(tmp_path, capfd):
    (first,) = run("runner_functions:weight_gradient", {"seed": 0})
    (file,) = entries(tmp_path)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (whole[: len(whole) // 2], bytes(flipped)):
        file.write_bytes(damaged)
        (again,) = run("runner_functions:weight_gradient", {"seed": 0})
        assert again["cache_hits"] == 0
        assert again["result"] == first["result"]
    assert capfd.readouterr().err == ""


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path, capfd):
    (tmp_path / "cache").touch()
    (result,) = run("runner_functions:weight_gradient", {"seed": 0})
    assert len(result["result"]["digest"]) == 64
    assert result["cache_hits"] == result["cache_misses"] == 0
    assert capfd.readouterr().err == ""


# --- the folder ----------------------------------------------------------------------------------


def test_programs_lie_beside_calibrations(chosen, tmp_path, monkeypatch):
    folder = chosen()
    assert folder.parents[1] == compilation.cache_folder() == tmp_path / "cache"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] == "0"
    assert calibration.cache_folder is compilation.cache_folder
    os.environ.pop("DPCOMPARE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for base in ({}, {"XDG_CACHE_HOME": str(tmp_path / "xdg")}):
        os.environ.update(base)
        expected = tmp_path / "xdg" if base else Path("~/.cache").expanduser()
        assert compilation.cache_folder() == expected / "dpcompare"


def test_a_user_without_a_home_gets_a_folder_of_the_run(monkeypatch, tmp_path):
    for name in ("DPCOMPARE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # what it does without a home
    monkeypatch.chdir(tmp_path)
    assert compilation.cache_folder() == tmp_path / ".dpcompare-cache"


def test_each_processor_and_number_of_cores_has_a_folder(chosen, cpu_info, monkeypatch):
    def folder(text):
        cpu_info.write_text(text)
        return chosen()

    one = folder(X86.format(core=0, more=""))
    more_cores = X86.format(core=1, more="") + X86.format(core=2, more="")
    assert folder(more_cores) == one, "frequencies and other cores do not count"
    more_instructions = folder(X86.format(core=0, more=" avx512f"))
    other_model = folder(X86.format(core=0, more="").replace("One", "Two"))
    arm = folder("processor : 0\nFeatures : fp asimd\nCPU part : 0xd0c\n\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(17)))
    many = folder(X86.format(core=0, more=""))
    assert many.name.endswith("-17")
    assert len({one, more_instructions, other_model, arm, many}) == 5


def test_without_a_known_processor_nothing_is_cached(chosen, cpu_info, tmp_path):
    assert chosen() is None
    cpu_info.write_text("processor : 0\n\n")
    assert chosen() is None
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_others_may_write_is_not_used(chosen):
    folder = chosen()
    folder.chmod(0o770)
    assert chosen() is None
    folder.chmod(0o750)
    assert chosen() == folder


def test_a_folder_that_the_user_has_chosen_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "elsewhere")
    use_cache()
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "elsewhere"
    assert not (tmp_path / "cache").exists()


def test_old_entries_and_the_oldest_of_too_many_are_removed(chosen, monkeypatch):
    folder = chosen()
    other = folder.parent / "0123456789abcdef-4"
    other.mkdir()
    not_ours = [
        folder.parent / "thesis" / "x-cache",
        folder / "notes.txt",
        other / "old" / "y-cache",
    ]
    for file in not_ours:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(bytes(1000))
        os.utime(file, (0, 0))

    def left():
        entries = [*folder.glob("*-cache"), *other.glob("*-cache")]
        return sorted(file.name.removesuffix("-cache") for file in entries)

    now = time.time()
    ages = {"a": 0, "b": 10, "c": 20, "d": 30, "outdated": compilation.OLDEST + 60}
    for name, age in ages.items():
        file = (other if name == "c" else folder) / f"{name}-cache"
        file.write_bytes(bytes(100))
        os.utime(file, (now - age, now - age))
    assert chosen() == folder
    assert left() == ["a", "b", "c", "d"]
    monkeypatch.setattr(compilation, "LARGEST", 250)
    assert chosen() == folder
    assert left() == ["a", "b"]
    assert all(file.exists() for file in not_ours)
