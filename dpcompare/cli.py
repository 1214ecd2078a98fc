"""The command line: the commands together, and how their failures end."""

import os
import sys

import click

from dpcompare import __version__
from dpcompare.commands.calibrate import calibrate
from dpcompare.commands.check_mechanism import check_mechanism
from dpcompare.commands.compare import compare
from dpcompare.commands.list_names import list_names
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

    Exit codes: 0 success, 1 failure, 2 usage, 130 interrupted.
    """
    try:
        code = cli.main(args=arguments, prog_name="dpcompare", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted. What was finished is kept; the same command goes on.", err=True)
        sys.exit(INTERRUPTED)
    except DpcompareError as error:
        _fail(str(error), error.exit_code)
    except BrokenPipeError:  # the reader of our output has gone, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (OSError, MemoryError) as error:
        _fail(str(error) or type(error).__name__, 1)
    except Exception as error:
        if os.environ.get("DPCOMPARE_TRACEBACK"):
            raise
        _fail(
            f"{type(error).__name__}: {error}. This is a defect in dpcompare or in a plug-in; set "
            "DPCOMPARE_TRACEBACK=1 to see where",
            1,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpcompare")
def cli() -> None:
    """What each way of being private costs an ads model.

    Trains one model under several privacy mechanisms at epsilons from 0.1 to 50 and draws the
    utility curves. Random numbers are reproducible from published seeds: good for research, not
    for a release whose noise must stay secret.

    Start with:  dpcompare run-study quickstart
    """


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
    list_names,
    show,
)
for command in COMMANDS:
    cli.add_command(command)
