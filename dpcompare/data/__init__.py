"""Data: schemas, preparation of raw logs, the synthetic ads log, splits and encodings."""

from pathlib import Path

from dpcompare.data.dataset import (
    Dataset,
    Encoder,
    Features,
    HashBuckets,
    Vocabulary,
    encode,
    load_prepared,
)
from dpcompare.data.manifest import Manifest, read_manifest
from dpcompare.data.prepare import prepare
from dpcompare.data.schema import Column, Schema, Target, bundled_schemas, load_schema
from dpcompare.data.splits import split_rows
from dpcompare.data.synthetic import SCHEMA as SYNTHETIC_SCHEMA
from dpcompare.data.synthetic import synthetic, synthetic_checksum, write_text

__all__ = [
    "SYNTHETIC_SCHEMA",
    "Column",
    "Dataset",
    "Encoder",
    "Features",
    "HashBuckets",
    "Manifest",
    "Schema",
    "Target",
    "Vocabulary",
    "bundled_schemas",
    "encode",
    "load",
    "load_prepared",
    "load_schema",
    "prepare",
    "read_manifest",
    "split_rows",
    "synthetic",
    "synthetic_checksum",
    "write_text",
]

DEFAULT_ROWS = 125_000


def load(
    source: str | Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    base_rate: float = 0.25,
    conversion_rate: float = 0.03,
) -> Dataset:
    """The synthetic log, or a prepared folder.

    Args:
        source: "synthetic", or the path of a folder that :func:`prepare` made.
        rows: how many rows; of a folder the first ones. None: 125,000 synthetic rows, or the whole
            folder.
        seed: picks the synthetic rows; a folder has none.
        base_rate: mean click rate of the synthetic log.
        conversion_rate: its mean conversion rate.

    Raises:
        UsageError: an argument is out of range.
        DpcompareError: the path is not a prepared data set.
    """
    if source == "synthetic":
        return synthetic(DEFAULT_ROWS if rows is None else rows, seed, base_rate, conversion_rate)
    dataset = load_prepared(Path(source))
    return dataset if rows is None else dataset.head(rows)
