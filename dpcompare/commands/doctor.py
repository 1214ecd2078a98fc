"""`dpcompare doctor`: is this machine fit for dpcompare?"""

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.errors import DpcompareError


@click.command()
@json_option()
def doctor(as_json: bool) -> None:
    """Versions, machine, plug-ins and a self-test, to paste.

    Each line is ok, a warning or a problem; a problem gives exit code 1. Home folders are shown as
    ~, and user names and secrets are left out, so that the output can be part of a bug report.

    \b
    Example:
      dpcompare doctor --json
      dpcompare doctor
    """
    from dpcompare.doctor import Finding, as_report, findings

    found: list[Finding] = []
    for finding in findings():
        found.append(finding)
        if not as_json:
            status = terminal.colored(finding.status) + " " * (9 - len(finding.status))
            subject = f"{finding.topic}: {finding.name}"
            terminal.result(f"{status}{subject:<36} {finding.value}")
    if as_json:
        print_json(as_report(found))
    problems = [f"{one.topic}: {one.name}" for one in found if one.status == "problem"]
    if problems:
        raise DpcompareError(
            f"{len(problems)} of {len(found)} findings are problems: {', '.join(problems)}"
        )
