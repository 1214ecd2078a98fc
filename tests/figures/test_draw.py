from pathlib import Path

import matplotlib as mpl
import pandas as pd
import pytest

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.figures import FIGURES, draw
from dpcompare.figures.utility import utility
from dpcompare.results import ResultsFolder
from tests.fabricated_records import failed, study


def filled(path: Path) -> ResultsFolder:
    folder = ResultsFolder(path)
    with folder.lock():
        for made in study():
            folder.append(made)
    return folder


def test_figure_and_numbers_are_drawn_from_records_alone(tmp_path: Path) -> None:
    folder = filled(tmp_path / "a")
    files = draw(folder)
    assert [file.name for file in files] == ["utility.png", "utility.svg", "utility.csv"]
    assert sorted(folder.figures.iterdir()) == sorted(files)
    assert files[0].read_bytes().startswith(b"\x89PNG")
    read = pd.read_csv(files[2])
    pd.testing.assert_frame_equal(read, utility(study())[1], check_dtype=False)
    assert not folder.summary.exists()


def test_equal_records_give_equal_files(tmp_path: Path) -> None:
    first = draw(filled(tmp_path / "a"), formats=("png", "svg", "pdf"))
    with mpl.rc_context({"font.size": 20, "svg.hashsalt": "other", "lines.linewidth": 9}):
        second = draw(filled(tmp_path / "b"), formats=("png", "svg", "pdf"))
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    assert b"<dc:date>" not in first[1].read_bytes()


def test_the_study_chooses_the_trials(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    ids = [record["id"] for record in folder.records() if record["epsilon"] in (1.0, 3.0)]
    csv = draw(folder, ids, "utility", formats=())
    assert [file.name for file in csv] == ["utility.csv"]
    assert set(pd.read_csv(csv[0])["epsilon"].dropna()) == {1.0, 3.0}


def test_wrong_requests_are_named(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    with pytest.raises(UsageError, match=f"pie.*{next(iter(FIGURES))}"):
        draw(folder, figure="pie")
    with pytest.raises(UsageError, match=r"gif.*png"):
        draw(folder, formats=("gif",))
    assert not folder.figures.exists()


def test_without_results_no_file_is_made(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "none")
    with pytest.raises(DpcompareError, match="run-study"):
        draw(folder)
    assert not folder.path.exists()
    folder.append(failed("dp-sgd", 1.0, 0, "diverged"))
    with pytest.raises(DpcompareError, match="nothing to draw"):
        draw(folder)
    assert not folder.figures.exists()
