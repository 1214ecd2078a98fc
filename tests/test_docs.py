"""README and docs: what they show runs, what they list is complete, where they point exists.

Fenced blocks of one file share a working folder and run in their order:

- ``python`` blocks run in one namespace per file;
- a ``python`` or ``toml`` block that starts with ``# some_name.py`` (or .toml) is also saved there;
- in ``console`` blocks, lines that start with ``dpcompare`` run: `run-study` with ``--dry-run``
  appended, the others as they stand. Lines that start with ``make`` or ``pip`` are not run;
- a ``text`` block is what the last command printed, with numbers as close as they are printed.

The folder holds `train.txt`, made-up rows in Criteo's layout, and made-up records in
`results/quickstart` and `results/pctr`.
"""

import inspect
import re
import shlex
import shutil
import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import get_args

import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from dpcompare import accounting, catalog, study, tasks
from dpcompare.cli import cli
from dpcompare.data import write_text
from dpcompare.expansion import expand
from dpcompare.label_noise import LabelNoise
from dpcompare.mechanism import Mechanism, find
from dpcompare.metric_sets import metric_set
from dpcompare.optimizers import OPTIMIZERS, Decay
from dpcompare.privacy import Budget, Schedule
from dpcompare.results import ResultsFolder
from dpcompare.settings import KINDS
from dpcompare.tasks import PCTR
from tests import fabricated_records
from tests.mechanisms import test_order_of_counts as order

ROOT = Path(__file__).resolve().parents[1]
RUN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "README.md"]
LINKED = [*RUN, ROOT / "CHANGELOG.md"]
MADE_LATER = {"results/reference/quickstart/figures/utility.png"}

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w[\w-]*\.(?:py|toml))\n")
LINK = re.compile(r"\]\(([^)\s]+)\)")
NUMBER = re.compile(r"-?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?")
MECHANISM_ROW = re.compile(r"^\| `([a-z-]+)`(?: `([a-z_]+=[a-z-]+)`)? \| (.*) \|$", re.MULTILINE)
TABLE_ROW = re.compile(r"^\| `(\w+)` \| ([^|]*) \| ([^|]*) \|", re.MULTILINE)


def blocks(document):
    """(language, text) of each fenced block."""
    return BLOCK.findall(document.read_text())


def named_files(document):
    """Name and text of each block that is a file."""
    found = ((FILE_NAME.match(text), text) for _, text in blocks(document))
    return {name[1]: text for name, text in found if name}


@pytest.fixture(scope="module")
def furnished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("furnished")
    write_text(folder / "train.txt", 6000)
    for name in ("quickstart", "pctr"):
        results = ResultsFolder(folder / "results" / name)
        with results.lock():
            for record in fabricated_records.study(seeds=2):
                results.append(record)
    return folder


