import errno
import fcntl
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpcompare.errors import DpcompareError
from dpcompare.results import FIELDS, ResultsFolder, decode, encode, write_atomically
from tests.fabricated_records import failed, metrics, record

DOCS = Path(__file__).resolve().parents[1] / "docs" / "results.md"


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    made = ResultsFolder(tmp_path / "study")
    for seed in range(3):
        made.append(record("dp-sgd", 1.0, seed))
    return made


def strict(line: str) -> dict:
    def refuse(token: str) -> None:
        raise AssertionError(f"bare {token}")

    return json.loads(line, parse_constant=refuse)


def test_every_field_is_documented() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert [name for name in FIELDS if f"`{name}`" not in page] == []
    assert list(FIELDS) == list(record("dp-sgd", 1.0, 0))


def test_infinity_and_nan_are_strict_json_and_infinity_comes_back() -> None:
    made = record("non-private", math.inf, 0, test=metrics(math.nan, -math.inf))
    line = encode(made)
    assert strict(line)["epsilon"] == "inf"
    back = decode(line)
    assert back["epsilon"] == math.inf
    assert back["guarantee"]["other_relations"]["replace-one"] == math.inf
    assert back["test"]["auc"] is None
    assert back["test"]["log_loss"] == -math.inf


def test_everything_else_comes_back_as_it_was() -> None:
    numbers = {"a": 0.1 + 0.2, "b": 1, "c": 1.0, "d": True, "e": None, "f": "x\u2028\n"}
    made = record("dp-sgd", 0.30000000000000004, 7, diagnostics=numbers, title="inf")
    back = decode(encode(made))
    assert back == made
    assert "\n" not in encode(made)
    assert {key: type(value) for key, value in back["diagnostics"].items()} == {
        key: type(value) for key, value in numbers.items()
    }


def test_numpy_values_are_accepted() -> None:
    values = {
        "scalar": np.float32(0.5),
        "count": np.int64(3),
        "flag": np.bool_(True),
        "nan": np.float64("nan"),
        "list": np.array([1.5, np.inf]),
        "tuple": (1, 2),
    }
    back = decode(encode(record("dp-sgd", np.float64(1), 0, diagnostics=values)))
    assert back["diagnostics"] == {
        "scalar": 0.5,
        "count": 3,
        "flag": True,
        "nan": None,
        "list": [1.5, math.inf],
        "tuple": [1, 2],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"surprise": 1}, "surprise"),
        ({"diagnostics": {"x": {1, 2}}}, r"record\.diagnostics\.x is a set"),
        ({"diagnostics": {1.0: 2}}, "key 1.0"),
        ({"format": 2}, "format 2"),
        ({"status": "maybe"}, "maybe"),
    ],
)
def test_encode_refuses_what_is_no_record(changes: dict, message: str) -> None:
    with pytest.raises(DpcompareError, match=message):
        encode(record("dp-sgd", 1.0, 0) | changes)


def test_a_missing_field_is_named_both_ways() -> None:
    made = record("dp-sgd", 1.0, 0)
    line = encode(made)
    del made["prng"]
    with pytest.raises(DpcompareError, match="prng"):
        encode(made)
    with pytest.raises(DpcompareError, match="prng"):
        decode(line.replace('"prng"', '"other"'))


@pytest.mark.parametrize("line", ["", "{", "[1]", '{"format": NaN}', "\x00\x00"])
def test_decode_refuses_damage(line: str) -> None:
    with pytest.raises(DpcompareError, match="not a record"):
        decode(line)


def test_records_come_back_in_order(folder: ResultsFolder) -> None:
    assert [r["seed"] for r in folder.records()] == [0, 1, 2]
    assert folder.warnings == []
    assert folder.trials.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("prepare", [lambda path: None, Path.mkdir, Path.touch])
def test_an_empty_folder_says_how_to_get_results(tmp_path: Path, prepare) -> None:
    prepare(tmp_path / "study")
    folder = ResultsFolder(tmp_path / "study")
    with pytest.raises(DpcompareError, match=r"study.*dpcompare run-study"):
        folder.records()
    assert folder.done_ids() == set()


