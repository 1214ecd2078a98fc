"""The synthetic ads log: Criteo's shape, any size, and the true rates behind every label.

Every row is drawn from the same made-up world (:mod:`dpcompare.data.ads_shape`): its columns are
independent draws from heavy-tailed distributions. The log-odds of a click, the log-odds of a
conversion and the log of the mean number of conversions are each a sum of effects of the column
values, a few products of two of them, and a slow drift. A seed picks the rows, not the world.

All tasks share the same rows, so the conversion labels are drawn for every row, clicked or not: for
them a row is read as a click with these features. Given the features, the three labels of a row
are independent.

Rows are drawn in blocks of fixed size, each from its own counter-based stream keyed by
(seed, block), so that the same arguments give the same rows whatever the chunks or the order.
"""

import functools
import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from dpcompare.data import ads_labels, ads_shape
from dpcompare.data.ads_labels import LABEL_TYPES
from dpcompare.data.ads_world import MISSING_SLOT, SLOT_BITS, effects, world
from dpcompare.data.dataset import Dataset, describe
from dpcompare.data.hashing import MISSING, hash_hex, hex_digits
from dpcompare.data.in_order import in_order
from dpcompare.data.numeric import signed_log
from dpcompare.data.schema import load_schema
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.runner import usable_cores

Float64Array = npt.NDArray[np.float64]

NAME = "synthetic"
SCHEMA = "criteo-kaggle"
BLOCK_ROWS = 1 << 14

_SLOT_SHIFT = np.uint64(64 - SLOT_BITS)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_CALIBRATION_BLOCKS = 4

# The fourth word of a stream's counter: streams of one key never meet.
_CALIBRATION_STREAM = 1
_CONVERSION_STREAM = 2


class Chunk(NamedTuple):
    """Rows of the raw log, column by column, b of them.

    Attributes:
        labels: for each task (b,): uint8, 1 = click or conversion, or float32 counts.
        integers: (13, b) float64 whole numbers, NaN = missing.
        values: (26, b) uint32; as text each is eight lowercase hex digits.
        hashes: (26, b) uint32, the hash of that text; 0 = missing, whatever `values` holds there.
        rates: for each task (b,) float64: the probability that the label is 1, or the mean count.
    """

    labels: dict[str, npt.NDArray[Any]]
    integers: Float64Array
    values: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint32]
    rates: dict[str, Float64Array]


def synthetic(
    rows: int, seed: int = 0, base_rate: float = 0.25, conversion_rate: float = 0.03
) -> Dataset:
    """The synthetic ads log as a data set in memory (about 190 bytes a row).

    The tasks share all rows: "pcvr" and "pconvs" read a row as a click with these features,
    whatever its click label, and their labels depend on the features alone.

    Args:
        rows: at least 1.
        seed: 0 to 2**64 - 1; picks the rows.
        base_rate: the mean click rate, in (0, 1); met within about .003 for large `rows`.
        conversion_rate: the mean probability that a click leads to a conversion, in (0, 1); met
            within about .002 for large `rows`. It does not change the number of conversions, a
            count of other, more frequent events, whose mean is about .19.

    Returns:
        13 numeric and 26 categorical features, tasks "pctr", "pcvr" and "pconvs", and the true
        rates of each: the probabilities of a click and of a conversion given a click, and the
        mean number of conversions of a click. Around that mean m the number has a negative
        binomial distribution of variance ``m + m**2 / ads_shape.GAMMA_SHAPE``.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate, conversion_rate)
    schema = load_schema(SCHEMA)
    numeric = np.empty((rows, len(schema.numeric)), dtype=np.float32)
    categories = np.empty((rows, len(schema.categorical)), dtype=np.uint32)
    labels = {task: np.empty(rows, dtype=kind) for task, kind in LABEL_TYPES.items()}
    rates = {task: np.empty(rows, dtype=np.float64) for task in LABEL_TYPES}
    start = 0
    for chunk in chunks(rows, seed, base_rate, conversion_rate):
        part = slice(start, start + chunk.integers.shape[1])
        for index, column in enumerate(schema.numeric):
            numeric[part, index] = signed_log(chunk.integers[index], column.scale)
        categories[part] = chunk.hashes.T
        for task in LABEL_TYPES:
            labels[task][part] = chunk.labels[task]
            rates[task][part] = chunk.rates[task]
        start = part.stop
    return Dataset(
        name=NAME,
        checksum=synthetic_checksum(rows, seed, base_rate, conversion_rate),
        numeric=numeric,
        categories=categories,
        labels=labels,
        true_rates=rates,
        numeric_names=tuple(column.name for column in schema.numeric),
        categorical_names=tuple(column.name for column in schema.categorical),
        description={
            **describe(schema),
            "source": f"synthetic ads log, version {ads_shape.VERSION}",
            "rows": rows,
            "seed": seed,
            "base_rate": base_rate,
            "conversion_rate": conversion_rate,
        },
    )


def synthetic_checksum(
    rows: int, seed: int = 0, base_rate: float = 0.25, conversion_rate: float = 0.03
) -> str:
    """The checksum of :func:`synthetic`, known without drawing a row.

    It depends on the arguments and the version of the generator, and on nothing else.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate, conversion_rate)
    rates = f"{float(base_rate)!r} {float(conversion_rate)!r}"
    identity = f"{NAME} {ads_shape.VERSION} {rows} {seed} {rates}"
    return hashlib.sha256(identity.encode()).hexdigest()


