import functools
import hashlib

import numpy as np
import pytest
import scipy.sparse
from scipy.stats import nbinom
from sklearn.linear_model import LogisticRegression, PoissonRegressor
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
from dpcompare.data.ads_labels import negative_binomial
from dpcompare.data.ads_world import SLOTS, effects, scramble, slot_ranges, world
from dpcompare.data.synthetic import BLOCK_ROWS, chunks
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.metrics import count_metrics

ROWS = 150_000
TASKS = ("pctr", "pcvr", "pconvs")

PINNED_VALUES = ["3cd6e3f3", "a8014508", "0cf42561", "6fad567c"]
PINNED_INTEGERS = [0, 3, 4, 20, 10, 8, 2, 6, 1, 0, 2, -9, 5]

# SHA-256 of 3000 rows with seed 11, base_rate 0.2. Rates are rounded to float32, so that the last
# bit of the platform's exp does not matter. Features and clicks are those of version 1.
PINNED_DIGESTS = {
    "features": "0f54c93f8a70717258acff5a2904e941def658a1106d44900574d5825ab47d61",
    "pctr": "4eab779de39e9e16db055f9f0407e2da1e2734f74b8db9676225cdad9ea6986e",
    "pctr rates": "8aba386270a4721cea30b1f3214d7fa7436eddba1f0b0d7c7a1e80a59e3e5bf1",
    "pcvr": "3f6f3554a0db60fbc05fa8b31feb835f5eb4a3a4d5a0f39a59eb264c9d5f7fc3",
    "pcvr rates": "b8583b74bc2e8bb55ffbb08d16fbaec59deb4dc413eda9eb7cc0c3d879bc9666",
    "pconvs": "ea1ab7765f419fb2a06c5ba413b6e62873e516763b8a4c81e927d61014a536ba",
    "pconvs rates": "e83b0db9d50d22303710b28dddb370684b7c4e74c5d8086b69c19813dcce444e",
}


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


def digest(*arrays: np.ndarray) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


@functools.cache
def one_hot(names: tuple[str, ...], buckets: int) -> scipy.sparse.csr_matrix:
    """All numbers with their missing marks, and the named columns in hash buckets."""
    encoder = HashBuckets.for_columns(buckets, log())
    features = encode(log(), slice(0, ROWS), encoder)
    chosen = [log().categorical_names.index(name) for name in names]
    columns = features.ids[:, chosen] + buckets * np.arange(len(names))
    starts = np.arange(0, columns.size + 1, len(names))
    shape = (ROWS, buckets * len(names))
    categories = scipy.sparse.csr_matrix((np.ones(columns.size), columns.ravel(), starts), shape)
    missing = np.isnan(features.numeric)
    numbers = np.where(missing, 0, features.numeric).astype(np.float64)
    return scipy.sparse.hstack([categories, numbers, missing], format="csr")


# --- determinism ----------------------------------------------------------------------------


def test_the_same_arguments_give_the_same_log():
    first, second = synthetic(5000, seed=7), synthetic(5000, seed=7)
    assert identical(first.numeric, second.numeric)
    assert identical(first.categories, second.categories)
    for task in TASKS:
        assert identical(first.labels[task], second.labels[task])
        assert identical(first.true_rates[task], second.true_rates[task])
    assert first.checksum == second.checksum


def test_another_seed_gives_other_rows_of_the_same_world():
    first, second = synthetic(5000, seed=0), synthetic(5000, seed=1)
    assert not identical(first.categories, second.categories)
    assert len(np.intersect1d(first.categories[:, 1], second.categories[:, 1])) > 100


def test_a_shorter_log_starts_with_the_same_features():
    """Rates, and so a few labels, differ: the drift runs over the whole log."""
    rows = BLOCK_ROWS + 100
    short, long = synthetic(rows), synthetic(3 * BLOCK_ROWS)
    assert identical(short.numeric, long.numeric[:rows])
    assert identical(short.categories, long.categories[:rows])
    for task in TASKS:
        assert 0.95 < (short.labels[task] == long.labels[task][:rows]).mean() < 1


