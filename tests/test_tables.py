"""Tables for papers: their numbers, their marks, and that every format prints what it should."""

import csv
import io
import math
import re
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dpcompare.errors import DpcompareError
from dpcompare.results import ResultsFolder
from dpcompare.summary import Records, summarize
from dpcompare.tables import TABLES, Table, tables, write
from dpcompare.tables.formats import latex, latex_text, markdown
from tests.fabricated_records import (
    CONSTANT_POISSON,
    EPSILONS,
    account_record,
    conversions,
    count_scores,
    failed,
    metrics,
    record,
    sample_sizes,
    study,
)

COUNTS: dict[str, Any] = {"task": "pconvs", "metric": "poisson_loss"}
REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"


def of(records: Records, name: str) -> Table:
    return dict(tables(records))[name]


def trial(label: str, epsilon: float, seed: int, auc: float | None, **changes: Any) -> Any:
    return record("dp-sgd", epsilon, seed, label=label, test=metrics(auc, 0.8), **changes)


def pairs() -> list[Any]:
    """Two private seeds and a third that has no non-private partner."""
    reference = [trial("non-private", math.inf, seed, auc) for seed, auc in ((0, 0.8), (1, 0.75))]
    scores = ((0, 0.7), (1, 0.7), (2, 0.1))
    return reference + [trial("dp-sgd", 1.0, seed, auc) for seed, auc in scores]


def swept() -> list[Any]:
    """Two swept curves, one that is not swept, and no privacy."""
    made = [record("non-private", math.inf, seed) for seed in (0, 1)]
    for label, auc in (
        ("dp-sgd (clip_norm=1)", 0.7),
        ("dp-sgd (clip_norm=10)", 0.72),
        ("large (batch_size=8192 epochs=32)", 0.74),
        ("randomized-response", 0.71),
    ):
        for epsilon in (0.5, 3.0):
            made += [trial(label, epsilon, s, auc + 0.01 * epsilon + 0.002 * s) for s in (0, 1)]
    return made


def noises() -> list[Any]:
    made = [
        account_record(e, f"pld (batch_size={size})", 2.0 / e, size)
        for e in (1.0, 8.0)
        for size in (1024, 1048576)
    ]
    return [*made, account_record(1.0, "one size", 1.5, 4096, candidate_epsilon=0.3)]


def test_relative_losses_are_paired_by_seed() -> None:
    table = of(pairs(), "relative-loss")
    row = table.numbers.iloc[0]
    changes = [100 * (0.3 - 0.2) / 0.2, 100 * (0.3 - 0.25) / 0.25]
    assert row["mean"] == pytest.approx(statistics.fmean(changes))
    assert row["standard_deviation"] == pytest.approx(statistics.stdev(changes))
    assert row["standard_error"] == pytest.approx(statistics.stdev(changes) / math.sqrt(2))
    assert (row["n_seeds"], row["unpaired_seeds"]) == (2, "2")
    assert row["non_private_mean"] == pytest.approx((0.2 + 0.25) / 2)
    assert row["loss_mean"] == pytest.approx(0.3)
    assert row["share_of_gap"] == pytest.approx((0.1 / 0.3 + 0.05 / 0.25) / 2)
    assert table.blocks == [[["dp-sgd", "35.00 ± 21.21"]]]
    caption = " ".join(table.caption)
    assert "(seed 2)" in caption
    assert "over n = 2 seeds" in caption


def test_relative_losses_of_a_study_are_those_of_the_means_when_seeds_agree() -> None:
    table = of(study(seeds=1), "relative-loss")
    summary = summarize(study(seeds=1)).set_index(["label", "epsilon"])
    loss = 1 - summary["auc"]
    without = loss["non-private", math.inf]
    for _, row in table.numbers.iterrows():
        there = loss[row["label"], row["epsilon"]]
        assert row["mean"] == pytest.approx(100 * (there / without - 1))
    assert table.head[1:] == [f"ε = {epsilon:g}" for epsilon in EPSILONS]
    assert "one seed, so no standard deviation" in table.caption[0]
    marks = [cell.startswith("! ") for cell in table.blocks[0][1][1:]]
    assert marks == [True] * 4 + [False] * 5  # as RR_ENTROPY is above 1
    assert any("! worse than always predicting the base rate" in text for text in table.caption)


