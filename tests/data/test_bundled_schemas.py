"""The bundled schemas on made-up rows: every label that they derive, and what they leave out."""

import gzip
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import load_prepared, load_schema, prepare
from dpcompare.data.hashing import hash_text
from dpcompare.errors import DpcompareError, UsageError
from tests.data.logs import prepare_text, refuse, write

pytestmark = pytest.mark.usefixtures("small_blocks")


def hashes(*texts):
    return hash_text(pa.array(texts, pa.string())).tolist()


# --- the Attribution log ---

ATTRIBUTION = load_schema("criteo-attribution")
ATTRIBUTION_NAMES = [column.name for column in ATTRIBUTION.columns]
# user, campaign, click, conversion, conversion id, seconds since the last click
EVENTS = [
    ("1", "7", 0, 0, "-1", "-1"),
    ("2", "7", 1, 1, "500", "60"),
    ("1", "7", 1, 1, "501", "-1"),
    ("1", "8", 0, 0, "-1", "-1"),
    ("1", "7", 1, 1, "502", "3600"),
    ("1", "7", 0, 1, "501", "3700"),  # a conversion without a click
    ("2", "7", 1, 0, "-1", "5"),
]


def attribution_text(events=EVENTS):
    lines = ["\t".join(ATTRIBUTION_NAMES)]
    for number, (user, campaign, click, conversion, sale, seconds) in enumerate(events):
        sold = str(number) if conversion else "-1"
        fields = {
            "timestamp": str(number),
            "uid": user,
            "campaign": campaign,
            "conversion": str(conversion),
            "conversion_timestamp": sold,
            "conversion_id": sale,
            "attribution": str(conversion),
            "click": str(click),
            "click_pos": sold,
            "click_nb": sold,
            "cost": "0.5",
            "cpo": "0.25",
            "time_since_last_click": seconds,
            **{f"cat{i}": str(1000 * i + number) for i in range(1, 10)},
        }
        lines.append("\t".join(fields[name] for name in ATTRIBUTION_NAMES))
    return "\n".join(lines) + "\n"


def test_the_attribution_schema_has_the_published_layout():
    assert len(ATTRIBUTION_NAMES) == 22
    assert [column.name for column in ATTRIBUTION.numeric] == ["time_since_last_click"]
    categories = ["campaign", *(f"cat{i}" for i in range(1, 10))]
    assert [column.name for column in ATTRIBUTION.categorical] == categories
    assert [column.name for column in ATTRIBUTION.with_role("leak")] == [
        "conversion_timestamp",
        "conversion_id",
        "attribution",
        "click_pos",
        "click_nb",
        "cost",
        "cpo",
    ]
    scale = ATTRIBUTION.numeric[0].scale
    assert scale == pytest.approx(math.log1p(30 * 24 * 3600) / 2, abs=0.006)


def test_the_attribution_log_has_all_three_tasks(tmp_path):
    dataset, manifest = prepare_text(tmp_path, attribution_text(), ATTRIBUTION)
    order = [0, 2, 4, 5, 1, 6, 3]  # (1, 7), then (2, 7), then (1, 8)
    assert dataset.journeys.tolist() == [0, 0, 0, 0, 1, 1, 2]
    assert dataset.categories[:, 9].tolist() == hashes(*(str(9000 + row) for row in order))
    assert dataset.labels["pctr"].tolist() == [0, 1, 1, 0, 1, 1, 0]
    assert dataset.rows_of["pcvr"].tolist() == [1, 2, 4, 5]
    assert dataset.labels["pcvr"].tolist() == [1, 1, 1, 0]
    assert dataset.rows_of["pconvs"].tolist() == [0, 4, 6]
    assert dataset.labels["pconvs"].tolist() == [2, 1, 0]
    seconds = [math.nan, math.nan, 3600, 3700, 60, 5, math.nan]
    assert dataset.numeric[:, 0] == pytest.approx(np.log1p(seconds) / 7.38, rel=1e-6, nan_ok=True)
    assert manifest.journeys == 3
    assert manifest.warnings[0].endswith("were left out of it: 1, the first is log.txt, line 7")
    report = manifest.report()
    assert "journeys: 3, equal in uid, campaign" in report
    assert "pconvs (distinct conversion_id per journey): 3 rows, mean 1.0000, 0 to 2" in report


