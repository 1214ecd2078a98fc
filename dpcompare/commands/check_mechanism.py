"""`dpcompare check-mechanism`: does a mechanism keep what it promises?"""

import shutil
import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.errors import DpcompareError

if TYPE_CHECKING:  # importing the checks takes seconds that --help need not wait for
    from dpcompare.testing import Outcome

STATUSES = ("passed", "failed", "not applicable")
NARROWEST = 45
"""Characters that a reason needs beside the name of its check; with less it stands below."""


@click.command("check-mechanism")
@click.argument("name")
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@json_option("one JSON array")
def check_mechanism(name: str, parameters: tuple[str, ...], as_json: bool) -> None:
    """Hold the mechanism NAME to the contract, and say what holds and what does not.

    NAME is an installed mechanism or ./file.py:Class. It is checked on made-up data, in a minute
    or two. A passed check is evidence, not a proof: docs/checks.md says what each looks at, and
    what no check can see. Exit code 1 if any fails.

    \b
    Example:
      dpcompare check-mechanism dp-sgd
      dpcompare check-mechanism ./my_mechanism.py:MyMechanism -p clip_norm=0.5
    """
    from dpcompare.label_table import parse_parameters
    from dpcompare.testing import CHECKS, Subject, outcomes

    subject = Subject.of(name, **parse_parameters(parameters))
    subject.plugin.build(subject.parameters)  # a wrong parameter is said before anything runs
    found = []
    name_width = max((len(check.__name__.removeprefix("check_")) for check in CHECKS), default=0)
    for outcome in outcomes(subject):
        found.append(outcome)
        if not as_json:  # each as soon as it is known
            terminal.result(_told(outcome, name_width, shutil.get_terminal_size().columns))
    if as_json:
        print_json([outcome._asdict() for outcome in found])
    else:
        counts = Counter[str](outcome.status for outcome in found)
        terminal.result("\n" + ", ".join(f"{counts[status]} {status}" for status in STATUSES))
    failed = [outcome.check for outcome in found if outcome.status == "failed"]
    if failed:
        raise DpcompareError(
            f"{name} fails {len(failed)} of {len(found)} checks: {', '.join(failed)}"
        )
    if all(outcome.status == "not applicable" for outcome in found):
        raise DpcompareError(f"nothing of {name} could be checked: {found[0].reason}")


def _told(outcome: "Outcome", name_width: int, width: int) -> str:
    """One outcome in lines of at most `width` characters; what was promised too, if broken."""
    status_width = max(map(len, STATUSES))
    head = f"{outcome.status:<{status_width}}  {outcome.check:<{name_width}}  "
    broken = outcome.status == "failed"
    text = f"Not kept: {outcome.promise}. {outcome.reason}" if broken else outcome.reason
    beside = width - len(head) >= NARROWEST
    indent = " " * (len(head) if beside else 4)
    told = textwrap.fill(
        text,
        width,
        initial_indent=head if beside else indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    told = told if beside else f"{head.rstrip()}\n{told}"
    if outcome.status in terminal.STYLES:
        told = terminal.colored(outcome.status) + told.removeprefix(outcome.status)
    return told
