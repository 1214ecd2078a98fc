"""Fuzzing of raw text: what preparation makes of it is what a slow reader in plain Python makes.

The reader follows docs/data.md. Either both give the same value for every field, or preparation
refuses the file with a message that names it, and a line that is wrong indeed.
"""

import csv
import gzip
import itertools
import math
import re
import shutil
import zlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcompare.data import Column, Schema, Target, load_prepared, prepare
from dpcompare.errors import DpcompareError
from tests.fuzzing import FUZZ

# --- the slow reader -----------------------------------------------------------------------------

REFUSED_STARTS = (
    b"PAR1", b"PK\x03\x04", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\xff\xfe", b"\xfe\xff",
    b"ARROW1", b"SQLite",
)  # fmt: skip
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
LARGEST_COUNT = 2**24


@dataclass
class Reading:
    """What the slow reader found.

    Attributes:
        rows: the values of the wanted columns by name, row by row; None where one is missing.
        bad_lines: numbers of the lines that cannot be right.
        bad_file: whether the file cannot be right as a whole.
        debatable: whether a reader may refuse what has no bad line: quotes inside a field, numbers
            in a notation that is not everybody's, a first row that looks like a header.
    """

    rows: list[dict[str, str | float | None]] = field(default_factory=list)
    bad_lines: set[int] = field(default_factory=set)
    bad_file: bool = False
    debatable: bool = False

    @property
    def is_bad(self) -> bool:
        return self.bad_file or bool(self.bad_lines)


def read_slowly(content: bytes, schema: Schema, repair: bool) -> Reading:
    found = Reading()
    if content.startswith(REFUSED_STARTS) or not content:
        found.bad_file = True
        return found
    if content.startswith(b"\x1f\x8b"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error):
            found.bad_file = True
            return found
    lines = content.removeprefix(BYTE_ORDER_MARK).split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    names = [column.name for column in schema.columns]
    for number, line in enumerate(lines, start=1):
        fields = _fields(line, schema, found, number)
        if fields is None:
            found.bad_lines.add(number)
        elif number == 1 and schema.header:
            names = fields
            wanted = Counter(name for name in names if name in schema.wanted)
            if set(wanted) != set(schema.wanted) or max(wanted.values()) > 1:
                found.bad_lines.add(1)
        else:
            _add_row(found, fields, names, schema, repair, number)
    found.bad_file |= not found.rows and not found.bad_lines
    return found


def _fields(line: bytes, schema: Schema, found: Reading, number: int) -> list[str] | None:
    """The fields of a line; None if it is no line of a table."""
    line = line.removesuffix(b"\r")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None
    if "\0" in text or not text:
        return None
    if not schema.quoting or '"' not in text:
        return None if "\r" in text else text.split(schema.separator)
    try:
        fields = next(csv.reader([text], delimiter=schema.separator, strict=True))
    except csv.Error:  # quotes end before their field does, or never; or there are line breaks
        found.debatable = True
        if "\r" in text or _is_unclosed(text, schema.separator):
            return None
        return next(csv.reader([text], delimiter=schema.separator))
    found.debatable |= "\r" in text
    return fields if "".join(fields).count("\r") == text.count("\r") else None


def _is_unclosed(text: str, separator: str) -> bool:
    """Whether a quoted field goes on beyond the line."""
    return len(list(csv.reader([text.replace("\r", " "), "end"], delimiter=separator))) == 1


def _add_row(
    found: Reading, fields: list[str], names: list[str], schema: Schema, repair: bool, number: int
) -> None:
    needed = [names.index(name) for name in schema.needed if name in names]
    if repair and max(needed, default=-1) < len(fields) < len(names):
        found.debatable |= number == 1  # it may be of another kind of file altogether
        fields = fields + [""] * (len(names) - len(fields))
    if len(fields) != len(names):
        found.bad_lines.add(number)
        return
    texts = dict(zip(names, fields, strict=True))
    if number == 1 and not any(
        _plain_number(texts[column.name]) or texts[column.name] in schema.missing
        for column in schema.with_role("numeric", "exposure", "label")
    ):
        found.debatable = True
    row = {}
    for column in schema.columns:
        if column.name not in schema.wanted:
            continue
        try:
            row[column.name] = _value(texts.get(column.name, ""), column, schema, found)
        except ValueError:
            found.bad_lines.add(number)
            return
    found.rows.append(row)


