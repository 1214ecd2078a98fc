"""What commands say, and where it goes: the terminal, and a log file for whoever asks for one.

Everything is said through the logger ``dpcompare``, and its level decides:

- debug: details, shown with ``--verbose`` on standard error;
- info: messages, on standard output; silent with ``--quiet``, on standard error with ``--json``;
- warning and error: always on standard error;
- :data:`RESULT`: what the command was called for, always on standard output.

The log file gets all of it. What a library only logs reaches the terminal in the same way.
"""

import logging
import os
import re
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import click

from dpcompare.errors import UsageError

LOG = logging.getLogger("dpcompare")
RESULT = logging.WARNING + 5
"""The level of results: with ``--quiet`` they are still shown."""

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "dp-accounting", "numpy")
"""Whose versions details name."""

STYLES = {
    "Error:": {"fg": "red", "bold": True},
    "Warning:": {"fg": "yellow"},
    "ok": {"fg": "green"},
    "passed": {"fg": "green"},
    "warning": {"fg": "yellow"},
    "problem": {"fg": "red", "bold": True},
    "failed": {"fg": "red", "bold": True},
}
"""The only words that have a color."""

_OPENINGS = {logging.WARNING: "Warning: ", logging.ERROR: "Error: "}
_FAILED = re.compile(r"^(Error:|Warning:)|\b[1-9]\d* (failed)\b", re.MULTILINE)

logging.addLevelName(RESULT, "RESULT")


class _Screen(logging.Handler):
    """Shows what is logged on standard output and standard error, whatever these are by then."""

    messages_to_error = False

    def emit(self, record: logging.LogRecord) -> None:
        messages = record.levelno == logging.INFO and not self.messages_to_error
        to_error = record.levelno != RESULT and not messages
        text = _OPENINGS.get(record.levelno, "") + self.format(record)
        if to_error and errors_are_on_a_terminal():  # over a progress bar, which is on that line
            text = text.ljust(shutil.get_terminal_size().columns - 1)
        show(text, to_error=to_error)


class _LogFile(logging.FileHandler):
    """A log file that ends, with a warning, when it cannot be written any more: a run goes on."""

    def handleError(self, record: logging.LogRecord) -> None:  # logging's name
        """Tell why, once; logging itself would print a traceback for every line."""
        error = sys.exc_info()[1]
        logging.getLogger().removeHandler(self)
        reason = error.strerror if isinstance(error, OSError) else error
        LOG.warning(
            "--log-file %s cannot be written any more: %s; what follows is not in it",
            self.baseFilename,
            reason,
        )

    def close(self) -> None:
        """Close the file; what a full disk then refuses was told before."""
        with suppress(OSError):
            super().close()


class _Plain(logging.Formatter):
    """Without color."""

    def format(self, record: logging.LogRecord) -> str:
        return click.unstyle(super().format(record))


_screen = _Screen(logging.INFO)
_of_log_file: list[logging.Handler] = []


def start() -> None:
    """Forget what an earlier command of this process was told, and show messages and results."""
    stop()
    _screen.setLevel(logging.INFO)
    _screen.messages_to_error = False
    LOG.addHandler(_screen)
    LOG.setLevel(logging.DEBUG)
    LOG.propagate = False  # absl gives the root logger a handler, which would say all of it again


def stop() -> None:
    """Close the log file; from here on nothing is shown."""
    LOG.removeHandler(_screen)
    LOG.setLevel(logging.NOTSET)
    LOG.propagate = True
    if _of_log_file:
        logging.captureWarnings(False)
    for handler in _of_log_file:
        logging.getLogger().removeHandler(handler)
        handler.close()
    _of_log_file.clear()


def be_quiet() -> None:
    """Show results, warnings and errors only."""
    _refuse_both(logging.DEBUG)
    _screen.setLevel(logging.WARNING)


def be_verbose() -> None:
    """Show details too.

    Raises:
        UsageError: it shall be quiet already.
    """
    _refuse_both(logging.WARNING)
    _screen.setLevel(logging.DEBUG)
    _introduce()


def _refuse_both(level: int) -> None:
    if _screen.level == level:
        raise UsageError("--quiet and --verbose contradict each other; give one of them")


def is_quiet() -> bool:
    """Whether progress and messages are unwanted."""
    return _screen.level > logging.INFO


def only_results_on_output() -> None:
    """Send messages to standard error: standard output is for a program that reads JSON."""
    _screen.messages_to_error = True


def log_to(path: Path) -> None:
    """Append everything that is said from now on to a file, and what libraries warn of.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        file = _LogFile(path, mode="a", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log-file {path} cannot be written: {error.strerror}") from error
    file.setFormatter(_Plain("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%d %H:%M:%S%z"))
    # Libraries' warnings would no longer be shown, for Python does so where nothing handles them.
    others = logging.StreamHandler()
    others.setLevel(logging.WARNING)
    others.addFilter(lambda record: record.name.partition(".")[0] != LOG.name)
    for handler in (file, others):
        logging.getLogger().addHandler(handler)
        _of_log_file.append(handler)
    LOG.propagate = True
    logging.captureWarnings(True)
    _introduce()


def _introduce() -> None:
    """What runs, with the versions that matter."""
    versions = ", ".join(f"{name} {version(name)}" for name in ("dpcompare", *LIBRARIES))
    LOG.debug("%s, Python %s: %s", versions, python_version(), shlex.join(sys.argv[1:]))


def result(text: str) -> None:
    """Say what the command was called for; a line break at its end is not doubled."""
    LOG.log(RESULT, "%s", text.removesuffix("\n"))


def say(text: str) -> None:
    """Say a message, or a warning if it starts with "Warning: "."""
    opening = _OPENINGS[logging.WARNING]
    level = logging.WARNING if text.startswith(opening) else logging.INFO
    LOG.log(level, "%s", text.removeprefix(opening))


def show(text: str, to_error: bool = False, newline: bool = True) -> None:
    """Print, with color where that is wanted, and write no log."""
    if to_error:
        _to_error(painted(text), newline)
    else:
        click.echo(painted(text), nl=newline, color=color())


def progress(text: str, newline: bool = True) -> None:
    """Print how far something has come, on standard error."""
    _to_error(text, newline)


def _to_error(text: str, newline: bool) -> None:
    """Print on standard error; where its disk is full nobody can be told, and work goes on."""
    try:
        click.echo(text, err=True, nl=newline, color=color())
    except BrokenPipeError:  # whoever reads has gone
        raise
    except OSError:
        return


def errors_are_on_a_terminal() -> bool:
    """Whether standard error is a terminal; it can also be closed."""
    return sys.stderr is not None and sys.stderr.isatty()


def color() -> bool | None:
    """Whether the environment wants color; None leaves it to whether it is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None


def colored(word: str) -> str:
    """A word of :data:`STYLES` with its color, which printing takes away where it is unwanted."""
    return click.style(word, **STYLES[word])  # type: ignore[arg-type]


def painted(text: str) -> str:
    """A message with its opening word, and trials that failed, in color."""

    def paint(found: re.Match[str]) -> str:
        word = found[1] or found[2]
        return found[0].removesuffix(word) + colored(word)

    return _FAILED.sub(paint, text)
