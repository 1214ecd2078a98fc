"""Audits of results folders: record, figure, report section, command."""

import errno
import json
import math
import os
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from dpcompare import report, tasks
from dpcompare.account import run_account
from dpcompare.audit import claims, figure, label_attack, record, text
from dpcompare.audit.finding import (
    HOLDS,
    NOT_ATTACKED,
    NOTHING_CLAIMED,
    UNDECIDED,
    VIOLATED,
    Finding,
)
from dpcompare.cli import cli
from dpcompare.errors import DpcompareError
from dpcompare.figures.style import NothingToDraw
from dpcompare.mechanism import find
from dpcompare.privacy import Budget
from dpcompare.results import ResultsFolder
from tests import fabricated_records as made
from tests import tiny_studies
from tests.audit import planted

DONE = {"attack": "gradient canaries", "delta": 1e-5, "unit": "example", "neighboring": "zero-out",
        "canaries": 1000, "guesses": 10, "right": 9, "expected_at_claim": 0.5,
        "expected_if_half": 1.4, "schedule": {"examples": 1000, "steps": 3, "group_size": 1,
        "sampling_probability": 0.1}}  # fmt: skip


def finding(label, epsilon, bound, verdict=HOLDS, **fields):
    values = {**DONE, "epsilon": epsilon, "lower_bound": bound, **fields}
    return Finding(label=label, asked=epsilon, verdict=verdict, **values)


FINDINGS = [
    finding("dp-sgd", 0.5, 0.0),
    finding("dp-sgd", 1.0, 1.2, VIOLATED),
    finding("rr", 1.0, 1.01, UNDECIDED, unit="label", attack="label canaries", method="x"),
    Finding("non-private", math.inf, "label canaries", NOTHING_CLAIMED, lower_bound=9.0,
            advantage=1.0, canaries=1000),
    Finding("other", 3.0, "none", NOT_ATTACKED, notes=("no trial is done",)),
]  # fmt: skip


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """The guarantees of a tiny study of three mechanisms, audited by the command."""
    folder = tmp_path_factory.mktemp("audited")
    results = ResultsFolder(folder / "results")
    with results.lock():
        for configuration in tiny_studies.trials(folder, *tiny_studies.ALL):
            results.append(run_account(configuration))
    words = ["audit", str(results.path), "--canaries", "2000"]
    return results.path, CliRunner().invoke(cli, words, catch_exceptions=False)


def test_a_results_folder_is_audited(audited):
    path, result = audited
    assert result.exit_code == 0
    assert "attacking 2 of 3: dp-sgd at epsilon 1" in result.output
    found = record.read(path)
    assert [one.label for one in found] == ["non-private", "dp-sgd", "randomized-response"]
    assert [one.verdict for one in found] == [NOTHING_CLAIMED, HOLDS, HOLDS]
    of_trial = made_schedule(path)
    assert found[1].schedule["steps"] == of_trial["steps"]
    share = of_trial["batch_size"] / of_trial["examples"]
    assert found[1].schedule["sampling_probability"] == pytest.approx(share, rel=0.01)
    assert found[1].epsilon == pytest.approx(1, rel=0.02)
    ids = {r["id"] for r in ResultsFolder(path).records()}
    assert {trial for one in found for trial in one.trials} == ids
    content = json.loads((path / "audit.json").read_text())
    assert content["findings"][0]["epsilon"] == "inf"
    assert (path / "figures" / "audit.png").stat().st_size > 10_000


def made_schedule(path):
    return next(r for r in ResultsFolder(path).records() if r["label"] == "dp-sgd")["schedule"]


def test_the_report_shows_an_audit(tmp_path):
    folder = ResultsFolder(tmp_path / "plain")
    with folder.lock():
        for one in made.study(seeds=1):
            folder.append(one)
    record.write(folder.path, FINDINGS, seed=0)
    figure.draw(folder.path, FINDINGS, "Title")
    page = report.write([folder.path], tmp_path / "page.html").read_text()
    assert "Audit: what attacks show" in page
    assert "claimed of what was attacked" in page.replace("\n", " ")
    assert page.count("data:image/svg+xml") == 1
    assert "VIOLATED" in page
    assert "audit.svg" in page


def test_a_report_without_an_audit_does_not_mention_one(tmp_path):
    folder = ResultsFolder(tmp_path / "plain")
    folder.append(made.record("dp-sgd", 1.0, 0))
    page = report.write([folder.path], tmp_path / "page.html").read_text()
    assert "what attacks show" not in page
    record.write(folder.path, [replace(FINDINGS[0], trials=["another"])], seed=0)
    page = report.write([folder.path], tmp_path / "page.html").read_text()
    assert "audit again" in page


def test_records_that_lack_their_configuration_are_named_and_not_dropped(tmp_path):
    folder = ResultsFolder(tmp_path / "old")
    folder.append(made.record("dp-sgd", 1.0, 0))
    result = CliRunner().invoke(cli, ["audit", str(folder.path), "--canaries", "1000", "--json"])
    (found,) = json.loads(result.stdout)["findings"]
    assert found["verdict"] == NOT_ATTACKED
    assert "lacks" in found["notes"][0]


def test_where_nothing_could_be_attacked_an_earlier_audit_is_kept(tmp_path):
    """As where a mechanism file is looked for in another folder."""
    folder = ResultsFolder(tmp_path / "old")
    folder.append(made.record("dp-sgd", 1.0, 0))
    record.write(folder.path, FINDINGS, seed=0)
    earlier = figure.draw(folder.path, FINDINGS, "Title")
    result = CliRunner().invoke(cli, ["audit", str(folder.path), "--canaries", "1000"])
    assert "no claim of" in str(result.exception)
    assert "could be attacked, and nothing was written: its record lacks" in str(result.exception)
    assert record.read(folder.path) == FINDINGS
    assert all(file.exists() for file in earlier)