def test_blocks_are_drawn_on_their_own():
    """Row ranges do not depend on the blocks drawn before them."""
    whole = list(chunks(3 * BLOCK_ROWS - 5))
    again = [part for index, part in enumerate(chunks(3 * BLOCK_ROWS - 5)) if index == 2]
    assert identical(whole[2].hashes.copy(), again[0].hashes.copy())
    for task in TASKS:
        lengths = [len(part.labels[task]) for part in whole]
        assert lengths == [BLOCK_ROWS, BLOCK_ROWS, BLOCK_ROWS - 5]
        assert identical(whole[2].labels[task].copy(), again[0].labels[task].copy())
        assert identical(whole[2].rates[task].copy(), again[0].rates[task].copy())
    assert not np.array_equal(whole[0].hashes[:, :100], whole[1].hashes[:, :100])


def test_the_chunks_are_the_rows_of_the_log():
    parts, whole = list(chunks(BLOCK_ROWS + 9, 4)), synthetic(BLOCK_ROWS + 9, 4)
    for task, kind in (("pctr", np.uint8), ("pcvr", np.uint8), ("pconvs", np.float32)):
        assert identical(np.concatenate([part.labels[task] for part in parts]), whole.labels[task])
        assert identical(
            np.concatenate([part.rates[task] for part in parts]), whole.true_rates[task]
        )
        assert whole.labels[task].dtype == kind


@pytest.mark.parametrize("name", PINNED_DIGESTS)
def test_arrays_are_pinned(name):
    """A change here must come with a new ads_shape.VERSION: results depend on these rows."""
    made = synthetic(3000, 11, 0.2)
    task, _, rates = name.partition(" ")
    if name == "features":
        found = digest(made.numeric, made.categories)
    elif rates:
        found = digest(made.true_rates[task].astype(np.float32))
    else:
        found = digest(made.labels[task])
    assert found == PINNED_DIGESTS[name]


def test_the_conversion_rate_changes_conversions_only():
    first, second = synthetic(2000, 3), synthetic(2000, 3, conversion_rate=0.3)
    assert identical(first.categories, second.categories)
    assert identical(first.labels["pctr"], second.labels["pctr"])
    assert identical(first.true_rates["pconvs"], second.true_rates["pconvs"])
    assert identical(first.labels["pconvs"], second.labels["pconvs"])
    assert (second.true_rates["pcvr"] > first.true_rates["pcvr"]).all()
    assert (second.labels["pcvr"] >= first.labels["pcvr"]).all()


def test_the_base_rate_changes_clicks_only():
    first, second = synthetic(2000, 3), synthetic(2000, 3, 0.1)
    for task in ("pcvr", "pconvs"):
        assert identical(first.true_rates[task], second.true_rates[task])
        assert identical(first.labels[task], second.labels[task])


def test_the_first_row_is_pinned():
    """A change here must come with a new ads_shape.VERSION: results depend on these rows."""
    part = next(chunks(1, seed=0))
    assert shape.VERSION == 2
    assert [f"{value:08x}" for value in part.values[:4, 0]] == PINNED_VALUES
    assert np.nan_to_num(part.integers[:, 0], nan=-9).astype(int).tolist() == PINNED_INTEGERS


def test_the_checksum_is_that_of_the_arguments_and_needs_no_rows():
    assert synthetic_checksum(100, 2, 0.1, 0.2) == synthetic(100, 2, 0.1, 0.2).checksum
    others = [(9, 0, 0.2), (8, 0, 0.2), (9, 1, 0.2), (9, 0, 0.3), (9, 0, 0.2, 0.2)]
    assert len({synthetic_checksum(*arguments) for arguments in others}) == 5
    assert synthetic_checksum(10**12) == synthetic_checksum(10**12, 0, 0.25, 0.03)


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
        ((10, 0, 0.2, 0.0), "conversion_rate must lie between 0 and 1, got 0.0"),
        ((10, 0, 0.2, 1.0), "conversion_rate"),
        ((10, 0, 0.2, float("nan")), "conversion_rate"),
    ],
)
def test_arguments_out_of_range(arguments, message):
    for function in (synthetic, chunks, synthetic_checksum):
        with pytest.raises(UsageError, match=message):
            function(*arguments)


