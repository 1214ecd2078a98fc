"""`dpcompare check-mechanism`: does a mechanism keep what it promises?"""

import json

import click

from dpcompare.errors import DpcompareError


@click.command("check-mechanism")
@click.argument("name")
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array.")
def check_mechanism(name: str, parameters: tuple[str, ...], as_json: bool) -> None:
    """Hold the mechanism NAME to the contract, and say what holds and what does not.

    NAME is an installed mechanism or ./file.py:Class. Made-up data of a few thousand rows; a
    minute or two. A passed check is evidence, not a proof.

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
    width = max((len(check.__name__.removeprefix("check_")) for check in CHECKS), default=0)
    for outcome in outcomes(subject):
        found.append(outcome)
        if not as_json:
            click.echo(f"{outcome.status:<14}  {outcome.check:<{width}}  {outcome.reason}")
    if as_json:
        click.echo(json.dumps([outcome._asdict() for outcome in found]))
    failed = [outcome.check for outcome in found if outcome.status == "failed"]
    if failed:
        raise DpcompareError(
            f"{name} fails {len(failed)} of {len(found)} checks: {', '.join(failed)}"
        )