def test_findings_survive_their_file(tmp_path):
    record.write(tmp_path, FINDINGS, seed=0)
    assert record.read(tmp_path) == FINDINGS
    assert record.read(tmp_path / "nowhere") == []
    (tmp_path / "audit.json").write_text('{"format": 1}')
    with pytest.raises(Exception, match=r"damaged; delete it, or audit the folder again"):
        record.read(tmp_path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (VIOLATED, HOLDS),
        ('"verdict": "VIOLATED"', '"verdict": "fine"'),
        ('"delta": 1e-05', '"delta": null'),
        ('"schedule": {}', '"schedule": 7'),
        ('"findings": [', '"findings": [7, '),
        ('"sha256"', '"md5"'),
    ],
)
def test_a_changed_file_is_refused_whatever_was_changed(tmp_path, old, new):
    file = record.write(tmp_path, FINDINGS, seed=0)
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(DpcompareError, match=r"damaged; delete it, or audit the folder again"):
        record.read(tmp_path)


def test_an_audit_without_a_figure_leaves_none_of_an_earlier_one(tmp_path, monkeypatch):
    unclaimed = [replace(FINDINGS[0], verdict=NOTHING_CLAIMED, epsilon=math.inf)]
    monkeypatch.setattr(claims, "audit_results", lambda *arguments: unclaimed)
    folder = ResultsFolder(tmp_path / "old")
    folder.append(made.record("dp-sgd", 1.0, 0))
    earlier = figure.draw(folder.path, FINDINGS, "Title")
    result = CliRunner().invoke(cli, ["audit", str(folder.path), "--canaries", "1000"])
    assert result.exit_code == 0
    assert not any(file.exists() for file in earlier)
    for file in earlier:
        assert f"removed {file}, which was of an earlier audit" in result.output


def test_a_folder_that_cannot_be_written_is_told_before_the_attack(tmp_path, monkeypatch):
    folder = ResultsFolder(tmp_path / "old")
    folder.append(made.record("dp-sgd", 1.0, 0))

    def refused(**arguments):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    monkeypatch.setattr("dpcompare.audit.claims.audit_results", None)  # is not called
    result = CliRunner().invoke(cli, ["audit", str(folder.path)])
    assert isinstance(result.exception, DpcompareError)
    assert str(result.exception) == f"cannot write {folder.path / 'audit.json'}: Permission denied"


def test_the_table_says_everything(tmp_path):
    told = text.table(FINDINGS)
    assert max(map(len, told.splitlines())) <= 100
    for word in ("VIOLATED", "undecided", "nothing is claimed (advantage 1.00)", "not attacked"):
        assert word in told
    assert "no trial is done" in told
    assert "the claim protects one label under zero-out" in told
    assert text.violations(FINDINGS) == [
        "dp-sgd claims epsilon 1 at delta 1e-05, and the attack shows more than 1.2"
    ]


def test_the_figure_holds_the_findings():
    _, numbers = figure.audit_figure(FINDINGS, "Title")
    assert list(numbers["claimed"]) == [0.5, 1.0, 1.0]
    assert list(numbers["below_axis"]) == [True, False, False]
    with pytest.raises(NothingToDraw):
        figure.audit_figure(FINDINGS[3:], "Title")


def test_the_command_fails_where_a_claim_is_violated(tmp_path):
    words = ["audit", "tests/audit/planted.py:FewerFlips", "--canaries", "20000"]
    result = CliRunner().invoke(cli, words)
    assert result.exception is not None
    assert "1 of 1 claims violated: tests/audit/planted.py:FewerFlips claims epsilon 1" in str(
        result.exception
    )
    assert "VIOLATED" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such"], "is no results folder and no mechanism"),
        ([".", "--epsilon", "1"], "go with a mechanism"),
        (["."], "holds no results"),
    ],
)
def test_wrong_use_is_told(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["audit", *words])
    assert message in str(result.exception)


def test_an_error_of_one_mechanism_leaves_the_other_claims_to_be_attacked(audited, monkeypatch):
    folder, _ = audited
    found = {"randomized-response": planted.plugin(planted.FailsToRelease)}
    monkeypatch.setattr(claims, "find", lambda name: found.get(name) or find(name))
    findings = claims.audit_results(folder, 1000, 0, lambda line: None)
    (failed,) = [one for one in findings if one.verdict == NOT_ATTACKED]
    assert "ended in ValueError: no labels like these" in failed.notes[0]
    assert any(one.attack == "gradient canaries" for one in findings)


def test_how_many_guesses_are_made_depends_on_no_attacked_label(monkeypatch):
    """Though the kernel follows the labels, the scores that decide are those of other labels."""
    seen = []

    def as_released(mechanism, labels, task, *words):
        seen.append(labels)
        return release(mechanism, labels, task, *words)

    release = label_attack._release
    monkeypatch.setattr(label_attack, "_release", as_released)
    chosen = Budget(1.0, 1e-6)
    mechanism = find("rr-on-bins").build({})
    task = tasks.find("pconvs", 2)
    label_attack.attack_labels(mechanism, chosen, task, 2000, 0, "rr-on-bins")
    attacked, *others = seen
    assert len(others) == 2
    assert not any(np.array_equal(attacked, labels) for labels in others)
