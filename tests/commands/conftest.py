"""What the tests of commands share: calling one, and a folder with all that examples name."""

import gzip
import shutil
from pathlib import Path

import pytest

from dpcompare import cli, runner
from dpcompare.data import prepare, write_text
from dpcompare.results import ResultsFolder
from tests import fabricated_records
from tests import tiny_studies as tiny


@pytest.fixture
def call(capsys, monkeypatch):
    """A function that runs a command in this process: (exit code, output, error output)."""
    monkeypatch.setattr(runner, "LocalExecutor", tiny.InProcess)
    for name in ("NO_COLOR", "FORCE_COLOR", "DPCOMPARE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture(scope="session")
def everything(tmp_path_factory):
    """Rows, prepared rows, results and a mechanism, by the names that examples use."""
    folder = tmp_path_factory.mktemp("everything")
    write_text(folder / "train.txt", 6000)
    rows = (folder / "train.txt").read_bytes().splitlines(keepends=True)
    for day, part in enumerate((rows[:3000], rows[3000:])):
        with gzip.open(folder / f"day_{day}.gz", "wb") as file:
            file.write(b"".join(part))
    for name in ("criteo", "new-rows"):
        prepare("criteo-kaggle", [folder / "train.txt"], folder / "prepared" / name)
    tiny.write(folder, tiny.content(tiny.NON_PRIVATE, tiny.DP_SGD))
    records = {name: fabricated_records.study(seeds=2) for name in ("quickstart", "pctr")}
    records |= {name: fabricated_records.conversions(name, seeds=2) for name in ("pcvr", "pconvs")}
    for name, made in records.items():
        results = ResultsFolder(folder / "results" / name)
        with results.lock():
            for record in made:
                results.append(record)
    (folder / "my_mechanism.py").write_text(
        "from dpcompare_mechanisms.dp_sgd import DPSGD\n\n\n"
        'class MyMechanism(DPSGD):\n    """DP-SGD under another name."""\n'
    )
    return folder


@pytest.fixture
def working_folder(everything, tmp_path, monkeypatch) -> Path:
    """A copy of it as the current folder."""
    shutil.copytree(everything, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"
