"""The command line: what it says, and one message and an exit code for each failure."""

import json
import re
import subprocess
import sys

import pytest

from dpcompare import catalog, cli, runner
from tests import tiny_studies as tiny
from tests.data.logs import criteo_text
from tests.tiny_studies import DP_SGD, NON_PRIVATE, RANDOMIZED_RESPONSE

COMMANDS = list(cli.cli.commands)
CALIBRATE = ("calibrate", "--examples", "10000", "--batch-size", "100")
CALIBRATE_RESPONSE = ("calibrate", "--mechanism", "randomized-response", "--epsilon", "1")


@pytest.fixture
def call(capsys, monkeypatch):
    """A function that runs a command in this process: (exit code, output, error output)."""
    monkeypatch.setattr(runner, "LocalExecutor", tiny.InProcess)

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def refused(call):
    """A function that runs a command which must fail with one message; returns the message."""

    def run(*arguments):
        code, out, err = call(*arguments)
        assert code in (1, 2), (code, out, err)
        assert err.count("Error: ") == 1, err
        assert "Traceback" not in out + err
        assert "defect" not in err
        message = err.rpartition("Error: ")[2]
        assert message.count("\n") == 1, "one line"
        return message

    return run


@pytest.fixture
def files(tmp_path):
    """Files that are no study, no schema and no log; by name."""
    log = criteo_text(50)
    contents = {
        "empty": b"",
        "zeros": bytes(100),
        "garbage": bytes((7 * i * i + 3) % 256 for i in range(5000)),
        "text": b"no such thing\n",
        "39 fields": re.sub(r"\t[^\t]*\n", "\n", log).encode(),
        "header": b"\t".join([b"label", *(b"I%d" % i for i in range(39))]) + b"\n" + log.encode(),
        "return": log.replace("\n", "\r").encode(),
        "nan": criteo_text(5, label="NaN").encode(),
        "two": criteo_text(5, label="2").encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    return tmp_path


# --- help ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_an_example(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"Example:\n    dpcompare {command} " in out


def test_help_and_version(call):
    for argument in ("--help", "-h"):
        code, out, _ = call(argument)
        assert code == 0
        assert "Start with:  dpcompare run-study quickstart" in out
        assert all(f"  {command} " in out for command in COMMANDS)
    assert call("--version")[:2] == (0, "dpcompare, version 0.1.0\n")
    assert call()[0] == 2


def test_help_lists_and_study_texts_load_no_heavy_library():
    code = f"""
import sys
from dpcompare.cli import main
for arguments in (["--help"], *([c, "--help"] for c in {COMMANDS}), ["--version"],
                  ["list", "mechanisms"], ["list", "studies"], ["list", "schemas"],
                  ["show", "quickstart"]):
    try:
        main(arguments)
    except SystemExit as ended:
        assert not ended.code, arguments
heavy = {{"jax", "flax", "optax", "numpy", "pandas", "scipy", "matplotlib", "pyarrow", "sklearn",
         "dp_accounting", "seaborn"}}
print("loaded:", sorted(heavy & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "loaded: []", done.stderr


# --- list and show -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["studies", "mechanisms", "schemas"])
def test_lists_are_one_name_a_line(call, kind):
    code, out, _ = call("list", kind)
    assert code == 0
    assert out.splitlines() == list(getattr(catalog, kind)())


def test_everything_that_is_listed_can_be_shown(call):
    assert 'task = "pctr"' in call("show", "quickstart")[1]
    assert "[tasks]" in call("show", "criteo-kaggle")[1]
    for name in catalog.mechanisms():
        code, out, _ = call("show", name)
        assert code == 0
        assert out.startswith(f"{name} (")
        assert "parameters:" in out
    assert "clip_norm = 1.0" in call("show", "dp-sgd")[1]
    assert "yogi, adagrad, rmsprop: every table gets it at every step" in call("show", "dp-sgd")[1]
    assert "noise on embedding tables" not in call("show", "randomized-response")[1]


def test_an_own_mechanism_can_be_shown(call, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dpcompare.mechanism import Mechanism\n\n"
        'class Mine(Mechanism):\n    """My way."""\n\n    strength: float = 2.0\n'
    )
    code, out, _ = call("show", f"{path}:Mine")
    assert code == 0
    assert "My way." in out
    assert "strength = 2.0" in out


def test_unknown_names_get_a_hint(refused, files):
    assert "did you mean 'dp-sgd'" in refused("show", "dp-sdg")
    assert "no file nothing.py" in refused("show", "nothing.py:Mine")
    assert "not a Python file" in refused("show", f"{files / 'garbage'}:Mine")
    assert "'studies', 'mechanisms', 'schemas'" in refused("list", "things")
    assert "No such command 'frobnicate'" in refused("frobnicate")
    assert "Missing argument 'STUDY'" in refused("run-study")


# --- show MECHANISM --epsilon --------------------------------------------------------------------


def test_a_label_mechanism_is_shown_in_numbers(call):
    code, out, err = call("show", "randomized-response", "--epsilon", "1")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "randomized-response at epsilon 1, labels 0 to 1 of pctr"
    assert lines[3].split() == ["0", "0.7311", "0.2689"]
    assert lines[-1] == "worst likelihood ratio of an output between two labels: exp(1)"


def test_task_cap_prior_and_parameters_of_a_label_mechanism_can_be_named(call):
    counts = ("--epsilon", "1", "--task", "pconvs", "--cap", "2")
    out = call("show", "unbiased-randomizer", *counts)[1]
    assert "labels 0 to 2 of pconvs" in out
    assert "shown for the public prior 0.7408, 0.2222, 0.03694;" in out
    out = call("show", "unbiased-randomizer", *counts, "--base-rate", "0.1")[1]
    assert "shown for the public prior 0.9048, 0.09048, 0.004679;" in out
    out = call("show", "unbiased-randomizer", *counts, "-p", "prior=[0.9,0.07,0.03]")[1]
    assert "shown for" not in out
    assert re.search(r"^variance +3\.688 +4\.522 +3\.693$", out, re.MULTILINE)
    out = call("show", "additive-noise", *counts, "-p", "shape=staircase", "-p", "clamp=true")[1]
    assert "output: label + staircase noise of sensitivity 2, cut to 0..2\n" in out
    assert (
        "labels 0 to 1 of pcvr"
        in call("show", "additive-noise", "--epsilon", "3", "--task", "pcvr")[1]
    )


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["dp-sgd", "--epsilon", "1"], "dp-sgd has no label kernel; --epsilon is for mechanisms"),
        (["non-private", "--epsilon", "1"], "non-private has no label kernel"),
        (["quickstart", "--epsilon", "1"], "--epsilon is for mechanisms, and 'quickstart' is none"),
        (["criteo-kaggle", "--epsilon", "1"], "'criteo-kaggle' is none"),
        (["additive-noise", "--cap", "2"], "--cap, --base-rate and -p go with --epsilon"),
        (["additive-noise", "--task", "pcvr"], "--task, --cap, --base-rate and -p go with"),
        (["rr-on-bins", "--base-rate", "0.1"], "go with --epsilon"),
        (["rr-on-bins", "-p", "prior=[1]"], "go with --epsilon"),
        (["additive-noise", "--epsilon", "inf"], "--epsilon"),
        (["additive-noise", "--epsilon", "0"], "--epsilon"),
        (["additive-noise", "--epsilon", "1", "--task", "pconv"], "did you mean 'pconvs'"),
        (["additive-noise", "--epsilon", "1", "--task", "pconvs"], "'pconvs' needs cap"),
        (["additive-noise", "--epsilon", "1", "--cap", "2"], "cap is for counts"),
        (["additive-noise", "--epsilon", "1", "--cap", "0"], "--cap"),
        (["additive-noise", "--epsilon", "1", "-p", "shape"], "-p shape: write name=value"),
        (["additive-noise", "--epsilon", "1", "-p", "shape=round"], "one of laplace, discrete-lap"),
        (["additive-noise", "--epsilon", "1", "-p", "shap=1"], "did you mean 'shape'"),
        (["additive-noise", "--epsilon", "1", "-p", "clamp=1"], "'clamp' must be of type bool"),
        (["additive-noise", "--epsilon", "1", "--base-rate", "0.1"], "--base-rate is for a kernel"),
        (["additive-noise", "--epsilon", "701"], "take at most 700"),
        (["rr-on-bins", "--epsilon", "1", "-p", "prior=[1"], "the list is not TOML"),
        (["rr-on-bins", "--epsilon", "1", "-p", "prior=[1]"], "the 2 probabilities of labels 0 to"),
        (["rr-on-bins", "--epsilon", "1", "-p", "prior=[1,1]"], "their sum is 2"),
        (["rr-on-bins", "--epsilon", "1", "--base-rate", "2"], "must lie between 0 and 1, got 2"),
    ],
)
def test_label_tables_that_cannot_be_are_wrong_usage(call, arguments, part):
    code, out, err = call("show", *arguments)
    assert (code, out) == (2, "")
    message = err.rpartition("Error: ")[2]
    assert part in message
    assert message.count("\n") == 1, "one line"
    assert "Traceback" not in err


# --- calibrate -----------------------------------------------------------------------------------


def test_calibrate_states_noise_and_guarantee(call):
    arguments = (*CALIBRATE, "--epsilon", "1", "--steps", "50")
    code, out, err = call(*arguments, "--json")
    assert (code, err) == (0, "")

    def refuse(token):
        raise AssertionError(f"bare {token}")

    report = json.loads(out, parse_constant=refuse)
    assert len(out.splitlines()) == 1
    assert 0.1 < report["noise_multiplier"] < 10
    assert 0.99 < report["epsilon"] <= 1
    assert report["delta"] == pytest.approx(10_000**-1.1)
    assert (report["neighboring"], report["steps"]) == ("zero-out", 50)
    text = call(*arguments)[1]
    assert re.search(r"noise multiplier +0\.", text)
    assert "zero-out" in text


@pytest.mark.parametrize("epsilon", ["nan", "inf", "0", "-1", "abc", "", "1e400"])
def test_epsilons_that_cannot_be_are_refused(refused, epsilon):
    assert "--epsilon" in refused(*CALIBRATE, "--steps", "10", "--epsilon", epsilon)


@pytest.mark.parametrize("delta", ["nan", "inf", "0", "1", "-1", "abc"])
def test_deltas_that_cannot_be_are_refused(refused, delta):
    message = refused(*CALIBRATE, "--steps", "10", "--epsilon", "1", "--delta", delta)
    assert "--delta" in message


def test_a_delta_above_1_over_n_is_accepted_on_demand_only(call, refused):
    arguments = (*CALIBRATE, "--epsilon", "1", "--steps", "5", "--accountant", "rdp", "--json")
    assert "above 1/n = 0.0001" in refused(*arguments, "--delta", "1.1e-4")
    assert call(*arguments, "--delta", "1e-4")[0] == 0
    code, out, _ = call(*arguments, "--delta", "1.1e-4", "--allow-large-delta")
    assert code == 0
    assert json.loads(out)["delta"] == 1.1e-4


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([], "give either --epochs or --steps"),
        (["--epochs", "1", "--steps", "10"], "give either --epochs or --steps"),
        (["--epochs", "nan"], "--epochs"),
        (["--epochs", "0"], "--epochs"),
        (["--steps", "0"], "--steps"),
        (["--steps", "1.5"], "--steps"),
        (["--steps", "10", "--group-size", "0"], "--group-size"),
        (["--steps", "10", "--accountant", "gdp"], "'pld', 'rdp'"),
        (["--steps", "10", "--neighboring", "zero"], "'zero-out'"),
        (["--steps", "10", "--batch-size", "10001"], "larger than the training set of 10,000"),
        (["--steps", "10", "--batch-size", "0"], "--batch-size"),
        (["--steps", "10", "--examples", "0"], "--examples"),
        (["--steps", "10", "--group-size", "2", "--neighboring", "add-or-remove-one"], "groups"),
    ],
)
def test_schedules_that_cannot_be_are_refused(refused, arguments, part):
    assert part in refused(*CALIBRATE, "--epsilon", "1", *arguments)


@pytest.mark.parametrize("missing", ["--examples", "--batch-size"])
def test_dp_sgd_needs_rows_and_batches(refused, missing):
    arguments = {"--examples": "10000", "--batch-size": "100"}
    del arguments[missing]
    given = [word for pair in arguments.items() for word in pair]
    message = refused("calibrate", "--epsilon", "1", "--steps", "5", *given)
    assert message == "give --examples and --batch-size\n"


def test_calibrate_is_for_dp_sgd_unless_told_otherwise(call):
    arguments = (*CALIBRATE, "--epsilon", "1", "--steps", "50", "--json")
    assert call(*arguments) == call(*arguments, "--mechanism", "dp-sgd")


def test_calibrate_tells_what_randomized_labels_are_worth(call):
    rated = (*CALIBRATE_RESPONSE, "--base-rate", "0.03")
    code, out, err = call(*rated, "--json")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert report["effective_sample_size_fraction"] == pytest.approx(0.0306, abs=5e-5)
    assert report["flip_probability"] == pytest.approx(0.2689, abs=5e-5)
    assert report["observed_rate"] == pytest.approx(0.2828, abs=5e-5)
    assert (report["delta"], report["neighboring"]) == (0.0, "replace-one-label")
    counted = json.loads(call(*rated, "--examples", "100000", "--json")[1])
    assert round(counted["effective_examples"]) == 3064
    text = call(*rated, "--examples", "100000")[1]
    assert re.search(r"^effective sample size fraction +0\.0306389$", text, re.MULTILINE)
    assert re.search(r"^effective examples +3063\.89$", text, re.MULTILINE)
    plain = call(*CALIBRATE_RESPONSE)[1]
    assert "flip probability" in plain
    assert "effective" not in plain


@pytest.mark.parametrize(
    "arguments",
    [
        ["--batch-size", "100"],
        ["--epochs", "1"],
        ["--steps", "10"],
        ["--delta", "1e-6"],
        ["--group-size", "2"],
        ["--neighboring", "replace-one"],
        ["--accountant", "rdp"],
        ["--allow-large-delta"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_randomized_response_takes_nothing_of_gradients(call, arguments):
    code, out, err = call(*CALIBRATE_RESPONSE, "--base-rate", "0.03", *arguments)
    assert (code, out) == (2, "")
    assert "give --epsilon, --base-rate and --examples only" in err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([*CALIBRATE_RESPONSE, "--examples", "100"], "go with --base-rate"),
        ([*CALIBRATE_RESPONSE, "--base-rate", "1"], "--base-rate"),
        ([*CALIBRATE_RESPONSE, "--base-rate", "nan"], "--base-rate"),
        ([*CALIBRATE_RESPONSE, "--epsilon", "701"], "take at most 700"),
        ([*CALIBRATE_RESPONSE, "--mechanism", "rr-on-bins"], "'dp-sgd', 'randomized-response'"),
        (
            [*CALIBRATE, "--epsilon", "1", "--steps", "5", "--base-rate", "0.1"],
            "--base-rate is for --mechanism randomized-response",
        ),
    ],
)
def test_what_does_not_go_together_in_calibrate_is_wrong_usage(call, arguments, part):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert part in err.rpartition("Error: ")[2]


# --- run-study and plot --------------------------------------------------------------------------


def test_a_study_is_run_and_redrawn(call, tmp_path):
    study = tiny.write(tmp_path, tiny.content(NON_PRIVATE, RANDOMIZED_RESPONSE, epsilons=[1, 3]))
    results = tmp_path / "results"
    code, out, err = call("run-study", study, "--out", results)
    assert code == 0
    assert "3 done, 0 failed, 0 already there" in out
    assert "randomized-response" in out
    assert f"wrote {results}/figures/utility.png" in out
    assert err.splitlines()[-1].startswith("tiny: 3/3 trials"), "progress is on standard error"
    subset = ("--epsilons", "3", "--mechanisms", "randomized-response", "--seeds", "1")
    code, out, _ = call("run-study", study, "--out", results, *subset)
    assert code == 0
    assert "0 done, 0 failed, 1 already there" in out
    summary = (results / "summary.csv").read_bytes()
    (results / "summary.csv").unlink()
    assert call("plot", results)[0] == 0
    assert (results / "summary.csv").read_bytes() == summary


def test_by_default_results_go_to_a_folder_of_the_studys_name(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = tiny.write(tmp_path, tiny.content())
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = call("run-study", study.name, "--dry-run")
    assert code == 0
    assert "1 trials" in out
    assert sorted(tmp_path.rglob("*")) == before, "a dry run writes nothing"
    assert call("run-study", study.name)[0] == 0
    assert (tmp_path / "results" / "tiny" / "trials.jsonl").exists()


def test_failed_trials_give_exit_code_1_after_the_table(call, tmp_path):
    wild = {**RANDOMIZED_RESPONSE, "label": "wild", "training": {"learning_rate": 1e30}}
    study = tiny.write(tmp_path, tiny.content(NON_PRIVATE, wild))
    code, out, err = call("run-study", study, "--out", tmp_path / "results")
    assert code == 1
    assert "1 done, 1 failed" in out
    assert "training diverged" in out
    assert "Error: failed trials: 1." in err
    assert "Traceback" not in out + err


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--seeds", "nan"], "--seeds"),
        (["--workers", "0"], "--workers must be at least 1"),
        (["--epsilons", ""], "the list is empty"),
        (["--epsilons", ","], "the list is empty"),
        (["--epsilons", "1,nan"], "got nan"),
        (["--epsilons", "0.1,1,inf"], "'non-private'"),
        (["--epsilons", "-1"], "above 0"),
        (["--epsilons", "abc"], "'abc' is not a number"),
        (["--mechanisms", "dp-sdg"], "did you mean 'dp-sgd'"),
    ],
)
def test_choices_that_cannot_be_are_refused(refused, tmp_path, arguments, part):
    study = tiny.write(tmp_path, tiny.content(NON_PRIVATE, DP_SGD))
    assert part in refused("run-study", study, "--out", tmp_path / "results", *arguments)
    assert not (tmp_path / "results").exists()


# --- input that is none --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absent", "folder", "empty", "zeros", "garbage", "text"])
def test_what_is_no_study_no_data_and_no_results_is_named(refused, files, name):
    path = files / name
    study = tiny.write(files, tiny.content())
    results = files / "results"
    assert str(path) in refused("run-study", path, "--out", results)
    assert str(path) in refused("run-study", study, "--data", path, "--out", results)
    assert str(path) in refused("plot", path)
    assert str(path) in refused("show", path)
    assert not results.exists()


@pytest.mark.parametrize("name", ["folder", "empty", "zeros", "garbage", "text"])
def test_damaged_results_are_named(refused, files, name):
    results = files / "results"
    results.mkdir()
    (files / name).rename(results / "trials.jsonl")
    assert str(results) in refused("plot", results)


@pytest.mark.parametrize("name", ["absent", "folder", "empty", "zeros", "garbage", "text"])
def test_what_is_no_schema_is_named(refused, files, name):
    log = files / "log.txt"
    log.write_text(criteo_text(20))
    schema = files / f"{name}.toml"
    if (files / name).exists():
        (files / name).rename(schema)
    assert str(schema) in refused("prepare", schema, log, files / "out")
    assert "did you mean 'criteo-kaggle'" in refused("prepare", "criteo-kagle", log, files / "out")
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("absent", "does not exist"),
        ("folder", "holds no files"),
        ("empty", "is empty"),
        ("zeros", "binary data"),
        ("garbage", "not valid UTF-8"),
        ("text", "line 1 has 1 field"),
        ("39 fields", "39 fields, expected 40"),
        ("header", "looks like a header"),
        ("return", "carriage return"),
        ("nan", "line 5, column label: 'NaN'"),
        ("two", "line 5, column label: the label must be 0 or 1"),
    ],
)
def test_what_is_no_log_is_named_with_its_line(refused, files, name, part):
    message = refused("prepare", "criteo-kaggle", files / name, files / "out")
    assert str(files / name) in message
    assert part in message
    assert not (files / "out").exists()


def test_prepared_rows_can_be_studied_and_windows_lines_are_fine(call, files):
    log = files / "log.txt"
    log.write_bytes(criteo_text(500).replace("\n", "\r\n").encode())
    code, out, err = call("prepare", "criteo-kaggle", log, files / "prepared")
    assert (code, err) == (0, "")
    assert "500 rows" in out
    study = tiny.write(files, tiny.content())
    arguments = ("--data", files / "prepared", "--out", files / "results")
    assert call("run-study", study, *arguments)[0] == 0
    record = json.loads((files / "results" / "trials.jsonl").read_text())
    assert record["rows"] == {"train": 400, "validation": 50, "test": 50}


# --- what nobody expects -------------------------------------------------------------------------


def test_a_defect_is_one_line_unless_its_traceback_is_asked_for(call, monkeypatch):
    def broken():
        raise RuntimeError("out of cheese")

    monkeypatch.setattr(catalog, "studies", broken)
    code, out, err = call("list", "studies")
    assert (code, out) == (1, "")
    assert err.startswith("Error: RuntimeError: out of cheese. This is a defect")
    assert "DPCOMPARE_TRACEBACK=1" in err
    monkeypatch.setenv("DPCOMPARE_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        cli.main(["list", "studies"])


@pytest.mark.parametrize(
    ("error", "message"),
    [(OSError(28, "No space left on device"), "No space left"), (MemoryError(), "MemoryError")],
)
def test_a_full_machine_is_a_failure_and_no_defect(refused, monkeypatch, error, message):
    def broken():
        raise error

    monkeypatch.setattr(catalog, "studies", broken)
    assert message in refused("list", "studies")


def test_a_reader_that_leaves_early_is_no_error():
    code = "from dpcompare.cli import main; main(['show', 'quickstart'])"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(timeout=30)
