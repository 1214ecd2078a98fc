"""Text files as batches of rows: plain or gzip, any size, in bounded memory.

The file is cut into blocks of whole lines, each parsed on its own, so that the number of every line
is known exactly, in compressed files too.
"""

import gzip
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dpcompare.data import text_errors
from dpcompare.data.schema import Schema
from dpcompare.data.sources import START, Batch, Notes, Piece, Position, SourceUnreadable
from dpcompare.data.text_errors import Layout
from dpcompare.errors import DpcompareError, UsageError

BLOCK_BYTES = 8 << 20  # enough rows for numpy to keep off Python's lock for long
_PARSED_BYTES = 1 << 20  # little enough for the parser to stay in the cache of a core
_COUNTED_BYTES = 1 << 16  # the same for counting
MAX_LINE_BYTES = 4 << 20

_BOM = b"\xef\xbb\xbf"
_TAR_MAGIC = slice(257, 262)


def read_text(
    path: Path,
    schema: Schema,
    compressed: bool,
    repair: bool,
    notes: Notes,
    start: Position = START,
) -> Iterator[Piece]:
    """The rows of a text file from a place on, in order.

    Args:
        path: the file.
        schema: its layout.
        compressed: whether it is gzip.
        repair: pad rows whose trailing fields are missing.
        notes: filled while reading.
        start: where to begin.

    Raises:
        DpcompareError: the file is damaged or does not fit the schema; the message names the line.
    """
    if repair and (schema.quoting or "" not in schema.missing):
        raise UsageError(
            f"schema {schema.name}: repair pads rows with empty fields, so it needs "
            'quoting = false and "" among the missing marks'
        )
    layout: Layout | None = None
    if start.offset:
        first = next(_blocks(path, compressed, START))
        layout, _, _ = _start(path, first.text, schema, repair, notes)
    for block in _blocks(path, compressed, start):
        text, line = block.text, block.start.number
        if layout is None:
            layout, text, line = _start(path, text, schema, repair, notes)
        if text:
            lines = block.end.number - line
            batch = partial(_batch, path, text, line, lines, layout, repair)
            yield Piece(batch, block.end, block.bytes_read)


def _batch(path: Path, block: bytes, line: int, lines: int, layout: Layout, repair: bool) -> Batch:
    _check_text(path, block, line)
    padded, first_padded = 0, 0
    if repair:
        block, padded, first_padded = _pad(block, layout)
    columns = _parse(path, block, line, lines, layout)
    return Batch(columns, path, "line", line, padded, first_padded)


class _Block(NamedTuple):
    """Whole lines, each ending in a newline."""

    text: bytes
    start: Position
    end: Position
    bytes_read: int


def _blocks(path: Path, compressed: bool, start: Position) -> Iterator[_Block]:
    rest = b""
    with path.open("rb") as file:
        stream: IO[bytes] | gzip.GzipFile = gzip.GzipFile(fileobj=file) if compressed else file
        line = start.number
        try:
            stream.seek(start.offset)
            while True:
                data = stream.read(BLOCK_BYTES)
                end = data.rfind(b"\n") + 1
                if data and not end:
                    rest += data
                    if len(rest) > MAX_LINE_BYTES:
                        raise DpcompareError(
                            f"{path}: line {line} is longer than {MAX_LINE_BYTES:,} bytes; "
                            "this is not a table of text lines"
                        )
                    continue
                block = b"".join((rest, memoryview(data)[:end]))
                rest = data[end:]
                if not data and block:
                    block += b"\n"  # the last line may lack its newline
                if block:
                    behind = Position(line + _count_lines(block), start.offset + len(block))
                    yield _Block(block, start, behind, file.tell())
                    line, start = behind.number, behind
                if not data:
                    return
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise DpcompareError(
                f"{path}: cannot be read beyond line {line}: {error}. The gzip data is damaged or "
                "cut off"
            ) from error
        except OSError as error:
            raise SourceUnreadable(
                f"{path}: cannot be read beyond line {line}: {error}. The same command tries again"
            ) from error


def _check_text(path: Path, block: bytes, line: int) -> None:
    if line == 1 and block[_TAR_MAGIC] == b"ustar":
        raise DpcompareError(f"{path} is a tar archive; unpack it and give the table inside")
    zero = block.find(b"\0")
    if zero >= 0:
        number = line + block.count(b"\n", 0, zero)
        raise DpcompareError(
            f"{path}: line {number} holds a zero byte: this is binary data, not a text table"
        )
    if block.isascii():
        return
    try:
        block.decode("utf-8")
    except UnicodeDecodeError as error:
        number = line + block.count(b"\n", 0, error.start)
        raise DpcompareError(
            f"{path}: line {number} is not valid UTF-8 (byte 0x{block[error.start]:02x}); "
            "save the file as UTF-8"
        ) from error


