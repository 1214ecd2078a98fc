import math
from pathlib import Path

import pytest

from dpcompare.data import bundled_schemas, load_schema
from dpcompare.errors import UsageError

VALID = """
title = "own"
rows_in_time_order = true
columns = [
    { name = "when", role = "ignore" },
    { name = "price", role = "numeric", scale = 3 },
    { name = "count", role = "numeric", integer = true },
    { name = "site", role = "categorical" },
    { name = "bought_at", role = "leak" },
    { name = "click", role = "label" },
]
[file]
separator = ";"
missing = ["", "-1"]
[tasks]
pctr = "click"
"""


def test_the_bundled_criteo_schema_has_the_published_layout():
    schema = load_schema("criteo-kaggle")
    names = [column.name for column in schema.columns]
    assert names == ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    assert (schema.separator, schema.header, schema.quoting) == ("\t", False, False)
    assert len(schema.numeric) == 13
    assert len(schema.categorical) == 26
    assert all(column.integer for column in schema.numeric)
    assert schema.tasks == {"pctr": "label"}
    assert schema.missing == ("",)


def test_the_scale_of_criteo_columns_follows_the_published_percentiles():
    p99 = [44, 2223, 303, 44, 312517, 1737, 190, 48, 1229, 3, 22, 14, 74]
    scales = [column.scale for column in load_schema("criteo-kaggle").numeric]
    assert scales == [pytest.approx(math.log1p(p) / 2, abs=0.006) for p in p99]


def test_bundled_names_are_listed():
    assert "criteo-kaggle" in bundled_schemas()


def test_an_own_schema_is_read_from_its_path(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(VALID)
    schema = load_schema(path)
    assert load_schema(str(path)) == schema
    assert schema.name == "mine"
    assert schema.separator == ";"
    assert schema.header
    assert schema.missing == ("", "-1")
    assert [column.name for column in schema.numeric] == ["price", "count"]
    assert [column.scale for column in schema.numeric] == [3.0, 1.0]
    assert [column.name for column in schema.with_role("leak")] == ["bought_at"]


def test_an_unknown_name_lists_the_bundled_ones_with_the_near_miss():
    with pytest.raises(UsageError, match=r"did you mean 'criteo-kaggle'.*bundled: criteo-kaggle"):
        load_schema("criteo-kagle")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"absent\.toml: No such file"):
        load_schema(tmp_path / "absent.toml")


BROKEN = {
    "not TOML": ("title = ", "", "is not valid TOML"),
    "unknown key": ('title = "own"', 'titel = "own"', "titel: unknown key.*did you mean 'title'"),
    "unknown file key": ('separator = ";"', 'sep = ";"', r"file\.sep: unknown key.*allowed: sep"),
    "unknown column key": ("scale = 3", "scales = 3", r"columns\[2\]\.scales: unknown key"),
    "unknown role": ('"leak"', '"target"', r"columns\[5\]\.role: must be one of numeric, categ"),
    "missing key": ("rows_in_time_order = true", "", "rows_in_time_order: is required: true or"),
    "wrong type": ("rows_in_time_order = true", "rows_in_time_order = 1", "must be true or false"),
    "name not text": ('name = "site"', "name = 7", r"columns\[4\]\.name: must be a text, got 7"),
    "empty name": ('name = "site"', 'name = ""', "must not be empty"),
    "scale 0": ("scale = 3", "scale = 0", "scale: must be a number above 0, got 0.0 for 'price'"),
    "scale nan": ("scale = 3", "scale = nan", "scale: must be a number above 0"),
    "scale of a category": (
        'role = "categorical"',
        'role = "categorical", scale = 1.0',
        "scale: is for numeric columns, but 'site' is 'categorical'",
    ),
    "repeated name": ('"site"', '"price"', "each name may occur once, but 'price' is repeated"),
    "two separators": ('";"', '";;"', "separator: must be one character, got ';;'"),
    "quote as separator": ('";"', "'\"'", "separator: must be one character"),
    "missing mark not text": ('"-1"]', "-1]", "missing: must be a list of texts"),
    "no tasks": ('pctr = "click"', "", "tasks: needs at least one of pctr, pcvr, pconvs"),
    "unknown task": ("pctr =", "ctr =", r"tasks\.ctr: unknown key \(did you mean 'pctr'\?\)"),
    "task without column": (
        'pctr = "click"',
        'pctr = "site"',
        r"tasks\.pctr: must be a column with role label \(click\), got 'site'",
    ),
    "label without task": ('role = "leak"', 'role = "label"', "'bought_at' has role label, but no"),
    "column not a table": (
        '{ name = "when", role = "ignore" }',
        '"when"',
        r"columns\[1\] must be a table, got 'when'",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_every_broken_rule_names_the_file_the_key_and_what_is_allowed(tmp_path, case):
    old, new, message = BROKEN[case]
    assert VALID.count(old) == 1
    path = Path(tmp_path) / "broken.toml"
    path.write_text(VALID.replace(old, new))
    with pytest.raises(UsageError, match=message) as caught:
        load_schema(path)
    assert str(caught.value).startswith(str(path))


def test_a_schema_needs_a_feature(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text(
        'rows_in_time_order = true\ncolumns = [{ name = "y", role = "label" }]\n'
        '[tasks]\npctr = "y"\n'
    )
    with pytest.raises(UsageError, match="at least one column with role numeric or categorical"):
        load_schema(path)


def test_the_example_of_the_documentation_is_a_valid_schema(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs" / "data.md"
    example = page.read_text(encoding="utf-8").split("```toml\n")[1].split("```")[0]
    path = tmp_path / "shop.toml"
    path.write_text(example)
    schema = load_schema(path)
    assert schema.tasks == {"pctr": "clicked", "pconvs": "sales_7d"}
    assert [column.name for column in schema.with_role("leak")] == ["revenue_7d"]
