"""The examples in the help of every command run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

import dpcompare
from dpcompare import catalog, cli, doctor, testing

EXAMPLE = re.compile(r"^\s*Example:\n((?: .+\n?)+)", re.MULTILINE)


def examples(name):
    """The lines below "Example:" in a command's help, as words."""
    lines = EXAMPLE.search(cli.cli.commands[name].help)[1].splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.strip()]


@pytest.mark.parametrize("name", cli.cli.commands)
def test_every_example_runs(name, call, working_folder, monkeypatch):
    monkeypatch.setattr(testing, "CHECKS", testing.CHECKS[:1])  # all of them take minutes
    monkeypatch.setattr(doctor, "_probed", lambda: iter(()))  # tests/test_doctor.py
    if name == "prepare":
        shutil.rmtree(working_folder / "prepared")
    if name == "train":  # the real one trains for longer than a test should
        monkeypatch.setattr(catalog, "studies", lambda: {"quickstart": Path("tiny.toml")})
    if name == "audit":  # of trials that ran: made-up records name nothing to attack
        shutil.rmtree("results/quickstart")
        dpcompare.run_study("tiny.toml", out="results/quickstart", workers=1)
    if name == "predict":
        dpcompare.train("tiny.toml", "dp-sgd", 1.0, out="model")
    for words in examples(name):
        assert words[0] == "dpcompare"
        extra = ["--dry-run"] if name == "run-study" else []
        code, out, err = call(*words[1:], *extra)
        assert (code, "Error" in err) == (0, False), (words, err)
        assert out.strip() or name == "check-mechanism", words


def test_examples_are_found():
    assert len(examples("show")) == 3
    assert examples("show")[1] == ["dpcompare", "show", "randomized-response", "--epsilon", "1"]
    for name in cli.cli.commands:
        assert ["dpcompare", name] in [words[:2] for words in examples(name)]


def test_the_help_of_the_group_cuts_no_summary(call):
    text = call("--help")[1]
    assert "..." not in text.partition("Options:")[2]
    for section in ("Studies:", "Data:", "Mechanisms:", "Help:"):
        assert f"\n{section}\n" in text
    named = [name for names in cli.SECTIONS.values() for name in names]
    assert len(named) == len(set(named))
    assert all(re.search(rf"^  {name}  ", text, re.MULTILINE) for name in cli.cli.commands)
