import numpy as np
import pytest

from dpcompare.data.hashing import mix_64
from dpcompare.data.summary import DistinctValues, RepeatedRows, RowHash


def hashes_of(distinct: int) -> np.ndarray:
    """That many different 32-bit hashes, 0 not among them."""
    rng = np.random.default_rng(0)
    return rng.choice(2**32 - 1, distinct, replace=False).astype(np.uint32) + np.uint32(1)


@pytest.mark.parametrize("distinct", [0, 1, 7, 300, 10_000, 1_000_000])
def test_distinct_values_are_counted_within_one_percent(distinct):
    counter = DistinctValues()
    hashes = hashes_of(distinct)
    for part in (hashes, hashes[: distinct // 2], np.zeros(100, dtype=np.uint32)):
        counter.add(part)
    assert counter.estimate() == pytest.approx(distinct, rel=0.01, abs=0.5)


@pytest.mark.parametrize("distinct", [50_000, 200_000, 500_000])
def test_the_repeated_share_survives_sampling(distinct):
    """A tenth of the rows occurs 3 times; the sample of >= 32,768 rows bounds the error."""
    hashes = mix_64(np.arange(1, distinct + 1, dtype=np.uint64))
    rows = RepeatedRows()
    for part in np.array_split(hashes, 20):
        rows.add(part)
    for _ in range(2):
        rows.add(hashes[: distinct // 10])
    # Copies per row: mean 1.2, standard deviation .6, over at least 32,768 sampled rows.
    error = 0.6 / np.sqrt(32_768)
    assert rows.copies() == pytest.approx(1.2, abs=4 * error)
    assert rows.share() == pytest.approx(1 - 1 / 1.2, abs=4 * error)


def test_distinct_rows_are_never_called_repeated():
    rows = RepeatedRows()
    rows.add(mix_64(np.arange(300_000, dtype=np.uint64)))
    assert rows.share() == 0.0


def test_nothing_added_is_nothing_repeated():
    assert RepeatedRows().share() == 0.0
    assert RepeatedRows().copies() == 1.0


def test_a_row_hash_tells_rows_apart_and_keeps_the_order_of_columns():
    first = np.array([1, 2, 1, 1], dtype=np.uint32)
    second = np.array([2, 1, 2, 3], dtype=np.uint32)
    row_hash = RowHash(4)
    row_hash.add(first)
    row_hash.add(second)
    hashes = row_hash.finish()
    assert hashes[0] == hashes[2]
    assert len(set(hashes.tolist())) == 3
