"""Source files: which ones are read, what kind each is, and batches of their rows.

The kind is decided by the first bytes of a file, never by its name.
"""

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from dpcompare.errors import DpcompareError, UsageError

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_REFUSED = {
    b"PK\x03\x04": "a zip archive",
    b"BZh": "a bzip2 file",
    b"\xfd7zXZ": "an xz file",
    b"\x28\xb5\x2f\xfd": "a zstd file",
    b"\xff\xfe": "text in UTF-16",
    b"\xfe\xff": "text in UTF-16",
    b"ARROW1": "an Arrow file",
    b"SQLite": "an SQLite database",
}


class SourceUnreadable(DpcompareError):
    """A file could not be read this time, though nothing says that it is damaged."""


class Batch(NamedTuple):
    """Some consecutive rows of one file.

    Attributes:
        columns: Arrow arrays by column name, the schema's wanted ones only. Text with null =
            missing, or numbers as Parquet holds them.
        path: the file, for messages.
        unit: "line" or "row", for messages.
        first: the number of the first row in that unit, from 1.
        padded_rows: how many of the rows a repair filled up with missing fields.
        first_padded: the first of them, from 0 in the batch.
    """

    columns: dict[str, pa.Array]
    path: Path
    unit: str
    first: int
    padded_rows: int = 0
    first_padded: int = 0

    def place(self, index: int) -> str:
        """Where a row is, without folders: `index` is its row in the batch, from 0."""
        return f"{self.path.name}, {self.unit} {self.first + index}"

    def error(self, index: int, column: str, problem: str) -> DpcompareError:
        """An error about one value: `index` is its row in the batch, from 0."""
        place = f"{self.unit} {self.first + index}, column {column}"
        return DpcompareError(f"{self.path}: {place}: {problem}")


class Position(NamedTuple):
    """A place in a file from which its rows can be read.

    Attributes:
        number: the number of the line or row, from 1.
        offset: in text the bytes before it, uncompressed.
    """

    number: int = 1
    offset: int = 0


START = Position()


class Piece(NamedTuple):
    """Some consecutive rows of one file as they were read.

    Attributes:
        batch: makes a batch of them. It raises what is wrong with them, depends on nothing else,
            and takes long, so that pieces are worth working on at the same time.
        end: the place behind them.
        bytes_read: how much of the file has been read.
    """

    batch: Callable[[], Batch]
    end: Position
    bytes_read: int


@dataclass
class Notes:
    """What reading did that the user should know about.

    Attributes:
        padded_rows: rows that a repair filled up with missing fields.
        first_padded: where the first of them is, or "".
        extra_columns: columns of the files that the schema does not list, left out.
    """

    padded_rows: int = 0
    first_padded: str = ""
    extra_columns: set[str] = field(default_factory=set)

    def add_padded(self, rows: int, first: str) -> None:
        """Count padded rows; `first` says where the first of them is."""
        self.first_padded = self.first_padded or first
        self.padded_rows += rows


def expand(sources: Sequence[Path]) -> list[Path]:
    """The files to read, in order: a folder of Parquet files stands for its files, sorted.

    A folder may also hold the folders of a partitioned data set, called name=value. Sorting takes
    numbers in names as numbers, so that part-10 follows part-9 and day=10 follows day=9. Names that
    start with "." or "_" are skipped, as other readers do. A source that does not exist and holds
    ``*``, ``?`` or ``[`` stands for what it matches, sorted in the same way.

    Raises:
        UsageError: a source is missing, is named twice, or is a folder of something else.
    """
    if not sources:
        raise UsageError("nothing to prepare: name at least one source file")
    files: list[Path] = []
    for source in [match for given in sources for match in _matches(Path(given))]:
        if source.is_dir():
            files.extend(_parts(source))
        elif source.is_file():
            files.append(source)
        elif source.exists():
            raise UsageError(f"{source} is neither a file nor a folder")
        else:
            raise UsageError(f"{source} does not exist")
    resolved = [file.resolve() for file in files]
    for number, file in enumerate(resolved):
        if file in resolved[:number]:
            raise UsageError(f"{files[number]} is named twice: its rows would be repeated")
    return files


def kind_of(path: Path) -> str:
    """The kind of a file by its content: "text", "gzip" or "parquet".

    Raises:
        DpcompareError: it is empty, unreadable, or of a kind that must be unpacked or saved anew.
    """
    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise DpcompareError(f"{path}: cannot be read: {error.strerror}") from error
    if not start:
        raise DpcompareError(f"{path} is empty (0 bytes)")
    if start.startswith(_GZIP):
        return "gzip"
    if start.startswith(_PARQUET):
        return "parquet"
    for magic, name in _REFUSED.items():
        if start.startswith(magic):
            raise DpcompareError(
                f"{path} is {name}; give UTF-8 text, gzip of such text, or Parquet"
            )
    return "text"


def _matches(source: Path) -> list[Path]:
    """The source itself, or what it matches where it is a pattern."""
    if source.exists() or not glob.has_magic(str(source)):
        return [source]
    found = sorted(glob.glob(str(source)), key=natural_order)
    if not found:
        raise UsageError(f"there is no file called like {str(source)!r}")
    return list(map(Path, found))


def _parts(folder: Path) -> Iterator[Path]:
    entries = [entry for entry in folder.iterdir() if entry.name[0] not in "._"]
    if not entries:
        raise UsageError(f"the folder {folder} holds no files")
    for entry in sorted(entries, key=lambda entry: natural_order(entry.name)):
        if entry.is_dir() and "=" in entry.name:
            yield from _parts(entry)
            continue
        if entry.is_dir():
            raise UsageError(
                f"the folder {folder} holds folders such as {entry.name}, which is not called "
                "name=value as a part of a data set is; name the folders or files to read, in time "
                "order"
            )
        if kind_of(entry) != "parquet":
            raise UsageError(
                f"the folder {folder} holds {entry.name}, which is not Parquet; only Parquet "
                "folders are read whole, so name the files to read, in time order"
            )
        yield entry


def natural_order(name: str) -> list[tuple[int, str]]:
    """A key to sort names by, that takes the numbers in them as numbers."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    digits = {part: part.lstrip("0") for part in parts if part[0] in "0123456789"}
    return [(len(digits[p]), digits[p]) if p in digits else (-1, p) for p in parts]
