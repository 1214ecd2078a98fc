"""A trained model predicts what its trial did, is exported whole, and loads as it was."""

import json
import logging
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import dpcompare
from dpcompare import data, tasks, trained_model
from dpcompare.cli import main
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.metric_sets import metric_set
from dpcompare.trained_model import load_model, write_predictions
from tests import tiny_studies as tiny

COUNTS = {"task": "pconvs", "cap": 2}
PRIOR = {"name": "unbiased-randomizer"}
ROWS = {"data": {"rows": 2000}}


def trained(*mechanisms, **changes):
    return dpcompare.train(tiny.content(*mechanisms, **changes))


@pytest.fixture(scope="module")
def model():
    return trained(tiny.DP_SGD)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported") / "model"
    model.save(folder)
    return folder


def test_predictions_of_the_test_rows_have_the_metrics_of_the_record(model):
    log = data.synthetic(tiny.ROWS)
    test = log.parts("pctr")[2]
    again = tasks.find("pctr", None).evaluate(log.labels["pctr"][test], model.predict(log)[test])
    stated = model.record["test"]
    name = metric_set("pctr").main
    assert again[name] == pytest.approx(stated[name], rel=1e-6)
    assert again == pytest.approx(stated, rel=1e-5)


def test_a_loaded_model_predicts_the_same_to_the_last_bit(model, exported):
    log, loaded = data.synthetic(3000, seed=5), load_model(exported)
    np.testing.assert_array_equal(loaded.predict(log), model.predict(log))
    assert loaded.guarantee == model.guarantee
    assert loaded.claim() == model.claim()
    assert loaded.record is None


def test_another_process_needs_the_folder_alone(model, exported):
    code = (
        "import dpcompare, sys\n"
        "print(repr(float(dpcompare.load_model(sys.argv[1]).predict('synthetic')[0])))\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, str(exported)], capture_output=True, text=True, check=True
    ).stdout
    assert float(printed) == pytest.approx(model.predict("synthetic")[0], rel=1e-6)


def test_the_export_states_the_guarantee_and_no_metric_or_checksum(model, exported):
    settings = json.loads((exported / "model.json").read_text())
    assert settings["guarantee"]["epsilon"] == model.guarantee.epsilon <= 1
    assert settings["guarantee"]["unit"] == "example"
    text = (exported / "model.json").read_text()
    for hidden in ("auc", "log_loss", "calibration", "mean_prediction", "checksum"):
        assert hidden not in text
    assert data.synthetic_checksum(tiny.ROWS, 0, 0.25, 0.03)[:16] not in text


def test_what_counts_true_labels_is_not_exported(tmp_path):
    model = trained(PRIOR, **COUNTS)
    assert "clipped" in " ".join(model.record["notes"])
    assert model.mechanism.clipped_labels is None
    model.save(tmp_path / "model")
    text = (tmp_path / "model" / "model.json").read_text()
    assert "clipped" not in text
    loaded = load_model(tmp_path / "model")
    assert loaded.mechanism.private_prior == pytest.approx(model.mechanism.private_prior)
    log = data.synthetic(500, seed=2)
    np.testing.assert_array_equal(loaded.predict(log), model.predict(log))
    assert loaded.predict(log).shape == (500,)


def test_a_vocabulary_is_exported_and_marked(tmp_path):
    model = trained(model={"categories": "vocabulary", "min_count": 5})
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert any("vocabulary" in note for note in loaded.settings["notes"])
    log = data.synthetic(500, seed=2)
    np.testing.assert_array_equal(loaded.predict(log), model.predict(log))


def test_other_columns_are_refused_by_name(model):
    log = data.synthetic(100)
    renamed = dataclass_with(log, numeric_names=("X", *log.numeric_names[1:]))
    with pytest.raises(DpcompareError, match=r"reads the numeric columns I1, .* has X, "):
        model.predict(renamed)


def dataclass_with(log, **changes):
    from dataclasses import replace

    return replace(log, **changes)


def test_nothing_is_overwritten(model, exported):
    with pytest.raises(UsageError, match="there already"):
        model.save(exported)
    assert (exported / "model.json").exists()


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, model, monkeypatch, caplog):
    import orbax.checkpoint as ocp

    def full(self, folder, arrays):  # as orbax raises and logs it
        error = ValueError(f'RESOURCE_EXHAUSTED: "{folder}": No space left on device [1=2]' * 9)
        logging.getLogger("absl").error("a thread has failed", exc_info=error)
        raise error

    monkeypatch.setattr(ocp.StandardCheckpointer, "save", full)
    with pytest.raises(DpcompareError) as raised:
        model.save(tmp_path / "model")
    assert str(raised.value) == f"{tmp_path}/model cannot be written: No space left on device"
    assert not caplog.records
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_model_is_said(tmp_path, model):
    with pytest.raises(UsageError, match=r"holds no model\.json"):
        load_model(tmp_path)
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(DpcompareError, match="damaged"):
        load_model(tmp_path / "model")
    file.write_text(whole.replace('"format": 1', '"format": 9'))
    with pytest.raises(DpcompareError, match="format 9"):
        load_model(tmp_path / "model")
    file.write_text("[1]")
    with pytest.raises(DpcompareError, match="no JSON object"):
        load_model(tmp_path / "model")
    file.unlink()
    file.mkdir()
    with pytest.raises(DpcompareError, match=r"model\.json cannot be read: Is a directory"):
        load_model(tmp_path / "model")


