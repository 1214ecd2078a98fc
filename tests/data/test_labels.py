import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import Column, Target, load_prepared, prepare, read_manifest
from dpcompare.errors import DpcompareError
from tests.data.logs import own_schema, prepare_text, refuse, write

pytestmark = pytest.mark.usefixtures("small_blocks")

COLUMNS = (
    Column("site", "categorical"),
    Column("click", "label"),
    Column("bought", "label"),
    Column("sales", "label"),
)
SHOP = own_schema(
    columns=COLUMNS,
    tasks={
        "pctr": Target("click"),
        "pcvr": Target("bought", rows="click"),
        "pconvs": Target("sales", rows="click", missing=0),
    },
)
HEADER = "site,click,bought,sales\n"


def shop_text(rows=200):
    """Every third row is a click, every sixth a purchase; labels of other rows are blank."""
    return HEADER + "".join(
        f"s{i},1,{int(i % 6 == 0)},{i}\n" if i % 3 == 0 else f"s{i},0,,\n" for i in range(rows)
    )


def test_rows_outside_a_task_do_not_belong_to_it(tmp_path):
    dataset, manifest = prepare_text(tmp_path, shop_text(), SHOP)
    clicks = list(range(0, 200, 3))
    assert dataset.labels["pctr"].tolist() == [int(i % 3 == 0) for i in range(200)]
    assert dataset.labels["pcvr"].tolist() == [int(i % 6 == 0) for i in clicks]
    assert dataset.labels["pconvs"].tolist() == clicks
    assert dataset.rows_of.keys() == {"pcvr", "pconvs"}
    for rows in dataset.rows_of.values():
        assert rows.tolist() == clicks
        assert rows.dtype == np.int64
    facts = manifest.labels["pcvr"]
    assert (facts["rows"], facts["total"], facts["mean"]) == (67, 34, 34 / 67)
    assert facts["rule"] == "bought, where click is 1"
    assert (manifest.rows, manifest.labels["pctr"]["rows"]) == (200, 200)
    assert (manifest.journeys, manifest.exposure) == (None, None)
    assert manifest.warnings == []
    report = manifest.report()
    assert "own: 200 rows" in report
    assert "pcvr (bought, where click is 1): 67 rows, mean 0.5075, 0 to 1" in report
    assert {"label_pcvr.npy", "rows_pcvr.npy", "rows_pconvs.npy"} <= manifest.files.keys()
    assert "rows_pctr.npy" not in manifest.files
    assert manifest == read_manifest(tmp_path / "prepared")


def test_a_conversion_without_a_click_is_left_out_counted_and_reported(tmp_path):
    text = shop_text(40).replace("s7,0,,", "s7,0,1,").replace("s8,0,,", "s8,0,1,4")
    dataset, manifest = prepare_text(tmp_path, text, SHOP)
    assert dataset.rows_of["pcvr"].tolist() == list(range(0, 40, 3))
    assert manifest.labels["pcvr"]["outside"] == 2
    assert manifest.labels["pconvs"]["outside"] == 1
    assert manifest.warnings == [
        "pcvr: rows in which bought is above 0 but that do not belong to the task (bought, where "
        "click is 1) were left out of it: 2, the first is log.txt, line 9",
        "pconvs: rows in which sales is above 0 but that do not belong to the task (sales, missing "
        "= 0, where click is 1) were left out of it: 1, the first is log.txt, line 10",
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("s1,0,,", "s1,2,,", "line 3, column click: the label must be 0 or 1, got '2'"),
        ("s1,0,,", "s1,0.5,,", "line 3, column click: the label must be 0 or 1, got '0.5'"),
        ("s1,0,,", "s1,,,", "line 3, column click: the label is missing"),
        ("s3,1,0", "s3,1,", "line 5, column bought: the label is missing"),
        ("s1,0,,", "s1,0,7,", "line 3, column bought: the label must be 0 or 1, got '7'"),
        ("s1,0,,", "s1,0,,-4", "line 3, column sales: a count must be 0 or more"),
    ],
)
def test_bad_labels_are_errors_inside_and_outside_the_task(tmp_path, old, new, message):
    assert shop_text(9).count(old) == 1
    refuse(tmp_path, shop_text(9).replace(old, new), message, SHOP)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2", "line 3, column click: the value must be 0 or 1, got '2'"),
        ("", "line 3, column click: the value is missing; it must be 0 or 1 in every row"),
        ("-1", "line 3, column click: the value is missing"),
        ("yes", "line 3, column click: 'yes' is not a number"),
    ],
)
def test_the_column_that_picks_rows_is_0_or_1_everywhere(tmp_path, value, message):
    schema = own_schema(
        columns=(COLUMNS[0], Column("click", "leak"), COLUMNS[2]),
        tasks={"pcvr": Target("bought", rows="click")},
    )
    refuse(tmp_path, f"site,click,bought\na,1,1\nb,{value},0\n", message, schema)


def test_a_task_without_rows_is_an_error(tmp_path):
    text = HEADER + "".join(f"s{i},0,,\n" for i in range(100))
    message = "task pcvr has no rows: column click is 0 in every row of .*log.txt. Leave the task"
    refuse(tmp_path, text, message, SHOP)


def test_parquet_gives_what_text_gives(tmp_path):
    from_text, _ = prepare_text(tmp_path, shop_text(), SHOP)
    clicked = [i % 3 == 0 for i in range(200)]
    table = pa.table(
        {
            "site": [f"s{i}" for i in range(200)],
            "click": pa.array([float(click) for click in clicked]),
            "bought": pa.array([i % 6 == 0 if clicked[i] else None for i in range(200)]),
            "sales": pa.array([i if clicked[i] else None for i in range(200)], pa.int16()),
        }
    )
    pq.write_table(table, tmp_path / "log", row_group_size=30)
    prepare(SHOP, [tmp_path / "log"], tmp_path / "out")
    assert load_prepared(tmp_path / "out").checksum == from_text.checksum


def test_repair_pads_no_column_that_a_label_is_made_of(tmp_path):
    columns = (Column("click", "leak"), Column("bought", "label"), Column("site", "categorical"))
    schema = own_schema(
        columns=columns,
        tasks={"pcvr": Target("bought", rows="click")},
        header=False,
        quoting=False,
        separator="\t",
    )
    dataset, manifest = prepare_text(tmp_path, "1\t1\ta\n1\t0\n", schema, repair=True)
    assert (manifest.padded_rows, dataset.rows) == (1, 2)
    columns = (columns[2], columns[1], columns[0])  # now the column that picks rows is last
    source = write(tmp_path / "cut.txt", "a\t1\t1\nb\t0\n")
    reordered = own_schema(**{**vars(schema), "columns": columns})
    with pytest.raises(DpcompareError, match="line 2 has 2 fields, expected 3"):
        prepare(reordered, [source], tmp_path / "o", repair=True)
