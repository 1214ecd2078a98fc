import functools

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from dpcompare.data import (
    HashBuckets,
    encode,
    load_prepared,
    prepare,
    split_rows,
    synthetic,
    synthetic_checksum,
    write_text,
)
from dpcompare.data import ads_shape as shape
from dpcompare.data.ads_world import SLOTS, effects, scramble, slot_ranges, world
from dpcompare.data.synthetic import BLOCK_ROWS, chunks
from dpcompare.errors import DpcompareError, UsageError

ROWS = 150_000

PINNED_VALUES = ["3cd6e3f3", "a8014508", "0cf42561", "6fad567c"]
PINNED_INTEGERS = [0, 3, 4, 20, 10, 8, 2, 6, 1, 0, 2, -9, 5]


@functools.cache
def log():
    """One larger log for the statistical tests."""
    return synthetic(ROWS, seed=1)


@functools.cache
def raw():
    """The same rows, raw: (integers, values, hashes), columns first."""
    parts = list(chunks(ROWS, seed=1))
    return tuple(
        np.concatenate([getattr(part, name) for part in parts], axis=1)
        for name in ("integers", "values", "hashes")
    )


def identical(first: np.ndarray, second: np.ndarray) -> bool:
    """Bit for bit, NaNs included."""
    same_kind = first.dtype == second.dtype and first.shape == second.shape
    return same_kind and first.tobytes() == second.tobytes()


# --- determinism ----------------------------------------------------------------------------


def test_the_same_arguments_give_the_same_log():
    first, second = synthetic(5000, seed=7), synthetic(5000, seed=7)
    assert identical(first.numeric, second.numeric)
    assert identical(first.categories, second.categories)
    assert identical(first.labels["pctr"], second.labels["pctr"])
    assert identical(first.true_rates, second.true_rates)
    assert first.checksum == second.checksum


def test_another_seed_gives_other_rows_of_the_same_world():
    first, second = synthetic(5000, seed=0), synthetic(5000, seed=1)
    assert not identical(first.categories, second.categories)
    assert len(np.intersect1d(first.categories[:, 1], second.categories[:, 1])) > 100


def test_a_shorter_log_starts_with_the_same_features():
    """Rates differ a little: the drift runs over the whole log."""
    rows = BLOCK_ROWS + 100
    short, long = synthetic(rows), synthetic(3 * BLOCK_ROWS)
    assert identical(short.numeric, long.numeric[:rows])
    assert identical(short.categories, long.categories[:rows])


def test_blocks_are_drawn_on_their_own():
    """Row ranges do not depend on the blocks drawn before them."""
    whole = list(chunks(3 * BLOCK_ROWS - 5))
    again = [part for index, part in enumerate(chunks(3 * BLOCK_ROWS - 5)) if index == 2]
    assert [len(part.labels) for part in whole] == [BLOCK_ROWS, BLOCK_ROWS, BLOCK_ROWS - 5]
    assert identical(whole[2].hashes.copy(), again[0].hashes.copy())
    assert not np.array_equal(whole[0].hashes[:, :100], whole[1].hashes[:, :100])


def test_the_first_row_is_pinned():
    """A change here must come with a new ads_shape.VERSION: results depend on these rows."""
    part = next(chunks(1, seed=0))
    assert shape.VERSION == 1
    assert [f"{value:08x}" for value in part.values[:4, 0]] == PINNED_VALUES
    assert np.nan_to_num(part.integers[:, 0], nan=-9).astype(int).tolist() == PINNED_INTEGERS


