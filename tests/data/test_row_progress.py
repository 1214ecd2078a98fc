import contextlib
import sys

import pytest

from dpcompare.data import row_progress
from dpcompare.data.row_progress import RowProgress


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(row_progress, "monotonic", clock)
    return clock


def run(clock, steps, seconds, rows=1_000_000, first=0):
    """Calls at even distances from `first` of the steps to the end."""
    with RowProgress() as progress:
        for step in range(first, steps + 1):
            progress(rows * step // steps, step / steps)
            clock.now += seconds / steps


def test_a_log_file_gets_a_plain_line_every_30_seconds(clock, capsys):
    run(clock, 100, 120)
    assert capsys.readouterr().err.splitlines() == [
        "250,000 rows, 25%, 8,333 rows/s, 1 min 30 s left",
        "500,000 rows, 50%, 8,333 rows/s, 1 min 0 s left",
        "750,000 rows, 75%, 8,333 rows/s, 30 s left",
        "1,000,000 rows, 100%, 8,333 rows/s, completing the files",
    ]


def test_short_work_says_nothing(clock, capsys):
    run(clock, 10, 5)
    assert capsys.readouterr() == ("", "")


def test_rows_of_an_earlier_preparation_do_not_count_as_fast(clock, capsys):
    run(clock, 100, 200, first=60)
    first = capsys.readouterr().err.splitlines()[0]
    assert first == "750,000 rows, 75%, 5,000 rows/s, 50 s left"


def test_a_terminal_gets_one_line_that_is_redrawn(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "70")
    run(clock, 50, 10)
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    drawn = err.rstrip("\n").split("\r")
    assert len(drawn) > 40
    assert {len(line) for line in drawn[1:]} == {69}
    assert drawn[-1].rstrip() == "1,000,000 rows, 100%, 100,000 rows/s, completing the files"


def test_after_ctrl_c_the_line_is_left_to_be_ended(clock, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with contextlib.suppress(KeyboardInterrupt), RowProgress() as progress:
        clock.now += 1
        progress(5, 0.5)
        raise KeyboardInterrupt
    assert "\n" not in capsys.readouterr().err