@pytest.fixture
def working_folder(furnished, tmp_path, monkeypatch):
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPCOMPARE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("document", RUN, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_document_shows_runs(document, working_folder):
    namespace = {"__name__": "documentation"}
    printed = ""
    for language, text in blocks(document):
        if name := FILE_NAME.match(text):
            (working_folder / name[1]).write_text(text)
        if language == "python":
            exec(compile(text, f"{document.name}, a python block", "exec"), namespace)
        if language == "toml":
            tomllib.loads(text)
        if language == "console":
            for line in text.splitlines():
                printed = run_line(line)
        if language == "text":
            assert_same_print(text, printed)


def run_line(line):
    """What the command of a line prints; nothing for those that are not run."""
    words = shlex.split(line, comments=True)
    assert words[0] in ("dpcompare", "make", "pip"), line
    if words[0] != "dpcompare":
        return ""
    target = None
    if words[-2] == ">":
        words, target = words[:-2], words[-1]
    if words[1] == "run-study" and "--dry-run" not in words:
        words.append("--dry-run")
    result = CliRunner().invoke(cli, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, f"{line}\n{result.output}"
    assert result.output.strip(), line
    if target:
        Path(target).write_text(result.output)
    return result.output


def assert_same_print(shown, printed):
    """Words are equal; numbers are equal up to what solvers may leave open."""
    assert NUMBER.sub("#", shown).split() == NUMBER.sub("#", printed).split()
    assert numbers(printed) == pytest.approx(numbers(shown), rel=2e-3, abs=1e-9)


def numbers(text):
    return [float(number) for number in NUMBER.findall(text)]


def test_printed_numbers_are_compared():
    assert numbers("label 0 bias -1.164 exp(1) 6.1e-06, .27") == [0, -1.164, 1, 6.1e-6, 0.27]
    assert_same_print("bias  1.000 1\n", "bias 1.001 1")
    for printed in ("bias 1.01 1", "variance 1.0 1", "bias 1.0"):
        with pytest.raises(AssertionError):
            assert_same_print("bias 1.0 1", printed)


def test_the_example_mechanisms_run_as_a_study(working_folder):
    """The one study that really trains: by file, in a worker process, with fewer rows."""
    for name, text in named_files(ROOT / "docs" / "mechanisms.md").items():
        (working_folder / name).write_text(text)
    path = working_folder / "own-mechanisms.toml"
    whole, small = path.read_text(), path.read_text()
    for setting, smaller in {"rows = 20000": "rows = 3000", "epochs = 10": "epochs = 2"}.items():
        small = small.replace(setting, smaller)
    assert small != whole
    path.write_text(small)
    own = ["--mechanisms", "smooth clipping,pulled response"]
    options = ["--epsilons", "1", "--seeds", "1", "--workers", "1", "--out", "out"]
    arguments = ["run-study", path.name, *own, *options]
    result = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    records = {record["label"]: record for record in ResultsFolder("out").records()}
    assert {record["status"] for record in records.values()} == {"done"}
    units = {label: record["guarantee"]["unit"] for label, record in records.items()}
    assert units["smooth clipping"] == "example"
    assert units["pulled response"] == "label"
    for label in ("smooth clipping", "pulled response"):
        assert 0.99 < records[label]["guarantee"]["epsilon"] <= 1 + 1e-9
    assert records["pulled response"]["notes"] == ["predictions are pulled to the public rate 0.25"]


@pytest.fixture
def example(working_folder):
    """The calibrated mechanism that a document defines in a file."""

    def build(document, file, name, epsilon=1.0):
        (working_folder / file).write_text(named_files(ROOT / document)[file])
        plugin = find(f"./{file}:{name}")
        schedule = Schedule(10_000, 500, 200, plugin.factory.sampling)
        mechanism = plugin.build({}).calibrate(Budget(epsilon, 1e-6), schedule, PCTR)
        claim = accounting.guarantee(mechanism.events(schedule), 1e-6, "zero-out")
        return mechanism, claim

    return build


@pytest.mark.parametrize(
    ("document", "file", "name"),
    [
        ("README.md", "smooth.py", "Smooth"),
        ("docs/mechanisms.md", "smooth_clipping.py", "SmoothClipping"),
        ("docs/tutorial.md", "auto_s.py", "AutoS"),
    ],
)
def test_the_gradient_examples_keep_within_their_sensitivity(example, document, file, name):
    mechanism, claim = example(document, file, name)
    norms = jnp.concatenate([jnp.zeros(1), jnp.geomspace(1e-20, 1e20, 200)])
    contributions = np.asarray(mechanism.weights(norms) * norms)
    sensitivity = mechanism.gradient().sensitivity
    assert contributions.max() <= sensitivity * (1 + 1e-6)
    assert contributions.max() > 0.99 * sensitivity
    assert (claim.unit, claim.delta) == ("example", 1e-6)
    assert 0.99 < claim.epsilon <= 1
    assert float(np.float32(mechanism.noise_multiplier)) == mechanism.noise_multiplier


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
def test_the_label_example_claims_what_its_kernel_does(example, epsilon):
    where = "docs/mechanisms.md", "pulled_response.py", "PulledResponse"
    mechanism, claim = example(*where, epsilon)
    assert mechanism.kernel(PCTR).epsilon() <= epsilon * (1 + 1e-9)
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (claim.unit, claim.neighboring, claim.delta) == ("label", "replace-one-label", 0.0)


def test_the_label_example_pulls_a_correct_likelihood(example):
    where = "docs/mechanisms.md", "pulled_response.py", "PulledResponse"
    mechanism, z = example(*where)[0], jnp.linspace(-6, 6, 13)
    flip = 1 / (1 + np.e)
    chance_of_one = flip + (1 - 2 * flip) / (1 + np.exp(-np.asarray(z)))
    pull = 0.01 * (np.asarray(z) - np.log(0.25 / 0.75)) ** 2
    losses = [mechanism.loss(PCTR, z, jnp.full(13, label)) for label in (0.0, 1.0)]
    np.testing.assert_allclose(losses[0], pull - np.log(1 - chance_of_one), rtol=1e-5)
    np.testing.assert_allclose(losses[1], pull - np.log(chance_of_one), rtol=1e-5)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 50.0])
