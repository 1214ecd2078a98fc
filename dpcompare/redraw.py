"""Figures, tables and the terminal table of a results folder, from its records alone.

Nothing that trains is imported here.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path

from dpcompare import figures, tables, wording
from dpcompare.results import ResultsFolder, Say
from dpcompare.summary import write_summary


def show(
    path: Path, say: Say, figure: str | None = None, formats: Sequence[str] = ("png", "svg")
) -> None:
    """Redraw figures, tables and summary.csv of a results folder from its records alone.

    Args:
        path: the results folder.
        say: receives lines for the user.
        figure: draw this one; "all" is all that the records can give, None the one that the study
            asks for.
        formats: of the figures.

    Raises:
        DpcompareError: there are no records, or they cannot be read.
    """
    figures.check(None if figure == "all" else figure, formats)
    folder = ResultsFolder(path)
    ids = folder.plan()
    records = folder.records(ids)
    for warning in folder.warning_lines():
        say(warning)
    if ids is not None and (lacking := len(set(ids)) - len(records)):
        say(f"Warning: {lacking} planned trials have no record yet; run the study again.")
    summary = write_summary(folder, ids)
    say(wording.table(summary))
    say(wording.crossing_sentences(records))
    drawn: list[Path] = []
    try:
        wanted = None if figure == "all" else figure or _figure_of(folder)
        drawn = figures.draw(folder, ids, wanted, formats)
    except figures.NothingToDraw as nothing:
        if figure is not None:
            raise
        say(f"No figure: {nothing}.")
    written = tables.write(folder, ids)
    for file in [*drawn, folder.summary]:
        say(f"wrote {file}")
    say(f"wrote {len(written)} tables to {folder.path / 'tables'}")


def _figure_of(folder: ResultsFolder) -> str | None:
    """What kind of figure the study of a results folder asks for; None if it cannot be read."""
    try:
        kind = tomllib.loads(folder.study.read_text(encoding="utf-8"))["figure"]
    except (OSError, ValueError, KeyError):
        return None
    return str(kind)
