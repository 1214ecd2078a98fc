import gzip
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dpcompare.data import load_prepared, prepare, read_manifest
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

# --- good input ---


def test_every_value_arrives_where_it_belongs(tmp_path):
    rows = [criteo_fields(row) for row in range(50)]
    rows[7][3] = ""
    rows[11][20] = ""
    dataset, manifest = prepare_text(tmp_path, "".join("\t".join(r) + "\n" for r in rows))
    assert manifest.rows == dataset.rows == 50
    assert dataset.labels["pctr"].tolist() == [row % 2 for row in range(50)]
    assert dataset.labels["pctr"].dtype == np.uint8
    for index, column in enumerate(CRITEO.numeric):
        for row in range(50):
            text = rows[row][1 + index]
            expected = math.nan if text == "" else math.log1p(int(text)) / column.scale
            assert dataset.numeric[row, index] == pytest.approx(expected, rel=1e-6, nan_ok=True)
    for index in range(26):
        texts = [row[14 + index] or None for row in rows]
        assert dataset.categories[:, index].tolist() == hash_text(pa.array(texts)).tolist()


def test_numbers_below_zero_and_missing_ones_stay_finite_or_marked(tmp_path):
    """DAT-03: [-3, -1, 0, 1, missing, 1e9] through the signed logarithm."""
    values = ["-3", "-1", "0", "1", "", "1000000000"]
    lines = ["\t".join(criteo_fields(row, I2=value)) for row, value in enumerate(values)]
    dataset, manifest = prepare_text(tmp_path, "\n".join(lines) + "\n")
    found = dataset.numeric[:, 1] * 3.85
    expected = [-math.log(4), -math.log(2), 0, math.log(2), math.nan, math.log1p(1e9)]
    assert found == pytest.approx(expected, rel=1e-6, nan_ok=True)
    assert manifest.numeric["I2"] == {"missing": pytest.approx(1 / 6), "min": -3, "max": 1e9}
    assert "missing = NaN" in dataset.description["numeric_rule"]


def test_rows_that_end_in_empty_fields_keep_them(tmp_path):
    dataset, manifest = prepare_text(tmp_path, criteo_text(5, C25="", C26=""))
    assert dataset.categories[:, 25].tolist()[-1] == 0
    assert (dataset.categories[:4, 24:] != 0).all()
    assert manifest.padded_rows == 0


def test_a_carriage_return_is_part_of_the_line_end(tmp_path):
    unix, _ = prepare_text(tmp_path, criteo_text(9, C26=""))
    dos = write(tmp_path / "dos.txt", criteo_text(9, C26="").replace("\n", "\r\n"))
    prepare(CRITEO, [dos], tmp_path / "dos")
    assert np.array_equal(load_prepared(tmp_path / "dos").categories, unix.categories)
    assert load_prepared(tmp_path / "dos").checksum == unix.checksum


def test_the_last_line_may_lack_its_newline(tmp_path):
    dataset, _ = prepare_text(tmp_path, criteo_text(9).rstrip("\n"))
    assert dataset.rows == 9


def test_a_byte_order_mark_is_not_part_of_the_first_field(tmp_path):
    dataset, _ = prepare_text(tmp_path, "\ufeff" + criteo_text(3))
    assert dataset.labels["pctr"].tolist() == [0, 1, 0]


def test_whole_numbers_may_be_written_with_a_point(tmp_path):
    plain, _ = prepare_text(tmp_path, criteo_text(3, I5="7", label="1"))
    pointed = write(tmp_path / "pointed.txt", criteo_text(3, I5="7.0", label="1.0"))
    prepare(CRITEO, [pointed], tmp_path / "pointed")
    assert load_prepared(tmp_path / "pointed").checksum == plain.checksum


def test_categories_that_look_like_numbers_keep_their_text(tmp_path):
    words = ["623049e6", "05359163", "5359163", "00000000", "ffffffff", "1e5"]
    lines = ["\t".join(criteo_fields(row, C1=word)) for row, word in enumerate(words)]
    dataset, _ = prepare_text(tmp_path, "\n".join(lines))
    assert dataset.categories[:, 0].tolist() == hash_text(pa.array(words)).tolist()


