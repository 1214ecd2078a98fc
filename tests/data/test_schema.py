import json
import math
import time
from pathlib import Path

import pytest

from dpcompare.data import Schema, Target, bundled_schemas, load_schema
from dpcompare.errors import UsageError
from tests.data.logs import HILLSTROM, KAG, documented_schema

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
    assert schema.tasks == {"pctr": Target("label")}
    assert schema.missing == ("",)


def test_the_scale_of_criteo_columns_follows_the_published_percentiles():
    p99 = [44, 2223, 303, 44, 312517, 1737, 190, 48, 1229, 3, 22, 14, 74]
    scales = [column.scale for column in load_schema("criteo-kaggle").numeric]
    assert scales == [pytest.approx(math.log1p(p) / 2, abs=0.006) for p in p99]


def test_bundled_names_are_listed():
    assert bundled_schemas() == [
        "criteo-attribution",
        "criteo-kaggle",
        "criteo-private-ad",
        "criteo-sponsored-search",
    ]


@pytest.mark.parametrize("name", bundled_schemas())
def test_every_bundled_schema_loads_and_says_what_it_is(name):
    schema = load_schema(name)
    assert schema.title.startswith("Criteo")
    assert Schema.restored(schema.content()) == schema


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
    with pytest.raises(
        UsageError,
        match=r"did you mean 'criteo-kaggle'.*bundled: criteo-attribution, criteo-kaggle",
    ):
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
    "scale tiny": ("scale = 3", "scale = 1e-40", "got 1e-40 for 'price'; allowed are 1e-30 to 1e"),
    "scale huge": ("scale = 3", "scale = 1e300", "got 1e.300 for 'price'; allowed are 1e-30 to 1e"),
    "scale of many digits": ("scale = 3", f"scale = {10**400}", r"columns\[2\].scale: a whole num"),
    "key of two lines": ("scale = 3", '"a\\nb" = 3', r"columns\[2\].'a\\nb': unknown key"),
    "long value": ("scale = 3", f"scale = {[1] * 5000}", r"must be a number, got \[1, 1.*\.\.\.$"),
    "deep value": ("scale = 3", f"scale = {'[' * 5000}", "is nested more than 20 levels deep"),
    "deep key": ('"own"', f'"own"\nx{".a" * 800} = 1', "is nested more than 20 levels deep"),
    "thousands of digits": ('"own"', "1" * 5000, "holds a number with thousands of digits"),
    "not UTF-8": ("own", "\udcff", "is not valid TOML: it is not text in UTF-8: "),
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
    path.write_text(VALID.replace(old, new), errors="surrogateescape")
    with pytest.raises(UsageError, match=message) as caught:
        load_schema(path)
    assert str(caught.value).startswith(str(path))


def test_a_schema_of_many_columns_is_read_at_once(tmp_path):
    columns = "".join(f'{{ name = "c{i}", role = "categorical" }},\n' for i in range(8000))
    journey = f"journey = {[f'c{i}' for i in range(8000)]}\n"
    path = tmp_path / "wide.toml"
    path.write_text(journey + VALID.replace("columns = [\n", f"columns = [\n{columns}"))
    start = time.thread_time()
    schema = load_schema(path)
    assert time.thread_time() - start < 2
    assert len(schema.columns) == 8006
    assert len(schema.journey) == 8000


# --- targets, journeys, exposure ---

RICH = """
rows_in_time_order = true
journey = ["user", "shop"]
columns = [
    { name = "user", role = "ignore" },
    { name = "shop", role = "categorical" },
    { name = "shown", role = "ignore" },
    { name = "click", role = "label" },
    { name = "sales", role = "label" },
    { name = "sale_id", role = "leak" },
]
[tasks]
pctr = "click"
pcvr = { label = "sales", at_least = 2, max = 9, rows = "click" }
pconvs = { distinct = "sale_id" }
"""


def load_text(folder, text):
    path = Path(folder) / "rich.toml"
    path.write_text(text)
    return load_schema(path)


