import contextlib
import math
import sys

import pytest

from dpcompare import progress
from dpcompare.progress import ProgressBar, duration


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def pretend_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))


def test_fraction_is_weighted_by_cost_and_counts_running_trials(clock: Clock) -> None:
    with ProgressBar([6.0, 3.0, 1.0], "study") as bar:
        assert bar.fraction() == 0.0
        bar.update(0, 0.5)
        assert bar.fraction() == pytest.approx(0.3)
        bar.finish(2)
        assert bar.fraction() == pytest.approx(0.4)
        bar.finish(0)
        bar.finish(1)
        assert bar.fraction() == 1.0


def test_fractions_out_of_range_or_backwards_are_held(clock: Clock) -> None:
    with ProgressBar([1.0, 1.0], "study") as bar:
        bar.update(0, 0.6)
        for odd in (0.2, -1.0, math.nan):
            bar.update(0, odd)
            assert bar.fraction() == pytest.approx(0.3)
        bar.update(0, 7.0)
        assert bar.fraction() == pytest.approx(0.5)


def test_time_left_comes_from_the_cost_done_in_this_run(clock: Clock) -> None:
    with ProgressBar([10.0, 2.0, 2.0, 4.0], "study") as bar:
        bar.skip(0)
        assert bar.seconds_left() is None
        clock.now += 30
        bar.finish(1)
        bar.update(2, 0.5)  # 3 units in 30 s, and 5 are left
        assert bar.seconds_left() == pytest.approx(50.0)


def test_failed_trial_leaves_the_work_ahead_but_does_not_speed_it_up(clock: Clock) -> None:
    with ProgressBar([2.0, 2.0, 2.0], "study") as bar:
        clock.now += 10
        bar.finish(0)
        assert bar.seconds_left() == pytest.approx(20.0)
        bar.finish(1, failed=True)
        assert bar.seconds_left() == pytest.approx(10.0)
        assert bar.fraction() == pytest.approx(2 / 3)


def test_log_file_gets_a_plain_line_for_every_tenth(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar([1.0] * 40, "pctr") as bar:
        for index in range(40):
            clock.now += 1
            bar.finish(index, failed=index == 20)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert out == ""
    assert "\r" not in err
    assert len(lines) == 11
    assert lines[0] == "pctr: 1/40 trials, 2%, 39 s left"
    assert lines[-1] == "pctr: 40/40 trials, 1 failed, 100%"


def test_log_file_gets_a_line_after_thirty_quiet_seconds(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar([1.0], "pctr") as bar:
        for tick in range(1, 91):
            clock.now += 1
            bar.update(0, tick / 1000)
    assert len(capsys.readouterr().err.splitlines()) == 1 + 2 + 1  # first, at 31 and 61 s, last


def test_nothing_to_run_says_so_in_one_line(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressBar([1.0] * 30, "pctr") as bar:
        for index in range(30):
            bar.skip(index)
    assert capsys.readouterr().err == "pctr: 30/30 trials, 100%\n"


def test_no_trials_at_all(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar([], "pctr"):
        pass
    assert capsys.readouterr().err == "pctr: 0/0 trials, 100%\n"


def test_terminal_gets_one_line_redrawn_in_place(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch, columns=100)
    with ProgressBar([1.0, 3.0], "pctr") as bar:
        bar.update(0, 0.0)
        clock.now += 10
        bar.finish(0)
        clock.now += 0.01
        bar.update(1, 0.1)  # too soon to draw again
        clock.now += 10
        bar.finish(1)
    drawn = capsys.readouterr().err
    first, second, third, last = drawn.split("\r")
    assert first.rstrip() == "pctr [--------------------] 0/2 trials, 0%"
    assert second.rstrip() == "pctr [#####---------------] 1/2 trials, 25%, 30 s left"
    assert third.rstrip() == last.rstrip() == "pctr [####################] 2/2 trials, 100%"
    assert len(first) == len(second) == len(third) == 99  # wipes what was there before
    assert last.endswith("\n")
    assert drawn.count("\n") == 1


def test_narrow_terminal_cuts_the_line(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch, columns=20)
    with ProgressBar([1.0], "a long label of a study") as bar:
        bar.update(0, 0.5)
    assert [len(part.rstrip("\n")) for part in capsys.readouterr().err.split("\r")] == [19, 19]


def test_interrupted_run_ends_its_line_without_a_promise(
    clock: Clock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_terminal(monkeypatch, columns=100)
    with contextlib.suppress(KeyboardInterrupt), ProgressBar([1.0, 1.0], "pctr") as bar:
        clock.now += 5
        bar.finish(0)
        raise KeyboardInterrupt
    last = capsys.readouterr().err.split("\r")[-1]
    assert last.rstrip(" \n") == "pctr [##########----------] 1/2 trials, 50%"
    assert last.endswith("\n")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_fails_before_it_begins_shows_no_progress(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ValueError, match="wrong"), ProgressBar([1.0], "training"):
        raise ValueError("wrong")
    assert capsys.readouterr().err == ""
