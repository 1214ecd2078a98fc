"""The synthetic ads log: Criteo's shape, any size, and the true click rate of every row.

Every row is drawn from the same made-up world (:mod:`dpcompare.data.ads_shape`): its columns are
independent draws from heavy-tailed distributions, its log-odds are a sum of effects of the column
values, a few products of two of them, and a slow drift. A seed picks the rows, not the world.

Rows are drawn in blocks of fixed size, each from its own counter-based stream keyed by
(seed, block), so that the same arguments give the same rows whatever the chunks or the order.
"""

import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from dpcompare.data import ads_shape
from dpcompare.data.ads_world import MISSING_SLOT, SLOT_BITS, effects, world
from dpcompare.data.dataset import Dataset, describe
from dpcompare.data.hashing import MISSING, hash_hex, hex_digits
from dpcompare.data.numeric import signed_log
from dpcompare.data.schema import load_schema
from dpcompare.errors import DpcompareError, UsageError

Float64Array = npt.NDArray[np.float64]

NAME = "synthetic"
SCHEMA = "criteo-kaggle"
BLOCK_ROWS = 1 << 14

_SLOT_SHIFT = np.uint64(64 - SLOT_BITS)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CALIBRATION_BLOCKS = 4


class Chunk(NamedTuple):
    """Rows of the raw log, column by column, b of them.

    Attributes:
        labels: (b,) uint8, 1 = click.
        integers: (13, b) float64 whole numbers, NaN = missing.
        values: (26, b) uint32; as text each is eight lowercase hex digits.
        hashes: (26, b) uint32, the hash of that text; 0 = missing, whatever `values` holds there.
        rates: (b,) float64, the probability that the label is 1.
    """

    labels: npt.NDArray[np.uint8]
    integers: Float64Array
    values: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint32]
    rates: Float64Array


def synthetic(rows: int, seed: int = 0, base_rate: float = 0.25) -> Dataset:
    """The synthetic ads log as a data set in memory (about 165 bytes a row).

    Args:
        rows: at least 1.
        seed: 0 to 2**64 - 1; picks the rows.
        base_rate: the mean click rate, in (0, 1); met within about .003 for large `rows`.

    Returns:
        13 numeric and 26 categorical features, task "pctr", and the true click rates.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate)
    schema = load_schema(SCHEMA)
    numeric = np.empty((rows, len(schema.numeric)), dtype=np.float32)
    categories = np.empty((rows, len(schema.categorical)), dtype=np.uint32)
    labels = np.empty(rows, dtype=np.uint8)
    rates = np.empty(rows, dtype=np.float64)
    start = 0
    for chunk in chunks(rows, seed, base_rate):
        part = slice(start, start + len(chunk.labels))
        for index, column in enumerate(schema.numeric):
            numeric[part, index] = signed_log(chunk.integers[index], column.scale)
        categories[part] = chunk.hashes.T
        labels[part] = chunk.labels
        rates[part] = chunk.rates
        start = part.stop
    return Dataset(
        name=NAME,
        checksum=synthetic_checksum(rows, seed, base_rate),
        numeric=numeric,
        categories=categories,
        labels={"pctr": labels},
        true_rates=rates,
        numeric_names=tuple(column.name for column in schema.numeric),
        categorical_names=tuple(column.name for column in schema.categorical),
        description={
            **describe(schema),
            "source": f"synthetic ads log, version {ads_shape.VERSION}",
            "rows": rows,
            "seed": seed,
            "base_rate": base_rate,
        },
    )


def synthetic_checksum(rows: int, seed: int = 0, base_rate: float = 0.25) -> str:
    """The checksum of :func:`synthetic`, known without drawing a row.

    It depends on the arguments and the version of the generator, and on nothing else.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate)
    identity = f"{NAME} {ads_shape.VERSION} {rows} {seed} {float(base_rate)!r}"
    return hashlib.sha256(identity.encode()).hexdigest()


