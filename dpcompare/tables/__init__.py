"""Tables for papers, made from the records of a study alone, as Markdown, LaTeX and CSV.

One file per kind of table; to add one, write a function from records to tables and name it in
:data:`TABLES`.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from dpcompare.frame import trains
from dpcompare.results import ResultsFolder, write_atomically
from dpcompare.summary import Records
from dpcompare.tables.formats import FORMATS
from dpcompare.tables.metrics import metrics_table
from dpcompare.tables.noise import noise_table
from dpcompare.tables.relative_loss import relative_loss_table
from dpcompare.tables.sweep import sweep_calibration_table, sweep_table
from dpcompare.tables.table import Table

__all__ = ["TABLES", "Table", "tables", "write"]

TABLES: dict[str, Callable[[Records], Table | None]] = {
    "relative-loss": relative_loss_table,
    "metrics": metrics_table,
    "sweep": sweep_table,
    "sweep-calibration": sweep_calibration_table,
    "noise": noise_table,
}
"""From records to each table; None where they lack what it shows.

:meta hide-value:
"""

_UNTRAINED = ("noise",)


def tables(records: Records) -> Iterator[tuple[str, Table]]:
    """Name and content of every table that the records can give.

    Args:
        records: of one study, as :meth:`ResultsFolder.records` returns them.

    Raises:
        DpcompareError: there are no records.
    """
    trained = trains(records)
    for name, function in TABLES.items():
        if trained != (name in _UNTRAINED) and (table := function(records)):
            yield name, table


def write(folder: ResultsFolder, ids: Iterable[str] | None = None) -> list[Path]:
    """Write ``tables/<name>.md``, ``.tex`` and ``.csv`` of a results folder from its records.

    Equal records give equal files, byte for byte. A table that the records do not give any more is
    removed.

    Args:
        folder: the results folder.
        ids: the trials of the present study, see :meth:`ResultsFolder.records`.

    Returns:
        The files written.

    Raises:
        DpcompareError: there are no records, or a file cannot be written.
    """
    made = dict(tables(folder.records(ids)))
    written = []
    for name in TABLES:
        for form, text in FORMATS.items():
            path = folder.path / "tables" / f"{name}.{form}"
            if name in made:
                write_atomically(path, text(name, made[name]).encode())
                written.append(path)
            else:
                path.unlink(missing_ok=True)
    return written
