"""Fuzzing of schema files: a schema that keeps what the file says, or one clear message."""

import json
import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcompare.data import Schema, load_schema
from dpcompare.data.schema import ROLES
from dpcompare.data.targets import LABEL_KINDS
from tests.data.test_schema import RICH, VALID
from tests.fuzzing import FUZZ, mutated, one_clear_message, scribbled

EXPOSED = """
title = "exposed"
rows_in_time_order = false
columns = [
    { name = "site", role = "categorical" },
    { name = "kv_*", role = "categorical" },
    { name = "shown", role = "exposure" },
    { name = "spent", role = "numeric", scale = 2.5, integer = false },
    { name = "bought", role = "label" },
    { name = "seen", role = "leak" },
]
file = { header = false, quoting = false, separator = "\\t", missing = [] }
tasks.pconvs = { label = "bought", rows = "seen", missing = 0, max = 500 }
"""
TEXTS = [VALID, RICH, EXPOSED]
WORDS = [
    *ROLES, *LABEL_KINDS, "title", "rows_in_time_order", "journey", "columns", "file", "tasks",
    "name", "role", "integer", "scale", "separator", "header", "quoting", "missing", "label",
    "distinct", "rows", "at_least", "max", "click", "site", "price", "user", "sales", "sale_id",
    "bought", "kv_*", "nb_sales", "Time_delay_for_conversion", ";", "\t", '"', 0, 1, 2, True, 1e-31,
    1e31, 1e-30, {"label": "click"}, {"label": "sales", "missing": 0}, {"distinct": "sale_id"},
    ["", "NA"], ["user"], ["user", "user"], [{"name": "x", "role": "categorical"}] * 2,
    [{"name": f"c{i}", "role": "categorical"} for i in range(3000)], [f"c{i}" for i in range(3000)],
]  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "fuzzed.toml"


def check(file, text: str | bytes) -> None:
    """The file is a schema that keeps all it was told, or is refused."""
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    with one_clear_message(str(file)):
        schema = load_schema(file)
        _check_kept(tomllib.loads(file.read_text(encoding="utf-8-sig")), schema)
        restored = Schema.restored(json.loads(json.dumps(schema.content(), allow_nan=False)))
        assert restored == schema
        assert restored.content() == schema.content()


def _check_kept(content: dict[str, Any], schema: Schema) -> None:
    assert schema.name == "fuzzed"
    assert schema.title == content.get("title", "fuzzed")
    assert schema.rows_in_time_order is content["rows_in_time_order"]
    assert list(schema.journey) == content.get("journey", [])
    file = {"separator": ",", "header": True, "quoting": True, "missing": [""]}
    file |= content.get("file", {})
    kept = {"missing": list(schema.missing)}
    assert same(file, {key: getattr(schema, key) for key in file} | kept)
    assert len(content["columns"]) == len(schema.columns)
    for given_column, column in zip(content["columns"], schema.columns, strict=True):
        given_column = {"integer": False, "scale": 1.0} | given_column
        given_column["scale"] = float(given_column["scale"])  # a whole number is a number
        assert same(given_column, vars(column))
    assert list(content["tasks"]) == list(schema.tasks)
    nothing = dict.fromkeys(("label", "distinct", "rows", "missing", "at_least", "max"))
    for task, target in schema.tasks.items():
        value = content["tasks"][task]
        assert same(nothing | ({"label": value} if isinstance(value, str) else value), vars(target))


def same(given: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether two tables are equal, where true is not 1 and 1 is not 1.0."""
    return given == found and all(type(given[key]) is type(found[key]) for key in given)


@settings(FUZZ, max_examples=2500)
@given(content=mutated([tomllib.loads(text) for text in TEXTS], WORDS))
def test_mutated_schemas_are_kept_or_refused(file, content):
    check(file, tomli_w.dumps(content))


@settings(FUZZ, max_examples=1500)
@given(text=scribbled(TEXTS))
def test_scribbled_schemas_are_kept_or_refused(file, text):
    check(file, text)


@settings(FUZZ, max_examples=300)
@given(content=st.binary(max_size=60))
def test_bytes_are_refused(file, content):
    check(file, content)