def _start(
    path: Path, block: bytes, schema: Schema, repair: bool, notes: Notes
) -> tuple[Layout, bytes, int]:
    """Check the first line; the layout, the block without a header, and its first line number."""
    _check_text(path, block, 1)
    block = block.removeprefix(_BOM)
    first, _, rest = block.partition(b"\n")
    if not schema.header:
        layout = Layout.of(schema, [column.name for column in schema.columns])
        problem = text_errors.first_row(first, layout, repair)
        rest, line = block, 1
    else:
        layout = Layout.of(schema, text_errors.split(first, schema.separator, schema.quoting))
        problem = text_errors.header(first, layout)
        notes.extra_columns.update(set(layout.names) - {column.name for column in schema.columns})
        line = 2
    if problem:
        raise DpcompareError(f"{path}: {problem}")
    return layout, rest, line


def _parse(path: Path, block: bytes, line: int, lines: int, layout: Layout) -> dict[str, pa.Array]:
    """The wanted columns of whole lines as text, null = missing."""
    if layout.quoting and _ends_within_quotes(block, layout):
        raise text_errors.bad_block(path, block, line, layout, "")
    if block.startswith(_BOM):
        block = _BOM + block  # the parser drops one wherever a block begins; this one is a value
    try:
        # What ends a part closes a quote, so quotes are parsed in one part.
        table = _table(block, layout, len(block) + 1 if layout.quoting else _PARSED_BYTES)
    except pa.ArrowInvalid:
        try:  # a line longer than that is no error
            table = _table(block, layout, len(block) + 1)
        except pa.ArrowInvalid as error:
            reason = " ".join(str(error).split())
            raise text_errors.bad_block(path, block, line, layout, reason) from error
    columns = {name: table.column(name).chunk(0) for name in layout.wanted}
    # The parser makes a row of empty fields of an empty line.
    may_hold_empty = "" not in layout.missing or all(c.null_count for c in columns.values())
    if table.num_rows != lines or (may_hold_empty and _has_empty_line(block)):
        raise text_errors.bad_block(path, block, line, layout, "")
    return columns


def _table(block: bytes, layout: Layout, parsed_bytes: int) -> pa.Table:
    """The wanted columns, each in one chunk, parsed so many bytes at a time."""
    return pyarrow.csv.read_csv(
        pa.BufferReader(block),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, column_names=layout.names, block_size=parsed_bytes
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=layout.separator,
            quote_char='"' if layout.quoting else False,
            ignore_empty_lines=False,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(layout.wanted, pa.string()),
            include_columns=layout.wanted,
            null_values=layout.missing,
            strings_can_be_null=True,
            check_utf8=False,  # done before, with the line number
        ),
    ).combine_chunks()


def _pad(block: bytes, layout: Layout) -> tuple[bytes, int, int]:
    """Append empty fields to the rows whose trailing fields are missing.

    Returns:
        The lines, how many rows were padded, and the first of them, from 0.
    """
    text = np.frombuffer(block, dtype=np.uint8)
    ends = _line_ends(block)
    separators = np.flatnonzero(text == ord(layout.separator))
    fields = np.diff(np.searchsorted(separators, ends), prepend=0) + 1
    short = np.flatnonzero((fields < len(layout.names)) & (fields > layout.last_needed))
    short = short[~_is_empty(block, ends, short)]
    if not len(short):
        return block, 0, 0
    insert_at = ends[short] - (text[ends[short] - 1] == ord("\r"))
    missing_fields = len(layout.names) - fields[short]
    padded = np.insert(text, np.repeat(insert_at, missing_fields), ord(layout.separator))
    return padded.tobytes(), len(short), int(short[0])


def _ends_within_quotes(block: bytes, layout: Layout) -> bool:
    """Whether a quote is open at the end, which the parser would take as closed."""
    last = block[block.rfind(b"\n", 0, -1) + 1 :]
    if b'"' not in last:
        return False
    within = False
    for field in last.rstrip(b"\r\n").split(layout.separator.encode()):
        # Inside quotes a doubled one stands for itself; a quote elsewhere in a field is text.
        if within or field.startswith(b'"'):
            quotes = len(field) - len(field.replace(b'"', b""))
            within ^= quotes % 2 == 1
    return within


def _count_lines(block: bytes) -> int:
    text = np.frombuffer(block, dtype=np.uint8)
    parts = (text[at : at + _COUNTED_BYTES] for at in range(0, len(text), _COUNTED_BYTES))
    return sum(int(np.count_nonzero(part == ord("\n"))) for part in parts)


def _has_empty_line(block: bytes) -> bool:
    ends = _line_ends(block)
    return bool(_is_empty(block, ends, np.arange(len(ends))).any())


def _line_ends(block: bytes) -> np.ndarray:
    """Where the newlines are; an order of magnitude faster than searching for them one by one."""
    return np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))


def _is_empty(block: bytes, ends: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """Which of `lines` hold nothing, or only a carriage return."""
    text = np.frombuffer(block, dtype=np.uint8)
    starts = np.where(lines > 0, ends[lines - 1] + 1, 0)
    lengths = ends[lines] - starts
    return (lengths == 0) | ((lengths == 1) & (text[starts] == ord("\r")))
