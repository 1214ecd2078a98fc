from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import pytest

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.figures import FIGURES, NothingToDraw, draw
from dpcompare.figures.effective_sample_size import effective_sample_size
from dpcompare.figures.utility import utility
from dpcompare.results import ResultsFolder
from tests.fabricated_records import failed, sample_sizes, study


def filled(path: Path, records: list[dict[str, Any]] | None = None) -> ResultsFolder:
    folder = ResultsFolder(path)
    with folder.lock():
        for made in study() if records is None else records:
            folder.append(made)
    return folder


def test_figure_and_numbers_are_drawn_from_records_alone(tmp_path: Path) -> None:
    folder = filled(tmp_path / "a")
    files = draw(folder)
    kinds = ("utility", "attack-power")
    assert [file.name for file in files] == [
        f"{kind}.{form}" for kind in kinds for form in ("png", "svg", "csv")
    ]
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


def test_without_a_name_all_figures_are_drawn_that_the_records_can_give(tmp_path: Path) -> None:
    folder = filled(tmp_path, sample_sizes())
    files = draw(folder, formats=())
    kinds = ("utility", "effective-sample-size", "attack-power")
    assert [file.name for file in files] == [f"{kind}.csv" for kind in kinds]
    read = pd.read_csv(files[1])
    pd.testing.assert_frame_equal(read, effective_sample_size(sample_sizes())[1], check_dtype=False)


def test_a_figure_that_a_study_asks_for_is_drawn_alone_or_refused(tmp_path: Path) -> None:
    files = draw(filled(tmp_path / "a", sample_sizes()), None, "effective-sample-size")
    names = [f"effective-sample-size.{form}" for form in ("png", "svg", "csv")]
    assert [file.name for file in files] == names
    folder = filled(tmp_path / "b")
    with pytest.raises(NothingToDraw, match="two training sizes"):
        draw(folder, None, "effective-sample-size")
    assert not folder.figures.exists()


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
    with pytest.raises(NothingToDraw, match="nothing to draw"):
        draw(folder)
    assert not folder.figures.exists()