@pytest.mark.parametrize("task", [PCTR, tasks.find("pconvs", 2), tasks.find("pconvs", 7)])
def test_the_ten_line_example_is_private_and_unbiased(working_folder, task, epsilon):
    file = "rounded_response.py"
    Path(file).write_text(named_files(ROOT / "docs" / "mechanisms.md")[file])
    schedule = Schedule(1000, 100, 10, "shuffle")
    mechanism = find(f"./{file}:RoundedResponse").build({})
    mechanism = mechanism.calibrate(Budget(epsilon, 1e-6), schedule, task)
    kernel = mechanism.kernel(task)
    assert kernel.epsilon() == pytest.approx(epsilon, rel=1e-9)
    np.testing.assert_allclose(kernel.bias(kernel.outputs), 0, atol=1e-9)
    claim = accounting.guarantee(mechanism.events(schedule), 1e-6, "zero-out")
    assert claim.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert (claim.unit, claim.delta) == ("label", 0.0)


def section(document, heading):
    """The text below a heading, up to the next one."""
    text = (ROOT / document).read_text()
    return re.split(r"^#+ ", text.partition(f"# {heading}\n")[2], flags=re.MULTILINE)[0]


def test_the_table_of_label_mechanisms_is_what_show_prints():
    text = section("docs/mechanisms.md", "The built-in label mechanisms")
    rows = MECHANISM_ROW.findall(text)
    shown = {name for name, _, _ in rows}
    assert shown == set(catalog.mechanisms()) - {"non-private", "dp-sgd"}
    for name, parameter, cells in rows:
        arguments = ["show", name, "--epsilon", "1", "--task", "pconvs", "--cap", "2"]
        output = CliRunner().invoke(cli, arguments + (["-p", parameter] if parameter else []))
        assert output.exit_code == 0, output.output
        prefix = "estimate's " if parameter == "correction=backward" else ""
        _, bias, variance, _ = cells.split(" | ")
        for what, cell in (("bias", bias), ("variance", variance)):
            (line,) = re.findall(rf"^{prefix}{what} +(.*)", output.output, re.MULTILINE)
            stated = numbers(cell) if "," in cell else 3 * numbers(cell)
            assert numbers(line) == pytest.approx(stated, rel=5e-3, abs=1e-9), (name, what)


def test_the_order_of_the_count_mechanisms_is_as_stated():
    text = section("docs/mechanisms.md", "Small error is not what training needs")
    rows = {
        (name, parameter): numbers(cells) for name, parameter, cells in MECHANISM_ROW.findall(text)
    }
    compared = {
        ("unbiased-randomizer", ""): order.UNBIASED,
        ("additive-noise", "shape=staircase"): order.STAIRCASE,
        ("additive-noise", ""): order.LAPLACE,
        ("rr-on-bins", ""): order.BINS,
        ("additive-noise", "clamp=true"): order.CLAMPED,
    }
    assert list(rows) == list(compared)
    for row, mechanism in compared.items():
        found = [order.mean_share(mechanism, epsilon) for epsilon in (1.0, 3.0)]
        assert found == pytest.approx(rows[row], rel=0.03), row
    for epsilon, most in ((1.0, 0.015), (3.0, 0.0055)):
        errors = [order.standard_error(order.shares(m, epsilon)) for m in compared.values()]
        assert max(errors) < most


def test_what_shapes_of_noise_save_is_as_stated():
    text = " ".join(section("docs/mechanisms.md", "Additive noise").split())

    def saved(shape, epsilon, cap=1):
        noise, laplace = (LabelNoise(s, epsilon, cap).variance() for s in (shape, "laplace"))
        return f"{1 - noise / laplace:.0%}"

    staircase = [saved("staircase", epsilon, 2) for epsilon in (3, 1, 0.1)]
    assert staircase[2] == "0%"
    assert (
        "{} less variance than Laplace noise at epsilon 3, {} less at 1".format(*staircase) in text
    )
    whole = [saved("discrete-laplace", epsilon) for epsilon in (1, 3)]
    assert "for binary labels it has {} less at epsilon 1 and {} less at 3".format(*whole) in text


def documented(section):
    """Key to (type, default) in the table of a section of docs/studies.md."""
    text = (ROOT / "docs" / "studies.md").read_text()
    part = re.split(r"^## ", text, flags=re.MULTILINE)
    body = next(p for p in part if p.splitlines()[0].strip("`") == section)
    return {key: (kind, default) for key, kind, default in TABLE_ROW.findall(body)}


