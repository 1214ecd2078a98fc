"""`dpcompare show`: one mechanism, study or schema."""

import click

from dpcompare import catalog
from dpcompare.commands.parameter_types import Number
from dpcompare.errors import UsageError


@click.command()
@click.argument("name")
@click.option("--epsilon", type=Number(), help="Print the label kernel at this epsilon instead.")
@click.option("--task", default="pctr", show_default=True, help="Whose labels: pctr, pcvr, pconvs.")
@click.option("--cap", type=click.IntRange(1), help="Largest count of pconvs that is kept.")
@click.option(
    "--base-rate", type=Number(), help="Mean label of the prior to show, if it needs one."
)
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
def show(
    name: str,
    epsilon: float | None,
    task: str,
    cap: int | None,
    base_rate: float | None,
    parameters: tuple[str, ...],
) -> None:
    """A mechanism's description and parameters, or the text of a study or schema.

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
            click.echo(text[name].read_text(), nl=False)
            return
    known = [*catalog.mechanisms(), *catalog.studies(), *catalog.schemas()]
    if name not in known and ":" not in name:
        raise UsageError(
            f"{name!r} is no mechanism, study or schema{catalog.near_miss(name, known)}; "
            f"there are: {', '.join(known)}"
        )
    from dpcompare import mechanism, tasks

    plugin = mechanism.find(name)
    if epsilon is None:
        click.echo(mechanism.describe(plugin), nl=False)
        return
    from dpcompare.label_table import label_table, parse_parameters

    chosen = tasks.find(task, cap)
    click.echo(
        label_table(plugin, epsilon, chosen, parse_parameters(parameters), base_rate), nl=False
    )
