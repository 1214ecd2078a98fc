"""Conversions of real logs, where they are at hand: studies on the schemas that the docs show."""

import pytest

from dpcompare.data import prepare
from dpcompare.trial import run_trial
from tests import tiny_studies as tiny
from tests.data.logs import HILLSTROM, KAG, SHARED, documented_schema, needs_real_rows

pytestmark = needs_real_rows


@pytest.fixture
def prepared(tmp_path):
    """Prepares a real file with the schema under a heading of docs/data.md."""

    def make(heading, file):
        place = tmp_path / "prepared"
        prepare(documented_schema(heading, tmp_path), [SHARED / "conversions" / file], place)
        return {"source": str(place)}

    return make


def test_purchases_of_the_hillstrom_log_are_rare_and_can_be_ranked(tmp_path, prepared):
    """Logistic regression has .635; 12,800 test rows leave a standard error of .03."""
    (configuration,) = tiny.trials(
        tmp_path,
        task="pcvr",
        data=prepared(HILLSTROM, "hillstrom_64000.csv.gz") | {"split": [0.7, 0.1, 0.2]},
        model={"buckets": 50, "tower": []},
        training={"batch_size": 512, "epochs": 4, "learning_rate": 0.1, "base_rate": 0.01},
    )
    record = run_trial(configuration)
    assert sum(record["rows"].values()) == 64_000
    assert record["test"]["auc"] > 0.58
    assert record["test"]["normalized_entropy"] < 1.01
    assert record["test"]["calibration"] == pytest.approx(1, abs=0.3)


def test_conversions_of_the_kag_log_follow_from_exposure_and_features(tmp_path, prepared):
    """The test rows are those of the last campaign; on 5 random folds a D2 of .73 is known."""
    data = prepared(KAG, "KAG_conversion_data.csv") | {"split": [0.6, 0.2, 0.2]}
    of_study = {
        "task": "pconvs",
        "cap": 60,
        "epsilons": [50.0],
        "data": data,
        "model": {"buckets": 50, "tower": []},
        "training": {
            "batch_size": 64, "epochs": 20, "learning_rate": 0.01, "base_rate": 1.5e-5
        },
    }  # fmt: skip
    backward = {"name": "randomized-response", "correction": "backward"}
    plain, labels = map(
        run_trial, tiny.trials(tmp_path, {"name": "non-private"}, backward, **of_study)
    )
    assert plain["test"]["d2"] > 0.4
    assert labels["test"]["d2"] == pytest.approx(plain["test"]["d2"], abs=1e-3)