def test_targets_and_journeys_are_read(tmp_path):
    schema = load_text(tmp_path, RICH)
    assert schema.journey == ("user", "shop")
    assert schema.tasks == {
        "pctr": Target(label="click"),
        "pcvr": Target(label="sales", rows="click", at_least=2, max=9),
        "pconvs": Target(distinct="sale_id"),
    }
    assert schema.wanted == ("shop", "click", "sales", "sale_id", "user")
    assert schema.distinct == ("sale_id",)
    assert schema.exposure is None
    assert Schema.restored(json.loads(json.dumps(schema.content()))) == schema
    assert [target.rule() for target in schema.tasks.values()] == [
        "click",
        "sales >= 2, where click is 1",
        "distinct sale_id per journey",
    ]


def test_an_exposure_is_read_and_is_no_feature(tmp_path):
    text = RICH.replace('"shown", role = "ignore"', '"shown", role = "exposure"').replace(
        'distinct = "sale_id"', 'label = "sales", missing = 0'
    )
    schema = load_text(tmp_path, text)
    assert schema.exposure.name == "shown"
    assert schema.features == ("shop",)
    assert "shown" in schema.wanted
    assert schema.tasks["pconvs"].rule() == "sales, missing = 0"


RICH_BROKEN = {
    "journey of no column": (
        '["user", "shop"]',
        '["user", "shp"]',
        r"journey: 'shp' is not among the columns \(did you mean 'shop'\?\)",
    ),
    "journey not a list": ('["user", "shop"]', '"user"', "journey: must be a list, got 'user'"),
    "journey of numbers": (
        '["user", "shop"]',
        "[1]",
        'journey: must be a list of texts such as "?',
    ),
    "journey twice": ('["user", "shop"]', '["user", "user"]', "names a column more than once"),
    "distinct without journey": (
        'journey = ["user", "shop"]',
        "",
        r'tasks\.pconvs\.distinct: counts over journeys.*journey = \["user", "campaign"\]',
    ),
    "target is a number": ('pctr = "click"', "pctr = 1", r"tasks\.pctr: must be the name of a col"),
    "target has an unknown key": (
        "at_least",
        "atleast",
        r"tasks\.pcvr\.atleast: unknown key \(did you mean 'at_least'\?\); allowed: label",
    ),
    "target without a label": ('label = "sales", ', "", r"tasks\.pcvr\.label: a task needs either"),
    "label and distinct": (
        'distinct = "sale_id"',
        'distinct = "sale_id", label = "sales"',
        r"tasks\.pconvs\.label: a task needs either label .* or distinct",
    ),
    "distinct and another key": (
        'distinct = "sale_id"',
        'distinct = "sale_id", rows = "click"',
        r"tasks\.pconvs\.rows: does not go with distinct",
    ),
    "distinct for a rate": (
        'pctr = "click"',
        'pctr = { distinct = "sale_id" }',
        r"tasks\.pctr\.distinct: makes a count, but the labels of pctr are 0 and 1",
    ),
    "distinct of a feature": (
        'distinct = "sale_id"',
        'distinct = "shop"',
        r"distinct: must be a column with role label or leak \(click, sales, sale_id\), got 'shop'",
    ),
    "rows of a feature": (
        'rows = "click"',
        'rows = "shop"',
        r"tasks\.pcvr\.rows: must be a column",
    ),
    "rows of a near miss": (
        'rows = "click"',
        'rows = "clik"',
        r"got 'clik' \(did you mean 'click'",
    ),
    "rows of the label": ('rows = "click"', 'rows = "sales"', "rows: is the label itself"),
    "label of a leak": (
        'label = "sales"',
        'label = "sale_id"',
        r"tasks\.pcvr: must be a column with",
    ),
    "missing is 1": ('label = "sales"', 'label = "sales", missing = 1', "missing: must be 0"),
    "missing is false": (
        'label = "sales"',
        'label = "sales", missing = false',
        "missing: must be a whole number, got False",
    ),
    "at_least 0": ("at_least = 2", "at_least = 0", "at_least: must lie between 1 and 16,777,216"),
    "at_least above max": (
        "at_least = 2",
        "at_least = 10",
        r"at_least: must not be above max \(9\)",
    ),
    "at_least of a count": (
        'distinct = "sale_id"',
        'label = "sales", at_least = 1',
        r"tasks\.pconvs\.at_least: makes labels 0 and 1, but pconvs predicts the count",
    ),
    "max of a rate": (
        "at_least = 2, ",
        "",
        r"tasks\.pcvr\.max: is for counts, but the labels of pc",
    ),
    "max beyond float32": ("max = 9", "max = 16777217", "max: must lie between 1 and 16,777,216"),
    "exposure over journeys": (
        '"shown", role = "ignore"',
        '"shown", role = "exposure"',
        r"columns: 'shown' has role exposure.*a count over journeys \(distinct\) has none",
    ),
    "a known leak": ('"shop", role', '"click_nb", role', "'click_nb' must not be a feature"),
    "a pattern as label": ('"click", role', '"clic*", role', r"columns\[4\]\.name: a label is one"),
    "a near miss of a role": (
        '"leak"',
        '"leek"',
        r"got 'leek' for 'sale_id' \(did you mean 'leak'",
    ),
}


