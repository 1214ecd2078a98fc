"""`dpcompare new-mechanism`: a mechanism to start from."""

import shlex
from pathlib import Path
from typing import Literal

import click
import tomli_w

from dpcompare import terminal


@click.command("new-mechanism")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["label", "gradient"]),
    default="label",
    show_default=True,
    help="What gets the noise: each label, once, or the gradients, at every step.",
)
@click.option("--file", "one_file", is_flag=True, help="Write the mechanism alone: one file.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    default=Path("."),
    help="Where to write it [default: the current folder].",
)
def new_mechanism(name: str, kind: Literal["label", "gradient"], one_file: bool, out: Path) -> None:
    """Write a mechanism to start from: a small package that works, with tests and a study.

    NAME is in lower case with hyphens. Nothing that is already there is overwritten.

    \b
    Example:
      dpcompare new-mechanism my-mechanism
      dpcompare new-mechanism my-clipping --kind gradient
      dpcompare new-mechanism my-noise --file
    """
    from dpcompare import new_mechanism as templates

    names = templates.Names.of(name)
    if one_file:
        file = templates.write_file(name, kind, out)
        named = f"{file if file.is_absolute() else f'./{file}'}:{names.class_name}"
        terminal.result(f"wrote {file}\n")
        quoted = shlex.quote(named)
        terminal.result(f"dpcompare show {quoted}{' --epsilon 1' if kind == 'label' else ''}")
        terminal.result(f"dpcompare check-mechanism {quoted}\n")
        in_toml = tomli_w.dumps({"name": named}).rstrip()
        terminal.result(f"In a study that runs from this folder:\n{in_toml}")
        return
    folder = templates.write_package(name, kind, out)
    terminal.result(
        f"wrote {folder}: {', '.join(sorted(file.name for file in folder.iterdir()))}\n"
    )
    terminal.result(
        f"cd {shlex.quote(str(folder))}\npip install -e .\npytest\ndpcompare run-study study.toml\n"
    )
    terminal.result(f"{folder / 'README.md'} says what to edit, in which order.")
