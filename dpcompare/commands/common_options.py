"""Options that many commands have, and the JSON that some of them print."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from dpcompare import terminal
from dpcompare.results import to_json


def json_option(what: str = "one JSON object") -> Callable[[Any], Any]:
    """The option ``--json``, given to the command as `as_json`; messages make way for it."""
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        callback=_when_given(lambda value: terminal.only_results_on_output()),
        help=f"Print {what}; messages go to standard error.",
    )


def terminal_options() -> list[click.Option]:
    """``--quiet``, ``--verbose`` and ``--log-file``; they act on their own."""
    return [
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            expose_value=False,
            callback=_when_given(lambda value: terminal.be_quiet()),
            help="Show results, warnings and errors only.",
        ),
        click.Option(
            ["-v", "--verbose"],
            is_flag=True,
            expose_value=False,
            callback=_when_given(lambda value: terminal.be_verbose()),
            help="Show details: versions, each trial, timings, tracebacks.",
        ),
        click.Option(
            ["--log-file"],
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_when_given(terminal.log_to),
            help="Append everything, details included, to this file.",
        ),
    ]


def _when_given(act: Callable[[Any], None]) -> Callable[[click.Context, Any, Any], Any]:
    def callback(context: click.Context, parameter: Any, value: Any) -> Any:
        if value and not context.resilient_parsing:  # completion parses too
            act(value)
        return value

    return callback


def print_json(value: Any) -> None:
    """Print strict JSON on one line, in the form of :func:`dpcompare.results.to_json`."""
    plain = to_json(value, "the output")
    terminal.result(json.dumps(plain, allow_nan=False, ensure_ascii=False))
