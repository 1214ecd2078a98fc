"""`dpcompare show`: one mechanism, study or schema."""

import tomllib

import click

from dpcompare import catalog, terminal
from dpcompare.commands.common_options import json_option, print_json
from dpcompare.commands.name_types import ANYTHING
from dpcompare.commands.parameter_types import Number
from dpcompare.errors import UsageError


@click.command()
@click.argument("name", type=ANYTHING)
@click.option("--epsilon", type=Number(), help="Print the label kernel at this epsilon instead.")
@click.option("--task", default="pctr", show_default=True, help="Whose labels: pctr, pcvr, pconvs.")
@click.option("--cap", type=click.IntRange(1), help="Largest count of pconvs that is kept.")
@click.option(
    "--base-rate", type=Number(), help="Mean label of the prior to show, if it needs one."
)
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@json_option()
def show(
    name: str,
    epsilon: float | None,
    task: str,
    cap: int | None,
    base_rate: float | None,
    parameters: tuple[str, ...],
    as_json: bool,
) -> None:
    """A mechanism with its parameters, a study or a schema.

    With --epsilon, what a label mechanism does to each label: the chance of every output, its bias
    and variance, and the worst likelihood ratio.

    \b
    Example:
      dpcompare show dp-sgd
      dpcompare show randomized-response --epsilon 1
      dpcompare show unbiased-randomizer --epsilon 1 --task pconvs --cap 2 -p prior=[0.9,0.07,0.03]
    """
    if epsilon is None and (task != "pctr" or cap or base_rate or parameters):
        raise UsageError("--task, --cap, --base-rate and -p go with --epsilon")
    for text in (catalog.studies(), catalog.schemas()):
        if name in text:
            if epsilon is not None:
                raise UsageError(f"--epsilon is for mechanisms, and {name!r} is none")
            content = text[name].read_text(encoding="utf-8")
            if as_json:
                print_json(tomllib.loads(content))
            else:
                terminal.result(content)
            return
    known = [*catalog.mechanisms(), *catalog.studies(), *catalog.schemas()]
    if name not in known and ":" not in name:
        raise UsageError(
            f"{name!r} is no mechanism, study or schema{catalog.near_miss(name, known)}; "
            f"there are: {', '.join(known)}. A mechanism in a file is named as "
            "./my_mechanism.py:MyMechanism"
        )
    from dpcompare import mechanism, mechanism_report, tasks

    plugin = mechanism.find(name)
    if epsilon is None:
        if as_json:
            print_json(mechanism_report.described(plugin))
        else:
            terminal.result(mechanism.describe(plugin))
        return
    from dpcompare.label_table import label_table, parse_parameters

    asked = plugin, epsilon, tasks.find(task, cap), parse_parameters(parameters), base_rate
    if as_json:
        print_json(mechanism_report.on_labels(*asked))
    else:
        terminal.result(label_table(*asked))