# --- the true rates -------------------------------------------------------------------------


def variances(task):
    """The variance of each label of the log, given its true rate."""
    rates = log().true_rates[task]
    return rates + rates**2 / shape.GAMMA_SHAPE if task == "pconvs" else rates * (1 - rates)


@pytest.mark.parametrize("task", TASKS)
def test_labels_follow_the_true_rates_by_decile(task):
    """Mean label against mean rate: within 4 standard errors in each tenth, and overall."""
    rates, labels = log().true_rates[task], log().labels[task]
    order = np.argsort(rates)
    for rows in [order, *np.array_split(order, 10)]:
        error = np.sqrt(variances(task)[rows].sum()) / len(rows)
        assert abs(labels[rows].mean() - rates[rows].mean()) < 4 * error


def test_counts_have_the_stated_variance_by_decile():
    """Squared deviations against m + m**2 / shape: within 4 standard errors in each tenth."""
    rates, expected = log().true_rates["pconvs"], variances("pconvs")
    squares = (log().labels["pconvs"] - rates) ** 2
    success = shape.GAMMA_SHAPE / (shape.GAMMA_SHAPE + rates)
    kurtosis = nbinom.stats(shape.GAMMA_SHAPE, success, moments="k")
    order = np.argsort(rates)
    for rows in [order, *np.array_split(order, 10)]:
        error = np.sqrt(((kurtosis + 2) * expected**2)[rows].sum()) / len(rows)
        assert abs(squares[rows].mean() - expected[rows].mean()) < 4 * error


def test_given_the_features_labels_of_different_tasks_are_independent():
    """Products of standardized deviations: within 4 standard errors of 0."""
    deviations = {
        task: (log().labels[task] - log().true_rates[task]) / np.sqrt(variances(task))
        for task in TASKS
    }
    for first, second in (("pctr", "pcvr"), ("pctr", "pconvs"), ("pcvr", "pconvs")):
        products = deviations[first] * deviations[second]
        assert abs(products.mean()) < 4 * products.std() / np.sqrt(ROWS)


@pytest.mark.parametrize("base_rate", [0.02, 0.25, 0.5])
def test_the_base_rate_is_met(base_rate):
    assert abs(synthetic(100_000, 5, base_rate).true_rates["pctr"].mean() - base_rate) < 0.003


@pytest.mark.parametrize("conversion_rate", [0.005, 0.03, 0.3])
def test_the_conversion_rate_is_met(conversion_rate):
    rates = synthetic(100_000, 5, conversion_rate=conversion_rate).true_rates["pcvr"]
    assert abs(rates.mean() - conversion_rate) < 0.002