def value_of(cell):
    """A default as the table shows it, in backquotes; None for words."""
    return tomllib.loads(f"x = {cell.strip('`')}")["x"] if cell.startswith("`") else None


def kind_of(cell):
    """The type in a table cell: "list of numbers" is a list."""
    return "a list" if cell.startswith("list") else f"a {cell}".replace("a true", "true")


@pytest.mark.parametrize("section", study.DEFAULTS)
def test_every_key_of_a_section_is_documented_with_its_default(section):
    rows = documented(f"[{section}]")
    assert {key: value_of(default) for key, (_, default) in rows.items()} == study.DEFAULTS[section]
    for key, (kind, _) in rows.items():
        expected = KINDS[type(study.DEFAULTS[section][key])].replace("a finite", "a")
        assert kind_of(kind).replace("a text", "text") == expected, key


def test_every_top_level_key_is_documented_with_its_default():
    rows = documented("Top level")
    assert rows.keys() == study.TOP_LEVEL.keys()
    for key, (kind, _) in rows.items():
        expected = KINDS[study.TOP_LEVEL[key]].replace("a finite", "a")
        assert kind_of(kind).replace("a text", "text") == expected, key
    defaults = {f.name: f.default for f in fields(study.Study) if f.default is not MISSING}
    for key in ("epsilons", "seeds", "figure", "neighboring", "accountant"):
        shown = value_of(rows[key][1])
        assert (tuple(shown) if key == "epsilons" else shown) == defaults[key], key
    assert value_of(rows["allow_large_delta"][1]) is defaults["allow_large_delta"]
    assert defaults["delta"] is None
    assert defaults["cap"] is None
    assert rows["metric"][1] == "the first of its task"


@pytest.mark.parametrize("task", tasks.TASKS)
def test_the_metrics_of_a_task_are_documented_in_their_order(task):
    text = (ROOT / "docs" / "studies.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| `metric` "))
    (sentence,) = (part for part in line.split("For ") if f"`{task}`" in part)
    assert tuple(re.findall(r'`"(\w+)"`', sentence)) == metric_set(task).names


def test_every_bundled_study_is_documented():
    text = (ROOT / "docs" / "studies.md").read_text()
    for name in catalog.studies():
        assert f"\n| `{name}` | " in text, name


def test_every_choice_of_a_key_is_documented():
    text = (ROOT / "docs" / "studies.md").read_text()
    own = {"optimizer": OPTIMIZERS, "decay": get_args(Decay), "categories": ("hash", "vocabulary")}
    for key, choices in (study.CHOICES | own).items():
        rows = [line for line in text.splitlines() if line.startswith(f"| `{key}` | text")]
        assert any(all(f'`"{choice}"`' in row for choice in choices) for row in rows), key


def test_every_question_of_the_contract_is_documented():
    text = (ROOT / "docs" / "mechanisms.md").read_text()
    questions = [name for name, what in vars(Mechanism).items() if inspect.isfunction(what)]
    asked = [name for name in questions if not name.startswith("_") and name != "replace"]
    assert len(asked) >= 10
    for name in asked:
        arguments = list(inspect.signature(getattr(Mechanism, name)).parameters)[1:]
        assert f"| `{name}({', '.join(arguments)})` |" in text


def test_every_command_is_documented():
    text = (ROOT / "README.md").read_text()
    for name in cli.commands:
        assert f"| `dpcompare {name} " in text
    options = {o for p in cli.commands["run-study"].params for o in p.opts if o.startswith("--")}
    studies = (ROOT / "docs" / "studies.md").read_text()
    assert all(f"| `{option}" in studies for option in options)


def test_the_settings_of_quickstart_were_chosen_among_as_many_as_stated():
    text = (ROOT / "README.md").read_text()
    candidates = {}
    for trial in expand(study.load("quickstart-tuning")):
        place = trial["about"]["label"], trial["budget"]["epsilon"], trial["seed"]
        candidates[place] = candidates.get(place, 0) + 1
    assert set(candidates.values()) == {12}
    assert "tries 12 candidates for every mechanism" in text
    seeds = len({seed for _, _, seed in candidates})
    assert f"{('one seed', 'two seeds', 'three seeds')[seeds - 1]}; test rows have no say" in text


@pytest.mark.parametrize("document", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_relative_links_lead_somewhere(document):
    for link in LINK.findall(BLOCK.sub("", document.read_text())):
        if re.match(r"https?:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if str(target.relative_to(ROOT)) in MADE_LATER:
            continue
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(document):
    """The anchors that GitHub gives to a document's headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