def test_several_files_are_read_in_the_given_order(tmp_path, out):
    first = write(tmp_path / "b.txt", criteo_text(3))
    second = write(tmp_path / "a.txt", gzip.compress(criteo_text(5).encode()))
    manifest = prepare(CRITEO, [first, second], out)
    assert load_prepared(out).labels["pctr"].tolist() == [0, 1, 0, 0, 1, 0, 1, 0]
    assert [(s["name"], s["rows"]) for s in manifest.sources] == [("b.txt", 3), ("a.txt", 5)]


def test_gzip_is_found_by_content_and_not_by_name(tmp_path, out):
    plain, _ = prepare_text(tmp_path, criteo_text(30))
    packed = write(tmp_path / "log.csv", gzip.compress(criteo_text(30).encode()))
    named = write(tmp_path / "log.gz", criteo_text(30))
    for number, source in enumerate([packed, named]):
        prepare(CRITEO, [source], tmp_path / f"out{number}")
        assert load_prepared(tmp_path / f"out{number}").checksum == plain.checksum


def test_gzip_of_several_members_is_read_whole(tmp_path, out):
    content = b"".join(gzip.compress(criteo_text(4).encode()) for _ in range(3))
    assert prepare(CRITEO, [write(tmp_path / "log", content)], out).rows == 12


def test_the_manifest_states_rows_rates_ranges_and_sources_without_folders(tmp_path):
    _, manifest = prepare_text(tmp_path, criteo_text(100, I1="", C2=""))
    assert manifest.labels["pctr"] == {
        "column": "label",
        "rule": "label",
        "kind": "binary",
        "rows": 100,
        "total": 50.0,
        "mean": 0.5,
        "min": 0.0,
        "max": 1.0,
        "outside": 0,
        "first_outside": "",
    }
    assert manifest.numeric["I1"]["missing"] == 0.01
    assert manifest.categorical["C2"] == {"missing": 0.01, "distinct": 99}
    assert manifest.categorical["C1"]["distinct"] == 100
    assert manifest.repeated_share == 0.0
    assert manifest.sources[0]["name"] == "log.txt"
    assert manifest.sources[0]["bytes"] == (tmp_path / "log.txt").stat().st_size
    assert str(tmp_path) not in (tmp_path / "prepared" / "manifest.json").read_text()
    assert manifest.restored_schema() == CRITEO
    assert manifest == read_manifest(tmp_path / "prepared")
    report = manifest.report()
    assert "100 rows" in report
    assert "pctr (label): 100 rows, mean 0.5000, 0 to 1" in report
    assert "I1: 0 to 96, 1.0% missing" in report
    json.loads((tmp_path / "prepared" / "manifest.json").read_text(), parse_constant=pytest.fail)


def test_the_checksum_depends_on_the_rows_and_not_on_the_file(tmp_path):
    first, _ = prepare_text(tmp_path, criteo_text(10))
    other = write(tmp_path / "other-name.txt", criteo_text(10))
    changed = write(tmp_path / "changed.txt", criteo_text(10, I1="55"))
    assert prepare(CRITEO, [other], tmp_path / "o").checksum == first.checksum
    assert prepare(CRITEO, [changed], tmp_path / "c").checksum != first.checksum


def test_progress_grows_to_the_end(tmp_path):
    seen = []
    prepare_text(tmp_path, criteo_text(40), progress=lambda rows, share: seen.append((rows, share)))
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1] == (40, 1.0)


# --- warnings ---


def test_one_class_is_a_warning(tmp_path):
    text = "".join("\t".join(criteo_fields(row, label="0")) + "\n" for row in range(10))
    _, manifest = prepare_text(tmp_path, text)
    assert manifest.warnings[0].startswith("pctr: every row has the label 0; AUC is not defined")