def test_counts_are_told_by_their_poisson_loss() -> None:
    table = of(conversions("pconvs"), "relative-loss")
    row = table.numbers[table.numbers["label"] == "laplace"].iloc[-1]
    losses = [count_scores(d2)["poisson_loss"] for d2 in (0.09 * 0.85, 0.0)]
    assert row["non_private_mean"] == pytest.approx(losses[0])
    share = (row["loss_mean"] - losses[0]) / (CONSTANT_POISSON - losses[0])
    assert row["share_of_gap"] == pytest.approx(share, rel=0.01)
    assert "Poisson loss" in table.title


def test_a_loss_that_is_not_positive_has_no_relative_increase_but_a_share() -> None:
    def shifted(d2: float) -> Any:
        scores = count_scores(d2)
        return scores | {"poisson_loss": scores["poisson_loss"] - 1}

    made = [
        record(mechanism, epsilon, seed, test=shifted(d2), **COUNTS)
        for mechanism, epsilon, d2 in (("non-private", math.inf, 0.08), ("dp-sgd", 1.0, 0.02))
        for seed in (0, 1)
    ]
    table = of(made, "relative-loss")
    row = table.numbers.iloc[0]
    assert math.isnan(row["mean"])
    assert row["share_of_gap"] == pytest.approx(0.75)
    assert table.blocks == [[["dp-sgd", "-"]]]
    assert any("is not above 0" in sentence for sentence in table.caption)


def test_of_several_curves_without_privacy_the_validation_loss_chooses() -> None:
    table = of(sample_sizes(), "relative-loss")
    assert "of 5 curves without privacy" in " ".join(table.caption)
    worse, better = metrics(0.7, 0.9), metrics(0.6, 0.8)
    made = [trial("worse", math.inf, 0, 0.99, validation=worse)]
    made += [trial("better", math.inf, 0, 0.8, validation=better), trial("dp-sgd", 1.0, 0, 0.7)]
    row = of(made, "relative-loss").numbers.iloc[0]
    assert (row["non_private"], row["non_private_mean"]) == ("better", pytest.approx(0.2))


def test_without_a_reference_there_is_no_such_table_and_another_says_so() -> None:
    made = [made for made in study() if math.isfinite(made["epsilon"])]
    assert set(dict(tables(made))) == {"metrics"}
    assert "no trial without privacy has a score" in " ".join(of(made, "metrics").caption)
    lost = [*made, failed("non-private", math.inf, 0, "lost")]
    assert "relative-loss" not in dict(tables(lost))


def test_failed_and_missing_trials_are_in_cells_and_named() -> None:
    made = pairs()
    made += [failed("broken", 1.0, seed, "the loss is nan") for seed in range(3)]
    made += [trial("late", 3.0, seed, 0.7) for seed in range(3)]
    made += [trial("constant", epsilon, 0, None) for epsilon in (1.0, 3.0)]
    table = of(made, "relative-loss")
    cells = {row[0]: row[1:] for row in table.blocks[0]}
    assert cells["dp-sgd"][1] == "missing"
    assert cells["broken"] == ["failed", "missing"]
    assert cells["late"][0] == "missing"
    assert cells["constant"] == ["-", "-"]
    caption = " ".join(table.caption)
    assert "Failed: broken (3 trials, at epsilon 1)" in caption
    assert "Missing: late at epsilon 1: seed 0, seed 1, seed 2." in caption
    assert "AUC has no value in 2 trials" in caption
    assert table.numbers.set_index("label").loc["broken", "failed"].iloc[0].endswith("loss is nan")


def test_metrics_are_those_of_the_summary() -> None:
    summary = summarize(conversions("pcvr"))
    table = of(conversions("pcvr"), "metrics")
    assert [len(block) for block in table.blocks] == [2, 1, *[9] * 6]
    assert table.blocks[0][0][0] == "best possible"
    for name in ("auc", "average_precision", "log_loss", "normalized_entropy", "calibration"):
        pd.testing.assert_series_equal(table.numbers[name], summary[name])
    row = dict(zip(table.head, table.blocks[2][0], strict=True))
    shown = summary[summary["label"] == "dp-sgd"].iloc[0]
    assert row["AUC"] == f"{shown['auc']:.4f} ± {shown['auc_se']:.4f}"
    assert (row["seeds"], row["epsilon spent"]) == ("3", "0.09999")


def test_the_chosen_candidate_and_metrics_without_values_are_named() -> None:
    made = [
        trial(
            "dp-sgd", 1.0, 0, 0.7, candidate={"clip_norm": norm}, validation=metrics(0.7, entropy)
        )
        for norm, entropy in ((1.0, 0.9), (10.0, 0.8))
    ]
    table = of(made, "metrics")
    assert table.blocks[-1][0][-1] == "clip_norm=10.0"
    assert (table.head[-1], table.alignment[-1]) == ("candidate", "l")
    assert "average precision" not in table.head
    assert "No trial has a value of average precision." in table.caption
    assert "candidate" not in of(study(), "metrics").head