def _value(text: str, column: Column, schema: Schema, found: Reading) -> str | float | None:
    """The value of a field; ValueError if the schema does not allow it."""
    if text in schema.missing:
        value: str | float | None = None
    elif column.role == "categorical":
        return text
    else:
        value = float(text)
        found.debatable |= not _plain_number(text)
        if not math.isfinite(value):
            raise ValueError
        if any(_plain_number(mark) and float(mark) == value for mark in schema.missing):
            value = None
    if column.role == "exposure" and (value is None or not 0 < _float32(value) < math.inf):
        raise ValueError
    if column.role == "label":
        return _label(value, schema)
    if column.integer and value is not None and value != math.trunc(value):
        raise ValueError
    return value


def _label(value: str | float | None, schema: Schema) -> float:
    """The value of the label of the schema's only task."""
    ((task, target),) = schema.tasks.items()
    if value is None:
        if target.missing is None:
            raise ValueError
        value = 0.0
    largest = target.max or LARGEST_COUNT
    if task == "pctr" and target.at_least is None:
        largest = 1
    if not 0 <= float(value) <= largest or float(value) != math.trunc(float(value)):
        raise ValueError
    return float(value) if target.at_least is None else float(float(value) >= target.at_least)


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _plain_number(text: str) -> bool:
    return NUMBER.fullmatch(text) is not None


def slow_hash(text: str) -> int:
    """1 + FNV-1a-64 of the UTF-8 bytes, modulo 2**32 - 1."""
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return 1 + state % (2**32 - 1)


# --- what both make of a file --------------------------------------------------------------------

FOLDERS = itertools.count()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where files go, read in blocks of a few lines, so that small files have several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpcompare.data.text_source.BLOCK_BYTES", 64, raising=False)
        yield tmp_path_factory.mktemp("fuzz")


def compare(folder: Path, content: bytes, schema: Schema, repair: bool = False) -> bool:
    """Whether the file was accepted; fails where preparation and the slow reader differ."""
    place = folder / str(next(FOLDERS))
    place.mkdir()
    try:
        return _compare(place, content, schema, repair)
    finally:
        shutil.rmtree(place)


def _compare(place: Path, content: bytes, schema: Schema, repair: bool) -> bool:
    source = place / "log.txt"
    source.write_bytes(content)
    expected = read_slowly(content, schema, repair)
    try:
        manifest = prepare(schema, [source], place / "prepared", repair=repair)
    except DpcompareError as error:
        _check_refusal(str(error), expected)
        assert [path.name for path in place.iterdir()] == ["log.txt"]
        return False
    assert not expected.is_bad, f"accepted, in spite of bad lines {sorted(expected.bad_lines)}"
    dataset = load_prepared(place / "prepared")
    assert manifest.rows == dataset.rows == len(expected.rows)
    for index, column in enumerate(schema.numeric):
        values = [row[column.name] for row in expected.rows]
        _check_numeric(dataset.numeric[:, index], values, column.scale)
    for index, column in enumerate(schema.categorical):
        texts = [row[column.name] for row in expected.rows]
        hashes = [0 if text is None else slow_hash(str(text)) for text in texts]
        assert dataset.categories[:, index].tolist() == hashes
    ((task, target),) = schema.tasks.items()
    assert dataset.labels[task].tolist() == [row[target.column] for row in expected.rows]
    if schema.exposure is not None:
        exposures = [row[schema.exposure.name] for row in expected.rows]
        assert dataset.exposure.tolist() == [_float32(value) for value in exposures]
    return True


def _check_numeric(found: np.ndarray, values: list[float | None], scale: float) -> None:
    for number, value in zip(found.tolist(), values, strict=True):
        if value is None:
            assert math.isnan(number)
        else:
            log = math.copysign(math.log1p(abs(value)) / scale, value)
            assert number == pytest.approx(log, rel=1e-7 * 1.2, abs=1e-45)


