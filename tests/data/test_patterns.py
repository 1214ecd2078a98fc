import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpcompare.data import Column, load_prepared, prepare
from dpcompare.data.patterns import resolve
from dpcompare.errors import DpcompareError, UsageError
from tests.data.logs import own_schema, write

COLUMNS = (
    Column("kv_*", "categorical"),
    Column("kv_7", "numeric", scale=2.0),
    Column("unused_*", "ignore"),
    Column("*_delay", "leak"),
    Column("click", "label"),
)


def parquet(path, *names):
    pq.write_table(pa.table({name: pa.array([1, 0], pa.int64()) for name in names}), path)
    return path


def test_a_pattern_stands_for_the_columns_that_match_and_have_no_entry(tmp_path, out):
    file = parquet(tmp_path / "a", "kv_10", "click", "kv_7", "x_delay", "kv_9", "other", "a.kv_1")
    schema = own_schema(columns=COLUMNS)
    resolved = resolve(schema, [file])
    assert resolved.columns == (
        Column("kv_9", "categorical"),
        Column("kv_10", "categorical"),
        Column("kv_7", "numeric", scale=2.0),
        Column("x_delay", "leak"),
        Column("click", "label"),
    )
    manifest = prepare(schema, [file], out)
    assert manifest.restored_schema() == resolved
    assert load_prepared(out).categorical_names == ("kv_9", "kv_10")
    assert load_prepared(out).description["left_out_as_leaks"] == ["x_delay"]
    assert "does not list were left out: a.kv_1, other" in manifest.warnings[0]
    assert prepare(schema, [file], out) == manifest


def test_other_characters_of_a_pattern_stand_for_themselves(tmp_path):
    file = parquet(tmp_path / "a", "a.b1", "axb1", "[a]", "click")
    columns = (Column("a.b*", "categorical"), Column("[*]", "categorical"), COLUMNS[-1])
    names = [column.name for column in resolve(own_schema(columns=columns), [file]).columns]
    assert names == ["a.b1", "[a]", "click"]


def test_a_schema_without_patterns_reads_no_file(tmp_path):
    assert resolve(own_schema(), [tmp_path / "absent"]) == own_schema()


def test_a_pattern_of_features_must_match(tmp_path, out):
    file = parquet(tmp_path / "a", "kv7", "click")
    with pytest.raises(UsageError, match=r"no column of .*a is called like 'kv_\*'.*kv7, click"):
        prepare(own_schema(columns=COLUMNS), [file], out)


def test_a_column_must_not_match_two_patterns(tmp_path, out):
    file = parquet(tmp_path / "a", "kv_1", "kv_delay", "click", "kv_7")
    with pytest.raises(UsageError, match=r"'kv_delay' of .* like 'kv_\*' and like '\*_delay'"):
        prepare(own_schema(columns=COLUMNS), [file], out)


def test_a_matched_leak_is_refused_as_a_feature(tmp_path, out):
    columns = (Column("*", "categorical"), COLUMNS[-1])
    file = parquet(tmp_path / "a", "kv_1", "x_delay_after_display_array", "click")
    with pytest.raises(UsageError, match="'x_delay_after_display_array' must not be a feature"):
        prepare(own_schema(columns=columns), [file], out)


@pytest.mark.parametrize(
    ("pattern", "name", "fits"),
    [
        ("*", "", True),
        ("**", "a", True),
        ("a*", "a", True),
        ("a*a", "a", False),  # a letter is not both the first and the last
        ("a*a", "aa", True),
        ("a*b*a", "aba", True),
        ("ab*ba", "aba", False),
        ("*ab*b", "aab", False),
        ("*ab*b", "aabb", True),
        ("*.+*", "x.+", True),
        ("*.+*", "xyz", False),
        ("a*c", "a\nb\nc", True),
        ("*a" * 40 + "*", "a" * 60 + "b", True),
        ("*a" * 40 + "*c", "a" * 60 + "b", False),  # where a search that goes back never ends
    ],
)
def test_a_star_stands_for_any_text(tmp_path, pattern, name, fits):
    columns = (Column(pattern, "ignore"), *COLUMNS[1:2], COLUMNS[-1])
    resolved = resolve(
        own_schema(columns=columns), [parquet(tmp_path / "a", name, "kv_7", "click")]
    )
    assert (name in [column.name for column in resolved.columns]) == fits


def test_patterns_are_for_parquet(tmp_path, out):
    with pytest.raises(UsageError, match=r"columns of a Parquet file, but .*log.csv is text"):
        prepare(own_schema(columns=COLUMNS), [write(tmp_path / "log.csv", "kv_1,click\n")], out)


def test_a_damaged_first_file(tmp_path, out):
    file = parquet(tmp_path / "a", "kv_1", "kv_7", "click")
    write(file, file.read_bytes()[:-20])
    with pytest.raises(DpcompareError, match="damaged Parquet file"):
        prepare(own_schema(columns=COLUMNS), [file], out)
    assert not out.exists()
