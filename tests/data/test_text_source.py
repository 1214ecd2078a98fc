import gzip
import io
import math
import random
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pytest

from dpcompare.data import Column, Target, load_prepared, prepare
from dpcompare.data.hashing import hash_text
from dpcompare.errors import DpcompareError, UsageError
from tests.data.logs import (
    CRITEO,
    criteo_fields,
    criteo_text,
    own_schema,
    prepare_text,
    refuse,
    write,
)

pytestmark = pytest.mark.usefixtures("small_blocks")

# --- own logs: header, quotes, other roles ---

OWN = "id,number,whole,color,click\n1,2.5,3,red,0\n2,-1,-1,,1\n3,-0.5,4.0,-1,1\n"


def test_an_own_log_with_a_header(tmp_path):
    dataset, manifest = prepare_text(tmp_path, OWN, own_schema())
    assert dataset.numeric[:, 0] == pytest.approx(
        [math.log(3.5), math.nan, -math.log(1.5)], rel=1e-6, nan_ok=True
    )
    assert dataset.numeric[:, 1] == pytest.approx(
        [math.log(4) / 2, math.nan, math.log(5) / 2], rel=1e-6, nan_ok=True
    )
    assert dataset.categories[:, 0].tolist() == hash_text(pa.array(["red", None, None])).tolist()
    assert manifest.warnings == []


def test_columns_of_a_header_may_stand_in_any_order(tmp_path):
    ordered, _ = prepare_text(tmp_path, OWN, own_schema())
    lines = [line.split(",") for line in OWN.splitlines()]
    shuffled = "".join(",".join(line[i] for i in (4, 2, 0, 3, 1)) + "\n" for line in lines)
    prepare(own_schema(), [write(tmp_path / "shuffled.csv", shuffled)], tmp_path / "shuffled")
    assert load_prepared(tmp_path / "shuffled").checksum == ordered.checksum


def test_columns_that_the_schema_does_not_list_are_left_out_and_reported(tmp_path):
    lines = OWN.splitlines()
    extra = "\n".join([f",{lines[0]},more"] + [f"{i},{line},x" for i, line in enumerate(lines[1:])])
    _, manifest = prepare_text(tmp_path, extra, own_schema())
    assert "columns that the schema does not list were left out: (unnamed), more" in (
        manifest.warnings
    )


def test_quoted_fields(tmp_path):
    text = 'id,number,whole,color,click\n1,"2.5",3,"red, or ""pink""",0\n2,1,1,plain,1\n'
    dataset, _ = prepare_text(tmp_path, text, own_schema())
    assert dataset.categories[:, 0].tolist() == (
        hash_text(pa.array(['red, or "pink"', "plain"])).tolist()
    )


def test_counts_and_leaks(tmp_path):
    columns = (
        Column("site", "categorical"),
        Column("sales", "label"),
        Column("bought", "label"),
        Column("sold_at", "leak"),
    )
    schema = own_schema(
        columns=columns, tasks={"pconvs": Target("sales"), "pcvr": Target("bought")}
    )
    text = "site,sales,bought,sold_at\na,0,0,\nb,3,1,noon\nc,7.0,1,noon\n"
    dataset, manifest = prepare_text(tmp_path, text, schema)
    assert dataset.labels["pconvs"].tolist() == [0.0, 3.0, 7.0]
    assert dataset.labels["pconvs"].dtype == np.float32
    assert dataset.labels["pcvr"].tolist() == [0, 1, 1]
    assert dataset.categorical_names == ("site",)
    assert dataset.description["left_out_as_leaks"] == ["sold_at"]
    assert manifest.labels["pconvs"]["rows"] == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1,2.5", "1,abc", "line 2, column number: 'abc' is not a number"),
        ("1,2.5", "1,nan", "line 2, column number: 'nan' is not a finite number; if it means miss"),
        ("1,2.5", "1,1e999", "line 2, column number: '1e999' is not a finite number"),
        ("1,2.5", f"1,{'x' * 300}", "column number: 'x{40}...' is not a number"),
        ("4.0,-1,1", "4.5,-1,1", "line 4, column whole: '4.5' is not a whole number"),
        ("red,0", "red,", "line 2, column click: the label is missing"),
        ("red,0", "red,nan", "line 2, column click: 'nan' is not a finite number$"),
        ("red,0", "red,2", "line 2, column click: the label must be 0 or 1, got '2'"),
        ("red,0", "red,yes", "line 2, column click: 'yes' is not a number$"),
        ("red,0", "red,-1", "line 2, column click: the label is missing"),
        ("red,0", "red,0.5", "line 2, column click: the label must be 0 or 1, got '0.5'"),
        ("2,-1,-1,,1", "2,-1,-1,1", "line 3 has 4 fields, expected 5"),
        ("2,-1,-1,,1", "2,-1,-1,,1,9", "line 3 has 6 fields, expected 5; is there an index column"),
        ("2,-1,-1,,1", "", "line 3 is empty; remove it"),
        ("1,1\n", "1,1\n\n", "line 5 is empty; remove it"),
        ("2,-1,", '2,"-1\n",', "line 3 has 2 fields, expected 5"),
        ("red", '"red', "log.txt: line"),
        ("color", "colour", "lacks column 'color' .did you mean 'colour'..; it has 'id', 'numb"),
        ("id,", "id,..id,", "line 2 has 5 fields, expected 6"),
        ("whole", "number", "line 1, the header, names column 'number' more than once"),
        ("id,number,whole,color,click\n", "", "line 1 is not the expected header.*header = false"),
        ("red", "r\x00d", "line 2 holds a zero byte: this is binary data"),
        ("red", "r\rd", "line 2 has"),
    ],
)
def test_bad_values_name_line_column_and_value(tmp_path, old, new, message):
    assert OWN.count(old) == 1
    refuse(tmp_path, OWN.replace(old, new), message, own_schema())