def _check_refusal(message: str, expected: Reading) -> None:
    assert "log.txt" in message, message
    assert expected.is_bad or expected.debatable, f"refused for no reason: {message}"
    assert "\n" not in message, message
    if expected.bad_file or expected.debatable:
        return
    named = re.search(r"\bline (\d+)", message)
    if named:
        assert int(named[1]) in expected.bad_lines, (message, expected.bad_lines)
        return
    span = re.search(r"\blines (\d+) to (\d+)", message)
    assert span, message
    assert expected.bad_lines & set(range(int(span[1]), int(span[2]) + 1)), message


# --- files ---------------------------------------------------------------------------------------

SCHEMAS = [
    (
        (Column("n", "numeric", scale=2.5), Column("c", "categorical"), Column("y", "label")),
        {"pctr": Target("y")},
    ),
    (
        (Column("y", "label"), Column("i", "numeric", integer=True), Column("c", "categorical")),
        {"pconvs": Target("y", missing=0, max=60)},
    ),
    (
        (
            Column("c", "categorical"),
            Column("no", "ignore"),
            Column("y", "label"),
            Column("n", "numeric"),
            Column("d", "categorical"),
        ),
        {"pctr": Target("y", at_least=2)},
    ),
    (
        (
            Column("n", "numeric", scale=1e-3),
            Column("m", "numeric"),
            Column("e", "exposure"),
            Column("y", "label"),
        ),
        {"pconvs": Target("y")},
    ),
    (
        (Column("c", "categorical"), Column("y", "label")),
        {"pctr": Target("y", missing=0, at_least=1)},
    ),
]
MISSING = [("",), ("", "-1"), ("NA", "-1.0", "nan"), (), ("", "0", "inf"), ("5e-1", "\u00e9")]

NUMBERS = [
    "0", "1", "7", "-1", "-3", "2.5", "-0", "0.1", "00012", "007.50", "+1", "1e3", "1E-3", "-2e+2",
    ".5", "5.", "123456789012345678901234567890", "0." + "3" * 40, "1" + "0" * 400, "1e308",
    "1e-320", "5e-324", "1e-400", "9007199254740993", "16777217", "0.30000000000000004", "-1.0",
    "2.2250738585072011e-308", "179769313486231580793e289", "0e999", "0.5",
]  # fmt: skip
BAD_NUMBERS = [
    "NaN", "nan", "inf", "-Infinity", "0x10", "1_000", "1,5", " 1", "1 ", "\t1", "1e", "e1", "--1",
    "+-1", "1e999", "-1e400", "one", "\u0661", "\uff11", "\u22121", "1.2.3", "1f", "1d", "true",
    "1\u00a0", "0b1", "NA", "$1", "1%", "\ufeff1", "1\u200b", "1\v", "\x1f1",
]  # fmt: skip
CATEGORIES = [
    "red", "Red", "05359163", "623049e6", "é", "e\u0301", "\u00df", "日本", "\U0001f600", " red",
    "red ", "\u00a0", "NA", "null", "NULL", "N/A", "nan", "-1.0", "-1", "0", "'", "\\", "\\n", "#",
    "a" * 300, "\x01", "\x7f", "\x85", "\u2028", "\ufeff", "\v", "\f", "\x1c", "true", "1e3",
    "=1+1",
]  # fmt: skip
BAD_CATEGORIES = ['"', 'a"b', '"a"b', '""', 'a""', "\r", "a\rb", "a\nb", "\0", ",", ";", "\t", "|"]
LABELS = ["0", "1", "1", "0", "1.0", "0.0", "-0", "1e0", "+0", "00", "2", "60", "3e1"]
BAD_LABELS = ["", "-1", "0.5", "61", "16777217", "yes", "nan", "inf", "NA", "1_0", " 1", "1e-400"]
EXPOSURES = ["1", "0.5", "1e6", "3e38", "1e-38", "2147483647"]
BAD_EXPOSURES = ["0", "-1", "", "1e39", "1e-50", "nan", "-0"]
SOUND = {
    "numeric": NUMBERS, "categorical": CATEGORIES, "label": LABELS, "exposure": EXPOSURES,
    "ignore": CATEGORIES,
}  # fmt: skip
WRONG = {
    "numeric": BAD_NUMBERS, "categorical": BAD_CATEGORIES, "label": BAD_LABELS,
    "exposure": BAD_EXPOSURES, "ignore": BAD_CATEGORIES,
}  # fmt: skip
PIECES = [
    b"\n", b"\r", b"\r\n", b'"', b'""', b",", b";", b"\t", b" ", b"\0", b"\xff", b"\xc3",
    BYTE_ORDER_MARK, b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"1", b"x", b"\n\n", b",,", b"\x1f\x8b",
    b'"\n"', b"\x1a",
]  # fmt: skip


