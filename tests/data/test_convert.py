import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import Column, Target, load_prepared, prepare
from dpcompare.errors import DpcompareError
from tests.data.logs import own_schema, prepare_text, refuse

pytestmark = pytest.mark.usefixtures("small_blocks")

SITE = Column("site", "categorical")


def sales(**rule):
    """A log of a site and its sales, for pConvs."""
    return own_schema(
        columns=(SITE, Column("sales", "label")), tasks={"pconvs": Target("sales", **rule)}
    )


def exposed(role="exposure"):
    columns = (SITE, Column("shown", role), Column("sales", "label"))
    return own_schema(columns=columns, tasks={"pconvs": Target("sales")})


# --- counts ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("-2", "a count must be 0 or more, got '-2'"),
        ("1.5", "a count must be a whole number, got '1.5'"),
        ("", "the label is missing; if that means 0, set missing = 0 for the task"),
        ("-1", "the label is missing"),
        ("nan", "'nan' is not a finite number"),
        ("many", "'many' is not a number"),
        ("61", r"a count must be at most 60 \(max in the schema\), got '61'"),
    ],
)
def test_bad_counts_name_the_line_the_column_and_the_value(tmp_path, value, message):
    rows = "".join(f"s{i},{i % 3}\n" for i in range(300))
    text = f"site,sales\n{rows}b,{value}\n"
    refuse(tmp_path, text, f"log.txt: line 302, column sales: {message}", sales(max=60))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, -3], "row 3, column sales: a count must be 0 or more, got '-3'"),
        ([0.0, 0.5, 1.0], "row 2, column sales: a count must be a whole number, got '0.5'"),
        ([1, None, 2], "row 2, column sales: the label is missing"),
        ([1.0, float("nan"), 2.0], "row 2, column sales: the label is missing"),
        ([1, -1, 2], "row 2, column sales: the label is missing"),  # -1 is a missing mark
        ([0, 2**24 + 1, 0], r"row 2, column sales: a count must be at most 16,777,216 \(2\*\*24"),
    ],
)
def test_bad_counts_of_parquet_name_the_row(tmp_path, out, values, message):
    table = pa.table({"site": ["a", "b", "c"], "sales": pa.array(values)})
    pq.write_table(table, tmp_path / "log")
    with pytest.raises(DpcompareError, match=message):
        prepare(sales(), [tmp_path / "log"], out)
    assert not out.exists()


def test_counts_up_to_2_24_are_exact(tmp_path):
    dataset, _ = prepare_text(tmp_path, "site,sales\na,16777215\nb,16777216\nc,3.0\n", sales())
    assert dataset.labels["pconvs"].tolist() == [2**24 - 1, 2**24, 3]


def test_a_missing_count_is_0_where_the_schema_says_so(tmp_path, out):
    dataset, manifest = prepare_text(tmp_path, "site,sales\na,\nb,2\nc,-1\n", sales(missing=0))
    assert dataset.labels["pconvs"].tolist() == [0, 2, 0]
    assert dataset.labels["pconvs"].dtype == np.float32
    assert manifest.labels["pconvs"]["total"] == 2
    for number, values in enumerate(([None, 2, -1], [float("nan"), 2.0, None])):
        table = pa.table({"site": ["a", "b", "c"], "sales": pa.array(values)})
        pq.write_table(table, tmp_path / "log")
        prepare(sales(missing=0), [tmp_path / "log"], tmp_path / f"out{number}")
        assert load_prepared(tmp_path / f"out{number}").checksum == dataset.checksum


def test_missing_0_does_not_excuse_other_values(tmp_path):
    refuse(tmp_path, "site,sales\na,\nb,x\n", "line 3, column sales: 'x'", sales(missing=0))
    refuse(tmp_path, "site,sales\na,\nb,-2\n", "line 3.*0 or more", sales(missing=0))


def test_a_blank_rate_label_stays_an_error_without_advice_to_make_it_0(tmp_path):
    text = "id,number,whole,color,click\n1,2,3,red,0\n2,2,3,red,\n"
    refuse(tmp_path, text, "line 3, column click: the label is missing$", own_schema())


# --- labels made of counts ---


def test_at_least_makes_a_rate_label_of_a_count(tmp_path):
    schema = own_schema(
        columns=(SITE, Column("sales", "label")),
        tasks={
            "pctr": Target("sales", at_least=1, missing=0),
            "pcvr": Target("sales", at_least=2, missing=0, max=7),
            "pconvs": Target("sales", missing=0),
        },
    )
    text = "site,sales\na,0\nb,1\nc,2\nd,\ne,7\n"
    dataset, manifest = prepare_text(tmp_path, text, schema)
    assert dataset.labels["pctr"].tolist() == [0, 1, 1, 0, 1]
    assert dataset.labels["pcvr"].tolist() == [0, 0, 1, 0, 1]
    assert dataset.labels["pconvs"].tolist() == [0, 1, 2, 0, 7]
    assert dataset.labels["pcvr"].dtype == np.uint8
    assert manifest.labels["pcvr"]["rule"] == "sales >= 2, missing = 0"
    assert manifest.labels["pcvr"]["mean"] == 0.4
    (tmp_path / "prepared").rename(tmp_path.parent / f"{tmp_path.name}-done")
    (tmp_path / "log.txt").unlink()
    refuse(tmp_path, text + "f,8\n", r"line 7, column sales: .* at most 7 \(max", schema)
    refuse(tmp_path, text + "f,1.5\n", "line 7, column sales: a count must be a whole", schema)


# --- exposures ---


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "the exposure must be above 0 .*got '0'.*leave the row out, or choose another"),
        ("-3", "the exposure must be above 0"),
        ("1e-60", "the exposure must be above 0 and fit into float32"),
        ("1e60", "the exposure must be above 0 and fit into float32"),
        ("", "the exposure is missing; .*leave the row out, or choose another exposure"),
        ("-1", "the exposure is missing"),
        ("inf", "'inf' is not a finite number"),
        ("lots", "'lots' is not a number"),
    ],
)
def test_bad_exposures_name_the_line_and_the_value(tmp_path, value, message):
    text = f"site,shown,sales\na,10,1\nb,{value},0\n"
    refuse(tmp_path, text, f"line 3, column shown: {message}", exposed())


def test_an_exposure_is_stored_and_is_no_feature(tmp_path):
    dataset, manifest = prepare_text(
        tmp_path, "site,shown,sales\na,10,1\nb,2.5,0\nc,1,3\n", exposed()
    )
    assert dataset.exposure.tolist() == [10, 2.5, 1]
    assert dataset.exposure.dtype == np.float32
    assert dataset.numeric.shape == (3, 0)
    assert dataset.categorical_names == ("site",)
    assert manifest.exposure == {"min": 1.0, "max": 10.0}
    assert "exposure: 1 to 10" in manifest.report()
    assert dataset.description["exposure"] == "shown"


def test_the_checksum_covers_the_exposure(tmp_path):
    first, _ = prepare_text(tmp_path, "site,shown,sales\na,10,1\nb,2,0\n", exposed())
    (tmp_path / "b").mkdir()
    second, _ = prepare_text(tmp_path / "b", "site,shown,sales\na,10,1\nb,3,0\n", exposed())
    assert first.checksum != second.checksum
