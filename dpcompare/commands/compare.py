"""`dpcompare compare`: two results folders side by side."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from dpcompare import terminal
from dpcompare.commands.common_options import json_option, print_json


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@json_option()
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Two results folders side by side: settings and scores.

    First what differs in settings, data, code and libraries, then every curve at every epsilon in
    both, with the difference and its interval.

    \b
    Example:
      dpcompare compare results/quickstart results/pctr
    """
    from dpcompare.comparison import comparison_text

    if as_json:
        print_json(_comparison(a, b))
    else:
        terminal.result(comparison_text(a, b))


def _comparison(a: Path, b: Path) -> dict[str, Any]:
    """What :func:`dpcompare.comparison.compare` and ``differing_settings`` find."""
    from dpcompare.comparison.metric import compared
    from dpcompare.comparison.settings import differing
    from dpcompare.comparison.sides import read_sides

    first, second = read_sides(a, b)
    return {
        "a": str(a),
        "b": str(b),
        "metric": first.metric,
        "differing_settings": [asdict(difference) for difference in differing(first, second)],
        "curves": compared(first, second).to_dict("records"),
        "warnings": [*first.warnings, *second.warnings],
    }