def test_the_attribution_log_may_be_cut_anywhere_and_packed(tmp_path):
    whole, _ = prepare_text(tmp_path, attribution_text(), ATTRIBUTION)
    for cut in range(1, len(EVENTS)):
        # Every file has its header, and all their rows are one log.
        files = [attribution_text(EVENTS[:cut]), attribution_text(EVENTS)]
        header, *lines = files[1].splitlines(keepends=True)
        files[1] = header + "".join(lines[cut:])
        paths = [
            write(tmp_path / f"{cut}-{number}", gzip.compress(text.encode()))
            for number, text in enumerate(files)
        ]
        manifest = prepare(ATTRIBUTION, paths, tmp_path / f"out{cut}")
        assert manifest.checksum == whole.checksum


def test_an_attribution_row_without_a_user_is_refused(tmp_path):
    text = attribution_text([*EVENTS, ("-1", "7", 0, 0, "-1", "-1")])
    refuse(tmp_path, text, "line 9, column uid: the value is missing", ATTRIBUTION)


# --- the Sponsored Search log ---

SEARCH = load_schema("criteo-sponsored-search")
SEARCH_NAMES = [column.name for column in SEARCH.columns]


def search_text(rows):
    """Rows of the layout, made up; each is a table of changed fields."""
    lines = []
    for number, changed in enumerate(rows):
        fields = dict.fromkeys(SEARCH_NAMES, f"{number:032X}")
        fields |= {
            "Sale": "0",
            "SalesAmountInEuro": "-1",
            "Time_delay_for_conversion": "-1",
            "click_timestamp": str(1_000 + number),
            "nb_clicks_1week": str(number),
            "product_price": "0.0",
            **changed,
        }
        lines.append("\t".join(fields[name] for name in SEARCH_NAMES) + "\n")
    return "".join(lines)


def test_the_search_schema_has_the_published_layout():
    assert len(SEARCH_NAMES) == 23
    assert SEARCH_NAMES[0] == "Sale"
    assert SEARCH_NAMES[-1] == "user_id"
    assert set(SEARCH.tasks) == {"pcvr"}
    leaks = {column.name for column in SEARCH.with_role("leak")}
    assert leaks == {"SalesAmountInEuro", "Time_delay_for_conversion", "product_price"}


def test_a_sale_is_the_label_of_every_row(tmp_path):
    sold = {"Sale": "1", "SalesAmountInEuro": "9.5", "product_price": "9.5"}
    rows = [{}, sold, {"nb_clicks_1week": "-1", "product_brand": "-1", "product_title": "AB CD EF"}]
    dataset, manifest = prepare_text(tmp_path, search_text(rows), SEARCH)
    assert dataset.labels["pcvr"].tolist() == [0, 1, 0]
    assert dataset.rows_of == {}
    assert dataset.for_task("pcvr").rows == 3
    expected = [0, math.log(2) / 3.45, math.nan]
    assert dataset.numeric[:, 0] == pytest.approx(expected, rel=1e-6, nan_ok=True)
    title = dataset.categorical_names.index("product_title")
    assert dataset.categories[2, title] == hashes("AB CD EF")[0]
    assert dataset.categories[2, dataset.categorical_names.index("product_brand")] == 0
    for name in ("product_price", "user_id", "SalesAmountInEuro", "Time_delay_for_conversion"):
        assert name not in dataset.numeric_names + dataset.categorical_names
    assert manifest.labels["pcvr"]["rows"] == 3


def test_a_search_log_with_a_header_is_refused(tmp_path):
    text = "\t".join(SEARCH_NAMES) + "\n" + search_text([{}])
    refuse(tmp_path, text, "line 1 looks like a header", SEARCH)


def test_a_search_row_without_its_sale_is_refused(tmp_path):
    text = search_text([{}] * 60 + [{"Sale": "-1"}])
    refuse(tmp_path, text, "line 61, column Sale: the label is missing$", SEARCH)


# --- CriteoPrivateAd ---

PRIVATE_AD = load_schema("criteo-private-ad")


def private_ad_table(clicked, sales, first=0):
    """Rows in the layout of the log as far as it is known, made up."""
    rows = len(clicked)
    whole = pa.array([first + row for row in range(rows)], pa.int64())
    return pa.table(
        {
            "user_id": [f"user {row}" for row in range(rows)],
            "unlisted": whole,
            "features_kv_bits_constrained_10": whole,
            "features_kv_bits_constrained_9": pa.array([str(row) for row in range(rows)]),
            "features_kv_not_constrained_0": whole.cast(pa.float64()),
            "features_browser_bits_constrained_0": pa.nulls(rows),
            "features_ctx_not_constrained_0": pa.array([None] * rows, pa.int64()),
            "features_not_available_0": whole,
            "is_clicked": pa.array([float(value) for value in clicked]),
            "is_click_landed": pa.array([0.0] * rows),
            "is_visit": pa.array([0.0] * rows),
            "nb_sales": pa.array(sales, pa.float64()),
            "sale_delay_after_display_array": pa.array([[1, 2]] * rows),
        }
    )


