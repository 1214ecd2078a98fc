"""`dpcompare audit`: a lower bound on epsilon by attack."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dpcompare import catalog, terminal
from dpcompare.catalog import near_miss
from dpcompare.commands.common_options import json_option
from dpcompare.commands.parameter_types import Number
from dpcompare.errors import DpcompareError, UsageError

if TYPE_CHECKING:
    from dpcompare.audit.finding import Finding


@click.command()
@click.argument("target", metavar="RESULTS|MECHANISM")
@click.option("--epsilon", type=Number(), help="To calibrate a mechanism for  [default: 1]")
@click.option(
    "--canaries", type=click.IntRange(1000), default=100_000, show_default=True, help="At most."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--task", help="Whose labels: pctr, pcvr, pconvs  [default: pctr]")
@click.option("--cap", type=click.IntRange(1), help="Largest count of pconvs that is kept.")
@click.option("-p", "parameters", multiple=True, metavar="NAME=VALUE", help="A parameter.")
@json_option()
def audit(
    target: str,
    epsilon: float | None,
    canaries: int,
    seed: int,
    task: str | None,
    cap: int | None,
    parameters: tuple[str, ...],
    as_json: bool,
) -> None:
    """Attack what runs, and hold the epsilon that the attack shows against the one claimed.

    MECHANISM is an installed mechanism or ./file.py:Class; it is attacked at one epsilon, with all
    rows in every step. RESULTS is a results folder: every claim in it is attacked, with the noise
    and sampling of its trials, and audit.json and figures/audit.png are written there. Exit code 1
    if a claim is violated. Needs: pip install 'dpcompare[audit]'.

    \b
    Example:
      dpcompare audit dp-sgd --epsilon 1
      dpcompare audit randomized-response --task pconvs --cap 5
      dpcompare audit results/quickstart
    """
    is_folder = Path(target).is_dir() and target not in _mechanisms()
    if is_folder and (epsilon or task or cap or parameters):
        raise UsageError("--epsilon, --task, --cap and -p go with a mechanism, not with results")
    if is_folder:
        findings = _of_results(Path(target), canaries, seed)
    else:
        findings = [_of_mechanism(target, epsilon or 1.0, canaries, seed, task, cap, parameters)]
    _print(findings, seed, as_json)
    if is_folder and not any(_attacked(findings)):
        raise DpcompareError(
            f"no claim of {target} could be attacked, and nothing was written: "
            f"{findings[0].notes[0]}"
        )
    from dpcompare.audit.text import violations

    if told := violations(findings):
        raise DpcompareError(
            f"{len(told)} of {len(findings)} claims violated: {'; '.join(told)}. An audit of true "
            "claims says so once in 1,000 times at most"
        )


def _attacked(findings: "list[Finding]") -> list[bool]:
    from dpcompare.audit.finding import NOT_ATTACKED

    return [finding.verdict != NOT_ATTACKED for finding in findings]


def _mechanisms() -> list[str]:
    return list(catalog.mechanisms())


def _of_mechanism(
    name: str,
    epsilon: float,
    canaries: int,
    seed: int,
    task: str | None,
    cap: int | None,
    parameters: tuple[str, ...],
) -> "Finding":
    if name not in _mechanisms() and ":" not in name:
        raise UsageError(
            f"{name!r} is no results folder and no mechanism{near_miss(name, _mechanisms())}; "
            "installed mechanisms are: "
            f"{', '.join(_mechanisms())}. A file is named as ./my_mechanism.py:MyMechanism"
        )
    from dpcompare import mechanism, tasks
    from dpcompare.audit.claims import audit_mechanism
    from dpcompare.label_table import parse_parameters

    plugin, chosen = mechanism.find(name), tasks.find(task or "pctr", cap)
    terminal.say(f"attacking {name} at epsilon {epsilon:g}")
    return audit_mechanism(plugin, parse_parameters(parameters), epsilon, chosen, canaries, seed)


def _of_results(path: Path, canaries: int, seed: int) -> "list[Finding]":
    from dpcompare.audit import figure, record
    from dpcompare.audit.claims import audit_results
    from dpcompare.figures.style import NothingToDraw
    from dpcompare.results import ResultsFolder

    record.check_writable(path)
    findings = audit_results(path, canaries, seed, terminal.say)
    if not any(_attacked(findings)):
        return findings
    written = [record.write(path, findings, seed)]
    folder = ResultsFolder(path)
    title = str(folder.records(folder.plan())[0]["title"])
    try:
        written += figure.draw(path, findings, title)
    except NothingToDraw as nothing:
        terminal.say(f"No figure: {nothing}.")
        for file in figure.remove(path):
            terminal.say(f"removed {file}, which was of an earlier audit")
    for file in written:
        terminal.say(f"wrote {file}")
    return findings


def _print(findings: "list[Finding]", seed: int, as_json: bool) -> None:
    from dpcompare.audit import record, text

    terminal.result(record.to_text(findings, seed) if as_json else text.table(findings))
