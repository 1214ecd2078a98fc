"""Figures, drawn from the records of a study alone.

One file per kind of figure; to add one, write a function from records to a figure and the numbers
in it, and name it in :data:`FIGURES`.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from dpcompare.catalog import near_miss
from dpcompare.errors import UsageError
from dpcompare.figures.accountants import accountants
from dpcompare.figures.attack_power import attack_power
from dpcompare.figures.clip_norm import clip_norm
from dpcompare.figures.effective_sample_size import effective_sample_size
from dpcompare.figures.groups import groups
from dpcompare.figures.large_batch import large_batch
from dpcompare.figures.noise_vs_batch import noise_vs_batch
from dpcompare.figures.sampling import sampling
from dpcompare.figures.selection_cost import selection_cost
from dpcompare.figures.style import FORMATS, NothingToDraw, render
from dpcompare.figures.training_rows import training_rows
from dpcompare.figures.utility import utility
from dpcompare.results import ResultsFolder, write_atomically
from dpcompare.summary import Records

__all__ = ["FIGURES", "FORMATS", "NothingToDraw", "check", "draw"]

FIGURES: dict[str, Callable[[Records], tuple[Figure, pd.DataFrame]]] = {
    "utility": utility,
    "effective-sample-size": effective_sample_size,
    "training-rows": training_rows,
    "clip-norm": clip_norm,
    "large-batch": large_batch,
    "groups": groups,
    "noise-vs-batch": noise_vs_batch,
    "accountants": accountants,
    "sampling": sampling,
    "selection-cost": selection_cost,
    "attack-power": attack_power,
}
"""From the name of each kind of figure to the function that draws it.

:meta hide-value:
"""


def draw(
    folder: ResultsFolder,
    ids: Iterable[str] | None = None,
    figure: str | None = None,
    formats: Sequence[str] = ("png", "svg"),
) -> list[Path]:
    """Draw the figures of a results folder anew.

    Beside every figure ``<name>.csv`` holds exactly the numbers in it. Equal records give equal
    files, byte for byte, with equal versions of the libraries.

    Args:
        folder: the results folder; files go to its ``figures/``.
        ids: the trials of the present study, see :meth:`ResultsFolder.records`.
        figure: a key of :data:`FIGURES`, as the study names it; None draws all that the records
            can give.
        formats: of `FORMATS`.

    Returns:
        The files written.

    Raises:
        UsageError: the figure or a format is unknown.
        NothingToDraw: the records lack what the figure shows, or what any figure shows; no file
            is touched.
        DpcompareError: there are no records, or a file cannot be written.
    """
    check(figure, formats)
    records = folder.records(ids)
    contents: dict[Path, bytes] = {}
    drawn = {figure: FIGURES[figure](records)} if figure else _all_possible(records)
    for name, (drawing, numbers) in drawn.items():
        for form in formats:
            contents[folder.figures / f"{name}.{form}"] = render(drawing, form)
        contents[folder.figures / f"{name}.csv"] = numbers.to_csv(index=False).encode()
    for path, content in contents.items():
        write_atomically(path, content)
    return list(contents)


def check(figure: str | None, formats: Sequence[str]) -> None:
    """Refuse names that :func:`draw` does not know.

    Raises:
        UsageError: the figure or a format is unknown.
    """
    if figure is not None and figure not in FIGURES:
        raise UsageError(
            f"figure {figure!r} is unknown{near_miss(figure, FIGURES)}; there are: "
            f"{', '.join(FIGURES)}"
        )
    if unknown := sorted(set(formats) - set(FORMATS)):
        raise UsageError(f"format {unknown[0]!r} is unknown; there are: {', '.join(FORMATS)}")


def _all_possible(records: Records) -> dict[str, tuple[Figure, pd.DataFrame]]:
    drawn, reasons = {}, []
    for name, function in FIGURES.items():
        try:
            drawn[name] = function(records)
        except NothingToDraw as error:
            reasons.append(error)
    if not drawn:
        raise reasons[0]
    return drawn
