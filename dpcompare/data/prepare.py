"""Preparation: raw logs become memory-mapped columns and a manifest, in one streaming pass."""

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dpcompare.data.columns import ColumnWriter
from dpcompare.data.dataset import load_prepared
from dpcompare.data.leaks import refuse_known_leaks
from dpcompare.data.manifest import FORMAT, FormatError, Manifest, own_files, read_manifest
from dpcompare.data.parquet_source import read_parquet
from dpcompare.data.patterns import resolve
from dpcompare.data.schema import Schema, load_schema
from dpcompare.data.sources import Batch, Notes, expand, kind_of
from dpcompare.data.text_source import read_text
from dpcompare.errors import DpcompareError, UsageError

REPEATED_SHARE_WARNED = 0.05

Progress = Callable[[int, float], None]
"""Told the rows prepared so far and the share of the source bytes read, 0 to 1."""


def prepare(
    schema: Schema | str | Path,
    sources: Sequence[Path],
    destination: Path,
    *,
    repair: bool = False,
    progress: Progress | None = None,
) -> Manifest:
    """Turn raw files into a prepared folder that :func:`load_prepared` maps into memory.

    Files are read one after the other as text, gzip or Parquet, whatever their names say, in
    memory that does not grow with their size; journeys alone need up to 80 bytes a row. Everything
    is written into a temporary folder beside the destination, which is renamed when it is complete:
    a destination exists whole or not at all.

    Args:
        schema: what the columns are; or a bundled name, or the path of a .toml file.
        sources: files in time order; a folder of Parquet files stands for its files, also those in
            folders called name=value.
        destination: the folder to make. An incomplete one is replaced; one that was made of the
            same files with the same schema is kept as it is.
        repair: pad text rows whose trailing fields are missing, instead of refusing them. How many
            were padded is in the manifest.
        progress: called after every batch.

    Returns:
        The manifest, with its warnings.

    Raises:
        UsageError: the request is wrong: a missing source, a destination that is in use.
        DpcompareError: the data is wrong or damaged; the message names file, line and column.
    """
    if not isinstance(schema, Schema):
        schema = load_schema(schema)
    files = expand(sources)
    schema = resolve(schema, files)
    refuse_known_leaks(schema.features, f"schema {schema.name}")
    stats = [_source_entry(file) for file in files]
    existing = _check_destination(destination, schema, stats, repair)
    if existing is not None:
        return existing
    folder = destination.parent / f"{_leftover_prefix(destination)}{os.getpid()}"
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(destination)
        folder.mkdir()
        manifest = _prepare(schema, files, stats, folder, repair, progress)
        _replace(folder, destination)
    except OSError as error:
        raise DpcompareError(f"cannot write {destination}: {error}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return manifest


def _prepare(
    schema: Schema,
    files: list[Path],
    stats: list[dict[str, Any]],
    folder: Path,
    repair: bool,
    progress: Progress | None,
) -> Manifest:
    notes = Notes()
    total_bytes = sum(file.stat().st_size for file in files)
    bytes_before = 0
    with ColumnWriter(folder, schema) as writer:
        for file, entry in zip(files, stats, strict=True):
            rows_before = writer.rows
            for batch in _one_ahead(_batches(file, schema, repair, notes)):
                writer.add(batch)
                if progress is not None:
                    progress(writer.rows, (bytes_before + batch.bytes_read) / total_bytes)
            entry["rows"] = writer.rows - rows_before
            bytes_before += file.stat().st_size
        _check_rows(schema, files, writer)
        facts = writer.finish()
    manifest = Manifest(
        format=FORMAT,
        schema=schema.content(),
        padded_rows=notes.padded_rows,
        repair=repair,
        warnings=_warnings(schema, facts, notes),
        sources=stats,
        **facts,
    )
    manifest.write(folder)
    return manifest


def _check_rows(schema: Schema, files: list[Path], writer: ColumnWriter) -> None:
    names = ", ".join(str(file) for file in files)
    if writer.rows == 0:
        raise DpcompareError(f"0 rows in {names}: there is nothing to prepare")
    for task in writer.tasks_without_rows():
        raise DpcompareError(
            f"task {task} has no rows: column {schema.tasks[task].rows} is 0 in every row of "
            f"{names}. Leave the task out of a copy of the schema"
        )


def _batches(file: Path, schema: Schema, repair: bool, notes: Notes) -> Iterator[Batch]:
    kind = kind_of(file)
    if kind == "parquet":
        return read_parquet(file, schema, notes)
    return read_text(file, schema, kind == "gzip", repair, notes)


def _one_ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """The same batches, each read and parsed on a second thread while the one before is used."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


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


def _check_destination(
    destination: Path, schema: Schema, sources: list[dict[str, Any]], repair: bool
) -> Manifest | None:
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
    if (manifest.restored_schema(), manifest.repair, before) == (schema, repair, sources):
        return manifest
    raise UsageError(f"{refused}. It holds {manifest.rows:,} prepared rows of {manifest.name}")


def _replace(folder: Path, destination: Path) -> None:
    """Put the complete folder in place of an absent or incomplete destination."""
    if destination.exists():
        shutil.rmtree(destination)
    folder.rename(destination)


def _leftover_prefix(destination: Path) -> str:
    return f".{destination.name}.partial.{socket.gethostname()}."


def _remove_leftovers(destination: Path) -> None:
    """Remove temporary folders of killed preparations of this destination on this machine."""
    prefix = _leftover_prefix(destination)
    for folder in destination.parent.iterdir():
        process = folder.name.removeprefix(prefix)
        if not (folder.name.startswith(prefix) and process.isdigit()):
            continue
        if int(process) == os.getpid() or not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    if os.name != "posix":  # elsewhere this call would end the process instead of asking
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