def test_the_checksum_is_that_of_the_arguments_and_needs_no_rows():
    assert synthetic_checksum(100, 2, 0.1) == synthetic(100, 2, 0.1).checksum
    others = [(9, 0, 0.2), (8, 0, 0.2), (9, 1, 0.2), (9, 0, 0.3)]
    assert len({synthetic_checksum(*arguments) for arguments in others}) == 4
    assert synthetic_checksum(10**12) == synthetic_checksum(10**12, 0, 0.25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "rows of the synthetic log must be at least 1, got 0"),
        ((-3,), "at least 1, got -3"),
        ((10, -1), "seed of the synthetic log must lie between 0"),
        ((10, 2**64), "seed of the synthetic log"),
        ((10, 0, 0.0), "base_rate must lie between 0 and 1, got 0.0"),
        ((10, 0, 1.0), "base_rate"),
        ((10, 0, float("nan")), "base_rate"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    for function in (synthetic, chunks, synthetic_checksum):
        with pytest.raises(UsageError, match=message):
            function(*arguments)


# --- the true rates -------------------------------------------------------------------------


def test_labels_follow_the_true_rates_by_decile():
    """Mean label against mean rate: within 4 standard errors in each tenth, and overall."""
    rates, labels = log().true_rates, log().labels["pctr"]
    order = np.argsort(rates)
    for rows in [order, *np.array_split(order, 10)]:
        error = np.sqrt((rates[rows] * (1 - rates[rows])).sum()) / len(rows)
        assert abs(labels[rows].mean() - rates[rows].mean()) < 4 * error


@pytest.mark.parametrize("base_rate", [0.02, 0.25, 0.5])
def test_the_base_rate_is_met(base_rate):
    assert abs(synthetic(100_000, 5, base_rate).true_rates.mean() - base_rate) < 0.003


def test_the_click_rate_drifts_upward():
    """.265 / .218 = 1.22 from the first rows to the last seventh; 1.20 between these means.

    Their ratio has a standard error of about .01.
    """
    rates = log().true_rates
    growth = rates[-ROWS // 7 :].mean() / rates[: ROWS // 10].mean()
    assert growth == pytest.approx(1.20, abs=0.04)


def test_the_best_possible_auc_is_that_of_an_ads_log():
    auc = roc_auc_score(log().labels["pctr"], log().true_rates)
    assert 0.80 < auc < 0.815


def test_a_logistic_regression_on_100_000_rows_comes_close_to_it():
    rows, train = 120_000, slice(0, 100_000)
    encoder = HashBuckets.for_columns(300, log())
    features = encode(log(), slice(0, rows), encoder)
    missing = np.isnan(features.numeric)
    columns = features.ids + 300 * np.arange(26)
    one_hot = scipy.sparse.csr_matrix(
        (np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 26)),
        shape=(rows, 300 * 26),
    )
    design = scipy.sparse.hstack(
        [one_hot, np.where(missing, 0, features.numeric), missing], format="csr"
    )
    labels = log().labels["pctr"][:rows]
    model = LogisticRegression(C=0.1, tol=1e-3).fit(design[train], labels[train])
    auc = roc_auc_score(labels[100_000:], model.predict_proba(design[100_000:])[:, 1])
    assert 0.77 < auc < 0.795


# --- the shape of the features --------------------------------------------------------------


def test_columns_go_missing_at_their_rates_and_in_their_groups():
    """Shares within 4 standard errors."""
    integers, _, hashes = raw()
    absent = dict(zip(shape.NUMERIC, np.isnan(integers), strict=True))
    absent |= dict(zip(shape.CATEGORIES, hashes == 0, strict=True))
    grouped = set()
    for group, share in shape.MISSING.items():
        names = group.split(", ")
        grouped |= set(names)
        first = absent[names[0]]
        assert abs(first.mean() - share) < 4 * np.sqrt(share * (1 - share) / ROWS) + 1e-5
        assert all(np.array_equal(absent[name], first) for name in names)
    assert not any(absent[name].any() for name in absent.keys() - grouped)


# Medians and 99th percentiles of the Criteo log's first 10,000 rows.
PUBLISHED = {
    "I1": (1, 44),
    "I2": (3, 2223),
    "I3": (7, 303),
    "I4": (4, 44),
    "I5": (2491, 312517),
    "I6": (40, 1737),
    "I7": (3, 190),
    "I8": (7, 48),
    "I9": (41, 1229),
    "I10": (0, 3),
    "I11": (1, 22),
    "I12": (0, 14),
    "I13": (5, 74),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_integers_have_the_published_medians_and_tails(name):
    values = raw()[0][list(shape.NUMERIC).index(name)]
    values = values[~np.isnan(values)]
    median, p99 = np.quantile(values, [0.5, 0.99])
    assert abs(median - PUBLISHED[name][0]) <= 1 + 0.1 * PUBLISHED[name][0]
    assert abs(p99 - PUBLISHED[name][1]) <= 1 + 0.15 * PUBLISHED[name][1]
    assert np.array_equal(values, np.trunc(values))
    assert values.min() >= shape.NUMERIC[name].lowest
    assert values.max() <= shape.NUMERIC[name].at_most[-1][0]


def test_only_the_second_integer_is_ever_negative():
    lows = np.nanmin(raw()[0], axis=1)
    assert lows[1] == -2
    assert (np.delete(lows, 1) >= 0).all()


def test_the_schema_brings_typical_magnitudes_to_about_one():
    sizes = np.sqrt(np.nanmean(log().numeric.astype(np.float64) ** 2, axis=0))
    assert ((sizes > 0.4) & (sizes < 1.5)).all()


# Distinct values among the Criteo log's first 10,000 rows.
DISTINCT = {
    "C1": 175,
    "C2": 386,
    "C3": 5520,
    "C4": 4032,
    "C7": 3184,
    "C10": 2986,
    "C11": 2084,
    "C12": 5283,
    "C13": 1725,
    "C15": 2035,
    "C16": 4723,
    "C18": 1149,
    "C19": 546,
    "C21": 5036,
    "C24": 2524,
    "C26": 1938,
}


@pytest.mark.parametrize("name", DISTINCT)
def test_categories_have_as_many_values_as_published(name):
    hashes = raw()[2][list(shape.CATEGORIES).index(name), :10_000]
    assert len(np.unique(hashes[hashes != 0])) == pytest.approx(DISTINCT[name], rel=0.12)


def test_heavy_columns_are_mostly_singletons_and_keep_growing():
    for name in ("C3", "C12", "C21"):
        hashes = raw()[2][list(shape.CATEGORIES).index(name)]
        distinct, counts = np.unique(hashes[:10_000], return_counts=True)
        assert (counts == 1).mean() > 0.8
        assert len(np.unique(hashes)) > 5 * len(distinct)


def test_one_value_fills_89_percent_of_c9():
    hashes = raw()[2][8]
    assert np.unique(hashes, return_counts=True)[1].max() / ROWS == pytest.approx(0.887, abs=0.004)


def test_a_new_day_brings_values_never_seen_before():
    """About half of the later values of C3 are new after 10,000 rows, as in the Criteo log."""
    hashes = raw()[2][2]
    present = hashes[10_000:20_000][hashes[10_000:20_000] != 0]
    assert 0.4 < (~np.isin(present, hashes[:10_000])).mean() < 0.6


# --- the tables behind it -------------------------------------------------------------------


def test_slots_are_cut_at_the_given_shares():
    first, width = slot_ranges(0, ((0, 0.5), (1, 0.75), (99, 1.0)))
    assert len(first) == SLOTS
    assert ((first == 0).mean(), (first == 1).mean()) == (0.5, 0.25)
    assert first.min() == 0
    assert int((first + width.astype(np.int64)).max()) == 100


def test_values_of_a_column_are_one_to_one_with_ranks():
    ranks = np.arange(200_000, dtype=np.uint64)
    assert len(np.unique(scramble(ranks, 3))) == 200_000
    assert not np.array_equal(scramble(ranks, 3), scramble(ranks, 4))


def test_effects_have_mean_zero_and_variance_one():
    """Bounds are 5 standard errors of 100,000 draws."""
    drawn = effects(scramble(np.arange(100_000, dtype=np.uint64), 1), 1)
    assert abs(drawn.mean()) < 5 / np.sqrt(100_000)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / 100_000)


def test_frequent_values_have_larger_effects_than_rare_ones():
    for table in world().categories.values():
        assert table.spread[0] >= table.spread[SLOTS - 1]
    assert world().categories["C3"].spread[SLOTS - 1] < 0.1 * world().categories["C3"].spread[0]


# --- the same log as raw text ---------------------------------------------------------------


def test_the_written_text_prepares_to_the_same_columns_bit_for_bit(tmp_path):
    rows = BLOCK_ROWS + 777
    write_text(tmp_path / "train.txt", rows, seed=3, base_rate=0.2)
    manifest = prepare("criteo-kaggle", [tmp_path / "train.txt"], tmp_path / "prepared")
    direct, mapped = synthetic(rows, 3, 0.2), load_prepared(tmp_path / "prepared")
    assert manifest.rows == rows
    assert manifest.warnings == []
    assert identical(direct.numeric, np.ascontiguousarray(mapped.numeric))
    assert identical(direct.categories, np.ascontiguousarray(mapped.categories))
    assert identical(direct.labels["pctr"], np.ascontiguousarray(mapped.labels["pctr"]))


def test_the_written_text_has_the_raw_layout(tmp_path):
    path = tmp_path / "train.txt"
    write_text(path, 2000)
    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    rows = [line.split(b"\t") for line in lines[:-1]]
    assert {len(row) for row in rows} == {40}
    assert {row[0] for row in rows} == {b"0", b"1"}
    categories = {field for row in rows for field in row[14:]}
    assert all(len(field) in (0, 8) for field in categories)
    assert b"" in categories
    assert b"".join(categories).lower() == b"".join(categories)


def test_text_that_cannot_be_written_is_one_error(tmp_path):
    with pytest.raises(DpcompareError, match="cannot write"):
        write_text(tmp_path / "absent" / "train.txt", 10)


def test_the_default_split_leaves_both_classes_everywhere():
    labels = synthetic(1000, base_rate=0.1).labels["pctr"]
    assert all(0 < labels[part].mean() < 1 for part in split_rows(1000))