def rewrite(file, change):
    """Change model.json as a version of dpcompare might that writes it otherwise."""
    settings = json.loads(file.read_text())
    change(settings)
    digests = settings.pop("sha256")
    digests["model.json"] = trained_model._digest(settings)
    file.write_text(json.dumps(settings | {"sha256": digests}))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"tower": [\n      4', '"tower": [\n      5'),
        ('"epsilon": 0.9', '"epsilon": 0.1'),
        ('"delta": 0.000', '"delta": -0.000'),
        ('"unit": "example"', '"unit": null'),
        ('"I1"', "7"),
        ('"buckets": 20', '"buckets": 2000000000000'),
        ('"found": {', '"found": [], "lost": {'),
    ],
)
def test_a_changed_setting_is_refused_before_it_is_used(tmp_path, exported, old, new):
    folder = shutil.copytree(exported, tmp_path / "model")
    text = (folder / "model.json").read_text()
    assert old in text
    (folder / "model.json").write_text(text.replace(old, new))
    with pytest.raises(DpcompareError, match=r"model\.json is damaged: .*copy the model again"):
        load_model(folder)


@pytest.mark.parametrize("part", ["columns", "guarantee", "model", "mechanism", "task"])
def test_settings_of_another_shape_are_named(tmp_path, exported, part):
    folder = shutil.copytree(exported, tmp_path / "model")
    for value in (None, [], {}, "x", 7):
        rewrite(folder / "model.json", lambda settings, value=value: settings.update({part: value}))
        with pytest.raises(DpcompareError, match=r"model\.json"):
            load_model(folder)


def test_every_file_that_is_changed_or_missing_is_named_before_it_is_read(tmp_path, exported):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "parameters" / ".left-by-the-file-manager").touch()
    load_model(folder)
    files = sorted((exported / "parameters").rglob("*"))
    for file in [folder / file.relative_to(exported) for file in files if file.is_file()]:
        whole = file.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for content in (flipped, whole[:middle], bytes(len(whole))):
            file.write_bytes(content)
            with pytest.raises(DpcompareError, match=f"{file} is damaged: .*; copy the model agai"):
                load_model(folder)
        file.unlink()
        with pytest.raises(DpcompareError, match=f"{file} cannot be read: No such file"):
            load_model(folder)
        file.write_bytes(whole)
    load_model(folder)


def test_a_changed_mechanism_is_named(tmp_path, model):
    model.save(tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    version = model.settings["mechanism"]["version"]
    rewrite(file, lambda settings: settings["mechanism"].update(version=version + "0"))
    with pytest.warns(UserWarning, match="'dp-sgd' has changed since the model was trained"):
        load_model(tmp_path / "model")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rewrite(file, lambda settings: settings["mechanism"].update(version=version))
        load_model(tmp_path / "model")


def test_the_command_tells_a_changed_mechanism_as_it_tells_all_warnings(tmp_path, exported, capsys):
    folder = shutil.copytree(exported, tmp_path / "model")
    rewrite(folder / "model.json", lambda settings: settings["mechanism"].update(version="0"))
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(folder), "synthetic", "--out", str(tmp_path / "p.csv")])
    assert ended.value.code == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("Warning: the code of mechanism 'dp-sgd' has changed since")


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_predictions_are_written_as_a_table(tmp_path, name):
    import pandas as pd

    values = np.array([0.25, 1e-9, 1 / 3])
    write_predictions(values, tmp_path / name)
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    np.testing.assert_array_equal(read(Path(tmp_path / name))["prediction"], values)


def test_no_file_names_a_folder_of_this_machine(exported):
    for file in exported.rglob("*"):
        if file.is_file():
            assert str(exported.parent).encode() not in file.read_bytes(), file


def test_a_number_of_rows_that_the_relation_hides_is_noted():
    hidden = trained(tiny.DP_SGD, neighboring="add-or-remove-one")
    assert any("number of training rows" in note for note in hidden.settings["notes"])
    assert not any("number of training rows" in note for note in trained().settings["notes"])


def test_a_model_does_not_choose_what_code_runs(tmp_path, capsys):
    own = tmp_path / "own.py"
    own.write_text(
        "from dpcompare_mechanisms.non_private import NonPrivate\n\n"
        "print('own.py runs')\n\nclass Own(NonPrivate):\n    pass\n"
    )
    name = f"{own}:Own"
    trained({"name": name}).save(tmp_path / "model")
    assert "own.py runs" in capsys.readouterr().out
    with pytest.raises(UsageError, match="runs only if you name it"):
        load_model(tmp_path / "model")
    assert "own.py runs" not in capsys.readouterr().out
    loaded = load_model(tmp_path / "model", mechanism=name)
    assert type(loaded.mechanism).__name__ == "Own"
