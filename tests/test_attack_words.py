"""Attack power in words and as the table of a report."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcompare import report
from dpcompare.attack_power import COLUMNS, LABEL_FLIP, WHOLE_ROW, of_records
from dpcompare.attack_table import attack_table
from dpcompare.attack_words import (
    equal_curves,
    equal_sentences,
    example_sentence,
    looser_sentences,
    percent,
    relation_sentences,
    sentences,
    short_name,
)
from dpcompare.report_tables import NONE
from dpcompare.results import ResultsFolder

TABLE = re.compile(r"^\|.*\|$", re.MULTILINE).findall
REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"


def rows_of(
    label: str, epsilon: float, bounds: tuple[float, float], relation: str, known: bool = True
) -> list[dict[str, Any]]:
    """At 1% and at .1%, of a label; of a row twice as much, or all of it."""
    rows = []
    for attack, of, factor in ((LABEL_FLIP, "replace-one-label", 1), (WHOLE_ROW, relation, 2)):
        for rate, bound in zip((0.01, 0.001), bounds, strict=True):
            tpr = 1.0 if of == "none" else factor * bound
            values = (label, epsilon, attack, of, rate, tpr, known)
            rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def frame(*parts: list[dict[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame([row for part in parts for row in part], columns=COLUMNS)


def two() -> pd.DataFrame:
    return frame(
        rows_of("dp-sgd", 0.5, (0.02, 0.003), "zero-out"),
        rows_of("dp-sgd", 2.0, (0.04, 0.0046), "zero-out"),
        rows_of("rr", 0.5, (0.0165, 0.00165), "none"),
    )


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0027182818, "0.272%"),
        (0.0271828, "2.72%"),
        (0.02, "2.00%"),
        (0.200855, "20.1%"),
        (0.99332943, "99.4%"),
        (0.99990001, "100%"),
        (1.0, "100%"),
        (1e-6, "0.000100%"),
        (0.0, "0%"),
    ],
)
def test_percents_are_rounded_up(share: float, text: str) -> None:
    assert percent(share) == text
    assert float(text.removesuffix("%")) >= 100 * share * (1 - 1e-9)


def test_the_example_is_at_the_epsilon_nearest_to_1_and_the_smallest_rate() -> None:
    assert example_sentence(two()) == (
        "At epsilon 0.5, an attacker who may be wrong about 1 in 1,000 rows that do not have the "
        "label in question recognizes at most this share of those that have it: 0.165% under rr, "
        "0.300% under dp-sgd. Guessing recognizes 0.1%."
    )


def test_of_many_curves_the_extremes_are_named() -> None:
    many = [rows_of(f"curve {k}", 1.0, (0.02, 0.002 + k / 1000), "zero-out") for k in range(8)]
    text = example_sentence(frame(*many))
    assert "from 0.200% (under curve 0) to 0.900% (under curve 7)" in text
    assert "curve 3" not in text
    alike = [rows_of(f"curve of number {k}", 1.0, (0.02, 0.002), "zero-out") for k in range(8)]
    assert "0.200% under curve of number 0 and 7 more. Guessing" in example_sentence(frame(*alike))


def test_only_what_applies_is_said() -> None:
    rows = two()
    whole, features = relation_sentences(rows)
    assert "replaced row" in whole
    assert "features" in features
    assert relation_sentences(rows[rows["label"] == "rr"]) == [features]
    assert relation_sentences(frame(rows_of("a", 1.0, (0.1, 0.1), "replace-one"))) == []
    assert looser_sentences(rows) == []
    unknown = frame(rows_of("a", 1.0, (0.1, 0.1), "zero-out", known=False))
    assert looser_sentences(unknown)[0].endswith("looser: a.")
    assert len(sentences(rows)) == 4


def test_equal_curves_share_a_name_that_is_explained_where_it_is_short() -> None:
    labels = ["randomized-response", "additive noise of Laplace", "rr-on-bins"]
    rows = frame(*(rows_of(label, 1.0, (0.02, 0.002), "none") for label in labels))
    assert equal_curves(rows) == {labels[0]: labels}
    assert short_name(labels) == "randomized-response and 2 more"
    assert short_name(labels[::2]) == "randomized-response, rr-on-bins"
    (text,) = equal_sentences({labels[0]: labels}, "line")
    assert text.endswith("additive noise of Laplace and rr-on-bins.")
    assert equal_sentences({"a": ["a", "b"]}, "line") == []
    assert set(equal_curves(two())) == {"dp-sgd", "rr"}


def test_the_table_has_a_column_per_epsilon() -> None:
    table = attack_table(two())
    assert table is not None
    assert list(table.head) == ["Curve", "To tell apart", "FPR", "ε = 0.5", "ε = 2"]
    assert [list(row) for row in table.rows] == [
        ["dp-sgd", "two labels of a row", "1%", "2.00%", "4.00%"],
        ["dp-sgd", "two labels of a row", "0.1%", "0.300%", "0.460%"],
        ["dp-sgd", "a row and an empty one", "1%", "4.00%", "8.00%"],
        ["dp-sgd", "a row and an empty one", "0.1%", "0.600%", "0.920%"],
        ["rr", "two labels of a row", "1%", "1.65%", NONE],
        ["rr", "two labels of a row", "0.1%", "0.165%", NONE],
        ["rr", "two rows", "any", "100%", NONE],
    ]
    assert attack_table(frame()) is None


def test_a_report_holds_the_table_unless_settings_are_swept(tmp_path: Path) -> None:
    folders = [REFERENCE / "quickstart", REFERENCE / "clip-norm"]
    page = report.write(folders, tmp_path / "page.html").read_text()
    assert page.count("What an attacker can tell at most</h3>") == 1
    assert 'href="#study-1-attack"' in page
    assert 'href="#study-2-attack"' not in page
    assert "0.272% under randomized-response, 0.456% under dp-sgd" in page


def test_the_documented_table_is_that_of_the_committed_quickstart() -> None:
    folder = ResultsFolder(REFERENCE / "quickstart")
    table = attack_table(of_records(folder.records(folder.plan())))
    assert table is not None
    computed = {
        (row[0], row[2], title): cell
        for row in table.rows
        if row[1] == "two labels of a row"
        for title, cell in zip(table.head[3:], row[3:], strict=True)
    }
    text = (REFERENCE.parents[1] / "docs" / "attack-power.md").read_text()
    head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE(text))
    assert len(rows) == 4
    for row in rows:
        for title, cell in zip(head[2:], row[2:], strict=True):
            assert cell == computed[row[0], row[1], title], (row[0], title)
