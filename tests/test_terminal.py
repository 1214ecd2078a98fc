"""What is said at which level, in which color, and what the log file keeps of it."""

import errno
import io
import logging
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from dpcompare import catalog, cli, runner, terminal
from dpcompare.data.row_progress import RowProgress
from dpcompare.errors import UsageError
from dpcompare.progress import ProgressBar
from tests import tiny_studies as tiny
from tests.failing_study import failing_study

STAMP = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4} (\w+) (.*)$")


@pytest.fixture
def started(monkeypatch):
    """The terminal at the begin of a command, without what the environment says of color."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TERM", "DPCOMPARE_TRACEBACK"):
        monkeypatch.delenv(name, raising=False)
    terminal.start()
    yield
    terminal.stop()


@pytest.fixture
def call(capsys, monkeypatch, started):
    monkeypatch.setattr(runner, "LocalExecutor", tiny.InProcess)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def study(tmp_path):
    return failing_study(tmp_path)


def say_everything():
    terminal.LOG.debug("a detail")
    terminal.say("a message")
    terminal.say("Warning: a danger")
    terminal.result("a result\n")
    terminal.LOG.error("a failure")


@pytest.mark.parametrize(
    ("choose", "out", "err"),
    [
        (lambda: None, "a message\na result\n", "Warning: a danger\nError: a failure\n"),
        (terminal.be_quiet, "a result\n", "Warning: a danger\nError: a failure\n"),
        (
            terminal.only_results_on_output,
            "a result\n",
            "a message\nWarning: a danger\nError: a failure\n",
        ),
    ],
    ids=["normal", "quiet", "json"],
)
def test_levels_decide_what_is_shown_and_where(started, capsys, choose, out, err):
    choose()
    say_everything()
    assert capsys.readouterr() == (out, err)


def test_a_library_that_sets_up_the_root_logger_repeats_nothing(started, capsys):
    root = logging.getLogger()
    handler = logging.StreamHandler()
    handler.setLevel(logging.DEBUG)
    root.addHandler(handler)
    try:
        say_everything()
    finally:
        root.removeHandler(handler)
    assert capsys.readouterr().err == "Warning: a danger\nError: a failure\n"


class Full(io.StringIO):
    """Standard error on a full disk."""

    def write(self, text):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("stream", [None, Full()], ids=["closed", "full"])
def test_work_does_not_end_for_an_error_output_that_cannot_be_written(
    started, monkeypatch, capsys, stream
):
    monkeypatch.setattr(sys, "stderr", stream)
    terminal.be_verbose()
    with ProgressBar([1.0], "study") as bar:
        bar.update(0, 0.5)
    with RowProgress() as rows:
        rows(10, 0.5)
    say_everything()
    assert capsys.readouterr().out == "a message\na result\n"


def test_details_are_for_the_verbose_and_begin_with_versions(started, capsys):
    terminal.be_verbose()
    say_everything()
    out, err = capsys.readouterr()
    assert out == "a message\na result\n"
    first, detail, *others = err.splitlines()
    assert re.match(r"dpcompare 0\.1\.0, jax [\d.]+, .*, Python 3\.", first)
    assert (detail, others) == ("a detail", ["Warning: a danger", "Error: a failure"])


def test_quiet_and_verbose_contradict_each_other(call):
    code, out, err = call("-q", "list", "studies", "-v")
    assert (code, out) == (2, "")
    assert "--quiet and --verbose contradict each other" in err
    with pytest.raises(UsageError, match="contradict"):
        terminal.be_quiet(), terminal.be_verbose()


def test_a_command_forgets_what_the_one_before_was_told(call):
    assert call("-q", "list", "studies")[0] == 0
    assert not call("list", "studies", "-v")[2].startswith("Error")
    assert call("list", "studies")[2] == ""


def test_after_a_command_nothing_is_shown_and_no_handler_is_left(call, capsys, tmp_path):
    root = logging.getLogger().handlers[:]
    call("--log-file", tmp_path / "log", "list", "studies")
    say_everything()
    assert "a result" not in capsys.readouterr().out
    assert logging.getLogger().handlers == root


# --- color ---------------------------------------------------------------------------------------


RED, YELLOW, END = "\x1b[31m\x1b[1m", "\x1b[33m", "\x1b[0m"


def test_without_a_terminal_there_is_no_color(started, capsys):
    say_everything()
    terminal.say("Trials: 1 done, 2 failed, 0 already there.")
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err


def test_force_color_colors_failures_and_warnings_only(started, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    say_everything()
    terminal.say("Trials: 1 done, 2 failed, 10 already there.")
    terminal.say("Trials: 1 done, 0 failed, 1 already there.")
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "a message",
        "a result",
        f"Trials: 1 done, 2 {RED}failed{END}, 10 already there.",
        "Trials: 1 done, 0 failed, 1 already there.",
    ]
    assert err.splitlines() == [f"{YELLOW}Warning:{END} a danger", f"{RED}Error:{END} a failure"]


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, None),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, None),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, None),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_the_environment_decides_on_color(started, monkeypatch, variables, wanted):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert terminal.color() is wanted


def test_errors_of_usage_are_colored_too(call, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert f"\n{RED}Error:{END} No such command" in call("frobnicate")[2]
    assert call("show", "dp-sdg")[2].startswith(f"{RED}Error:{END} 'dp-sdg' is no")


# --- quiet and verbose commands ------------------------------------------------------------------


def test_a_quiet_study_shows_its_table_and_its_failure_only(call, study, tmp_path):
    code, out, err = call("run-study", study, "--out", tmp_path / "results", "-q")
    assert code == 1
    assert "Failed: failing" in out
    assert "wrote" not in out
    assert "Trials:" not in out
    assert err.startswith("Error: failed trials: 1."), "no progress"
    assert call("-q", "plot", tmp_path / "results")[1:] == (out, "")


def test_a_verbose_study_tells_of_each_trial(call, study, tmp_path):
    code, out, err = call("-v", "run-study", study, "--out", tmp_path / "results")
    assert code == 1
    assert "wrote" in out
    assert re.search(r"^dp-sgd epsilon 1.0 seed 0: done", err, re.MULTILINE)
    assert re.search(r"^failing epsilon 1.0 seed 0: failed: ValueError", err, re.MULTILINE)
    assert "Traceback (most recent call last)" in err, "of the trial"
    assert re.search(r"^exit code 1 after [\d.]+ s$", err, re.MULTILINE)


def test_progress_is_silent_with_quiet_only(started, capsys):
    for choose, shown in ((lambda: None, True), (terminal.be_quiet, False)):
        choose()
        with ProgressBar([1.0], "study") as bar:
            bar.finish(0)
        assert ("study: 1/1 trials" in capsys.readouterr().err) is shown


def test_the_traceback_of_a_defect_is_shown_to_the_verbose(call, monkeypatch):
    def broken():
        raise RuntimeError("out of cheese")

    assert "Traceback" not in call("-v", "show", "dp-sdg")[2], "that is no defect"
    monkeypatch.setattr(catalog, "studies", broken)
    err = call("list", "studies")[2]
    assert "Traceback" not in err
    assert "--verbose" in err
    err = call("-v", "list", "studies")[2]
    assert "Traceback (most recent call last)" in err
    assert "in broken" in err
    assert err.splitlines()[-2].startswith("Error: RuntimeError: out of cheese. This is a defect")


# --- the log file --------------------------------------------------------------------------------


def test_the_log_file_has_everything_with_time_and_level(call, study, tmp_path):
    log = tmp_path / "log.txt"
    call("run-study", study, "--out", tmp_path / "results", "--log-file", log)
    text = log.read_text(encoding="utf-8")
    levels = [found[1] for found in map(STAMP.match, text.splitlines()) if found]
    assert set(levels) >= {"DEBUG", "INFO", "ERROR"}
    assert re.search(r" DEBUG dpcompare 0\.1\.0, jax ", text)
    assert " DEBUG failing epsilon 1.0 seed 0: failed: ValueError" in text
    assert "Traceback (most recent call last)" in text
    assert " INFO Trials: 1 done, 1 failed" in text
    assert " ERROR failed trials: 1." in text
    assert "\x1b" not in text


def test_a_log_file_is_appended_to_and_holds_any_letter(call, tmp_path, monkeypatch):
    log = tmp_path / "log.txt"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(catalog, "studies", lambda: ["größer", "ε"])
    for count in (1, 2):
        assert call("-q", "--log-file", log, "list", "studies")[1] == "größer\nε\n"
        text = log.read_text(encoding="utf-8")
        assert text.count(" RESULT größer\n") == count
        assert "\x1b" not in text


def test_what_libraries_warn_of_is_in_the_log_and_still_shown(started, capsys, tmp_path):
    terminal.log_to(tmp_path / "log.txt")
    logging.getLogger("some.library").warning("beware")
    logging.getLogger("some.library").info("hello")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)  # as log_to has done, outside of pytest's own capture
        warnings.warn("a number is odd", stacklevel=1)
        logging.captureWarnings(False)
    text = (tmp_path / "log.txt").read_text()
    assert " WARNING beware" in text
    assert "a number is odd" in text
    assert "hello" not in text
    assert capsys.readouterr().err.count("beware") == 1


def test_a_log_file_on_a_full_disk_ends_with_one_warning(call):
    if not Path("/dev/full").exists():
        pytest.skip("this machine has no device that is always full")
    code, out, err = call("list", "schemas", "--log-file", "/dev/full")
    assert code == 0
    assert "criteo-kaggle" in out
    assert err == (
        "Warning: --log-file /dev/full cannot be written any more: No space left on device; "
        "what follows is not in it\n"
    )


def test_a_log_file_that_cannot_be_is_wrong_usage(call, tmp_path):
    for path in (tmp_path, tmp_path / "no" / "log.txt"):
        code, out, err = call("list", "studies", "--log-file", path)
        assert (code, out) == (2, "")
        assert f"--log-file {path} cannot be written: " in err


def test_the_failures_of_worker_processes_are_in_the_log(tmp_path, study):
    """With a process that really is one."""
    log = tmp_path / "log.txt"
    done = subprocess.run(
        [sys.executable, "-c", "from dpcompare.cli import main; main()", "run-study", str(study),
         "--out", str(tmp_path / "results"), "--workers", "1", "--log-file", str(log), "-q"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    text = log.read_text()
    assert " DEBUG failing epsilon 1.0 seed 0: starts\n" in text
    assert " DEBUG failing epsilon 1.0 seed 0: failed: ValueError" in text
    assert re.search(r'File ".*failing\.py", line \d+, in calibrate', text)


def test_nothing_is_said_twice_where_a_library_gives_the_root_logger_a_handler(capsys, started):
    root = logging.getLogger()
    before = list(root.handlers)
    handler = logging.StreamHandler(sys.stderr)  # as absl does when it warns for the first time
    root.addHandler(handler)
    try:
        terminal.result("a result\n")
        terminal.LOG.error("a failure")
    finally:
        root.removeHandler(handler)
    assert root.handlers == before
    assert capsys.readouterr() == ("a result\n", "Error: a failure\n")
