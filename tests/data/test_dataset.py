import hashlib
import json

import numpy as np
import pytest

from dpcompare.data import (
    Dataset,
    HashBuckets,
    Vocabulary,
    encode,
    load,
    load_prepared,
    prepare,
    read_manifest,
    split_rows,
    synthetic,
)
from dpcompare.errors import DpcompareError, UsageError
from tests.data.logs import criteo_text, own_schema, write


def dataset_of(*columns: list[int]) -> Dataset:
    """A data set with the given columns of category hashes."""
    categories = np.array(columns, dtype=np.uint32).T
    rows = len(categories)
    return Dataset(
        name="made up",
        checksum="0",
        numeric=np.arange(rows, dtype=np.float32)[:, None],
        categories=categories,
        labels={"pctr": np.zeros(rows, dtype=np.uint8)},
        true_rates=None,
        numeric_names=("n",),
        categorical_names=tuple(f"c{i}" for i in range(len(columns))),
        description={},
    )


@pytest.fixture
def prepared(tmp_path):
    source = write(tmp_path / "train.txt", criteo_text(20))
    prepare("criteo-kaggle", [source], tmp_path / "prepared")
    return tmp_path / "prepared"


# --- splits ---------------------------------------------------------------------------------


def test_the_split_is_in_time_order_and_covers_every_row_once():
    train, validation, test = split_rows(125_000)
    assert (train, validation, test) == (
        slice(0, 100_000),
        slice(100_000, 112_500),
        slice(112_500, 125_000),
    )


@pytest.mark.parametrize("rows", [3, 7, 10, 99, 12_345])
def test_uneven_splits_leave_no_row_out(rows):
    parts = split_rows(rows, (1 / 3, 1 / 3, 1 / 3))
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]
    assert (parts[0].start, parts[-1].stop) == (0, rows)
    assert all(part.stop > part.start for part in parts)


@pytest.mark.parametrize(
    "shares",
    [(0.8, 0.2), (0.8, 0.1, 0.2), (0.9, 0.1, 0.0), (1.2, -0.1, -0.1), (0.8, 0.1, float("nan")), ()],
)
def test_shares_must_be_three_positive_numbers_that_add_up_to_one(shares):
    with pytest.raises(UsageError, match="three numbers above 0 that add up to 1"):
        split_rows(100, shares)


def test_shares_may_miss_one_by_rounding():
    assert split_rows(10, (0.8, 0.1, 0.1 + 5e-10))[2] == slice(9, 10)


def test_too_few_rows_for_the_split():
    with pytest.raises(UsageError, match="2 rows are too few"):
        split_rows(2)


# --- hash buckets ---------------------------------------------------------------------------


def test_hash_buckets_reserve_zero_for_missing_and_follow_the_formula():
    hashes = [0, 1, 2, 299, 300, 301, 2**32 - 1]
    dataset = dataset_of(hashes)
    encoder = HashBuckets.for_columns(300, dataset)
    ids = encode(dataset, slice(0, 7), encoder).ids[:, 0]
    assert ids.tolist() == [0] + [1 + (value - 1) % 299 for value in hashes[1:]]
    assert ids.dtype == np.int32
    assert encoder.sizes == (300,)
    assert not encoder.learnt


def test_two_buckets_are_missing_and_present():
    dataset = dataset_of([0, 5, 2**32 - 1])
    assert encode(dataset, slice(0, 3), HashBuckets(2, 1)).ids[:, 0].tolist() == [0, 1, 1]


@pytest.mark.parametrize("buckets", [1, 0, -5, 2**31])
def test_bucket_counts_out_of_range_are_refused(buckets):
    with pytest.raises(UsageError, match="buckets must lie between 2"):
        HashBuckets(buckets, 26)


# --- learnt vocabularies --------------------------------------------------------------------


def test_a_vocabulary_knows_train_values_only():
    a, b, c = 11, 22, 33
    dataset = dataset_of([a, b, a, a, c])
    vocabulary = Vocabulary.learn(dataset, slice(0, 2), min_count=1)
    assert vocabulary.sizes == (4,)
    assert vocabulary.learnt
    features = encode(dataset, slice(2, 5), vocabulary)
    assert features.ids[:, 0].tolist() == [2, 2, 1]  # c was never seen in the train rows
    assert features.numeric[:, 0].tolist() == [2.0, 3.0, 4.0]


def test_more_test_rows_leave_the_vocabulary_as_it_is():
    small, large = dataset_of([1, 2, 3, 4]), dataset_of([1, 2, 3, 4, 5, 6])
    first = Vocabulary.learn(small, slice(0, 3), min_count=1)
    second = Vocabulary.learn(large, slice(0, 3), min_count=1)
    assert first.values[0].tolist() == second.values[0].tolist() == [1, 2, 3]


def test_rare_values_share_one_id_and_missing_has_its_own():
    dataset = dataset_of([7, 7, 8, 0, 0, 0], [0, 0, 0, 0, 0, 0])
    vocabulary = Vocabulary.learn(dataset, slice(0, 6), min_count=2)
    assert vocabulary.sizes == (3, 2)
    ids = encode(dataset, slice(0, 6), vocabulary).ids
    assert ids[:, 0].tolist() == [2, 2, 1, 0, 0, 0]
    assert ids[:, 1].tolist() == [0] * 6


def test_a_count_below_one_is_refused():
    with pytest.raises(UsageError, match="min_count must be at least 1"):
        Vocabulary.learn(dataset_of([1]), slice(0, 1), min_count=0)


# --- ids are checked on the host (an accelerator would read another row) ---------------------


class Broken:
    """An encoder whose ids leave its table."""

    learnt = False
    sizes = (5,)

    def __init__(self, bad_id):
        self.bad_id = bad_id

    def ids(self, column, hashes):
        return np.full(len(hashes), self.bad_id)