def chunks(rows: int, seed: int = 0, base_rate: float = 0.25) -> Iterator[Chunk]:
    """The same rows as :func:`synthetic`, raw, in chunks of at most 16,384.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate)
    return _chunks(rows, seed, _intercept(base_rate))


def _chunks(rows: int, seed: int, intercept: float) -> Iterator[Chunk]:
    for block in range(-(-rows // BLOCK_ROWS)):
        stream = np.random.Philox(key=np.array([seed, block], dtype=np.uint64))
        start = block * BLOCK_ROWS
        wanted = min(BLOCK_ROWS, rows - start)
        position = (np.arange(start, start + BLOCK_ROWS) + 0.5) / rows
        drawn = _draw(stream)
        rates = _sigmoid(drawn.log_odds + ads_shape.DRIFT * position + intercept)
        uniforms = (drawn.label_bits >> np.uint64(11)) * 2.0**-53
        labels = (uniforms < rates).astype(np.uint8)
        yield Chunk(
            labels[:wanted],
            drawn.integers[:, :wanted],
            drawn.values[:, :wanted],
            drawn.hashes[:, :wanted],
            rates[:wanted],
        )


def write_text(path: Path, rows: int, seed: int = 0, base_rate: float = 0.25) -> None:
    """Write the same rows in the raw layout of Criteo's train.txt, in bounded memory.

    TAB-separated, no header, label, 13 integers, 26 categories of eight hex digits, missing
    fields empty. Preparing the file with the schema "criteo-kaggle" gives the columns of
    :func:`synthetic` bit for bit.

    Raises:
        UsageError: an argument is out of range.
        DpcompareError: the file cannot be written.
    """
    names = [column.name for column in load_schema(SCHEMA).columns]
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none", batch_size=BLOCK_ROWS
    )
    types = [pa.uint8()] + [pa.int64()] * len(ads_shape.NUMERIC)
    types += [pa.string()] * len(ads_shape.CATEGORIES)
    layout = pa.schema(list(zip(names, types, strict=True)))
    pieces = chunks(rows, seed, base_rate)
    try:
        with pyarrow.csv.CSVWriter(path, layout, write_options=options) as writer:
            for chunk in pieces:
                writer.write_batch(pa.record_batch(_text_columns(chunk), schema=layout))
    except OSError as error:
        raise DpcompareError(f"cannot write {path}: {error}") from error


def _text_columns(chunk: Chunk) -> list[pa.Array]:
    columns = [pa.array(chunk.labels)]
    for integers in chunk.integers:
        absent = np.isnan(integers)
        columns.append(pa.array(np.where(absent, 0, integers).astype(np.int64), mask=absent))
    for values, hashes in zip(chunk.values, chunk.hashes, strict=True):
        columns.append(_hex_text(values, hashes == MISSING))
    return columns


def _hex_text(values: npt.NDArray[np.uint32], absent: npt.NDArray[np.bool_]) -> pa.Array:
    offsets = np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32)
    present = np.packbits(~absent, bitorder="little")
    buffers = [pa.py_buffer(data) for data in (present, offsets, hex_digits(values))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


class _Block(NamedTuple):
    """A drawn block before drift and intercept; see :class:`Chunk`."""

    integers: Float64Array
    values: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint32]
    log_odds: Float64Array
    label_bits: npt.NDArray[np.uint64]


def _draw(stream: np.random.Philox) -> _Block:
    made = world()
    label_bits = stream.random_raw(BLOCK_ROWS)
    absent = _missing_groups(stream)
    log_odds = np.zeros(BLOCK_ROWS)
    second_effects: dict[str, Float64Array] = {}

    integers = np.empty((len(made.numeric), BLOCK_ROWS))
    for row, (name, number) in zip(integers, made.numeric.items(), strict=True):
        bits = stream.random_raw(BLOCK_ROWS)
        slots = _slots(bits, absent.get(number.missing))
        np.add(number.base[slots], _step(bits, number.width[slots]), out=row)
        log_odds += number.effect[slots]
        if number.second_effect is not None:
            second_effects[name] = number.second_effect[slots]

    values = np.empty((len(made.categories), BLOCK_ROWS), dtype=np.uint32)
    hashes = np.empty_like(values)
    for index, (name, category) in enumerate(made.categories.items()):
        bits = stream.random_raw(BLOCK_ROWS)
        slots = _slots(bits, absent.get(category.missing))
        np.take(category.values, slots, out=values[index], mode="clip")
        np.take(category.hashes, slots, out=hashes[index], mode="clip")
        log_odds += category.effect[slots]
        if category.second_effect is not None:
            second_effects[name] = category.second_effect[slots]
        rare = np.flatnonzero((slots >= category.first_wide) & (slots < MISSING_SLOT))
        if len(rare):
            slots = slots[rare]
            ranks = category.base[slots] + _step(bits[rare], category.width[slots])
            drawn = category.value_of(ranks)
            values[index, rare] = drawn
            hashes[index, rare] = hash_hex(drawn)
            log_odds[rare] += category.spread[slots] * effects(drawn, category.salt)

    for first, second, strength in ads_shape.PAIRS:
        log_odds += strength * second_effects[first] * second_effects[second]
    return _Block(integers, values, hashes, log_odds, label_bits)


def _slots(
    bits: npt.NDArray[np.uint64], absent: npt.NDArray[np.intp] | None
) -> npt.NDArray[np.intp]:
    slots = (bits >> _SLOT_SHIFT).astype(np.intp)
    return slots if absent is None else np.maximum(slots, absent, out=slots)


def _step(bits: npt.NDArray[np.uint64], width: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A whole number in 0..width - 1 from the low half of the bits; width < 2**32."""
    step = bits & _LOW_HALF
    step *= width
    step >>= _HALF
    return step


