"""Exit codes are what the help says, and what is misspelled gets a suggestion."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpcompare import catalog
from tests import tiny_studies as tiny

COMMAND = [sys.executable, "-c", "from dpcompare.cli import main; main()"]


def test_the_help_and_the_documentation_list_the_same_codes(call):
    text = call("--help")[1]
    codes = re.findall(r"^    (\d+) ", text, re.MULTILINE)
    assert codes == ["0", "1", "2", "130", "143"]
    document = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
    assert re.findall(r"^\| (\d+) \| ", document, re.MULTILINE) == codes


def test_success_failure_and_wrong_usage(call, tmp_path):
    assert call("list", "studies")[0] == 0
    assert call("plot", tmp_path)[0] == 1
    assert call("show", "nothing")[0] == 2
    assert call("plot", tmp_path, "--no-such-option")[0] == 2


@pytest.mark.parametrize("arguments", [["show", "./x.py:X"], ["doctor"]])
def test_a_current_folder_that_has_gone_is_named(call, tmp_path, monkeypatch, arguments):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    code, _, err = call(*arguments)
    assert code == 1
    assert err == "Error: the current folder is not there any more; change to another one\n"


def test_an_interrupt_is_130(call, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "studies", interrupted)
    code, out, err = call("list", "studies")
    assert (code, out) == (130, "")
    assert err.splitlines()[-1].startswith("Interrupted.")


class Collected:
    """Raises where exceptions go nowhere: in what Python calls when it tidies up."""

    def __init__(self, error):
        self.error = error

    def __del__(self):
        raise self.error


def test_an_interrupt_is_not_lost_in_a_callback(call, monkeypatch):
    def interrupted():
        Collected(KeyboardInterrupt())
        time.sleep(10)
        return []

    monkeypatch.setattr(catalog, "studies", interrupted)
    start = time.monotonic()
    code, out, err = call("list", "studies")
    assert time.monotonic() - start < 5
    assert (code, out) == (130, "")
    assert "Traceback" not in err


def test_what_goes_wrong_in_a_callback_is_a_detail(call, monkeypatch, tmp_path):
    def disturbed():
        Collected(RuntimeError("Event loop is closed"))
        return ["a-study"]

    monkeypatch.setattr(catalog, "studies", disturbed)
    assert call("list", "studies", "--log-file", tmp_path / "log") == (0, "a-study\n", "")
    assert "RuntimeError: Event loop is closed" in (tmp_path / "log").read_text()


def test_a_study_that_sigterm_ends_is_143(tmp_path):
    study = tiny.write(tmp_path, tiny.content(seeds=30, training={"epochs": 4}))
    arguments = ["-v", "run-study", str(study), "--out", str(tmp_path / "results")]
    process = subprocess.Popen(
        [*COMMAND, *arguments, "--workers", "1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        for line in process.stderr:  # to its end, if no trial starts
            if line.endswith(": starts\n"):
                process.send_signal(signal.SIGTERM)
                break
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["run-stduy"], "Did you mean 'run-study'"),
        (["run-study", "quickstart", "--epsilon", "1"], "'--epsilons'"),
        (["run-study", "quickstrat"], "did you mean 'quickstart'"),
        (["prepare", "criteo-kagle", "a", "b"], "did you mean 'criteo-kaggle'"),
        (["show", "quickstrat"], "did you mean 'quickstart'"),
        (["show", "criteo-kagle"], "did you mean 'criteo-kaggle'"),
        (["show", "additive-noise", "--epsilon", "1", "--task", "pcvrr"], "did you mean 'pcvr'"),
        (["check-mechanism", "dp-sdg"], "did you mean 'dp-sgd'"),
        (["plot", "results/pctr", "--figure", "utlity"], "did you mean 'utility'"),
        (["run-study", "keys.toml"], "did you mean 'epsilons'"),
        (["run-study", "section.toml"], "did you mean 'batch_size'"),
        (["run-study", "task.toml"], "did you mean 'pctr'"),
        (["run-study", "parameter.toml"], "did you mean 'clip_norm'"),
        (["run-study", "figure.toml"], "did you mean 'utility'"),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, list) else "",
)
def test_what_is_misspelled_gets_a_suggestion(call, working_folder, arguments, part):
    wrong = {
        "keys": {"epsilon": [1]},
        "section": {"training": {"batchsize": 10}},
        "task": {"task": "pctrr"},
        "figure": {"figure": "utlity"},
    }
    for name, changes in wrong.items():
        tiny.write(working_folder, tiny.content(**changes), f"{name}.toml")
    misspelled = {"name": "dp-sgd", "clipnorm": 1.0}
    tiny.write(working_folder, tiny.content(misspelled), "parameter.toml")
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert part in err, err