def chunks(
    rows: int, seed: int = 0, base_rate: float = 0.25, conversion_rate: float = 0.03
) -> Iterator[Chunk]:
    """The same rows as :func:`synthetic`, raw, in chunks of at most 16,384.

    Raises:
        UsageError: an argument is out of range.
    """
    _check_arguments(rows, seed, base_rate, conversion_rate)
    intercepts = _intercept("pctr", base_rate), _intercept("pcvr", conversion_rate)
    return (_chunk(rows, seed, intercepts, block) for block in _blocks(rows))


def _blocks(rows: int) -> range:
    return range(-(-rows // BLOCK_ROWS))


def _chunk(rows: int, seed: int, intercepts: tuple[float, float], block: int) -> Chunk:
    start = block * BLOCK_ROWS
    wanted = min(BLOCK_ROWS, rows - start)
    position = (np.arange(start, start + BLOCK_ROWS) + 0.5) / rows
    drawn = _draw(_stream(seed, block))
    predictors = ads_labels.with_drift(drawn.predictors, position)
    rates = ads_labels.true_rates(predictors, *intercepts)
    conversions = _stream(seed, block, _CONVERSION_STREAM)
    uniforms = {
        "pctr": _uniforms(drawn.click_bits),
        "pcvr": _uniforms(conversions.random_raw(BLOCK_ROWS)),
        "pconvs": _uniforms(conversions.random_raw(BLOCK_ROWS)),
    }
    labels = ads_labels.draw(rates, uniforms)
    return Chunk(
        {task: label[:wanted] for task, label in labels.items()},
        drawn.integers[:, :wanted],
        drawn.values[:, :wanted],
        drawn.hashes[:, :wanted],
        {task: rate[:wanted] for task, rate in rates.items()},
    )


def _stream(seed: int, block: int, purpose: int = 0) -> np.random.Philox:
    key = np.array([seed, block], dtype=np.uint64)
    return np.random.Philox(counter=[0, 0, 0, purpose], key=key)


def _uniforms(bits: npt.NDArray[np.uint64]) -> Float64Array:
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def write_text(path: Path, rows: int, seed: int = 0, base_rate: float = 0.25) -> None:
    """Write the same rows in the raw layout of Criteo's train.txt, in bounded memory.

    TAB-separated, no header, click label, 13 integers, 26 categories of eight hex digits, missing
    fields empty. Preparing the file with the schema "criteo-kaggle" gives the columns of
    :func:`synthetic` bit for bit.

    Raises:
        UsageError: an argument is out of range.
        DpcompareError: the file cannot be written.
    """
    conversion_rate = 0.5  # the file holds clicks only
    _check_arguments(rows, seed, base_rate, conversion_rate)
    intercepts = _intercept("pctr", base_rate), _intercept("pcvr", conversion_rate)
    threads = len(usable_cores())
    try:
        with path.open("wb") as file, ThreadPoolExecutor(threads) as pool:
            text_of = functools.partial(_text, rows, seed, intercepts)
            for _, text in in_order(pool, 2 * threads, iter(_blocks(rows)), text_of):
                file.write(text)
    except OSError as error:
        raise DpcompareError(f"cannot write {path}: {error}") from error


def _text(rows: int, seed: int, intercepts: tuple[float, float], block: int) -> pa.Buffer:
    chunk = _chunk(rows, seed, intercepts, block)
    names = [column.name for column in load_schema(SCHEMA).columns]
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none", batch_size=BLOCK_ROWS
    )
    text = pa.BufferOutputStream()
    pyarrow.csv.write_csv(pa.record_batch(_text_columns(chunk), names), text, options)
    return text.getvalue()


def _text_columns(chunk: Chunk) -> list[pa.Array]:
    columns = [pa.array(chunk.labels["pctr"])]
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
    """A drawn block before drift, intercept and labels; see :class:`Chunk`."""

    integers: Float64Array
    values: npt.NDArray[np.uint32]
    hashes: npt.NDArray[np.uint32]
    predictors: dict[str, Float64Array]
    click_bits: npt.NDArray[np.uint64]


def _draw(stream: np.random.Philox) -> _Block:
    made = world()
    click_bits = stream.random_raw(BLOCK_ROWS)
    absent = _missing_groups(stream)
    log_odds = np.zeros(BLOCK_ROWS)
    conversions = np.zeros((BLOCK_ROWS, 2))
    second_effects: dict[str, Float64Array] = {}

    integers = np.empty((len(made.numeric), BLOCK_ROWS))
    for row, (name, number) in zip(integers, made.numeric.items(), strict=True):
        bits = stream.random_raw(BLOCK_ROWS)
        slots = _slots(bits, absent.get(number.missing))
        np.add(number.base[slots], _step(bits, number.width[slots]), out=row)
        log_odds += number.effect[slots]
        if number.conversions is not None:
            conversions += np.take(number.conversions, slots, axis=0, mode="clip")
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
        if category.conversions is not None:
            conversions += np.take(category.conversions, slots, axis=0, mode="clip")
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

    predictors = ads_labels.combine(log_odds, conversions.T, second_effects)
    return _Block(integers, values, hashes, predictors, click_bits)


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
def _calibration() -> dict[str, Float64Array]:
    """Log-odds of a fixed sample, drift included, from streams that no seed uses."""
    streams = [_stream(0, block, _CALIBRATION_STREAM) for block in range(_CALIBRATION_BLOCKS)]
    drawn = [_draw(stream).predictors for stream in streams]
    sample = {task: np.concatenate([part[task] for part in drawn]) for task in ("pctr", "pcvr")}
    rows = _CALIBRATION_BLOCKS * BLOCK_ROWS
    return ads_labels.with_drift(sample, (np.arange(rows) + 0.5) / rows)


@functools.cache
def _intercept(task: str, rate: float) -> float:
    return ads_labels.intercept(_calibration()[task], rate)


def _check_arguments(rows: int, seed: int, base_rate: float, conversion_rate: float) -> None:
    if rows < 1:
        raise UsageError(f"rows of the synthetic log must be at least 1, got {rows}")
    if not 0 <= seed < 2**64:
        raise UsageError(f"seed of the synthetic log must lie between 0 and 2**64 - 1, got {seed}")
    if not 0.0 < base_rate < 1.0:
        raise UsageError(f"base_rate must lie between 0 and 1, got {base_rate}")
    if not 0.0 < conversion_rate < 1.0:
        raise UsageError(f"conversion_rate must lie between 0 and 1, got {conversion_rate}")
