from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import (
    Column,
    HashBuckets,
    Target,
    encode,
    load_prepared,
    load_schema,
    prepare,
)
from dpcompare.data.hashing import hash_text
from dpcompare.errors import DpcompareError
from tests.data.logs import (
    CRITEO,
    HILLSTROM,
    KAG,
    SHARED,
    documented_schema,
    needs_real_rows,
    own_schema,
    write,
)

pytestmark = needs_real_rows


MISSING_OF_INTEGERS = [
    0.448,
    0,
    0.204,
    0.198,
    0.049,
    0.251,
    0.049,
    0.001,
    0.049,
    0.448,
    0.049,
    0.773,
    0.198,
]
MISSING_OF_CATEGORIES = {
    **dict.fromkeys(["C3", "C4", "C12", "C16", "C21", "C24"], 0.036),
    "C6": 0.133,
    **dict.fromkeys(["C19", "C20", "C25", "C26"], 0.450),
    "C22": 0.818,
}


def test_the_real_criteo_rows_have_their_published_figures(out):
    manifest = prepare(CRITEO, [SHARED / "criteo_kaggle" / "train_first10000.txt"], out)
    assert manifest.rows == 10_000
    assert manifest.labels["pctr"]["mean"] == pytest.approx(0.2182, abs=5e-5)
    found = [column["missing"] for column in manifest.numeric.values()]
    assert found == pytest.approx(MISSING_OF_INTEGERS, abs=6e-4)
    for name, column in manifest.categorical.items():
        assert column["missing"] == pytest.approx(MISSING_OF_CATEGORIES.get(name, 0), abs=6e-4)
    assert manifest.numeric["I2"]["min"] == -2
    assert manifest.numeric["I5"]["max"] == pytest.approx(1_618_110, rel=1e-5)
    assert manifest.categorical["C3"]["distinct"] == pytest.approx(5520, rel=0.01)
    assert manifest.repeated_share == 0
    assert manifest.warnings == []
    dataset = load_prepared(out)
    first = dataset.numeric[0] * [column.scale for column in CRITEO.numeric]
    assert np.isnan(first[11])
    assert np.isfinite(dataset.numeric[~np.isnan(dataset.numeric)]).all()


def test_real_unlabelled_rows_are_refused(out):
    source = SHARED / "criteo_kaggle" / "test_first10000_unlabelled.txt"
    for repair in (False, True):
        with pytest.raises(DpcompareError, match=r"line 1 has 39 fields.*unlabelled test data"):
            prepare(CRITEO, [source], out, repair=repair)


def test_real_damaged_stripped_tabs(out):
    source = SHARED / "damaged" / "criteo_trailing_tabs_stripped.txt"
    with pytest.raises(DpcompareError, match=r"line 3 has 38 fields, expected 40.*--repair"):
        prepare(CRITEO, [source], out)
    manifest = prepare(CRITEO, [source], out, repair=True)
    assert (manifest.rows, manifest.padded_rows) == (1000, 498)
    assert "498 of 1,000 rows" in manifest.warnings[0]


def test_real_damaged_comma_files(tmp_path, out):
    for name in ("criteo_train.tiny.csv", "criteo_noheader_comma.csv"):
        with pytest.raises(DpcompareError, match='when split at commas: set separator = ","'):
            prepare(CRITEO, [SHARED / "damaged" / name], out)
    names = ["Label", *(column.name for column in CRITEO.columns[1:])]
    columns = tuple(
        Column(name, column.role, column.integer, column.scale)
        for name, column in zip(names, CRITEO.columns, strict=True)
    )
    schema = own_schema(columns=columns, tasks={"pctr": Target("Label")}, missing=("",))
    source = SHARED / "damaged" / "criteo_train.tiny.csv"
    manifest = prepare(schema, [source], out)
    assert manifest.rows == source.read_bytes().count(b"\n") - 1
    assert manifest.warnings[0] == "columns that the schema does not list were left out: Id"
    bare = own_schema(header=False, quoting=False, missing=("",), tasks=CRITEO.tasks)
    bare = type(bare)(**{**vars(bare), "columns": CRITEO.columns})
    source = SHARED / "damaged" / "criteo_noheader_comma.csv"
    assert prepare(bare, [source], tmp_path / "bare").rows == 200