@pytest.mark.parametrize("bad_id", [5, -1, 2**40])
def test_an_id_beyond_its_table_is_an_error(bad_id):
    with pytest.raises(DpcompareError, match=f"c0: ids must lie between 0 and 4.*gave {bad_id}"):
        encode(dataset_of([1, 2]), slice(0, 2), Broken(bad_id))


def test_an_encoder_for_other_columns_is_an_error():
    with pytest.raises(DpcompareError, match="made for 26 categorical columns, but made up has 1"):
        encode(dataset_of([1, 2]), slice(0, 2), HashBuckets(300, 26))


def test_encoding_in_parts_equals_encoding_at_once(monkeypatch):
    dataset = synthetic(1000)
    whole = encode(dataset, slice(0, 1000), HashBuckets(300, 26)).ids
    monkeypatch.setattr("dpcompare.data.dataset._ENCODED_ROWS", 7)
    assert np.array_equal(encode(dataset, slice(0, 1000), HashBuckets(300, 26)).ids, whole)
    assert np.array_equal(
        encode(dataset, slice(123, 456), HashBuckets(300, 26)).ids, whole[123:456]
    )


# --- prepared folders -----------------------------------------------------------------------


def test_a_prepared_folder_is_mapped_not_copied(prepared):
    dataset = load_prepared(prepared)
    assert isinstance(dataset.numeric.base, np.memmap)
    assert isinstance(dataset.categories.base, np.memmap)
    assert dataset.numeric.shape == (20, 13)
    assert dataset.categories.shape == (20, 26)
    assert dataset.labels["pctr"].tolist() == [0, 1] * 10
    assert dataset.true_rates is None
    assert dataset.checksum == read_manifest(prepared).checksum
    assert dataset.description["numeric_rule"].startswith("sign(x) * log1p(|x|)")
    assert dataset.description["category_rule"].startswith("1 + FNV-1a-64")


def test_the_columns_are_plain_npy_files_with_the_recorded_sha256(prepared):
    manifest = read_manifest(prepared)
    assert set(manifest.files) == {"numeric.npy", "categories.npy", "label_pctr.npy"}
    for name, facts in manifest.files.items():
        content = (prepared / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == facts["sha256"]
        assert len(np.load(prepared / name)) == 20


@pytest.mark.parametrize("name", ["numeric.npy", "categories.npy", "label_pctr.npy"])
def test_a_cut_or_absent_column_file_is_an_error(prepared, name):
    content = (prepared / name).read_bytes()
    (prepared / name).write_bytes(content[:-1])
    with pytest.raises(DpcompareError, match=f"{name} is damaged.*prepare the data again"):
        load_prepared(prepared)
    (prepared / name).unlink()
    with pytest.raises(DpcompareError, match=f"{name} is damaged"):
        load_prepared(prepared)


def test_a_header_that_does_not_fit_the_manifest_is_an_error(prepared):
    content = (prepared / "numeric.npy").read_bytes()
    assert content.count(b"(20, 13)") == 1
    (prepared / "numeric.npy").write_bytes(content.replace(b"(20, 13)", b"(13, 20)"))
    with pytest.raises(
        DpcompareError, match=r"numeric.npy is damaged: it holds float32 \(13, 20\)"
    ):
        load_prepared(prepared)


def test_a_folder_that_is_not_prepared_names_the_command(tmp_path):
    with pytest.raises(DpcompareError, match=r"is not a prepared data set.*dpcompare prepare"):
        load_prepared(tmp_path)
    with pytest.raises(DpcompareError, match=r"does not exist.*dpcompare prepare"):
        load_prepared(tmp_path / "absent")
    with pytest.raises(DpcompareError, match=r"is a file.*dpcompare prepare"):
        load_prepared(write(tmp_path / "train.txt", "0\t1\n"))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": 1}', '{"format": 1}'])
def test_a_damaged_manifest_is_an_error(prepared, content):
    (prepared / "manifest.json").write_text(content)
    with pytest.raises(DpcompareError, match=r"manifest.json is damaged.*prepare the data again"):
        load_prepared(prepared)


def test_another_manifest_format_is_an_error(prepared):
    path = prepared / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(DpcompareError, match=r"has format 99, this version .* reads format 1"):
        load_prepared(prepared)


def test_a_log_without_numeric_columns_loads(tmp_path):
    columns = tuple(c for c in own_schema().columns if c.role != "numeric")
    source = write(tmp_path / "own.csv", "id,color,click\n1,red,0\n2,blue,1\n")
    prepare(own_schema(columns=columns), [source], tmp_path / "out")
    dataset = load_prepared(tmp_path / "out")
    assert dataset.numeric.shape == (2, 0)
    assert dataset.categories.shape == (2, 1)


# --- load -----------------------------------------------------------------------------------


def test_load_takes_synthetic_or_a_folder(prepared):
    assert load("synthetic", rows=50, seed=3).checksum == synthetic(50, 3).checksum
    assert load(prepared).rows == 20
    assert load(str(prepared)).checksum == load_prepared(prepared).checksum


def test_load_can_take_the_first_rows(prepared):
    whole, part = load(prepared), load(prepared, rows=5)
    assert part.rows == 5
    assert np.array_equal(part.numeric, whole.numeric[:5], equal_nan=True)
    assert part.labels["pctr"].tolist() == [0, 1, 0, 1, 0]
    assert part.checksum != whole.checksum
    assert load(prepared, rows=20).checksum == whole.checksum
    for rows in (0, 21):
        with pytest.raises(UsageError, match="criteo-kaggle has 20 rows"):
            load(prepared, rows=rows)
