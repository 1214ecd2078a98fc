"""The command line: the commands together, and how their failures end."""

import io
import os
import signal
import sys
import threading
from time import monotonic
from typing import Any

import click

from dpcompare import __version__, terminal
from dpcompare.commands.audit import audit
from dpcompare.commands.calibrate import calibrate
from dpcompare.commands.check_mechanism import check_mechanism
from dpcompare.commands.common_options import terminal_options
from dpcompare.commands.compare import compare
from dpcompare.commands.completion import PROGRAM, VARIABLE, completion
from dpcompare.commands.doctor import doctor
from dpcompare.commands.list_names import list_names
from dpcompare.commands.name_types import MECHANISM, STUDY
from dpcompare.commands.new_mechanism import new_mechanism
from dpcompare.commands.plot import plot
from dpcompare.commands.predict import predict
from dpcompare.commands.prepare import prepare
from dpcompare.commands.report import report
from dpcompare.commands.run_study import run_study
from dpcompare.commands.show import show
from dpcompare.commands.train import train
from dpcompare.errors import DpcompareError

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every failure is one message on standard error and an exit code.

    Exit codes: 0 success, 1 failure, 2 usage, 130 interrupted; a study that SIGTERM ends has 143.
    """
    started = monotonic()
    terminal.start()
    hook, sys.unraisablehook = sys.unraisablehook, _unraisable
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
        terminal.LOG.debug("exit code %d after %.1f s", code, monotonic() - started)
    finally:
        terminal.stop()
        sys.unraisablehook = hook
    sys.exit(code)


def _unraisable(lost: "sys.UnraisableHookArgs") -> None:
    """What went wrong where exceptions go nowhere, as in callbacks: a Ctrl-C is repeated."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        main_thread = threading.main_thread().ident
        # Not from here: this is one of those callbacks.
        again = threading.Timer(0.05, signal.pthread_kill, (main_thread, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        what = (lost.exc_type, lost.exc_value, lost.exc_traceback)
        terminal.LOG.debug("ignored, in %r:", lost.object, exc_info=what)  # type: ignore[arg-type]


def _run(arguments: list[str]) -> int:
    try:
        code = cli.main(
            args=arguments, prog_name=PROGRAM, complete_var=VARIABLE, standalone_mode=False
        )
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        terminal.show(message.getvalue(), to_error=True, newline=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        terminal.show(
            "Interrupted. What was finished is kept; the same command goes on.", to_error=True
        )
        return INTERRUPTED
    except DpcompareError as error:
        return _failed(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, MemoryError) as error:
        terminal.LOG.debug("where it failed:", exc_info=True)
        return _failed(_told(error), 1)
    except Exception as error:
        if os.environ.get("DPCOMPARE_TRACEBACK"):
            raise
        terminal.LOG.debug("where it failed:", exc_info=True)
        return _failed(
            f"{type(error).__name__}: {error}. This is a defect in dpcompare or in a plug-in; "
            "--verbose or DPCOMPARE_TRACEBACK=1 shows where",
            1,
        )


def _told(error: OSError | MemoryError) -> str:
    try:
        os.getcwd()
    except OSError:
        return "the current folder is not there any more; change to another one"
    return str(error) or type(error).__name__


def _failed(message: str, code: int) -> int:
    terminal.LOG.error("%s", message)
    return code


class _Commands(click.Group):
    """Commands, shown in sections."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        terminal.start()
        return super().make_context(*args, **kwargs)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        in_sections = [name for names in SECTIONS.values() for name in names]
        others = [name for name in self.list_commands(ctx) if name not in in_sections]
        for title, names in {**SECTIONS, "Other commands": others}.items():
            there = [(name, self.commands[name]) for name in names if name in self.commands]
            if there:
                with formatter.section(title):
                    formatter.write_dl([(name, c.get_short_help_str(200)) for name, c in there])


@click.group(
    cls=_Commands,
    params=terminal_options(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(context: click.Context) -> None:
    """What each way of being private costs an ads model.

    Trains one model under several privacy mechanisms at epsilons from 0.1 to 50 and draws the
    utility curves. Studies are reproducible from published seeds; a model for release needs
    `dpcompare train --secret-seed`.

    Start with:  dpcompare run-study quickstart

    \b
    Exit codes:
      0    success
      1    failure: failed trials, a damaged file, a full disk
      2    wrong usage: an unknown name, a value out of range
      130  interrupted by Ctrl-C; the same command goes on
      143  ended by SIGTERM; the same command goes on
    """
    context.color = terminal.color()


SECTIONS = {
    "Studies": ("run-study", "plot", "report", "compare"),
    "Models": ("train", "predict"),
    "Data": ("prepare",),
    "Mechanisms": ("new-mechanism", "check-mechanism", "audit", "calibrate"),
    "Help": ("list", "show", "doctor", "completion"),
}
"""Where the help of the group names each command; the others come last."""

COMMANDS = (
    run_study,
    plot,
    report,
    compare,
    train,
    predict,
    prepare,
    calibrate,
    new_mechanism,
    check_mechanism,
    audit,
    list_names,
    show,
    doctor,
    completion,
)
for command in COMMANDS:
    command.params += terminal_options()
    cli.add_command(command)
for command, argument, kind in (
    (check_mechanism, "name", MECHANISM),
    (train, "study", STUDY),
):
    for parameter in command.params:
        if parameter.name == argument:
            parameter.type = kind
