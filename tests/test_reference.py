"""What the committed quickstart shows, read from its records, and that they can be redrawn."""

import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpcompare import figures, wording
from dpcompare.results import ResultsFolder
from dpcompare.summary import summarize

REFERENCE = Path(__file__).resolve().parents[1] / "results/reference/quickstart"
EPSILONS = [0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0]


@pytest.fixture(scope="module")
def folder():
    return ResultsFolder(REFERENCE)


@pytest.fixture(scope="module")
def summary(folder):
    return summarize(folder.records(folder.plan()))


def curve(summary, label, column="auc"):
    rows = summary[summary["label"] == label].set_index("epsilon")
    return rows[column]


def test_it_is_the_whole_quickstart(folder, summary):
    records = folder.records(folder.plan())
    assert len(records) == 57
    assert all(record["status"] == "done" for record in records)
    assert len({record["id"] for record in records}) == 57
    for label in ("dp-sgd", "randomized-response"):
        assert list(curve(summary, label).index) == EPSILONS
    assert list(curve(summary, "non-private").index) == [np.inf]


def test_every_budget_is_kept_and_nearly_used(folder):
    for record in folder.records(folder.plan()):
        if record["label"] != "non-private":
            spent = record["guarantee"]["epsilon"]
            rounding = 1e-9 if record["label"] == "randomized-response" else 0.0
            assert 0.99 * record["epsilon"] <= spent <= record["epsilon"] * (1 + rounding)


def test_dp_sgd_is_clearly_ahead_at_small_epsilon(summary):
    for epsilon in (0.1, 0.25):
        ahead = curve(summary, "dp-sgd")[epsilon] - curve(summary, "randomized-response")[epsilon]
        errors = [
            curve(summary, label, "auc_se")[epsilon] for label in ("dp-sgd", "randomized-response")
        ]
        assert ahead > 2 * np.hypot(*errors)


def test_label_dp_is_level_or_ahead_at_epsilon_50(summary):
    behind = curve(summary, "dp-sgd")[50.0] - curve(summary, "randomized-response")[50.0]
    errors = [curve(summary, c, "auc_se")[50.0] for c in ("dp-sgd", "randomized-response")]
    assert behind <= 2 * np.hypot(*errors)


def test_nothing_is_above_the_non_private_line_beyond_noise(summary):
    line = curve(summary, "non-private")[np.inf]
    error = curve(summary, "non-private", "auc_se")[np.inf]
    for label in ("dp-sgd", "randomized-response"):
        excess = curve(summary, label) - line
        noise = np.hypot(curve(summary, label, "auc_se"), error)
        assert (excess <= 2 * noise).all()


def test_nothing_beats_the_best_possible_model(summary):
    assert (summary["auc"] < summary["best_possible_auc"]).all()
    assert (summary["log_loss"] > summary["best_possible_log_loss"]).all()


@pytest.mark.parametrize("place", sorted(REFERENCE.parent.iterdir()), ids=lambda path: path.name)
def test_records_alone_redraw_the_committed_numbers(place, tmp_path):
    folder, copy = ResultsFolder(place), tmp_path / "copy"
    copy.mkdir()
    for file in (folder.trials, folder.planned):
        shutil.copy(file, copy)
    kind = tomllib.loads(folder.study.read_text())["figure"]
    drawn = figures.draw(ResultsFolder(copy), folder.plan(), kind)
    made = next(path for path in drawn if path.suffix == ".csv")
    committed = place / "figures" / made.name
    pd.testing.assert_frame_equal(pd.read_csv(made), pd.read_csv(committed))
    records = folder.records(folder.plan())
    assert all(record["status"] == "done" for record in records)
    table = wording.table(summarize(records))
    assert all(curve[:12] in table for curve in summarize(records)["curve"])
