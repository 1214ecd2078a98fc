"""The terminal table of every task, by what stands in it."""

import math

import pandas as pd
import pytest

from dpcompare.summary import summarize
from dpcompare.table_grid import grid, shown_metrics
from dpcompare.wording import table
from tests.fabricated_records import conversions, failed, record, study


def heads(summary: pd.DataFrame) -> list[list[str]]:
    """The words of the two lines of column titles."""
    return [text.split() for text in grid(summary, 100).splitlines()[:2]]


def line(summary: pd.DataFrame, label: str, epsilon: str = "") -> list[str]:
    for text in grid(summary, 100).splitlines():
        if text.startswith(label) and (not epsilon or text[len(label) :].split()[0] == epsilon):
            return text[len(label) :].split()
    raise AssertionError(f"no line {label} {epsilon}")


def test_columns_of_clicks() -> None:
    assert heads(summarize(study())) == [
        ["log", "norm.", "calib-"],
        ["curve", "epsilon", "AUC", "loss", "ent.", "ration", "seeds"],
    ]


def test_columns_of_conversions() -> None:
    assert heads(summarize(conversions("pcvr"))) == [
        ["avg.", "log", "norm.", "calib-", "eff."],
        ["curve", "epsilon", "AUC", "prec.", "loss", "ent.", "ration", "rows", "seeds"],
    ]


def test_columns_of_counts() -> None:
    assert heads(summarize(conversions("pconvs"))) == [
        ["Poisson", "calib-"],
        ["curve", "epsilon", "loss", "deviance", "D²", "ration", "seeds"],
    ]


def test_a_study_of_clicks_may_ask_for_average_precision() -> None:
    summary = summarize([r | {"metric": "average_precision"} for r in study()])
    assert "average_precision" in shown_metrics(summary)
    assert "average_precision" not in shown_metrics(summarize(study()))


@pytest.mark.parametrize("task", ["pcvr", "pconvs"])
def test_tables_fit_the_terminal(task: str) -> None:
    text = table(summarize(conversions(task)))
    assert max(map(len, text.splitlines())) <= 100


def test_counts_are_shown_with_error_mark_and_constant() -> None:
    summary = summarize(conversions("pconvs"))
    row = summary[(summary["label"] == "dp-sgd") & (summary["epsilon"] == 1)].iloc[0]
    cells = line(summary, "dp-sgd", "1")
    assert cells[1:4] == [f"{row['poisson_loss']:.4f}", "±", f"{row['poisson_loss_se']:.4f}"]
    assert cells[4:6] == [f"{row['deviance']:.4f}", f"{row['d2']:.4f}"]
    assert line(summary, "constant mean")[:3] == ["0.2288", "0.3720", "0.0000"]
    assert line(summary, "best possible")[2] == "0.0900"
    bad = line(summary, "laplace", "0.1")
    assert bad[1] == "10.8195"
    assert "!" in bad
    text = " ".join(table(summary).split())
    assert "! worse than always predicting the constant mean (D² below 0)" in text
    assert "Poisson loss: mean of m - y log m" in text


def test_conversions_show_effective_rows_and_say_what_they_are() -> None:
    summary = summarize(conversions("pcvr"))
    assert line(summary, "randomized-response", "1")[-2] == "8,960"
    assert line(summary, "dp-sgd", "1")[-2] != "8,960"
    text = " ".join(table(summary).split())
    assert "eff. rows: effective sample size" in text
    assert "avg. prec.: mean precision over the positives" in text
    assert "eff. rows" not in table(summarize(study()))


@pytest.mark.parametrize(
    ("rows", "text"), [(0.03, "0.0"), (9.6, "9.6"), (99.7, "100"), (12345.6, "12,300")]
)
def test_effective_rows_are_compact(rows: float, text: str) -> None:
    made = record("randomized-response", 1.0, 0, diagnostics={"effective_examples": rows})
    assert line(summarize([made]), "randomized-response", "1")[-2] == text


def test_long_labels_are_cut_in_the_middle() -> None:
    label = "start " + "x" * 120 + " end"
    summary = summarize([record("dp-sgd", 1.0, 0, label=label)])
    cut = grid(summary, 100).splitlines()[-1]
    assert cut.startswith("start ")
    assert "… " not in cut
    assert "…" in cut
    assert " end " in cut
    assert len(cut) <= 100


def test_what_has_no_number_says_why() -> None:
    made = [record("x", math.inf, 0), failed("dp-sgd", 1.0, 0, "diverged")]
    assert line(summarize(made), "dp-sgd", "1") == ["1", "failed", "0"]