def test_an_unclosed_quote_is_an_error_even_over_many_lines(tmp_path):
    rows = "".join(f"{i},1,1,c{i},0\n" for i in range(50))
    text = "id,number,whole,color,click\n" + rows.replace("c7,", '"c7,')
    refuse(tmp_path, text, "line 9 has 4 fields, expected 5|lines? ", own_schema())


@pytest.mark.parametrize(("value", "message"), [("-2", "0 or more"), ("", "missing")])
def test_counts_must_not_be_negative_or_missing(tmp_path, value, message):
    schema = own_schema(
        columns=(Column("site", "categorical"), Column("sales", "label")),
        tasks={"pconvs": Target("sales")},
        missing=("",),
    )
    refuse(tmp_path, f"site,sales\na,1\nb,{value}\n", f"line 3, column sales.*{message}", schema)


# --- bad Criteo files ---


def test_unlabelled_test_data_is_recognized(tmp_path):
    text = "".join("\t".join(criteo_fields(row)[1:]) + "\n" for row in range(5))
    message = "line 1 has 39 fields, expected 40; this looks like unlabelled test data"
    refuse(tmp_path, text, message)
    refuse(tmp_path, text, message, repair=True)


@pytest.mark.parametrize("repair", [False, True])
def test_a_comma_file_read_as_tabs_suggests_the_separator(tmp_path, repair):
    text = criteo_text(3).replace("\t", ",")
    message = 'line 1 has 1 field, expected 40, but 40 when split at commas: set separator = ","'
    refuse(tmp_path, text, message, repair=repair)


def test_a_comma_file_with_a_header_says_both(tmp_path):
    header = ",".join(["Id", "Label", *(c.name for c in CRITEO.columns[1:])])
    refuse(tmp_path, header + "\r\n", "41 when split at commas.*set header = true there as well")


def test_a_header_where_none_is_expected(tmp_path):
    header = "\t".join(column.name for column in CRITEO.columns)
    message = "line 1 looks like a header .it starts with 'label', 'I1', 'I2'.*header = true"
    refuse(tmp_path, header + "\n" + criteo_text(3), message)


def test_a_first_row_of_missing_values_is_no_header(tmp_path):
    blanks = {f"I{i}": "" for i in range(1, 14)}
    dataset, _ = prepare_text(tmp_path, criteo_text(1, **blanks) + criteo_text(2))
    assert dataset.rows == 3


def test_stripped_tabs_are_an_error_and_repair_pads_and_counts_them(tmp_path):
    stripped = criteo_text(200, C25="", C26="", C24="").rstrip("\n").rstrip("\t") + "\n"
    text = stripped + criteo_text(3)
    refuse(tmp_path, text, r"line 200 has 37 fields, expected 40.*--repair")
    dataset, manifest = prepare_text(tmp_path, text, repair=True)
    assert manifest.padded_rows == 1
    assert manifest.repair
    assert ["1 of 203 rows lacked trailing fields", "first is log.txt, line 200"][0] in (
        manifest.warnings[0]
    )
    assert "the first is log.txt, line 200" in manifest.warnings[0]
    whole = write(tmp_path / "whole.txt", criteo_text(200, C24="", C25="", C26="") + criteo_text(3))
    prepare(CRITEO, [whole], tmp_path / "whole")
    assert load_prepared(tmp_path / "whole").checksum == dataset.checksum


def test_repair_of_lines_with_carriage_returns(tmp_path):
    text = criteo_text(4, C26="").replace("\t\n", "\n").replace("\n", "\r\n")
    dataset, manifest = prepare_text(tmp_path, text, repair=True)
    assert manifest.padded_rows == 1
    assert dataset.categories[3, 25] == 0
    assert (dataset.categories[:3, 25] != 0).all()


def test_repair_does_not_hide_a_row_that_was_cut_before_its_label(tmp_path):
    text = criteo_text(4) + "\n" + criteo_text(2)
    refuse(tmp_path, text, "line 5 is empty", repair=True)


def test_repair_does_not_shift_unlabelled_rows_into_place(tmp_path):
    unlabelled = "\t".join(criteo_fields(1, I1="1", C1="ab12cd34")[1:]) + "\n"
    refuse(tmp_path, criteo_text(4) + unlabelled, "line 5, column I13: 'ab12cd34'", repair=True)


def test_repair_of_quoted_files_is_refused(tmp_path):
    refuse(tmp_path, OWN, "repair pads rows with empty fields", own_schema(), repair=True)


