"""`dpcompare completion`: the script that makes a shell complete commands, options and names."""

from typing import Any

import click
from click.shell_completion import get_completion_class

from dpcompare import terminal

PROGRAM = "dpcompare"
VARIABLE = "_DPCOMPARE_COMPLETE"
"""The environment variable by which the script asks for completions."""


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes names in a shell.

    Commands, options, and the names of studies, mechanisms and schemas are completed. Load it in
    the start-up file of the shell: for bash in ~/.bashrc, for zsh in ~/.zshrc after compinit, with

    \b
      eval "$(dpcompare completion bash)"

    and for fish in ~/.config/fish/config.fish, with

    \b
      dpcompare completion fish | source

    \b
    Example:
      dpcompare completion bash
    """
    maker: Any = get_completion_class(shell)
    terminal.result(maker(context.find_root().command, {}, PROGRAM, VARIABLE).source())