@pytest.mark.parametrize(("task", "expected"), [("pctr", 1.20), ("pcvr", 1.28), ("pconvs", 1.30)])
def test_rates_drift_upward(task, expected):
    """From the first tenth to the last seventh, which are .88 of the log apart.

    The click rate of the Criteo log grew by .265 / .218 = 1.22 to its last seventh. A drift of 0.3
    multiplies odds and means by exp(0.3 * 0.88) = 1.30. Ratios have standard errors of .01 to .015.
    """
    rates = log().true_rates[task]
    growth = rates[-ROWS // 7 :].mean() / rates[: ROWS // 10].mean()
    assert growth == pytest.approx(expected, abs=0.05)


def test_likely_clicks_are_likelier_conversions_and_those_have_higher_counts():
    """All are correlated, and none is another in disguise."""
    click, conversion = (np.log(log().true_rates[t] / (1 - log().true_rates[t])) for t in TASKS[:2])
    count = np.log(log().true_rates["pconvs"])
    assert 0.25 < np.corrcoef(click, conversion)[0, 1] < 0.5
    assert 0.3 < np.corrcoef(conversion, count)[0, 1] < 0.6


# --- how well they can be predicted ---------------------------------------------------------


def test_the_best_possible_auc_of_clicks_is_that_of_an_ads_log():
    auc = roc_auc_score(log().labels["pctr"], log().true_rates["pctr"])
    assert 0.80 < auc < 0.815


def test_a_logistic_regression_on_100_000_rows_comes_close_to_it():
    assert 0.77 < logistic_auc("pctr", 100_000, 120_000) < 0.795


def logistic_auc(task, train, rows):
    """The test AUC of plain logistic regression on 300 hash buckets of every column."""
    design, labels = one_hot(tuple(shape.CATEGORIES), 300), log().labels[task]
    model = LogisticRegression(C=0.1, tol=1e-3).fit(design[:train], labels[:train])
    return roc_auc_score(labels[train:rows], model.predict_proba(design[train:rows])[:, 1])


def test_the_best_possible_auc_of_conversions_and_most_of_it_can_be_learnt():
    """About 4,500 conversions in all and 1,500 in the test rows: an AUC is known to about .006."""
    best = roc_auc_score(log().labels["pcvr"], log().true_rates["pcvr"])
    assert 0.785 < best < 0.815
    assert 0.755 < logistic_auc("pcvr", 100_000, 150_000) < best


def test_counts_are_over_dispersed_with_mostly_zeros_and_a_heavy_tail():
    counts = synthetic(100_000, 2).labels["pconvs"]
    assert counts.mean() == pytest.approx(0.19, abs=0.01)
    assert 0.865 < (counts == 0).mean() < 0.885
    assert counts.var() > 1.8 * counts.mean()
    assert counts.max() > 10
    assert (counts > 20).sum() < 10
    assert np.array_equal(counts, np.trunc(counts))


def test_mean_counts_are_bounded():
    """The bounds of log m cut few rows."""
    means = log().true_rates["pconvs"]
    low, high = np.exp(shape.COUNT_BOUNDS)
    assert low <= means.min() < means.max() <= high
    assert ((means == low) | (means == high)).mean() < 0.001


def test_a_linear_poisson_model_of_186_weights_explains_half_of_what_can_be_explained():
    names = ("C5", "C6", "C9", "C14", "C17", "C20", "C22", "C23")
    design, counts = one_hot(names, 20), log().labels["pconvs"].astype(np.float64)
    train, test = slice(0, 100_000), slice(100_000, ROWS)
    model = PoissonRegressor(alpha=1e-4, max_iter=300).fit(design[train], counts[train])
    best = count_metrics(counts, log().true_rates["pconvs"])["d2"]
    assert 0.19 < best < 0.23
    assert design.shape[1] == 186
    assert 0.5 * best < count_metrics(counts[test], model.predict(design[test]))["d2"] < best


# --- negative binomial counts ---------------------------------------------------------------


@pytest.mark.parametrize("gamma_shape", [0.5, 1.7])
def test_counts_invert_the_negative_binomial_distribution(gamma_shape):
    """scipy's quantiles are the smallest counts whose distribution function reaches a uniform."""
    uniforms = np.tile((np.arange(2000) + 0.3) / 2000, 3)
    means = np.repeat([0.01, 0.3, 7.0], 2000)
    expected = nbinom.ppf(uniforms, gamma_shape, gamma_shape / (gamma_shape + means))
    assert np.array_equal(negative_binomial(uniforms, means, gamma_shape), expected)


def test_the_smallest_and_the_largest_uniform_give_bounded_counts():
    means = np.exp(np.array(shape.COUNT_BOUNDS))
    assert negative_binomial(np.zeros(2), means, 0.5).tolist() == [0, 0]
    largest = negative_binomial(np.full(2, 1 - 2.0**-53), means, 0.5)
    assert ((largest > 0) & (largest <= 1000)).all()


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