@pytest.fixture
def days(tmp_path):
    """A folder of three days, the tenth with a part that has no rows."""
    folder = tmp_path / "log"
    content = {
        "day_int=10/part-0.parquet": private_ad_table([], []),
        "day_int=10/part-1.parquet": private_ad_table([1, 0], [None, None], 40),
        "day_int=2/part-0.parquet": private_ad_table([1, 0, 1], [3, None, None], 20),
        "day_int=9/part-0.parquet": private_ad_table([0, 1], [2, 1], 30),
    }
    for name, table in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    (folder / "_SUCCESS").write_text("")
    return folder


def test_days_are_read_in_the_order_of_their_numbers(days, out):
    manifest = prepare(PRIVATE_AD, [days], out)
    dataset = load_prepared(out)
    assert [source["rows"] for source in manifest.sources] == [3, 2, 0, 2]
    column = dataset.categorical_names.index("features_kv_bits_constrained_10")
    numbers = ("20", "21", "22", "30", "31", "40", "41")
    assert dataset.categories[:, column].tolist() == hashes(*numbers)
    column = dataset.categorical_names.index("features_kv_not_constrained_0")
    assert dataset.categories[:, column].tolist() == hashes(*numbers)


def test_the_private_ad_log_has_all_three_tasks(days, out):
    manifest = prepare(PRIVATE_AD, [days], out)
    dataset = load_prepared(out)
    assert dataset.labels["pctr"].tolist() == [1, 0, 1, 0, 1, 1, 0]
    assert dataset.labels["pctr"].dtype == np.uint8
    assert dataset.rows_of["pcvr"].tolist() == [0, 2, 4, 5]
    assert dataset.labels["pcvr"].tolist() == [1, 0, 1, 0]
    assert dataset.labels["pconvs"].tolist() == [3, 0, 0, 2, 1, 0, 0]
    assert dataset.labels["pconvs"].dtype == np.float32
    assert manifest.labels["pcvr"]["outside"] == 1


def test_features_of_the_private_ad_log_are_its_buckets_alone(days, out):
    manifest = prepare(PRIVATE_AD, [days], out)
    assert load_prepared(out).categorical_names == (
        "features_kv_bits_constrained_9",
        "features_kv_bits_constrained_10",
        "features_kv_not_constrained_0",
        "features_browser_bits_constrained_0",
        "features_ctx_not_constrained_0",
    )
    leaks = ["is_visit", "is_click_landed", "sale_delay_after_display_array"]
    assert load_prepared(out).description["left_out_as_leaks"] == leaks
    assert "columns that the schema does not list were left out: unlisted" in manifest.warnings
    for name in ("browser_bits", "ctx_not"):
        assert f"column features_{name}_constrained_0 has no values at all" in manifest.warnings


def test_a_private_ad_log_of_other_names_is_refused(tmp_path, out):
    table = private_ad_table([1], [None])
    renamed = [name.replace("kv_bits", "kvbits") for name in table.column_names]
    pq.write_table(table.rename_columns(renamed), tmp_path / "log")
    with pytest.raises(UsageError, match=r"no column of .*log is called like '\*kv_bits_constr"):
        prepare(PRIVATE_AD, [tmp_path / "log"], out)


def test_real_numbers_in_a_bucket_are_an_error_that_names_the_column(tmp_path, out):
    table = private_ad_table([1, 0], [None, None])
    index = table.column_names.index("features_kv_not_constrained_0")
    table = table.set_column(index, "features_kv_not_constrained_0", pa.array([0.5, 1.5]))
    pq.write_table(table, tmp_path / "log")
    with pytest.raises(DpcompareError, match=r"features_kv_not_constrained_0: the category 0.5 is"):
        prepare(PRIVATE_AD, [tmp_path / "log"], out)


def test_folders_of_other_names_are_refused(days, out):
    (days / "more").mkdir()
    with pytest.raises(UsageError, match="holds folders such as more, which is not called name=v"):
        prepare(PRIVATE_AD, [days], out)