def _missing_groups(stream: np.random.Philox) -> dict[str, npt.NDArray[np.intp]]:
    """For each group MISSING_SLOT where its columns are missing, 0 elsewhere."""
    absent = {}
    bits = np.zeros(0, dtype=np.uint64)
    for index, (group, share) in enumerate(ads_shape.MISSING.items()):
        if index % 4 == 0:  # one draw of 64 bits serves four groups
            bits = stream.random_raw(BLOCK_ROWS)
        sixteen = (bits >> np.uint64(16 * (index % 4))) & np.uint64(0xFFFF)
        absent[group] = (sixteen < np.uint64(round(share * 65536))) * np.intp(MISSING_SLOT)
    return absent


@functools.cache
def _calibration_log_odds() -> Float64Array:
    """Log-odds of a fixed sample, drift included, from streams that no seed uses."""
    blocks = []
    for block in range(_CALIBRATION_BLOCKS):
        stream = np.random.Philox(counter=[0, 0, 0, 1], key=np.array([0, block], dtype=np.uint64))
        blocks.append(_draw(stream).log_odds)
    log_odds = np.concatenate(blocks)
    position = (np.arange(len(log_odds)) + 0.5) / len(log_odds)
    return log_odds + ads_shape.DRIFT * position


@functools.cache
def _intercept(base_rate: float) -> float:
    """The intercept at which the fixed sample has the mean rate `base_rate`, by bisection."""
    log_odds = _calibration_log_odds()
    low, high = -100.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = float(np.mean(_sigmoid(log_odds + middle)))
        low, high = (middle, high) if mean < base_rate else (low, middle)
    return (low + high) / 2


def _sigmoid(log_odds: Float64Array) -> Float64Array:
    return 1.0 / (1.0 + np.exp(-log_odds))


def _check_arguments(rows: int, seed: int, base_rate: float) -> None:
    if rows < 1:
        raise UsageError(f"rows of the synthetic log must be at least 1, got {rows}")
    if not 0 <= seed < 2**64:
        raise UsageError(f"seed of the synthetic log must lie between 0 and 2**64 - 1, got {seed}")
    if not 0.0 < base_rate < 1.0:
        raise UsageError(f"base_rate must lie between 0 and 1, got {base_rate}")
