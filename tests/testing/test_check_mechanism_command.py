"""`dpcompare check-mechanism`: what it prints, and how it ends. And the page about the checks."""

import json
from pathlib import Path

import pytest

from dpcompare import testing
from dpcompare.cli import main
from dpcompare.testing import label_checks

PAGE = Path(__file__).parents[2] / "docs" / "checks.md"


def check_one(subject):
    """One and one are two."""
    return f"looked at {subject.plugin.name}"


def check_another_of_a_long_name(subject):
    """Nothing is ever broken."""
    raise AssertionError("it is broken, " * 20 + "and the reason ends here")


def check_third(subject):
    """Something that few promise."""
    raise testing.NotApplicable("it promises nothing of the kind")


@pytest.fixture
def three_checks(monkeypatch):
    checks = (check_one, check_another_of_a_long_name, check_third)
    monkeypatch.setattr(testing, "CHECKS", checks)


def run(*arguments):
    try:
        main(["check-mechanism", *arguments])
    except SystemExit as end:
        return end.code


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_outcomes_are_wrapped_to_the_terminal(three_checks, monkeypatch, capsys, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run("non-private") == 1
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].split()[:2] == ["passed", "one"]
    text = " ".join(shown.out.split())
    assert "looked at non-private" in text
    assert "Not kept: Nothing is ever broken. it is broken," in text
    assert "and the reason ends here" in text
    assert "not applicable third it promises nothing of the kind" in text
    assert lines[-1] == "1 passed, 1 failed, 1 not applicable"
    assert "fails 1 of 3 checks: another_of_a_long_name" in shown.err


def test_json_holds_every_outcome_and_nothing_else(three_checks, capsys):
    assert run("non-private", "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert [outcome["status"] for outcome in found] == ["passed", "failed", "not applicable"]
    assert found[0] == {
        "check": "one",
        "promise": "One and one are two",
        "status": "passed",
        "reason": "looked at non-private",
    }


def test_it_ends_well_if_nothing_fails(three_checks, monkeypatch, capsys):
    monkeypatch.setattr(testing, "CHECKS", (check_one, check_third))
    assert run("dp-sgd", "-p", "clip_norm=0.5") == 0
    assert capsys.readouterr().out.endswith("1 passed, 0 failed, 1 not applicable\n")


def test_it_does_not_end_well_if_nothing_was_checked(monkeypatch, capsys):
    monkeypatch.setattr(testing, "CHECKS", (check_third,))
    assert run("dp-sgd") == 1
    assert "nothing of dp-sgd could be checked: it promises nothing" in capsys.readouterr().err


def test_a_wrong_name_or_parameter_is_told_before_anything_runs(three_checks, capsys):
    assert run("dp-sdg") == 2
    assert run("dp-sgd", "-p", "clip=1") == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert "did you mean" in shown.err or "has no parameter 'clip'" in shown.err


def test_a_broken_mechanism_of_a_file_is_found(tmp_path, monkeypatch, capsys):
    file = tmp_path / "twice.py"
    file.write_text(
        "from dpcompare.label_kernel import k_ary_randomized_response\n"
        "from dpcompare.label_mechanism import LabelMechanism\n\n"
        "class Twice(LabelMechanism):\n"
        "    def kernel(self, task):\n"
        "        return k_ary_randomized_response(2 * float(self.epsilon), task.classes)\n"
    )
    monkeypatch.setattr(testing, "CHECKS", (label_checks.check_kernel_keeps_the_claim,))
    assert run(f"{file}:Twice") == 1
    assert "claim epsilon 0.1, delta 0," in " ".join(capsys.readouterr().out.split())


def test_checks_run_from_python_and_as_tests_too(three_checks):
    with pytest.raises(AssertionError, match="another_of_a_long_name: it is broken"):
        testing.check_mechanism("dp-sgd", clip_norm=0.5)
    names, runners = testing.parametrize_with_checks("dp-sgd", clip_norm=0.5).args
    assert names == "run_check"
    passes, fails, skips = runners
    passes()
    with pytest.raises(AssertionError, match="Nothing is ever broken: it is broken"):
        fails()
    with pytest.raises(pytest.skip.Exception, match="it promises nothing of the kind"):
        skips()


def test_the_page_has_a_row_for_every_check():
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    described = [line.split("`")[1] for line in rows]
    names = [check.__name__.removeprefix("check_") for check in testing.CHECKS]
    assert sorted(described) == sorted(names)
    assert all(len(line.split("|")) == 6 for line in rows), "check, looks at, how, false alarm"