# Strategies are made once, for making them takes longer than drawing from them.
ANY = st.integers(0, 2**16)
COIN = st.booleans()
FLAGS = st.integers(0, 2**10 - 1)
FEW_CHOICES, MANY_CHOICES = st.binary(max_size=12), st.binary(min_size=40, max_size=100)
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), max_size=20)


@st.composite
def tables(draw):
    """A schema, the content of a file that fits it more or less, and whether to repair it."""
    columns, tasks = _one_of(draw, SCHEMAS)
    missing = _one_of(draw, MISSING)
    separator = _one_of(draw, ",,\t;| :")
    flags = draw(FLAGS)
    header, quoting, crlf, wrong, shuffled, repair = (bool(flags >> bit & 1) for bit in range(6))
    rare = flags >> 6  # 0 to 15
    schema = Schema("own", "own", True, columns, tasks, separator, header, quoting, missing)
    order = list(columns)
    if header and shuffled:
        order = order[::-1] if rare % 2 else order[1:] + order[:1]
        order += [Column("more", "ignore")] * (rare % 3)
    choices = draw(MANY_CHOICES if rare % 4 == 0 else FEW_CHOICES)
    rows = [
        [_field(column, missing, wrong, choice) for column, choice in zip(order, row, strict=True)]
        for row in _groups(choices, len(order))
    ]
    if rare % 4 == 1:
        _put_texts_in(rows, order, draw(TEXTS))
    if header:
        rows.insert(0, [column.name for column in order])
    style = _one_of(draw, ["needed", "all", "never"]) if quoting else "never"
    lines = [separator.join(_quoted(text, style, separator) for text in row) for row in rows]
    repair = repair and not quoting and "" in missing
    if repair:
        lines = [line.rstrip(separator) if at % 2 else line for at, line in enumerate(lines)]
    end = "\r\n" if crlf else "\n"
    content = "".join(line + end for line in lines).encode()
    if rare == 3:
        content = content.removesuffix(b"\n").removesuffix(b"\r")
    if rare == 7:
        content = BYTE_ORDER_MARK + content
    content = _damaged(draw, content) if wrong else content
    if rare in (5, 11):
        content = gzip.compress(content, mtime=0)
        content = _damaged(draw, content) if wrong and rare == 5 else content
    return content, schema, repair


def _one_of(draw, values):
    return values[draw(ANY) % len(values)]


def _groups(values, size):
    return [values[at : at + size] for at in range(0, len(values) - size + 1, size)]


def _field(column, missing, wrong, choice):
    pool = SOUND[column.role] + (WRONG[column.role] if wrong else [])
    if column.role != "exposure":
        pool = [*pool, *missing]
    return pool[choice % len(pool)]


def _put_texts_in(rows, order, texts):
    """Give the categories texts of any characters."""
    for row, text in zip(rows, texts, strict=False):
        for index, column in enumerate(order):
            if column.role == "categorical":
                row[index] = text


def _quoted(text, style, separator):
    needed = separator in text or text.startswith('"')
    if style == "all" or (style == "needed" and needed):
        return '"' + text.replace('"', '""') + '"'
    return text


def _damaged(draw, content):
    """The content after up to three cuts, insertions and repetitions."""
    for _ in range(draw(ANY) % 4):
        start = draw(ANY) % (len(content) + 1)
        end = start + (draw(ANY) % 12 if draw(COIN) else 0)
        piece = _one_of(draw, PIECES) if draw(COIN) else b""
        content = content[:start] + piece * (1 + draw(COIN)) + content[end:]
    return content


SCRIBBLES = [*PIECES, *[b",", b"\n", b"1", b"0"] * 6, b"1.5", b"a"]


