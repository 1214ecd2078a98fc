import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import load_prepared, prepare
from dpcompare.data.hashing import hash_text
from dpcompare.errors import DpcompareError
from tests.data.logs import (
    own_schema,
    prepare_text,
    write,
)

pytestmark = pytest.mark.usefixtures("small_blocks")


def own_table(**changed) -> pa.Table:
    content = {
        "number": pa.array([2.5, float("nan"), -0.5, None]),
        "whole": pa.array([3, -1, 4, None], pa.int64()),
        "color": pa.array(["red", "-1", "blue", None]),
        "click": pa.array([0, 1, 1, 0], pa.int8()),
    }
    return pa.table({**content, **changed})


def test_parquet_gives_what_the_same_text_gives(tmp_path, out):
    text = "id,number,whole,color,click\n1,2.5,3,red,0\n2,,-1,-1,1\n3,-0.5,4,blue,1\n4,,,,0\n"
    from_text, _ = prepare_text(tmp_path, text, own_schema())
    pq.write_table(own_table(), tmp_path / "log.csv")
    manifest = prepare(own_schema(), [tmp_path / "log.csv"], tmp_path / "p")
    assert load_prepared(tmp_path / "p").checksum == from_text.checksum
    assert manifest.rows == 4


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [28928366, None, 3]),
        (pa.float64(), [28928366.0, None, 3.0]),
        (pa.float64(), [28928366.0, float("nan"), 3.0]),
        (pa.dictionary(pa.int32(), pa.string()), ["28928366", None, "3"]),
        (pa.large_string(), ["28928366", None, "3"]),
        (pa.binary(), [b"28928366", None, b"3"]),
    ],
)
def test_whole_number_categories_become_their_digits(tmp_path, out, kind, values):
    table = own_table().slice(0, 3).set_column(2, "color", pa.array(values, kind))
    pq.write_table(table, tmp_path / "log.parquet")
    prepare(own_schema(), [tmp_path / "log.parquet"], out)
    expected = hash_text(pa.array(["28928366", None, "3"])).tolist()
    assert load_prepared(out).categories[:, 0].tolist() == expected


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("color", pa.array([1.0, 2.5, 3.0, 4.0]), "row 2, column color: the category 2.5 is a fra"),
        ("color", pa.array([1.0, 2.0, 1e17, 4.0]), "row 3, column color: .* cannot hold every who"),
        ("color", pa.array([[1], [2], [3], [4]]), "column color has the Parquet type list<.*>; a"),
        ("number", pa.array([1, 2, 3, 4], pa.timestamp("s")), "number has the Parquet type timest"),
        ("number", pa.array(["1", "2", "x", "4"]), "row 3, column number: 'x' is not a number"),
        ("number", pa.array([1.0, float("inf"), 3.0, 4.0]), "row 2, column number: 'inf' is not a"),
        ("whole", pa.array([1.0, 2.0, 3.0, 4.5]), "row 4, column whole: '4.5' is not a whole"),
        ("click", pa.array([0, 1, 2, 0]), "row 3, column click: the label must be 0 or 1, got '2'"),
        ("click", pa.array([0, 1, None, 0]), "row 3, column click: the label is missing"),
    ],
)
def test_bad_parquet_values_name_row_column_and_value(tmp_path, out, name, values, message):
    table = own_table()
    table = table.set_column(table.schema.get_field_index(name), name, values)
    pq.write_table(table, tmp_path / "log.parquet")
    with pytest.raises(DpcompareError, match=message):
        prepare(own_schema(), [tmp_path / "log.parquet"], out)
    assert not out.exists()


def test_labels_may_be_booleans_or_floats(tmp_path, out):
    for number, click in enumerate(
        [pa.array([False, True, True, False]), pa.array([0.0, 1, 1, 0])]
    ):
        pq.write_table(own_table(click=click), tmp_path / f"{number}.parquet")
        prepare(own_schema(), [tmp_path / f"{number}.parquet"], tmp_path / f"out{number}")
        assert load_prepared(tmp_path / f"out{number}").labels["pctr"].tolist() == [0, 1, 1, 0]


def test_a_parquet_folder_is_read_in_natural_order_and_may_hold_empty_parts(tmp_path, out):
    folder = tmp_path / "log"
    folder.mkdir()
    write(folder / "_SUCCESS", "")
    pq.write_table(own_table().slice(0, 2), folder / "part-2.parquet")
    pq.write_table(own_table().slice(0, 0), folder / "part-9.parquet")
    pq.write_table(own_table().slice(2, 2), folder / "part-10.parquet")
    manifest = prepare(own_schema(), [folder], out)
    assert load_prepared(out).labels["pctr"].tolist() == [0, 1, 1, 0]
    assert [source["rows"] for source in manifest.sources] == [2, 0, 2]


def test_parquet_without_rows_is_zero_rows(tmp_path, out):
    pq.write_table(own_table().slice(0, 0), tmp_path / "log.parquet")
    with pytest.raises(DpcompareError, match="0 rows in"):
        prepare(own_schema(), [tmp_path / "log.parquet"], out)


def test_a_parquet_part_with_other_columns_is_refused(tmp_path, out):
    pq.write_table(own_table(), tmp_path / "a.parquet")
    pq.write_table(
        own_table().rename_columns(["number", "whole", "colour", "click"]), tmp_path / "b"
    )
    with pytest.raises(
        DpcompareError, match=r"b: there is no column 'color' .did you mean 'colour'"
    ):
        prepare(own_schema(), [tmp_path / "a.parquet", tmp_path / "b"], out)
    assert not out.exists()


def test_damaged_parquet(tmp_path, out):
    pq.write_table(own_table(), tmp_path / "log.parquet")
    content = (tmp_path / "log.parquet").read_bytes()
    write(tmp_path / "log.parquet", content[:-20])
    with pytest.raises(DpcompareError, match=r"log.parquet: damaged Parquet file"):
        prepare(own_schema(), [tmp_path / "log.parquet"], out)