def test_an_empty_trials_file_is_no_result(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.trials.write_bytes(b"\n")
    with pytest.raises(DpcompareError, match="dpcompare run-study"):
        folder.records()


def test_the_newest_record_of_a_trial_wins(folder: ResultsFolder) -> None:
    folder.append(failed("dp-sgd", 1.0, 3, "diverged"))
    assert folder.done_ids() == {record("dp-sgd", 1.0, seed)["id"] for seed in range(3)}
    folder.append(record("dp-sgd", 1.0, 3))
    assert [r["status"] for r in folder.records()] == ["done"] * 4
    folder.append(failed("dp-sgd", 1.0, 0, "diverged"))
    assert len(folder.done_ids()) == 3


def test_a_study_chooses_its_trials_and_their_order(folder: ResultsFolder) -> None:
    ids = [record("dp-sgd", 1.0, seed)["id"] for seed in (2, 0, 5)]
    assert [r["seed"] for r in folder.records(ids)] == [2, 0]
    with pytest.raises(DpcompareError, match="present study"):
        folder.records(["other"])


def test_the_plan_is_remembered(folder: ResultsFolder) -> None:
    assert folder.plan() is None
    ids = [record("dp-sgd", 1.0, seed)["id"] for seed in (2, 1)]
    folder.write_plan(ids)
    assert folder.plan() == ids
    assert [r["seed"] for r in folder.records(folder.plan())] == [2, 1]


@pytest.mark.parametrize("lost", [1, 2, 10, 400])
def test_a_torn_tail_costs_one_trial_at_most(folder: ResultsFolder, lost: int) -> None:
    whole = folder.trials.read_bytes()
    folder.trials.write_bytes(whole[:-lost])
    survivors = 3 if lost == 1 else 2  # without the newline alone, nothing is lost
    assert len(folder.records()) == survivors
    if lost > 1:
        assert len(folder.warnings) == 1
        assert f"{folder.trials}, line 3" in folder.warnings[0]
    folder.append(record("dp-sgd", 1.0, 2))
    assert folder.trials.read_bytes().startswith(b"".join(whole.splitlines(True)[:2]))
    assert [r["seed"] for r in folder.records()] == [0, 1, 2]
    assert folder.warnings == []


def test_only_a_torn_line_is_no_result(folder: ResultsFolder) -> None:
    folder.trials.write_bytes(folder.trials.read_bytes()[:50])
    with pytest.raises(DpcompareError, match=r"line 1 is damaged.*run-study"):
        folder.records()
    folder.append(record("dp-sgd", 1.0, 0))
    assert len(folder.records()) == 1


def test_a_tail_of_zeros_is_cut(folder: ResultsFolder) -> None:
    with folder.trials.open("ab") as file:
        file.write(b"\0" * 100)
    assert len(folder.records()) == 3
    folder.append(record("dp-sgd", 1.0, 3))
    assert len(folder.records()) == 4


def test_damage_in_the_middle_is_an_error_with_its_line(folder: ResultsFolder) -> None:
    lines = folder.trials.read_bytes().splitlines(True)
    folder.trials.write_bytes(lines[0] + lines[1][:40] + b"\n" + lines[2])
    with pytest.raises(DpcompareError, match=r"trials\.jsonl, line 2 is damaged"):
        folder.records()


def test_an_unknown_format_is_an_error_and_never_cut(folder: ResultsFolder) -> None:
    newer = folder.trials.read_bytes().replace(b'{"format":1', b'{"format":2')
    folder.trials.write_bytes(newer)
    with pytest.raises(DpcompareError, match=r"line 1: record format 2"):
        folder.records()
    folder.append(record("dp-sgd", 1.0, 9))
    assert folder.trials.read_bytes().startswith(newer)


def test_a_second_writer_is_refused(folder: ResultsFolder) -> None:
    other = ResultsFolder(folder.path)
    with folder.lock():
        folder.append(record("dp-sgd", 1.0, 3))
        with pytest.raises(DpcompareError, match=f"another run is writing.*{os.getpid()}"):
            other.append(record("dp-sgd", 1.0, 4))
        with pytest.raises(DpcompareError, match="another run"), folder.lock():
            pass
        folder.append(record("dp-sgd", 1.0, 4))  # the refused attempt took nothing away
        assert len(other.records()) == 5  # readers are welcome
    other.append(record("dp-sgd", 1.0, 5))
    assert len(folder.records()) == 6


def test_the_lock_of_a_killed_process_is_gone(tmp_path: Path) -> None:
    code = (
        "import os, sys; from dpcompare.results import ResultsFolder\n"
        "with ResultsFolder(sys.argv[1]).lock():\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert killed.returncode == -9
    with ResultsFolder(tmp_path).lock():
        assert (tmp_path / ".lock").read_text().split()[0] == str(os.getpid())


def test_an_append_is_one_write_and_one_sync(
    folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes, syncs = [], []
    write, sync = os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda fd, data: (writes.append(data), write(fd, data))[1])
    monkeypatch.setattr(os, "fsync", lambda fd: (syncs.append(fd), sync(fd))[1])
    made = record("dp-sgd", 1.0, 3)
    folder.append(made)
    assert writes == [(encode(made) + "\n").encode()]
    assert len(syncs) == 1


def test_a_full_disk_leaves_the_file_as_it_was(
    folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = folder.trials.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:20]))
    with pytest.raises(DpcompareError, match="No space left"):
        folder.append(record("dp-sgd", 1.0, 3))
    assert folder.trials.read_bytes() == before


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DpcompareError, match="cannot write"):
        ResultsFolder(tmp_path / "file").append(record("dp-sgd", 1.0, 0))
    with pytest.raises(DpcompareError, match="cannot write"):
        write_atomically(tmp_path / "file" / "x.csv", b"")


def test_write_atomically_replaces_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "x.csv"
    write_atomically(path, b"old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DpcompareError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["x.csv"]


def test_a_lock_on_a_full_disk_names_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DpcompareError) as raised, ResultsFolder(tmp_path).lock():
        pass
    assert str(raised.value) == f"cannot write to {tmp_path}: No space left on device"


def test_the_lock_is_a_kernel_lock(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    with folder.lock(), open(tmp_path / ".lock") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