def test_repeated_rows_are_a_warning(tmp_path):
    _, manifest = prepare_text(tmp_path, criteo_text(90) * 12)
    assert manifest.repeated_share == pytest.approx(11 / 12)
    assert (
        "each row occurs 12.0 times on average. A random split would leak" in (manifest.warnings[0])
    )


def test_constant_and_empty_columns_and_unordered_rows_are_warnings(tmp_path):
    text = "id,number,whole,color,click\n1,5,,red,0\n2,5,,red,1\n"
    _, manifest = prepare_text(tmp_path, text, own_schema(rows_in_time_order=False))
    assert manifest.warnings == [
        "column number has the value 5 in every row",
        "column whole has no values at all",
        "column color has one and the same value in every row",
        "the schema says that rows are not in time order; splits go by position",
    ]
    assert manifest.numeric["whole"] == {"missing": 1.0, "min": None, "max": None}


# --- the destination ---


def test_an_error_halfway_leaves_nothing(tmp_path):
    refuse(
        tmp_path, criteo_text(300, label="7"), "line 300, column label: the label must be 0 or 1"
    )


def test_an_exception_of_any_kind_leaves_nothing(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(100))

    def interrupt(rows: int, share: float) -> None:
        if rows > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(CRITEO, [source], out, progress=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


KILLED = """
import os, sys
from pathlib import Path
from dpcompare.data import prepare

def die(rows, share):
    os.kill(os.getpid(), 9)

prepare("criteo-kaggle", [Path(sys.argv[1])], Path(sys.argv[2]), progress=die)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signal 9")
def test_a_killed_preparation_leaves_no_data_set_and_the_next_one_cleans_up(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(100))
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, source, out], cwd=root, check=False)
    assert done.returncode == -9
    assert not out.exists()
    leftovers = [path for path in tmp_path.iterdir() if ".partial." in path.name]
    assert len(leftovers) == 1
    with pytest.raises(DpcompareError, match="is not a prepared data set"):
        load_prepared(leftovers[0])
    assert prepare(CRITEO, [source], out).rows == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.txt", "prepared"]


def test_a_destination_in_use_is_refused_and_kept(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(10))
    out.mkdir()
    write(out / "notes.txt", "mine")
    with pytest.raises(UsageError, match="exists already; remove it or choose another"):
        prepare(CRITEO, [source], out)
    assert (out / "notes.txt").read_text() == "mine"
    with pytest.raises(UsageError, match="exists already"):
        prepare(CRITEO, [source], source)


def test_the_same_request_again_keeps_the_destination(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(10))
    first = prepare(CRITEO, [source], out)
    before = (out / "numeric.npy").stat().st_mtime_ns
    assert prepare(CRITEO, [source], out) == first
    assert (out / "numeric.npy").stat().st_mtime_ns == before
    for change in ("source", "schema", "repair"):
        if change == "source":
            os.utime(source, ns=(1, 1))
        schema = own_schema() if change == "schema" else CRITEO
        with pytest.raises(UsageError, match=r"exists already.*It holds 10 prepared rows of crit"):
            prepare(schema, [source], out, repair=change == "repair")


def test_an_incomplete_destination_is_replaced(tmp_path, out):
    source = write(tmp_path / "log.txt", criteo_text(10))
    out.mkdir()
    assert prepare(CRITEO, [source], out).rows == 10
    (out / "numeric.npy").write_bytes(b"cut")
    assert prepare(CRITEO, [source], out).rows == 10
    (out / "manifest.json").unlink()
    assert prepare(CRITEO, [source], out).rows == 10
    assert load_prepared(out).rows == 10


def test_missing_parent_folders_are_made(tmp_path):
    source = write(tmp_path / "log.txt", criteo_text(10))
    assert prepare(CRITEO, [source], tmp_path / "a" / "b" / "out").rows == 10


def test_a_destination_that_cannot_be_written_is_one_error(tmp_path):
    source = write(tmp_path / "log.txt", criteo_text(10))
    with pytest.raises(DpcompareError, match="cannot write"):
        prepare(CRITEO, [source], source / "below-a-file")