@st.composite
def scribbles(draw):
    """A schema and a file of a few pieces, put together without thought of it."""
    columns, tasks = _one_of(draw, SCHEMAS)
    missing = _one_of(draw, MISSING)
    header, quoting = draw(COIN), draw(COIN)
    schema = Schema("own", "own", True, columns, tasks, ",", header, quoting, missing)
    choices = draw(FEW_CHOICES) + draw(FEW_CHOICES)
    content = b"".join(SCRIBBLES[choice % len(SCRIBBLES)] for choice in choices)
    names = ",".join(column.name for column in columns).encode() + b"\n"
    return (names if header else b"") + content, schema


@settings(FUZZ, max_examples=2800)
@given(case=tables())
def test_tables_are_read_exactly_or_refused_with_the_line(folder, case):
    content, schema, repair = case
    compare(folder, content, schema, repair)


@settings(FUZZ, max_examples=800)
@given(case=scribbles())
def test_scribbles_are_read_exactly_or_refused_with_the_line(folder, case):
    compare(folder, *case)


@settings(FUZZ, max_examples=300)
@given(content=st.binary(max_size=200))
def test_bytes_are_read_exactly_or_refused(folder, content):
    columns, tasks = SCHEMAS[4]
    compare(folder, content, Schema("own", "own", True, columns, tasks, header=False))


# --- found by fuzzing ----------------------------------------------------------------------------

TWO = (Column("y", "label"), Column("c", "categorical"))
PLAIN = Schema("own", "own", True, TWO, {"pctr": Target("y")}, header=False)
NUMERIC = (Column("y", "label"), Column("n", "numeric"))


def _prepared(folder, content, schema):
    place = folder / str(next(FOLDERS))
    place.mkdir()
    (place / "log.txt").write_bytes(content)
    prepare(schema, [place / "log.txt"], place / "prepared")
    return load_prepared(place / "prepared")


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf\xef\xbb\xbfa,1\n",  # only the first one is the file's
        b"a,1\n" * 16 + b"\xef\xbb\xbfa,1\n",  # the second block begins with it
    ],
)
def test_only_the_first_byte_order_mark_is_dropped(folder, content):
    schema = Schema("own", "own", True, TWO[::-1], {"pctr": Target("y")}, header=False)
    assert _prepared(folder, content, schema).categories[-1, 0] == slow_hash("\ufeffa")


@pytest.mark.parametrize(
    "content",
    [
        b'1,a\n0,"red\n',  # stands for the category "red" with a line break
        b'1,a\n0,"red',
        b"1,a\n" * 14 + b'0,"b\n' + b"1,a\n" * 9,  # the last line of the first block
    ],
)
def test_a_quote_that_is_never_closed_is_refused(folder, content):
    with pytest.raises(DpcompareError, match=r"log\.txt: line"):
        _prepared(folder, content, PLAIN)


def test_the_message_about_an_open_quote_is_one_line(folder):
    content = b'"a","0\r\n"a","0"\r\n"a","1"\r\n'
    schema = Schema("own", "own", True, TWO[::-1], {"pctr": Target("y")}, header=False)
    with pytest.raises(DpcompareError) as caught:
        _prepared(folder, content, schema)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mark", ["1_000", " 1000", "\t1000", "\uff11000"])
def test_a_missing_mark_that_is_no_number_hides_no_number(folder, mark):
    schema = Schema(
        "own", "own", True, NUMERIC, {"pctr": Target("y")}, header=False, missing=("", mark)
    )
    assert _prepared(folder, b"0,1000\n1,7\n", schema).numeric[0, 0] == np.float32(math.log1p(1000))


def test_columns_with_raised_digits_are_sorted_by_name(folder):
    place = folder / str(next(FOLDERS))
    place.mkdir()
    pq.write_table(pa.table({"y": [0, 1], "²": ["a", "b"]}), place / "log.parquet")
    schema = Schema("own", "own", True, (TWO[0], Column("*", "categorical")), {"pctr": Target("y")})
    prepare(schema, [place / "log.parquet"], place / "prepared")
    assert load_prepared(place / "prepared").categorical_names == ("²",)
