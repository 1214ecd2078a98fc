"""One trial on several devices: one noise, equal replicas, clipping on each device's own rows."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpcompare import conduct, trial
from dpcompare.devices import mesh_of
from dpcompare.errors import UsageError
from dpcompare.expansion import expand
from dpcompare.results import ResultsFolder
from dpcompare.study import load
from tests import tiny_studies as tiny
from tests.sharded_training import MECHANISMS

DEVICES = 4
ROOT = Path(__file__).parents[1]


def start(count, *arguments):
    flags = f"--xla_force_host_platform_device_count={count}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.sharded_training", *map(str, arguments)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 0, messages


def replicas(path):
    """For each mechanism and leaf the arrays of all devices, by device."""
    found = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            name, leaf, device = key.split("/")
            found.setdefault((name, leaf), {})[int(device)] = arrays[key]
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("devices")
    runs = {count: start(count, "all", count, folder / f"{count}.npz") for count in (1, DEVICES)}
    for process in runs.values():
        finish(process)
    return {count: replicas(folder / f"{count}.npz") for count in runs}


def test_all_devices_hold_the_same_parameters(trained):
    for (name, leaf), of_devices in trained[DEVICES].items():
        assert len(of_devices) == (1 if "look" in leaf or name == "resumed" else DEVICES)
        for other in of_devices.values():
            np.testing.assert_array_equal(other, of_devices[0], err_msg=f"{name} {leaf}")


def test_noise_does_not_depend_on_the_number_of_devices(trained):
    """Nothing but noise moves these parameters: they are equal to the last bit."""
    compared = 0
    for key, of_devices in trained[1].items():
        if key[0] == "noise":
            np.testing.assert_array_equal(trained[DEVICES][key][0], of_devices[0])
            compared += of_devices[0].size
    assert compared > 2000


@pytest.mark.parametrize("name", [name for name in MECHANISMS if name != "noise"])
def test_more_devices_change_the_rounding_of_sums_only(trained, name):
    for key, of_devices in trained[1].items():
        if key[0] == name:
            np.testing.assert_allclose(
                trained[DEVICES][key][0], of_devices[0], atol=3e-5, rtol=3e-4
            )


def test_a_run_on_several_devices_goes_on_from_its_checkpoint(trained):
    resumed = {leaf: of for (name, leaf), of in trained[DEVICES].items() if name == "resumed"}
    assert len(resumed) > 2
    for leaf, of_devices in resumed.items():
        np.testing.assert_array_equal(of_devices[0], trained[DEVICES]["groups", leaf][0])


def test_two_processes_train_as_one_does(trained, tmp_path):
    """jax.distributed on the loopback interface: two processes of two devices each."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{found.getsockname()[1]}"
    runs = [
        start(2, "groups", DEVICES, tmp_path / f"{process}.npz", coordinator, process, 2)
        for process in range(2)
    ]
    for process in runs:
        finish(process)
    of_processes = [replicas(tmp_path / f"{process}.npz") for process in range(2)]
    for key, of_devices in of_processes[0].items():
        for of_process in of_processes:
            for values in of_process[key].values():
                np.testing.assert_array_equal(values, next(iter(of_devices.values())))
                np.testing.assert_allclose(values, trained[DEVICES][key][0], atol=3e-5, rtol=3e-4)


def test_more_devices_than_there_are_is_an_error():
    with pytest.raises(UsageError, match=r"devices must lie between 1 and \d+.*got 999"):
        mesh_of(999)
    assert mesh_of(1) is None


def test_a_run_with_too_many_devices_is_refused_before_anything_is_recorded(tmp_path):
    study = tiny.study(tmp_path)
    with pytest.raises(UsageError, match=r"devices must lie between 1 and \d+.*got 999"):
        conduct.run(study, tmp_path / "results", conduct.How(devices=999), print)
    assert not (tmp_path / "results").exists()


def test_a_study_on_two_devices_says_so_in_its_records(tmp_path):
    study = tiny.write(tmp_path, tiny.content(tiny.DP_SGD))
    command = ["-m", "dpcompare", "run-study", str(study), "--devices", "2", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, *command, "--out", str(tmp_path / "two")],
        env=os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    records = ResultsFolder(tmp_path / "two").records()
    assert [record["diagnostics"]["devices"] for record in records] == [2]
    one = [trial.run_trial(configuration) for configuration in expand(load(str(study)))]
    auc = {record["id"]: record["test"]["auc"] for record in one}
    for record in records:
        assert record["test"]["auc"] == pytest.approx(auc[record["id"]], abs=1e-3)
