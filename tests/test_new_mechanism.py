"""A mechanism written from a template: named, installed, tested, run; and what is refused."""

import ast
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dpcompare import catalog, conduct, study
from dpcompare.cli import cli
from dpcompare.conduct import How
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.expansion import expand
from dpcompare.mechanism import Mechanism, find
from dpcompare.new_mechanism import Names, write_file, write_package
from dpcompare.results import ResultsFolder
from dpcompare.trial import identity, run_trial
from tests import tiny_studies as tiny

ROOT = Path(__file__).resolve().parents[1]
KINDS = {"label": "own-labels", "gradient": "own-gradients"}
QUESTIONS = {
    name for name, what in vars(Mechanism).items() if callable(what) and not name.startswith("_")
} - {"replace"} | {"sampling"}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A folder with a package of each kind, as the command writes them."""
    folder = tmp_path_factory.mktemp("written")
    for kind, name in KINDS.items():
        arguments = ["new-mechanism", name, "--kind", kind, "--out", str(folder)]
        result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        assert f"cd {folder / name}" in result.output
    return folder


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    """Where both packages are installed, each from a copy that its build may write to."""
    place = tmp_path_factory.mktemp("installed")
    sources = [str(packages / name) for name in KINDS.values()]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", str(place), *sources],
        check=True,
    )  # fmt: skip
    return place


def command(*arguments):
    result = CliRunner().invoke(cli, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def smaller_study(path):
    """The study of a package with fewer rows and one trial per curve."""
    text = path.read_text()
    changes = [("rows = 20000", "rows = 2000"), ("[1, 3, 8]", "[3]"), ("seeds = 2", "seeds = 1")]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_its_own_tests_pass_before_it_is_installed(packages):
    # Of the checks of the contract, which take a minute, those of what the templates differ in.
    quick = "not it_keeps_the_contract or parameters or kernel_keeps or weights_keep"
    outcome = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", quick,
         *KINDS.values()],
        cwd=packages, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert int(re.findall(r"(\d+) passed", outcome.stdout)[0]) >= 24


def test_it_is_installed_and_found_by_its_name(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    assert set(KINDS.values()) <= set(command("list", "mechanisms").split())
    shown = command("show", "own-labels", "--epsilon", "1", "--task", "pconvs", "--cap", "3")
    assert "worst likelihood ratio of an output between two labels: exp(1)" in shown
    (bias,) = re.findall(r"^bias +(.*)", shown, re.MULTILINE)
    assert [float(number) for number in bias.split()] == pytest.approx([0] * 4, abs=1e-9)
    assert "clip_norm = 10.0" in command("show", "own-gradients")


@pytest.mark.parametrize("name", KINDS.values())
def test_its_study_plans_three_epsilons_and_two_seeds_of_three_curves(
    packages, installed, name, monkeypatch
):
    monkeypatch.syspath_prepend(installed)
    planned = command("run-study", packages / name / "study.toml", "--dry-run")
    assert f"{2 + 6 + 6} trials" in planned
    assert len(re.findall(rf"^{name} +epsilon", planned, re.MULTILINE)) == 6


def test_its_study_runs_when_it_is_installed(packages, installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    file = tmp_path / "study.toml"
    file.write_text(smaller_study(packages / "own-gradients" / "study.toml"))
    chosen = study.select(study.load(str(file)), mechanisms=["own-gradients"])
    record = run_trial(expand(chosen)[0])
    assert 2.97 < record["guarantee"]["epsilon"] <= 3
    assert record["guarantee"]["unit"] == "example"
    assert "own-gradients==0.1.0 sha256:" in record["configuration"]["mechanism"]["version"]
    assert "every gradient is bent: one of norm 10 weighs 0.71" in record["notes"]


def test_a_single_file_runs_by_its_path_in_two_workers_and_is_known_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    printed = command("new-mechanism", "by-path", "--file", "--out", "deep")
    assert 'name = "./deep/by_path.py:ByPath"' in printed

    def study_of(name):
        made = tiny.content({"name": name, "label": "by path"}, task="pconvs", cap=2, seeds=2)
        return study.load(str(tiny.write(tmp_path, made)))

    monkeypatch.setattr("dpcompare.redraw.show", lambda *_: None)  # figures are tested elsewhere
    out = tmp_path / "out"
    assert conduct.run(study_of("./deep/by_path.py:ByPath"), out, How(workers=2), print) == 0
    records = ResultsFolder(out).records()
    assert [record["status"] for record in records] == ["done"] * 2
    for record in records:
        assert record["guarantee"]["epsilon"] == pytest.approx(1, rel=1e-9)
        assert any("unbiased estimates" in note for note in record["notes"])
    (tmp_path / "deep" / "by_path.py").rename(tmp_path / "moved.py")
    moved = expand(study_of("moved.py:ByPath"))
    assert {identity(trial) for trial in moved} == ResultsFolder(out).done_ids()


@pytest.mark.parametrize(("kind", "name"), KINDS.items())
def test_every_question_of_the_contract_is_answered_or_left_with_a_reason(kind, name, packages):
    module = packages / name / f"{Names.of(name).module}.py"
    (own,) = (n for n in ast.parse(module.read_text()).body if isinstance(n, ast.ClassDef))
    answered = {node.name for node in own.body if isinstance(node, ast.FunctionDef)}
    fields = {node.target.id for node in own.body if isinstance(node, ast.AnnAssign)}
    left = module.read_text().partition("# Questions that are left")[2]
    lists = re.findall(r"^ *# - ([a-z_, ]+): ", left, re.MULTILINE)
    named = {word for words in lists for word in words.split(", ")}
    assert {"check", "calibrate", "events", "notes"} <= answered
    assert answered & QUESTIONS | fields & QUESTIONS | named == QUESTIONS
    assert not (answered | fields) & named


@pytest.mark.parametrize("name", KINDS.values())
def test_the_code_passes_the_linter_by_default_and_as_here(name, packages, tmp_path):
    def ruff(*arguments):
        outcome = subprocess.run(
            [sys.executable, "-m", "ruff", *arguments, "--no-cache", "."],
            cwd=packages / name, capture_output=True, text=True,
        )  # fmt: skip
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr

    ruff("check")
    ruff("check", "--isolated")
    here = ["--config", str(ROOT / "pyproject.toml"), "--extend-per-file-ignores", "test_*.py:D1"]
    ruff("check", *here)
    ruff("format", "--check")


@pytest.mark.parametrize("name", KINDS.values())
def test_its_texts_hold_its_own_names_only_and_commands_that_exist(name, packages):
    texts = {file.name: file.read_text() for file in (packages / name).iterdir() if file.is_file()}
    names = Names.of(name)
    assert set(texts) == {
        "README.md", "pyproject.toml", "study.toml", f"{names.module}.py", f"test_{names.module}.py"
    }  # fmt: skip
    for text in texts.values():
        assert not re.search("(label|gradient)[-_]?template", text, re.IGNORECASE)
    commands = re.findall(r"dpcompare ([a-z]+[a-z-]*) ", texts["README.md"])
    assert set(commands) <= set(cli.commands)
    assert {"show", "check-mechanism", "run-study"} <= set(commands)


def test_both_kinds_have_one_packaging(packages):
    first, second = ((packages / name / "pyproject.toml").read_text() for name in KINDS.values())
    assert Names.of("own-labels").put_into(first, "label").replace("labels", "gradients").replace(
        "Labels", "Gradients"
    ) == second  # fmt: skip


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("my-mechanism", ("my-mechanism", "my_mechanism", "MyMechanism")),
        ("my_mechanism", ("my-mechanism", "my_mechanism", "MyMechanism")),
        ("noise2", ("noise2", "noise2", "Noise2")),
        ("a-2nd-try", ("a-2nd-try", "a_2nd_try", "A2ndTry")),
        ("each", ("each", "each", "Each")),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_names_follow_from_one(name, names, kind, tmp_path):
    assert tuple(Names.of(name)) == names
    file = write_file(name, kind, tmp_path)
    assert file == tmp_path / f"{names[1]}.py"
    assert issubclass(find(f"{file}:{names[2]}").factory, Mechanism)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("2fast", "must be lower-case words .* e.g. my-mechanism"),
        ("My-Mechanism", "must be lower-case words"),
        ("my mechanism", "must be lower-case words"),
        ("my--mechanism", "must be lower-case words"),
        ("my-mechanism-", "must be lower-case words"),
        ("../mine", "must be lower-case words"),
        ("größe", "must be lower-case words"),
        ("", "must be lower-case words"),
        ("class", "'class' is a keyword of Python"),
        ("true", "'True' is a keyword of Python"),
        ("dp-sgd", "a mechanism called 'dp-sgd' is installed"),
        ("dp_sgd", "a mechanism called 'dp-sgd' is installed"),
        ("numpy", r"there is a Python module called 'numpy' \(.*numpy.__init__\.py\)"),
        ("dpcompare", "there is a Python module called 'dpcompare'"),
        ("math", "there is a Python module called 'math'"),
        ("scikit-learn", "a package called 'scikit-learn' is installed"),
        ("schedule", "the class Schedule would hide another one"),
        ("budget", "the class Budget would hide another one"),
        ("exception", "the class Exception would hide another one"),
        ("test-noise", "pytest would take the mechanism for a test"),
        ("my-test", "pytest would take the mechanism for a test"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_names_that_would_collide_are_refused(name, message, kind, tmp_path):
    for write in (write_package, write_file):
        with pytest.raises(UsageError, match=message):
            write(name, kind, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [[], ["--file"]])
def test_nothing_is_overwritten(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / ("my_noise.py" if arguments else "my-noise")
    for make, remove in ((target.touch, target.unlink), (target.mkdir, target.rmdir)):
        make()
        result = CliRunner().invoke(cli, ["new-mechanism", "my-noise", *arguments])
        assert isinstance(result.exception, UsageError)
        assert "is already there and stays as it is" in str(result.exception)
        assert [*tmp_path.iterdir()] == [target]
        remove()
    target.symlink_to("nowhere")
    with pytest.raises(UsageError, match="already there"):
        (write_file if arguments else write_package)("my-noise", "label", tmp_path)


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(UsageError, match=r"there is no folder .*missing to write into"):
        write_package("my-noise", "label", tmp_path / "missing")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("write", [write_package, write_file])
@pytest.mark.parametrize(
    ("failure", "raised"),
    [(KeyboardInterrupt(), KeyboardInterrupt), (OSError(28, "No space left"), DpcompareError)],
)
def test_what_ends_early_leaves_nothing(write, failure, raised, tmp_path, monkeypatch):
    def end(*_):
        raise failure

    monkeypatch.setattr(Path, "rename", end)
    with pytest.raises(raised):
        write("my-noise", "label", tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_name_that_was_installed_is_taken(installed, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    assert "own-labels" in catalog.mechanisms()
    with pytest.raises(UsageError, match="a mechanism called 'own-labels' is installed"):
        write_file("own-labels", "label", tmp_path)


def test_what_is_printed_can_be_pasted_whatever_the_folder_is_called(tmp_path, monkeypatch):
    place = tmp_path / """a 'b" $HOME \\ ü"""
    place.mkdir()
    monkeypatch.chdir(tmp_path)
    for folder in (place, place.relative_to(tmp_path)):
        lines = command("new-mechanism", f"my-{len(folder.parts)}", "--file", "--out", folder)
        shown = next(line for line in lines.splitlines() if line.startswith("dpcompare show"))
        named = shlex.split(shown)[2]
        assert command("show", named).startswith(named)
        assert tomllib.loads(lines.splitlines()[-1]) == {"name": named}
        package = command("new-mechanism", f"our-{len(folder.parts)}", "--out", folder)
        (moves,) = (line for line in package.splitlines() if line.startswith("cd "))
        assert (Path(shlex.split(moves)[1]) / "study.toml").is_file()
