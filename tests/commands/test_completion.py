"""A shell completes commands, options and names, quickly."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from click.shell_completion import BashComplete

from dpcompare import catalog, cli
from dpcompare.commands.completion import VARIABLE

PROGRAM = "from dpcompare.cli import main; main()"


def completed(line):
    """The values and types that click offers at the end of a command line."""
    words = line.split()
    incomplete = words.pop() if words and not line.endswith(" ") else ""
    items = BashComplete(cli.cli, {}, "dpcompare", VARIABLE).get_completions(words, incomplete)
    return [(item.value, item.type) for item in items]


def names(line):
    return [value for value, kind in completed(line) if kind == "plain"]


def test_commands_and_options_are_completed():
    assert names("re") == ["report"]
    assert names("run-study --ep") == ["--epsilons"]
    assert set(names("run-study --e")) == {"--epsilons", "--executor"}
    assert set(names("--")) >= {"--quiet", "--verbose", "--log-file", "--help"}
    assert set(names("")) == set(cli.cli.commands)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run-study ", set(catalog.studies())),
        ("run-study quick", {"quickstart", "quickstart-tuning"}),
        ("check-mechanism ", set(catalog.mechanisms())),
        ("check-mechanism dp", {"dp-sgd"}),
        ("show dp", {"dp-sgd"}),
        ("show criteo-k", {"criteo-kaggle"}),
        ("show quickstart-", {"quickstart-tuning"}),
        ("prepare criteo-a", {"criteo-attribution"}),
        ("list m", {"mechanisms"}),
        ("-q run-study --seeds 2 quickstart-", {"quickstart-tuning"}),
    ],
)
def test_names_are_completed(line, expected):
    assert set(names(line)) == expected


def test_files_are_completed_where_no_name_fits():
    assert completed("run-study ./my") == [("./my", "file")]
    assert completed("prepare criteo-kaggle tr") == [("tr", "file")]
    assert completed("plot resu") == [("resu", "file")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_every_shell_calls_dpcompare_back(call, shell):
    code, out, _ = call("completion", shell)
    assert code == 0
    assert f"{VARIABLE}={shell}_complete" in out
    assert "dpcompare" in out
    assert "'bash', 'zsh', 'fish'" in call("completion", "powershell")[2]


def test_completing_loads_no_heavy_library_and_answers_at_once():
    code = f"""
import sys
try:
    {PROGRAM}
except SystemExit as ended:
    assert not ended.code
heavy = {{"jax", "flax", "numpy", "pandas", "scipy", "matplotlib", "pyarrow", "dp_accounting"}}
print("loaded:", sorted(heavy & set(sys.modules)))
"""
    environment = os.environ | {
        VARIABLE: "bash_complete",
        "COMP_WORDS": "dpcompare run-study quickstart-",
        "COMP_CWORD": "2",
    }
    seconds = []
    for _ in range(3):
        start = time.process_time(), os.times().children_user + os.times().children_system
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
            timeout=60,
        )  # fmt: skip
        seconds.append(os.times().children_user + os.times().children_system - start[1])
        assert done.stdout.splitlines() == ["plain,quickstart-tuning", "loaded: []"], done.stderr
    assert min(seconds) < 0.5, "seconds of the processor, of the fastest of three"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash on this machine")
def test_a_real_bash_completes(tmp_path, call):
    program = tmp_path / "dpcompare"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{PROGRAM}' \"$@\"\n")
    program.chmod(0o755)
    (tmp_path / "completion.bash").write_text(call("completion", "bash")[1])
    ask = """
source ./completion.bash
complete -p dpcompare
COMP_WORDS=(dpcompare run-study quickstart-)
COMP_CWORD=2
_dpcompare_completion dpcompare
echo "found: ${COMPREPLY[*]}"
"""
    environment = os.environ | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        ["bash", "--norc", "-c", ask], cwd=tmp_path, env=environment, capture_output=True,
        text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "complete -o nosort -F _dpcompare_completion dpcompare",
        "found: quickstart-tuning",
    ], done.stderr
