"""Preparation: raw logs become memory-mapped columns and a manifest, in one streaming pass.

One thread reads pieces of the files and appends rows to the columns; the work between, parsing and
converting, is done piece by piece on a thread for each core (numpy and pyarrow let go of Python's
lock while they compute). The result does not depend on how many there are.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcompare import __version__
from dpcompare.data.columns import ColumnWriter
from dpcompare.data.converted import Converted, converted
from dpcompare.data.dataset import load_prepared
from dpcompare.data.in_order import in_order
from dpcompare.data.leaks import refuse_known_leaks
from dpcompare.data.manifest import FORMAT, FormatError, Manifest, own_files, read_manifest
from dpcompare.data.parquet_source import read_parquet
from dpcompare.data.partial_folder import PartialFolder, State
from dpcompare.data.patterns import resolve
from dpcompare.data.schema import Schema, load_schema
from dpcompare.data.sources import START, Notes, Piece, Position, expand, kind_of
from dpcompare.data.text_source import read_text
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.runner import usable_cores

REPEATED_SHARE_WARNED = 0.05
MOST_THREADS = 8  # more would wait for the one that reads and writes

Progress = Callable[[int, float], None]
"""Told the rows prepared so far and the share of the source bytes read, 0 to 1."""


def prepare(
    schema: Schema | str | Path,
    sources: Sequence[Path],
    destination: Path,
    *,
    repair: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Manifest:
    """Turn raw files into a prepared folder that :func:`load_prepared` maps into memory.

    Files are read one after the other as text, gzip or Parquet, whatever their names say, in
    memory that does not grow with their size; at the end journeys alone need up to 80 bytes a row.

    Everything is written into a hidden folder beside the destination, which is renamed when it is
    complete: a destination exists whole or not at all. If the preparation is killed or interrupted,
    or the disk is full, the same request goes on from the last saved state, at most about half a
    minute earlier. The result is the same as without the interruption.

    Args:
        schema: what the columns are; or a bundled name, or the path of a .toml file.
        sources: files in time order; a folder of Parquet files stands for its files, also those in
            folders called name=value, and a pattern such as ``day_*.gz`` for what it matches.
        destination: the folder to make. An incomplete one is replaced; one that was made of the
            same files with the same schema is kept as it is.
        repair: pad text rows whose trailing fields are missing, instead of refusing them. How many
            were padded is in the manifest.
        progress: called after every batch; and before the first if an earlier preparation goes on.
        say: told in a sentence whether an earlier preparation goes on or is given up.

    Returns:
        The manifest, with its warnings.

    Raises:
        UsageError: the request is wrong: a missing source, a destination that is in use.
        DpcompareError: the data is wrong or damaged, and the message names file, line and column;
            a file changed while it was read; the disk is full; or another process is preparing the
            destination.
    """
    if not isinstance(schema, Schema):
        schema = load_schema(schema)
    files = expand(sources)
    schema = resolve(schema, files)
    refuse_known_leaks(schema.features, f"schema {schema.name}")
    request = _Request(schema, files, [_source_entry(file) for file in files], repair)
    partial = PartialFolder(destination)
    existing = _check_destination(destination, request)
    if existing is not None:
        partial.remove_leftover()
        return existing
    try:
        with partial.locked():
            existing = _check_destination(destination, request)
            if existing is not None:  # another process made it meanwhile
                return existing
            manifest, folder = _prepare(request, partial, progress, say or (lambda message: None))
            _replace(folder, destination)
    except OSError as error:
        kept = (
            f". What was done is kept in {partial.path}, and the same command goes on; remove that "
            "folder to give it up"
        )
        raise DpcompareError(
            f"cannot write {destination}: {error}" + (kept if partial.has_state else "")
        ) from error
    return manifest


@dataclass(frozen=True)
class _Request:
    """What is prepared and how; `entries` are the sources as the manifest lists them."""

    schema: Schema
    files: list[Path]
    entries: list[dict[str, Any]]
    repair: bool

    def identity(self) -> str:
        """A text that is equal for two requests with the same result."""
        content = [__version__, FORMAT, self.schema.content(), self.entries, self.repair]
        return json.dumps(content, sort_keys=True)

    def pieces(self, index: int, notes: Notes, start: Position) -> Iterator[Piece]:
        """The rows of a file."""
        file = self.files[index]
        kind = kind_of(file)
        if kind == "parquet":
            return read_parquet(file, self.schema, notes, start)
        return read_text(file, self.schema, kind == "gzip", self.repair, notes, start)

    def converted(self, piece: Piece) -> Converted:
        """The rows of a piece as they are stored."""
        return converted(piece.batch(), self.schema)

    def check_unchanged(self, index: int) -> None:
        """Refuse a file that is not what it was before it was read."""
        file, before = self.files[index], self.entries[index]
        try:
            now = _source_entry(file)
        except OSError as error:
            raise DpcompareError(f"{file} was removed while it was read: {error}") from error
        if now != before:
            raise DpcompareError(
                f"{file} changed while it was read: it had {before['bytes']:,} bytes and has "
                f"{now['bytes']:,} now. Prepare it when nobody writes to it any more"
            )


def _prepare(
    request: _Request, partial: PartialFolder, progress: Progress | None, say: Callable[[str], None]
) -> tuple[Manifest, Path]:
    """The manifest, and the folder that holds it and the columns."""
    identity = request.identity()
    state = partial.take_up(identity, say)
    with ColumnWriter(partial.read, request.schema, state and state["writer"]) as writer:
        reading = _Reading(request, writer, progress)
        if state is not None:
            reading.restore(state["reading"])
            say(f"going on after row {writer.rows:,} of an interrupted preparation")
            reading.report()
        with partial.saver(identity, writer.sync) as saver:
            for _ in reading.parts():
                if saver.is_due:
                    saver.save({"reading": reading.state(), "writer": writer.state()})
        _check_rows(request, writer)
        facts = writer.finish(partial.ordered)
    notes = reading.notes
    manifest = Manifest(
        format=FORMAT,
        schema=request.schema.content(),
        padded_rows=notes.padded_rows,
        repair=request.repair,
        warnings=_warnings(request.schema, facts, notes),
        sources=[
            entry | {"rows": rows}
            for entry, rows in zip(request.entries, reading.rows_of_files, strict=True)
        ],
        **facts,
    )
    manifest.write(writer.folder)
    return manifest, writer.folder


class _Reading:
    """Reads all files into a writer.

    Attributes:
        notes: what the user should know about the files.
        rows_of_files: the rows of each file that was read to its end.
    """

    def __init__(self, request: _Request, writer: ColumnWriter, progress: Progress | None) -> None:
        self.notes = Notes()
        self.rows_of_files: list[int] = []
        self._request, self._writer, self._progress = request, writer, progress
        self._position = START
        self._bytes_read = 0  # of the file at hand

    def parts(self) -> Iterator[None]:
        """Read everything that has not been read; pauses after each part."""
        threads = min(len(usable_cores()), MOST_THREADS)
        with ThreadPoolExecutor(threads) as pool:
            for index in range(len(self.rows_of_files), len(self._request.files)):
                try:
                    for _ in self._file(index, pool, 2 * threads):
                        yield
                except DpcompareError:
                    self._request.check_unchanged(index)  # that would be why
                    raise
                self._request.check_unchanged(index)
                self.rows_of_files.append(self._writer.rows - sum(self.rows_of_files))
                self._position, self._bytes_read = START, 0

    def _file(self, index: int, pool: ThreadPoolExecutor, ahead: int) -> Iterator[None]:
        pieces = self._request.pieces(index, self.notes, self._position)
        for piece, rows in in_order(pool, ahead, pieces, self._request.converted):
            self._writer.add(rows)
            self.notes.add_padded(rows.padded_rows, rows.first_padded)
            self._position, self._bytes_read = piece.end, piece.bytes_read
            self.report()
            if piece.bytes_read > self._request.entries[index]["bytes"]:
                self._request.check_unchanged(index)  # the end of a file that grows may never come
            yield

    def report(self) -> None:
        """Tell how far it has come."""
        if self._progress is not None:
            sizes = [entry["bytes"] for entry in self._request.entries]
            done = sum(sizes[: len(self.rows_of_files)]) + self._bytes_read
            self._progress(self._writer.rows, done / sum(sizes))

    def state(self) -> State:
        """What :meth:`restore` needs."""
        return {
            "rows_of_files": list(self.rows_of_files),
            "position": list(self._position),
            "bytes_read": self._bytes_read,
            "padded_rows": self.notes.padded_rows,
            "first_padded": self.notes.first_padded,
            "extra_columns": sorted(self.notes.extra_columns),
        }

    def restore(self, state: State) -> None:
        """Go on from a :meth:`state`."""
        self.rows_of_files = state["rows_of_files"]
        self._position, self._bytes_read = Position(*state["position"]), state["bytes_read"]
        self.notes = Notes(state["padded_rows"], state["first_padded"], set(state["extra_columns"]))


def _check_rows(request: _Request, writer: ColumnWriter) -> None:
    names = ", ".join(str(file) for file in request.files)
    if writer.rows == 0:
        raise DpcompareError(f"0 rows in {names}: there is nothing to prepare")
    for task in writer.tasks_without_rows():
        column = request.schema.tasks[task].rows
        raise DpcompareError(
            f"task {task} has no rows: column {column} is 0 in every row of {names}. Leave the "
            "task out of a copy of the schema"
        )


def _warnings(schema: Schema, facts: dict[str, Any], notes: Notes) -> list[str]:
    """What the user should know before training on these rows."""
    rows = facts["rows"]
    found = []
    if notes.padded_rows:
        found.append(
            f"repair: {notes.padded_rows:,} of {rows:,} rows lacked trailing fields and were "
            f"padded with missing values; the first is {notes.first_padded}"
        )
    if notes.extra_columns:
        names = ", ".join(sorted(name or "(unnamed)" for name in notes.extra_columns))
        found.append(f"columns that the schema does not list were left out: {names}")
    for task, label in facts["labels"].items():
        if label["min"] == label["max"]:
            found.append(
                f"{task}: every row has the label {label['min']:g}; AUC is not defined, and there "
                "is nothing to learn. Is this test data with a made-up label?"
            )
        if label["outside"]:
            found.append(
                f"{task}: rows in which {label['column']} is above 0 but that do not belong to the "
                f"task ({label['rule']}) were left out of it: {label['outside']:,}, the first is "
                f"{label['first_outside']}"
            )
    share = facts["repeated_share"]
    if share >= REPEATED_SHARE_WARNED:
        found.append(
            f"about {share:.0%} of the rows repeat another row exactly: each row occurs "
            f"{1 / (1 - share):.1f} times on average. A random split would leak, and if k copies "
            "come from one event, its privacy loss is k times what is stated"
        )
    if rows > 1:
        found.extend(_constant_columns(facts))
    if not schema.rows_in_time_order:
        found.append("the schema says that rows are not in time order; splits go by position")
    return found


def _constant_columns(facts: dict[str, Any]) -> list[str]:
    found = []
    for name, column in facts["numeric"].items():
        if column["min"] is None:
            found.append(f"column {name} has no values at all")
        elif column["min"] == column["max"] and column["missing"] == 0:
            found.append(f"column {name} has the value {column['min']:g} in every row")
    for name, column in facts["categorical"].items():
        if column["missing"] == 1:
            found.append(f"column {name} has no values at all")
        elif column["distinct"] == 1 and column["missing"] == 0:
            found.append(f"column {name} has one and the same value in every row")
    return found


def _source_entry(file: Path) -> dict[str, Any]:
    stat = file.stat()
    return {"name": file.name, "bytes": stat.st_size, "modified_ns": stat.st_mtime_ns}


def _check_destination(destination: Path, request: _Request) -> Manifest | None:
    """The manifest of a destination made by the same request; None if it may be written."""
    if not destination.exists():
        return None
    refused = f"{destination} exists already; remove it or choose another destination"
    if not destination.is_dir():
        raise UsageError(refused)
    names = {entry.name for entry in destination.iterdir()}
    if not names <= own_files():
        raise UsageError(refused)
    try:
        load_prepared(destination)
        manifest = read_manifest(destination)
    except FormatError as error:
        raise UsageError(f"{refused}. It was prepared by another version: {error}") from error
    except DpcompareError:
        return None  # incomplete, and nothing but our own files
    before = [
        {key: entry[key] for key in ("name", "bytes", "modified_ns")} for entry in manifest.sources
    ]
    asked = (request.schema, request.repair, request.entries)
    if (manifest.restored_schema(), manifest.repair, before) == asked:
        return manifest
    raise UsageError(f"{refused}. It holds {manifest.rows:,} prepared rows of {manifest.name}")


def _replace(folder: Path, destination: Path) -> None:
    """Put the complete folder in place of an absent or incomplete destination."""
    if destination.exists():
        shutil.rmtree(destination)
    folder.rename(destination)