def test_swept_values_are_rows_and_epsilons_columns() -> None:
    table = of(swept(), "sweep")
    assert table.head == ["curve", "clip_norm", "batch_size", "epochs", "ε = 0.5", "ε = 3"]
    assert table.blocks[0][0] == ["dp-sgd", "1", "-", "-", "0.7060 ± 0.0010", "0.7310 ± 0.0010"]
    assert table.blocks[1][0][:4] == ["large", "-", "8,192", "32"]
    assert table.blocks[2][0][:4] == ["randomized-response", "-", "-", "-"]
    assert "Without privacy, non-private: 0.7800 ± 0.0000." in table.caption
    at = table.numbers[(table.numbers["clip_norm"] == 10) & (table.numbers["epsilon"] == 3)]
    assert at["mean"].tolist() == pytest.approx([0.751])
    calibration = of(swept(), "sweep-calibration")
    assert calibration.numbers["metric"].unique().tolist() == ["calibration"]
    assert calibration.blocks[0][0][-1] == "1.0000 ± 0.0000"


def test_one_swept_curve_needs_no_name_and_counts_no_calibration() -> None:
    made = [
        record("x", 1.0, 0, label=f"x (clip_norm={norm})", test=count_scores(0.05), **COUNTS)
        for norm in (1, 3)
    ]
    assert set(dict(tables(made))) == {"metrics", "sweep"}
    assert of(made, "sweep").head == ["clip_norm", "ε = 1"]


def test_noise_is_shown_where_nothing_is_trained() -> None:
    assert set(dict(tables(noises()))) == {"noise"}
    table = of(noises(), "noise")
    rows = [dict(zip(table.head, row, strict=True)) for block in table.blocks for row in block]
    assert [row["batch_size"] for row in rows] == [
        "1,024",
        "1,024",
        "1,048,576",
        "1,048,576",
        "4,096",
        "-",
    ]
    assert [row["noise multiplier"] for row in rows] == ["2", "0.25", "2", "0.25", "1.5", "missing"]
    assert [row["one candidate"] for row in rows] == ["-"] * 4 + ["0.3", "missing"]
    assert rows[0]["ε, replace-one"] == "1.97"
    assert "shuffled, at least" not in table.head
    assert table.numbers.columns.is_unique
    assert table.numbers["batch_size"].tolist()[:5] == [1024, 1024, 1048576, 1048576, 4096]
    assert not any("has no value" in sentence for sentence in table.caption)


def test_noise_that_could_not_be_computed_is_failed() -> None:
    lost = {"configuration": {"kind": "account"}}
    table = of([failed("dp-sgd", 1.0, 0, "no noise fits", **lost)], "noise")
    assert table.head == ["curve", "epsilon", "noise multiplier"]
    assert table.blocks == [[["dp-sgd", "1", "failed"]]]
    assert any(sentence.startswith("Failed: dp-sgd") for sentence in table.caption)


def test_what_epsilon_protects_is_said_once_per_curve() -> None:
    caption = " ".join(of(swept(), "sweep").caption)
    assert caption.count("epsilon protects one example under zero-out") == 1
    assert "clip_norm=" not in caption
    assert "someone who owns several rows" in caption


@pytest.mark.parametrize(
    "records",
    [study(), study(seeds=1), conversions("pcvr"), conversions("pconvs"), swept(), noises()],
    ids=["clicks", "one seed", "pcvr", "pconvs", "swept", "noise"],
)
def test_every_format_holds_the_same_cells(records: Records) -> None:
    for name, table in tables(records):
        assert len(table.alignment) == len(table.head)
        rows = [row for block in table.blocks for row in block]
        assert all(len(row) == len(table.head) for row in rows), name
        lines = [line for line in markdown(name, table).splitlines() if line.startswith("|")]
        assert [line.count(" | ") for line in (lines[0], *lines[2:])] == [len(table.head) - 1] * (
            len(rows) + 1
        )
        text = latex(name, table)
        assert text.count(" \\\\\n") == len(rows) + 1
        assert set(re.findall(r"\\(?:begin|end)\{tabular\}", text)) == {
            "\\begin{tabular}",
            "\\end{tabular}",
        }
        ends = [line for line in text.splitlines() if line.endswith("\\\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) for line in ends} == {len(table.head) - 1}
        assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))


