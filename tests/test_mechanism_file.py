"""Mechanisms named by their file: what runs, what is refused, and when trials run again."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from dpcompare import trial
from dpcompare.conduct import reasons_to_run_again
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.expansion import expand
from dpcompare.mechanism import Mechanism, find
from dpcompare.study import load
from dpcompare.trial import counted, identity
from tests import tiny_studies as tiny

MINE = """
from dpcompare.mechanism import Mechanism


class Mine(Mechanism):
    strength: float = 2.0
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    return tmp_path


def trials_of(name):
    return expand(load(str(tiny.write(Path.cwd(), tiny.content({"name": name, "label": "mine"})))))


def test_annotations_may_be_read_late():
    Path("mine.py").write_text("from __future__ import annotations\n" + MINE)
    mechanism = find("./mine.py:Mine").build({"strength": 3.0})
    assert isinstance(mechanism, Mechanism)
    assert mechanism.strength == 3.0


def test_an_edit_of_equal_length_in_the_same_moment_is_seen():
    first = find("./mine.py:Mine")
    Path("mine.py").write_text(MINE.replace("2.0", "4.0"))
    second = find("./mine.py:Mine")
    assert (first.build({}).strength, second.build({}).strength) == (2.0, 4.0)
    assert first.version != second.version
    assert not Path("__pycache__").exists()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("./other.py:Mine", None, r"there is no file \./other\.py in .*paths start at the folder"),
        (":Mine", None, "there is no file ''"),
        (".:Mine", None, "there is no file"),
        ("./mine.txt:Mine", MINE, r"not a Python file \(\.py\)"),
        ("./bad.py:Mime", MINE, r"defines no Mime \(did you mean 'Mine'\?\)"),
        ("./bad.py:", MINE, r"name its class after the colon: \./bad\.py:MyMechanism"),
        ("./bad.py:Other", "Other = 3\n", "'./bad.py:Other' is not a subclass of .*Mechanism"),
        ("./bad.py:Mine", "def (\n", r"fails to import: SyntaxError: .*bad\.py, line 1"),
        ("./bad.py:Mine", "x = 1\0\n", "fails to import: "),
        ("./bad.py:Mine", "\n\nx = y\n", r"NameError: name 'y' is not defined \(line 3\)"),
        ("./bad.py:Mine", "import no_such_module\n", "No module named 'no_such_module'"),
        ("./bad.py:Mine", "import sys\nsys.exit()\n", r"SystemExit: .*\(line 2\)"),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_place(name, text, message):
    if text is not None:
        Path(name.rpartition(":")[0]).write_text(text)
    with pytest.raises(UsageError, match=message):
        find(name)


@pytest.mark.parametrize("on_the_path", [False, True])
@pytest.mark.parametrize(
    "line",
    ["import beside", "from beside import x", "from . import beside", "from .beside import x",
     "def later():\n    import folder_beside.deep",
     "import importlib\nimportlib.import_module('beside')", "__import__('folder_beside.deep')"],
)  # fmt: skip
def test_imports_of_modules_beside_it_are_refused(folder, line, on_the_path, monkeypatch):
    Path("beside.py").write_text("x = 1\n")
    Path("folder_beside").mkdir()
    Path("folder_beside/__init__.py").touch()
    if on_the_path:
        monkeypatch.syspath_prepend(folder)
    Path("mine.py").write_text(f"{MINE}\n{line}\n")
    with pytest.raises(UsageError, match=r"imports '.*beside', which lies beside it.*one file"):
        find("./mine.py:Mine")


def test_other_files_beside_it_do_not_matter():
    for name in ("numpy.py", "dpcompare.py", "beside.py"):
        Path(name).write_text("raise ImportError('the wrong one')\n")
    Path("mine.py").write_text("import numpy\n" + MINE)
    assert find("./mine.py:Mine").build({}).strength == 2.0


def test_neither_the_path_nor_its_spelling_is_part_of_a_trial(folder):
    Path("deep").mkdir()
    shutil.copy("mine.py", "deep/renamed.py")
    names = ["./mine.py:Mine", "mine.py:Mine", f"{folder}/mine.py:Mine", "deep/renamed.py:Mine"]
    trials = [trials_of(name)[0] for name in names]
    assert len({identity(c) for c in trials}) == 1
    assert [c["mechanism"]["name"] for c in trials] == names
    assert counted(trials[0])["mechanism"]["name"] == "file:Mine"
    streams = {
        str(trial.label_stream(c, find(c["mechanism"]["name"]).build({}), trial.task_of(c)))
        for c in trials
    }
    assert len(streams) == 1


def test_another_class_of_the_file_is_another_trial():
    Path("mine.py").write_text(f"{MINE}\nclass Other(Mine):\n    pass\n")
    first, second = (trials_of(f"mine.py:{name}")[0] for name in ("Mine", "Other"))
    assert identity(first) != identity(second)


def test_an_edited_file_runs_again_and_the_run_says_why():
    (before,) = trials_of("mine.py:Mine")
    done = trial.record_of(before, status="done")
    assert reasons_to_run_again([done], trials_of("./mine.py:Mine")) == []
    Path("mine.py").write_text(MINE + "# edited\n")
    (reason,) = reasons_to_run_again([done], trials_of("mine.py:Mine"))
    assert reason == (
        "mine: 1 of its trials run again, because these settings have changed: mechanism.version"
    )


def test_a_file_that_is_edited_during_the_run_fails_its_trials():
    (configuration,) = trials_of("mine.py:Mine")
    Path("mine.py").write_text(MINE + "# edited\n")
    with pytest.raises(DpcompareError, match=r"'mine.py:Mine' has changed since .* run the study"):
        trial.run_trial(configuration)


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    file = tmp_path / "own.py"
    file.touch()

    def refused(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "read_bytes", refused)
    with pytest.raises(UsageError, match=r"own\.py cannot be read: Permission denied"):
        find(f"{file}:Own")
