"""The frame of trials: every column documented, nothing lost of what records hold."""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dpcompare
from dpcompare.errors import DpcompareError
from dpcompare.frame import COLUMNS, documentation, kind_of, trains, trial_frame
from dpcompare.metric_sets import METRICS, metric_set
from dpcompare.results import ResultsFolder
from dpcompare.summary import summarize
from tests.fabricated_records import account_record, conversions, failed, record, study

REFERENCE = Path(__file__).resolve().parents[1] / "results" / "reference"
SWEPT = [
    account_record(epsilon, f"dp-sgd (batch_size={size} accountant=pld)", 2.0, size)
    for epsilon in (0.5, 3.0)
    for size in (1024, 4096)
]
TUNED = [
    record("dp-sgd", 1.0, seed, candidate={"training.learning_rate": rate, "shape": shape})
    for seed in (0, 1)
    for rate, shape in ((0.1, "laplace"), (1.0, "staircase"))
]


def written(path: Path, records: list) -> Path:
    folder = ResultsFolder(path)
    for made in records:
        folder.append(made)
    return path


@pytest.mark.parametrize(
    "records",
    [study(), conversions("pcvr"), conversions("pconvs"), SWEPT, TUNED, [failed("x", 1.0, 0, "y")]],
    ids=["clicks", "pcvr", "pconvs", "swept", "tuned", "failed"],
)
def test_every_column_is_documented_and_has_the_type_of_its_unit(records: list) -> None:
    frame = trial_frame(records)
    assert len(frame) == len(records)
    for column in frame:
        unit, meaning = documentation(column)
        assert meaning
        kind = frame[column].dtype
        if column.startswith(("swept_", "tuned_")):
            assert kind in ("float64", "str")
        elif unit == "text":
            assert kind == "str", column
        elif unit == "true or false":
            assert kind == "bool", column
        elif unit in ("count", "rows") and column not in ("selection_mean", "effective_examples"):
            assert pd.api.types.is_integer_dtype(kind), column
        else:
            assert kind == "float64", column


@pytest.mark.parametrize("name", ["quickstart", "pcvr", "pconvs-rows"])
def test_a_real_study_is_loaded_in_the_order_of_its_plan(name: str) -> None:
    frame = dpcompare.load(REFERENCE / name)
    folder = ResultsFolder(REFERENCE / name)
    assert list(frame["id"]) == folder.plan()
    summary = summarize(folder.records(folder.plan()))
    metric = summary["metric"].iloc[0]
    means = frame[frame["shown"]].groupby(["label", "epsilon"])[f"test_{metric}"].mean()
    for _, row in summary.iterrows():
        assert means[row["label"], row["epsilon"]] == pytest.approx(row[metric], rel=1e-12)
    assert set(frame.attrs["versions"]) >= {"jax", "dpcompare", "numpy"}


def test_documented_columns_without_a_wildcard_are_all_there() -> None:
    columns = set(trial_frame(study())) | set(trial_frame(conversions("pconvs")))
    assert {column for column in COLUMNS if "<" not in column} <= columns
    assert {f"test_{name}" for name in METRICS} <= columns


def test_numbers_are_those_of_the_record() -> None:
    made = record(
        *("dp-sgd", 0.5, 3),
        diagnostics={"calibrated": {"noise_multiplier": 2.5}, "noise_on_mean": 0.01},
        timings={"train": 3.25, "account": 0.5},
        notes=["one", "two"],
    )
    row = trial_frame([made]).iloc[0]
    for part in ("test", "validation", "best_possible"):
        for name in metric_set("pctr").names:
            expected = made[part].get(name, math.nan)
            np.testing.assert_equal(
                row[f"{part}_{name}"], math.nan if expected is None else expected
            )
    assert (row["epsilon"], row["seed"], row["noise_multiplier"]) == (0.5, 3, 2.5)
    assert (row["noise_on_mean"], row["seconds_train"], row["seconds_account"]) == (0.01, 3.25, 0.5)
    assert row["notes"] == "one; two"
    assert row["epsilon_zero_out"] == row["guarantee_epsilon"] == 0.5 * 0.9999
    assert row["epsilon_replace_one"] == 0.5 * 1.97
    assert (row["examples"], row["batch_size"], row["test_rows"]) == (100_000, 4096, 12_500)


def test_no_privacy_is_infinite_and_a_failed_trial_keeps_its_row() -> None:
    records = [record("non-private", math.inf, 0), failed("dp-sgd", 1.0, 0, "diverged")]
    frame = trial_frame(records)
    assert frame["epsilon"].tolist() == [math.inf, 1.0]
    lost = frame.iloc[1]
    assert (lost["status"], lost["error"]) == ("failed", "diverged")
    assert not lost["shown"]
    assert math.isnan(lost["test_auc"])
    assert lost["batch_size"] is pd.NA


def test_swept_and_tuned_settings_are_columns_of_their_own() -> None:
    frame = trial_frame(SWEPT)
    assert frame["swept_batch_size"].tolist() == [1024, 4096, 1024, 4096]
    assert frame["swept_accountant"].tolist() == ["pld"] * 4
    assert set(frame["curve"]) == {"dp-sgd"}
    mixed = trial_frame([*SWEPT, record("non-private", math.inf, 0)])
    assert math.isnan(mixed["swept_batch_size"].iloc[-1])
    tuned = trial_frame(TUNED)
    assert tuned["tuned_learning_rate"].tolist() == [0.1, 1.0, 0.1, 1.0]
    assert tuned["tuned_shape"].tolist() == ["laplace", "staircase"] * 2
    assert tuned["shown"].sum() == 2  # of the two candidates, one with two seeds


def test_trials_that_train_nothing_are_told_from_those_that_do() -> None:
    assert [kind_of(made) for made in (SWEPT[0], TUNED[0])] == ["account", "train"]
    assert not trains(SWEPT)
    assert trains([*SWEPT, *TUNED])
    assert trains([failed("x", 1.0, 0, "y")])
    assert not trains([failed("x", 1.0, 0, "y", configuration={"kind": "account"})])


def test_a_private_selection_and_withheld_test_rows_are_columns() -> None:
    drawn = {"selection": {"mean": 4.0, "draw": 2}, "withheld": "test"}
    frame = trial_frame([record("x", 1.0, 0, configuration=drawn, test=None), record("x", 1.0, 1)])
    assert frame["withheld"].tolist() == [True, False]
    assert frame["selection_mean"].iloc[0] == 4
    assert frame["selection_draw"].iloc[0] == 2
    assert frame["selection_draw"].iloc[1] is pd.NA


def test_only_the_present_plan_is_loaded(tmp_path: Path) -> None:
    records = study(seeds=2)
    ResultsFolder(written(tmp_path, records)).write_plan(made["id"] for made in records[:5])
    assert list(dpcompare.load(tmp_path)["id"]) == [made["id"] for made in records[:5]]


def test_a_folder_without_records_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DpcompareError, match=r"does not exist.*run-study"):
        dpcompare.load(tmp_path / "nowhere")


def test_a_damaged_last_line_is_a_warning(tmp_path: Path) -> None:
    with (written(tmp_path, study(seeds=1)) / "trials.jsonl").open("a") as file:
        file.write('{"torn')
    with pytest.warns(UserWarning, match="damaged"):
        assert len(dpcompare.load(tmp_path)) == 19


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, dpcompare; print([m for m in ('pandas', 'numpy', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_the_package_does_not_have_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        _ = dpcompare.lod  # type: ignore[attr-defined]
