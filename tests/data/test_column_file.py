import numpy as np
import pytest

from dpcompare.data.column_file import ColumnFile


@pytest.fixture(autouse=True)
def few_rows_at_a_time(monkeypatch):
    monkeypatch.setattr("dpcompare.data.column_file._MOVED_ROWS", 7)


def test_appended_rows_make_a_plain_npy_file(tmp_path):
    file = ColumnFile(tmp_path / "a.npy", np.float32, 3)
    rows = np.arange(60, dtype=np.float32).reshape(20, 3)
    file.append(rows[:5])
    file.append(rows[5:])
    facts = file.finish()
    assert file.rows == 20
    assert np.array_equal(np.load(tmp_path / "a.npy"), rows)
    assert facts["bytes"] == (tmp_path / "a.npy").stat().st_size


@pytest.mark.parametrize("width", [None, 0, 1, 4])
def test_reordered_rows_are_those_of_a_file_written_in_that_order(tmp_path, width):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 1000, (50,) if width is None else (50, width)).astype(np.uint32)
    order = rng.permutation(50)
    moved, straight = (ColumnFile(tmp_path / name, np.uint32, width) for name in ("a", "b"))
    moved.append(rows)
    moved.reorder(order)
    straight.append(rows[order])
    assert moved.finish() == straight.finish()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_content_can_be_replaced(tmp_path):
    file = ColumnFile(tmp_path / "a.npy", np.int64)
    file.append(np.arange(10))
    assert file.content().tolist() == list(range(10))
    file.replace(np.array([7, 8]))
    file.finish()
    assert np.load(tmp_path / "a.npy").tolist() == [7, 8]


def test_a_file_without_rows_has_empty_content(tmp_path):
    assert ColumnFile(tmp_path / "a.npy", np.int64).content().tolist() == []