def test_real_repeated_rows_are_reported(out):
    manifest = prepare(CRITEO, [SHARED / "damaged" / "criteo_repeated_12x.txt.gz"], out)
    assert manifest.rows == 10_800
    assert manifest.repeated_share == pytest.approx(11 / 12)
    assert "12.0 times on average" in manifest.warnings[0]


def test_the_real_attribution_rows_have_their_published_figures(tmp_path, out):
    source = SHARED / "criteo_attribution" / "attribution_first1000.tsv"
    schema = load_schema("criteo-attribution")
    manifest = prepare(schema, [source], out)
    assert manifest.rows == 1000
    assert manifest.labels["pctr"]["mean"] == pytest.approx(0.351, abs=5e-4)
    clicks = manifest.labels["pcvr"]
    assert (clicks["rows"], clicks["total"], clicks["outside"]) == (351, 44, 0)
    counts = manifest.labels["pconvs"]
    assert (counts["rows"], counts["total"]) == (manifest.journeys, 40)
    dataset = load_prepared(out)
    assert dataset.labels["pconvs"].dtype == np.float32
    assert dataset.categories.shape == (1000, 10)
    by_user = prepare(replace(schema, journey=("uid",)), [source], tmp_path / "users")
    assert by_user.journeys == 922
    assert by_user.labels["pconvs"]["total"] == 40


def test_the_documented_schema_prepares_the_real_hillstrom_rows(tmp_path, out):
    source = SHARED / "conversions" / "hillstrom_64000.csv.gz"
    manifest = prepare(documented_schema(HILLSTROM, tmp_path), [source], out)
    assert manifest.rows == 64_000
    assert manifest.labels["pcvr"]["mean"] == pytest.approx(0.0090, abs=5e-5)
    dataset = load_prepared(out)
    assert dataset.labels["pcvr"].dtype == np.uint8
    assert dataset.numeric_names == ("recency", "history")
    assert not {"visit", "spend"} & {*dataset.numeric_names, *dataset.categorical_names}
    assert encode(dataset, slice(0, 10), HashBuckets(50, 7)).offset is None
    assert np.nanmax(dataset.numeric) < 3


def test_the_documented_schema_prepares_the_real_kag_rows(tmp_path, out):
    source = SHARED / "conversions" / "KAG_conversion_data.csv"
    manifest = prepare(documented_schema(KAG, tmp_path), [source], out)
    counts = manifest.labels["pconvs"]
    assert (counts["rows"], counts["max"]) == (1_143, 60)
    assert counts["mean"] == pytest.approx(2.86, abs=5e-3)
    dataset = load_prepared(out).for_task("pconvs")
    assert np.var(dataset.labels["pconvs"]) == pytest.approx(20.1, abs=0.05)
    offset = encode(dataset, slice(0, 1_143), HashBuckets(50, 4)).offset
    assert offset.dtype == np.float32
    assert np.exp(offset) == pytest.approx(dataset.exposure, rel=1e-5)
    assert "Impressions" not in dataset.numeric_names
    assert np.nanmax(dataset.numeric) < 3


def test_clicks_are_no_exposure_of_the_real_kag_rows(tmp_path, out):
    text = documented_schema(KAG, tmp_path).read_text(encoding="utf-8")
    swapped = text.replace('"Impressions", role = "exposure"', '"Impressions", role = "ignore"')
    swapped = swapped.replace(
        '"Clicks", role = "numeric", integer = true, scale = 3.0', '"Clicks", role = "exposure"'
    )
    schema = write(tmp_path / "clicks.toml", swapped)
    with pytest.raises(DpcompareError, match=r"line \d+, column Clicks: the exposure must be abov"):
        prepare(schema, [SHARED / "conversions" / "KAG_conversion_data.csv"], out)


def test_real_parquet_rows(out):
    columns = (
        *(Column(f"cat{i}", "categorical") for i in (1, 4, 6, 8, 9)),
        Column("click", "label"),
    )
    schema = own_schema(columns=columns)
    folder = SHARED / "criteo_attribution"
    sources = [folder / "small_train.parquet", folder / "small_valid.parquet"]
    manifest = prepare(schema, sources, out)
    assert manifest.rows == 115_382 + 49_770
    assert manifest.labels["pctr"]["mean"] == pytest.approx(0.361, abs=5e-4)
    first = load_prepared(out).categories[0].tolist()
    table = pq.read_table(sources[0], columns=[c.name for c in columns[:5]]).slice(0, 1)
    texts = [str(column[0].as_py()) for column in table.columns]
    assert first == hash_text(pa.array(texts)).tolist()
