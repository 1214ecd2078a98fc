import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

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
        true_rates={},
        numeric_names=("n",),
        categorical_names=tuple(f"c{i}" for i in range(len(columns))),
        description={},
    )


@pytest.fixture
def prepared(tmp_path):
    source = write(tmp_path / "train.txt", criteo_text(20))
    prepare("criteo-kaggle", [source], tmp_path / "prepared")
    return tmp_path / "prepared"


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


# --- tasks that have some of the rows, journeys, exposure -------------------------------------


@pytest.fixture
def rich():
    """Twelve rows: all for pctr, every third for pcvr, one per journey for pconvs."""
    plain = dataset_of(list(range(1, 13)))
    journeys = np.array([0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 4, 5])
    starts = np.array([0, 3, 5, 6, 10, 11])
    clicks = np.array([0, 3, 6, 9])
    return replace(
        plain,
        labels={
            "pctr": np.arange(12, dtype=np.uint8) % 2,
            "pcvr": np.array([1, 0, 1, 1], dtype=np.uint8),
            "pconvs": np.arange(6, dtype=np.float32),
        },
        true_rates={"pctr": np.arange(12) / 12, "pcvr": np.arange(4) / 4},
        rows_of={"pcvr": clicks, "pconvs": starts},
        exposure=np.arange(1, 13, dtype=np.float32),
        journeys=journeys,
        description={"rule": "made up", "rows": 12},
    )


def test_a_task_with_all_rows_shares_them(rich):
    chosen = rich.for_task("pctr")
    assert chosen.rows == 12
    assert chosen.numeric is rich.numeric
    assert chosen.categories is rich.categories
    assert chosen.labels.keys() == chosen.true_rates.keys() == {"pctr"}
    assert chosen.labels["pctr"] is rich.labels["pctr"]
    assert chosen.rows_of == {}
    assert chosen.journeys is rich.journeys
    assert chosen.exposure is None  # for counts alone


def test_a_task_with_some_rows_has_their_features_and_labels(rich):
    chosen = rich.for_task("pcvr")
    assert chosen.numeric[:, 0].tolist() == [0, 3, 6, 9]
    assert chosen.categories[:, 0].tolist() == [1, 4, 7, 10]
    assert chosen.labels["pcvr"].tolist() == [1, 0, 1, 1]
    assert chosen.true_rates["pcvr"].tolist() == [0, 0.25, 0.5, 0.75]
    assert chosen.journeys.tolist() == [0, 1, 3, 3]
    assert chosen.description == {"rule": "made up", "rows": 4}
    assert chosen.exposure is None


def test_a_count_task_keeps_the_exposure_of_its_rows(rich):
    chosen = rich.for_task("pconvs")
    assert chosen.exposure.tolist() == [1, 4, 6, 7, 11, 12]
    assert chosen.labels["pconvs"].tolist() == [0, 1, 2, 3, 4, 5]
    assert chosen.true_rates == {}


def test_the_rows_of_each_task_have_a_checksum_of_their_own(rich):
    checksums = {rich.checksum, *(rich.for_task(task).checksum for task in rich.labels)}
    assert len(checksums) == 4
    assert rich.for_task("pcvr").checksum == rich.for_task("pcvr").checksum


def test_a_task_that_is_not_there_is_an_error_that_names_those_there(rich):
    for action in (rich.for_task, rich.parts):
        with pytest.raises(DpcompareError, match="no label for task 'ctr'; it has: pctr, pcvr, pc"):
            action("ctr")


def test_parts_are_positions_among_the_rows_of_the_task(rich):
    thirds = (1 / 3, 1 / 3, 1 / 3)
    assert rich.parts("pctr", thirds) == (slice(0, 5), slice(5, 10), slice(10, 12))
    assert rich.parts("pconvs", thirds) == (slice(0, 2), slice(2, 4), slice(4, 6))
    assert rich.parts("pcvr", (0.25, 0.25, 0.5)) == (slice(0, 1), slice(1, 2), slice(2, 4))
    with pytest.raises(UsageError, match="4 rows are too few"):
        rich.parts("pcvr", (0.5, 0.25, 0.25))  # both cuts lie in the last journey


def test_parts_of_a_log_without_journeys_are_those_of_its_rows():
    dataset = dataset_of([1] * 10)
    assert dataset.parts("pctr") == split_rows(10)


def test_the_first_rows_keep_the_rows_of_tasks_among_them(rich):
    part = rich.head(7)
    assert part.rows == 7
    assert part.labels["pctr"].tolist() == [0, 1, 0, 1, 0, 1, 0]
    assert part.rows_of["pcvr"].tolist() == [0, 3, 6]
    assert part.labels["pcvr"].tolist() == [1, 0, 1]
    assert part.true_rates["pcvr"].tolist() == [0, 0.25, 0.5]
    assert part.rows_of["pconvs"].tolist() == [0, 3, 5, 6]
    assert part.labels["pconvs"].tolist() == [0, 1, 2, 3]
    assert part.exposure.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert part.journeys.tolist() == [0, 0, 0, 1, 1, 2, 3]
    assert part.for_task("pcvr").numeric[:, 0].tolist() == [0, 3, 6]
    assert part.description["rows"] == 7


def test_the_offset_is_the_log_of_the_exposure(rich):
    encoder = HashBuckets(300, 1)
    offset = encode(rich.for_task("pconvs"), slice(1, 4), encoder).offset
    assert offset.dtype == np.float32
    assert np.array_equal(offset, np.log([4.0, 6.0, 7.0]).astype(np.float32))
    assert encode(rich.for_task("pctr"), slice(0, 12), encoder).offset is None


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
    assert dataset.true_rates == {}
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


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rows": 1}', '{"format": 2}'])
def test_a_damaged_manifest_is_an_error(prepared, content):
    (prepared / "manifest.json").write_text(content)
    with pytest.raises(DpcompareError, match=r"manifest.json is damaged.*prepare the data again"):
        load_prepared(prepared)


def test_another_manifest_format_is_an_error_and_is_not_overwritten(prepared):
    path = prepared / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(DpcompareError, match=r"has format 99, this version .* reads format 2"):
        load_prepared(prepared)
    with pytest.raises(UsageError, match=r"exists already.*It was prepared by another version"):
        prepare("criteo-kaggle", [prepared.parent / "train.txt"], prepared)


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


@pytest.mark.parametrize("name", ["manifest.json", "numeric.npy"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(prepared, monkeypatch, name):
    def refused(real):
        def act(path, *arguments, **keywords):
            if path.name == name:
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return real(path, *arguments, **keywords)

        return act

    monkeypatch.setattr(Path, "read_text", refused(Path.read_text))
    monkeypatch.setattr(np.lib.format, "open_memmap", refused(np.lib.format.open_memmap))
    with pytest.raises(DpcompareError, match=f"{name} cannot be read: Permission denied$"):
        load_prepared(prepared)