def test_a_cut_last_line(tmp_path):
    refuse(tmp_path, criteo_text(30)[:-60], "line 30 has 3[0-9] fields, expected 40")


# --- files that are not tables ---


def test_files_that_are_absent_empty_or_folders(tmp_path, out):
    empty = write(tmp_path / "empty.txt", "")
    folder = tmp_path / "folder"
    folder.mkdir()
    cases = [
        ([], "name at least one source file"),
        ([tmp_path / "absent.txt"], "absent.txt does not exist"),
        ([empty], r"empty.txt is empty \(0 bytes\)"),
        ([empty, empty], "empty.txt is named twice"),
        ([folder], "the folder .*folder holds no files"),
    ]
    for sources, message in cases:
        with pytest.raises(DpcompareError, match=message):
            prepare(CRITEO, sources, out)
    write(folder / "part.txt", criteo_text(2))
    with pytest.raises(UsageError, match=r"holds part.txt, which is not Parquet.*name the files"):
        prepare(CRITEO, [folder], out)
    assert not out.exists()


def test_a_header_without_rows_is_zero_rows(tmp_path):
    refuse(tmp_path, OWN.splitlines()[0] + "\n", "0 rows in .*nothing to prepare", own_schema())


@pytest.mark.parametrize("cut", [1, 8, 500])
def test_truncated_gzip(tmp_path, cut):
    content = gzip.compress(criteo_text(200).encode())
    refuse(tmp_path, content[:-cut], r"cannot be read beyond line \d+.*damaged or cut off")


def test_a_wrong_gzip_checksum(tmp_path):
    content = bytearray(gzip.compress(criteo_text(200).encode()))
    content[-6] ^= 1
    refuse(tmp_path, bytes(content), "CRC check failed.*damaged or cut off")


def test_a_flipped_bit_inside_gzip(tmp_path):
    content = bytearray(gzip.compress(criteo_text(200).encode()))
    content[len(content) // 2] ^= 16
    refuse(tmp_path, bytes(content), "log.txt: ")


def test_line_numbers_in_gzip_are_those_of_the_text(tmp_path):
    content = gzip.compress(criteo_text(150, I3="oops").encode())
    refuse(tmp_path, content, "line 150, column I3: 'oops' is not a number")


@pytest.mark.parametrize("seed", range(5))
def test_binary_garbage(tmp_path, seed):
    refuse(tmp_path, random.Random(seed).randbytes(5000), "zero byte|UTF-8|is [a-z]")


def test_text_that_is_not_utf8_names_the_line(tmp_path):
    content = criteo_text(20).encode() + criteo_text(1, C3="münchen").encode("latin-1")
    refuse(tmp_path, content, r"line 21 is not valid UTF-8 \(byte 0xfc\); save the file as UTF-8")


def test_known_containers_say_what_they_are(tmp_path):
    archive = tmp_path / "log.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("log.txt", criteo_text(3))
    content = archive.read_bytes()
    archive.unlink()
    refuse(tmp_path, content, "is a zip archive; give UTF-8 text, gzip of such text, or Parquet")
    refuse(tmp_path, criteo_text(2).encode("utf-16"), "is text in UTF-16")


def test_a_tar_archive_inside_gzip(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        info = tarfile.TarInfo("train.txt")
        info.size = 4
        archive.addfile(info, io.BytesIO(b"text"))
    refuse(tmp_path, buffer.getvalue(), "is a tar archive; unpack it")


def test_a_very_long_line(tmp_path, monkeypatch):
    monkeypatch.setattr("dpcompare.data.text_source.MAX_LINE_BYTES", 5000)
    refuse(tmp_path, criteo_text(3) + "x" * 20_000, "line 4 is longer than 5,000 bytes")


@pytest.mark.parametrize("missing", [("",), ("-1",), ("", "-1")])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_empty_line_is_not_a_row_of_missing_values(tmp_path, missing, end):
    lines = ["id,number,whole,color,click", "1,2,3,red,0", "", "3,2,3,blue,1", ""]
    schema = own_schema(missing=missing)
    refuse(tmp_path, end.join(lines), "line 3 is empty; remove it", schema)


def test_rows_without_any_feature_are_rows(tmp_path):
    lines = ["id,number,whole,color,click", "1,2,3,red,0", ",,,,1", ",,,,0", ""]
    dataset, _ = prepare_text(tmp_path, "\n".join(lines), own_schema())
    assert dataset.labels["pctr"].tolist() == [0, 1, 0]
    assert dataset.categories[1:].tolist() == [[0], [0]]


def test_a_line_longer_than_the_parser_takes_at_a_time_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("dpcompare.data.text_source._PARSED_BYTES", 100)
    word = "x" * 300
    lines = [criteo_fields(row, C5=word if row == 7 else "ab") for row in range(12)]
    dataset, _ = prepare_text(tmp_path, "".join("\t".join(line) + "\n" for line in lines))
    expected = hash_text(pa.array([word if row == 7 else "ab" for row in range(12)])).tolist()
    assert dataset.categories[:, 4].tolist() == expected
