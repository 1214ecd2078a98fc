"""`--json`: standard output is one strict JSON value, and everything else is on standard error."""

import json
import math
from pathlib import Path

import pytest

from dpcompare import catalog, study
from dpcompare.commands.common_options import print_json
from dpcompare.comparison import compare
from dpcompare.expansion import expand
from dpcompare.results import ResultsFolder
from tests import tiny_studies as tiny
from tests.data.logs import criteo_text
from tests.failing_study import failing_study
from tests.tiny_studies import NON_PRIVATE, RANDOMIZED_RESPONSE


@pytest.fixture
def parsed(call):
    """A function that runs a command with --json: (exit code, value, error output)."""

    def refuse(token):
        raise AssertionError(f"bare {token}")

    def run(*arguments):
        code, out, err = call(*arguments, "--json")
        assert out.count("\n") == 1, out
        return code, json.loads(out, parse_constant=refuse), err

    return run


def test_what_json_cannot_hold_is_null_or_text(capsys):
    from dpcompare import terminal

    terminal.start()
    print_json({"nan": math.nan, "inf": [math.inf, -math.inf], "x": (1, None, True, "ä")})
    terminal.stop()
    expected = '{"nan": null, "inf": ["inf", "-inf"], "x": [1, null, true, "ä"]}\n'
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("kind", ["studies", "mechanisms", "schemas"])
def test_lists_tell_what_is_known_without_imports(parsed, kind):
    code, listed, err = parsed("list", kind)
    assert (code, err) == (0, "")
    assert [entry["name"] for entry in listed] == list(getattr(catalog, kind)())
    by_name = {entry["name"]: entry for entry in listed}
    if kind == "studies":
        assert by_name["pcvr"]["task"] == "pcvr"
        assert by_name["noise-vs-batch"]["kind"] == "account"
    elif kind == "mechanisms":
        assert by_name["dp-sgd"]["object"] == "dpcompare_mechanisms.dp_sgd:DPSGD"
        assert by_name["dp-sgd"]["package"] == "dpcompare"
    else:
        assert all(entry["title"] for entry in listed)


def test_a_study_and_a_schema_are_their_content(parsed):
    assert parsed("show", "quickstart")[1]["task"] == "pctr"
    assert parsed("show", "criteo-kaggle")[1]["columns"][0] == {"name": "label", "role": "label"}


def test_a_comparison_has_the_numbers_of_the_frame(parsed, everything):
    folders = everything / "results" / "quickstart", everything / "results" / "pctr"
    code, found, err = parsed("compare", *folders)
    assert (code, err) == (0, "")
    frame = compare(*folders)
    assert [row["label"] for row in found["curves"]] == list(frame["label"])
    means = [math.nan if row["mean_a"] is None else row["mean_a"] for row in found["curves"]]
    assert means == pytest.approx(list(frame["mean_a"]), nan_ok=True)
    assert "inf" in {row["epsilon"] for row in found["curves"]}
    assert found["a"].endswith("quickstart")


def test_a_preparation_prints_its_manifest(parsed, tmp_path):
    (tmp_path / "log.txt").write_text(criteo_text(50))
    code, manifest, err = parsed("prepare", "criteo-kaggle", tmp_path / "log.txt", tmp_path / "out")
    assert (code, err) == (0, "")
    assert manifest == json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["rows"] == 50


def test_a_dry_run_lists_trials_with_seconds_and_memory(parsed, tmp_path):
    made = tiny.content(NON_PRIVATE, RANDOMIZED_RESPONSE, epsilons=[1, 3], seeds=2)
    path = tiny.write(tmp_path, made)
    code, planned, err = parsed("run-study", path, "--dry-run", "--workers", "2")
    assert (code, err) == (0, "")
    trials = expand(study.load(str(path)))
    assert len(planned["trials"]) == len(trials) == 6
    assert planned["workers"] == 2
    assert planned["final_trials"] == 0
    assert {trial["epsilon"] for trial in planned["trials"]} == {"inf", 1.0, 3.0}
    assert all(trial["seconds"] > 0 for trial in planned["trials"])
    assert all(trial["memory_bytes"] > 2**20 for trial in planned["trials"])


def test_a_run_ends_with_what_became_of_its_trials(parsed, tmp_path):
    arguments = ("run-study", failing_study(tmp_path), "--out", tmp_path / "results")
    code, outcome, err = parsed(*arguments)
    assert code == 1
    assert outcome["trials"] == {"done": 1, "failed": 1, "skipped": 0}
    (failure,) = outcome["failures"]
    assert (failure["label"], failure["epsilon"]) == ("failing", 1.0)
    assert "there is no such noise" in failure["error"]
    assert "Trials: 1 done, 1 failed" in err
    assert "Error: failed trials: 1." in err
    assert Path(outcome["records"]) == tmp_path / "results" / "trials.jsonl"
    assert Path(outcome["summary"]).exists()
    assert {Path(table).suffix for table in outcome["tables"]} == {".csv", ".md", ".tex"}
    again = parsed(*arguments)[1]
    assert again["trials"] == {"done": 0, "failed": 1, "skipped": 1}
    assert len(ResultsFolder(tmp_path / "results").done_ids()) == 1


def test_a_failure_leaves_standard_output_empty(call):
    code, out, err = call("show", "dp-sdg", "--json")
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
