"""docs/findings.md and README: every number in their tables is that of the committed records."""

import math
import re
from pathlib import Path

import pytest

from dpcompare.results import ResultsFolder
from dpcompare.summary import summarize

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = (ROOT / "docs" / "findings.md", ROOT / "README.md")
TEXT = "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS)
TABLE = re.compile(r"<!-- (?P<study>[\w-]+): (?P<metric>\w+) -->\n\n(?P<rows>(?:\|.*\n)+)")
TABLES = [match.groupdict() for match in TABLE.finditer(TEXT)]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table['study']}: {table['metric']}")
def test_every_number_is_that_of_the_records(table):
    folder = ResultsFolder(ROOT / "results" / "reference" / table["study"])
    summary = summarize(folder.records(folder.plan()))
    head, _, *rows = table["rows"].splitlines()
    by_epsilon = cells(head)[0] == "epsilon"
    checked = 0
    for row in rows:
        name, *values = cells(row)
        for column, value in zip(cells(head)[1:], values, strict=True):
            if by_epsilon:
                found = summary[(summary["label"] == name) & summary["epsilon"].eq(float(column))]
            else:
                label = f"{name} ({column.replace(',', '')} rows)"
                found = summary[summary["label"] == label]
            assert len(found) == 1, (name, column)
            columns = [table["metric"], f"{table['metric']}_se"]
            numbers = [found[column].iloc[0] for column in columns if column in found]
            written = [number.strip() for number in value.replace("\N{MINUS SIGN}", "-").split("±")]
            for text, number in zip(written, numbers, strict=True):
                decimals = len(text.partition(".")[2])
                assert math.isclose(float(text), number, abs_tol=0.51 * 10**-decimals), (
                    row,
                    column,
                )
                checked += 1
    assert checked > 0


def test_every_reference_study_has_a_table():
    studies = {path.name for path in (ROOT / "results" / "reference").iterdir()}
    assert studies - {"effective-sample-size"} <= {t["study"] for t in TABLES}