@pytest.mark.parametrize("case", RICH_BROKEN)
def test_every_broken_rule_of_a_label_names_the_key_and_what_is_allowed(tmp_path, case):
    old, new, message = RICH_BROKEN[case]
    assert RICH.count(old) == 1
    with pytest.raises(UsageError, match=message) as caught:
        load_text(tmp_path, RICH.replace(old, new))
    assert str(caught.value).startswith(str(Path(tmp_path) / "rich.toml"))


def test_an_exposure_is_one_column_and_for_counts(tmp_path):
    text = RICH.replace('distinct = "sale_id"', 'label = "sales"')
    text = text.replace('"shown", role = "ignore"', '"shown", role = "exposure"')
    with pytest.raises(UsageError, match="one column may have role exposure, but user, shown have"):
        load_text(tmp_path, text.replace('"user", role = "ignore"', '"user", role = "exposure"'))
    with pytest.raises(UsageError, match="'shown' has role exposure, which is for counts, but"):
        load_text(tmp_path, text.replace('pconvs = { label = "sales" }\n', ""))


def test_a_label_column_may_only_say_which_rows_belong(tmp_path):
    schema = load_text(tmp_path, RICH.replace('pctr = "click"\n', ""))
    assert set(schema.tasks) == {"pcvr", "pconvs"}


def test_a_schema_needs_a_feature(tmp_path):
    path = tmp_path / "empty.toml"
    path.write_text(
        'rows_in_time_order = true\ncolumns = [{ name = "y", role = "label" }]\n'
        '[tasks]\npctr = "y"\n'
    )
    with pytest.raises(UsageError, match="at least one column with role numeric or categorical"):
        load_schema(path)


def test_the_examples_of_the_documentation_are_valid_schemas(tmp_path):
    shop = load_schema(documented_schema("An own log", tmp_path))
    assert shop.tasks == {
        "pctr": Target("clicked"),
        "pcvr": Target("sales_7d", at_least=1, rows="clicked"),
        "pconvs": Target("sales_7d", missing=0, max=500),
    }
    assert [column.name for column in shop.with_role("leak")] == ["revenue_7d"]
    mail = load_schema(documented_schema(HILLSTROM, tmp_path))
    assert mail.tasks == {"pcvr": Target("conversion")}
    assert [column.name for column in mail.with_role("leak")] == ["visit", "spend"]
    ads = load_schema(documented_schema(KAG, tmp_path))
    assert ads.tasks == {"pconvs": Target("Total_Conversion", max=1000)}
    assert ads.exposure.name == "Impressions"
    assert [column.name for column in ads.with_role("leak")] == ["Approved_Conversion"]