def test_latex_prints_what_it_would_read_as_a_command() -> None:
    text = r"50% of a_b & #1 $x$ {y} ~ ^ \end [z] *"
    assert latex_text(text) == (
        r"50\% of a\_b \& \#1 \$x\$ \{y\} \textasciitilde{} \textasciicircum{} "
        r"\textbackslash{}end {[}z{]} {*}"
    )
    assert latex_text("0.1 ± 0.2, D² < 3 → ε = 1") == (
        r"0.1 $\pm$ 0.2, D$^2$ \textless{} 3 $\to$ $\varepsilon$ = 1"
    )
    assert latex_text("-0.5 ± 0.1, 1e-05, dp-sgd, 3-5") == (r"$-$0.5 $\pm$ 0.1, 1e-05, dp-sgd, 3-5")
    assert latex_text("two\n\nparagraphs") == "two paragraphs"


def test_a_caption_that_latex_cannot_measure_goes_on_below_the_table() -> None:
    notes = [f"note {number} of some length, as trials have them" for number in range(100)]
    made = [record("x", epsilon, 0, notes=notes) for epsilon in (1.0, math.inf)]
    text = latex("metrics", of(made, "metrics"))
    caption = next(line for line in text.splitlines() if "\\caption" in line)
    below = next(line for line in text.splitlines() if "\\parbox" in line)
    assert len(caption) < 2000
    assert "note 99" not in caption
    assert "note 99" in below
    assert "\\parbox" not in latex("metrics", of(study(), "metrics"))


def test_labels_of_any_characters_break_no_table() -> None:
    label = "a|b & 50%_c *[d] \\e ~^{f}$"
    made = [
        record("x", epsilon, 0, label=label, title="A|B_", study="my study_1")
        for epsilon in (1.0, math.inf)
    ]
    table = of(made, "metrics")
    text = markdown("metrics", table)
    line = next(line for line in text.splitlines() if "50%" in line)
    assert len(re.findall(r"(?<!\\)\|", line)) == len(table.head) + 1
    assert "\\label{tab:my-study-1-metrics}" in latex("metrics", table)
    assert r"a\textbar{}b \& 50\%\_c {*}{[}d{]} \textbackslash{}e" in latex("metrics", table)


def test_files_are_written_and_equal_for_equal_records(tmp_path: Path) -> None:
    contents = []
    for name in ("a", "b"):
        folder = filled(tmp_path / name, swept())
        paths = write(folder)
        assert {path.relative_to(folder.path).as_posix() for path in paths} == {
            f"tables/{table}.{form}"
            for table in ("relative-loss", "metrics", "sweep", "sweep-calibration")
            for form in ("md", "tex", "csv")
        }
        contents.append([path.read_bytes() for path in paths])
    assert contents[0] == contents[1]


def test_numbers_in_the_csv_are_exact(tmp_path: Path) -> None:
    folder = filled(tmp_path, pairs())
    write(folder)
    (row,) = csv.DictReader(io.StringIO((tmp_path / "tables/relative-loss.csv").read_text()))
    assert float(row["mean"]) == of(pairs(), "relative-loss").numbers["mean"].iloc[0]


def test_a_table_that_the_records_no_longer_give_is_removed(tmp_path: Path) -> None:
    folder = filled(tmp_path, swept())
    write(folder)
    plain = [made["id"] for made in swept() if made["label"] == "randomized-response"]
    assert {path.stem for path in write(folder, plain)} == {"metrics"}
    assert {path.stem for path in (tmp_path / "tables").iterdir()} == {"metrics"}


def test_no_records_are_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DpcompareError, match="holds no results"):
        write(ResultsFolder(tmp_path))


@pytest.mark.parametrize("name", ["quickstart", "pcvr", "pconvs", "pconvs-rows"])
def test_real_results_give_their_tables(name: str) -> None:
    folder = ResultsFolder(REFERENCE / name)
    made = dict(tables(folder.records(folder.plan())))
    expected = {"metrics"} if name == "pconvs-rows" else {"metrics", "relative-loss"}
    assert set(made) == expected <= set(TABLES)
    if "relative-loss" in made:  # at large epsilon, label mechanisms cost nothing
        numbers = made["relative-loss"].numbers
        best = numbers[(numbers["label"] == "randomized-response") & (numbers["epsilon"] == 50)]
        assert abs(best["mean"].iloc[0]) < 1
        assert best["share_of_gap"].iloc[0] < 0.05


def filled(path: Path, records: Records) -> ResultsFolder:
    folder = ResultsFolder(path)
    for made in records:
        folder.append(made)
    return folder
