"""The doctor finds what is wrong with a machine, survives it, and tells no names."""

import getpass
import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpcompare import cli, doctor, doctor_probe, memory
from dpcompare.doctor import Finding, findings, scrubbed

NOISES = {"noise of one release", "noise of many steps"}


def by_name(found):
    return {(one.topic, one.name): one for one in found}


@pytest.fixture
def call(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(list(arguments))
        out, err = capsys.readouterr()
        return ended.value.code, out, err

    return run


@pytest.fixture
def without_probe(monkeypatch):
    monkeypatch.setattr(doctor, "_probed", lambda: iter(()))


@pytest.fixture
def broken_plugin(tmp_path, monkeypatch):
    """A package with a mechanism that cannot be imported, and one that ends the process."""
    package = tmp_path / "plugins" / "broken_mechanisms-1.2.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-mechanisms\n"
                                      "Version: 1.2\n")  # fmt: skip
    (package / "entry_points.txt").write_text(
        "[dpcompare.mechanisms]\nabsent = nowhere_at_all:Mine\nleaving = leaving_one:Mine\n"
    )
    (tmp_path / "plugins" / "leaving_one.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))


def test_a_whole_examination_finds_a_broken_plugin_and_goes_on(broken_plugin, call):
    code, out, err = call("doctor", "--json")
    assert code == 1
    report = json.loads(out)
    assert report["status"] == "problem"
    found = by_name(Finding(**one) for one in report["findings"])
    problems = {name for name, one in found.items() if one.status == "problem"}
    assert problems == {("mechanisms", "absent"), ("mechanisms", "leaving")}
    absent = found["mechanisms", "absent"].value
    assert absent.startswith("broken-mechanisms 1.2, nowhere_at_all:Mine does not load: ModuleNot")
    assert "SystemExit: 3" in found["mechanisms", "leaving"].value
    assert found["mechanisms", "dp-sgd"].status == "ok"
    assert {name for topic, name in found if topic == "self-test"} == {*NOISES, "a tiny trial"}
    assert found["JAX", "devices"].value.startswith("1 (cpu")
    assert "mechanisms: absent" in err
    assert found["versions", "jax"].value in out


def test_every_line_has_a_status_and_a_problem_is_exit_code_1(call, monkeypatch):
    made = [Finding("a", "b", "fine"), Finding("c", "d", "slow", "warning")]
    monkeypatch.setattr(doctor, "findings", lambda: iter(made))
    code, out, err = call("doctor")
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["ok", "a:", "b", "fine"], ["warning", "c:", "d", "slow"]
    ]  # fmt: skip
    made.append(Finding("e", "f", "broken", "problem"))
    code, out, err = call("doctor")
    assert code == 1
    assert out.splitlines()[-1].split() == ["problem", "e:", "f", "broken"]
    assert err == "Error: 1 of 3 findings are problems: e: f\n"


def test_a_probe_that_crashes_or_hangs_is_a_finding(monkeypatch):
    def ended(*arguments, **options):
        line = '{"topic": "JAX", "name": "devices", "value": "1", "status": "ok"}\n'
        return SimpleNamespace(stdout=line, stderr="first\nIllegal instruction\n", returncode=-4)

    monkeypatch.setattr(subprocess, "run", ended)
    kept, crash = doctor._probed()
    assert kept == Finding("JAX", "devices", "1")
    assert crash.value == "its process ended with exit code -4: Illegal instruction"
    assert crash.status == "problem"

    def late(*arguments, **options):
        raise subprocess.TimeoutExpired("doctor", 120, output=b"", stderr=None)

    monkeypatch.setattr(subprocess, "run", late)
    (crash,) = doctor._probed()
    assert crash.value == "its process took longer than 120 s: it said nothing"


def test_a_wrong_noise_multiplier_is_a_problem(monkeypatch, tmp_path):
    from dpcompare import calibration

    right = calibration.noise_multiplier
    for factor, status in ((1.0, "ok"), (0.999, "problem"), (1.002, "problem")):
        monkeypatch.setattr(
            calibration, "noise_multiplier", lambda *a, factor=factor: factor * right(*a)
        )
        for probe in (doctor_probe._one_release, doctor_probe._many_steps):
            (finding,) = probe(tmp_path)
            assert (finding.status, finding.topic) == (status, "self-test"), finding


def test_the_cache_of_the_user_is_neither_read_nor_written_by_the_self_test(tmp_path):
    before = os.environ["DPCOMPARE_CACHE"]
    list(doctor_probe._many_steps(tmp_path))
    assert os.environ["DPCOMPARE_CACHE"] == before
    assert list((tmp_path / "cache").iterdir())


def test_little_memory_and_a_cache_without_room_are_warnings(without_probe, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPCOMPARE_CACHE", str(tmp_path / "file"))
    monkeypatch.setattr(memory, "available", lambda: 2**28)
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: SimpleNamespace(total=2**40, used=0, free=2**20)
    )
    found = by_name(findings())
    warned = {name for name, one in found.items() if one.status == "warning"}
    assert warned == {
        ("machine", "memory"),
        ("disk", "cache"),
        ("disk", "free for cache"),
        ("disk", "free for current folder"),
    }
    assert "it is a file" in found["disk", "cache"].value
    assert found["machine", "memory"].value.startswith("0.2 GiB left within all limits")


def test_a_library_that_is_missing_or_too_old_is_a_problem(without_probe, monkeypatch):
    wanted = ["numpy>=99", "no-such-library>=1", "ray>=99; extra == 'ray'"]
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    found = by_name(findings())
    assert found["versions", "numpy"].status == "problem"
    assert found["versions", "numpy"].value.endswith("needs >=99")
    assert "pip install 'no-such-library>=1'" in found["versions", "no-such-library"].value
    assert ("versions", "ray") not in found, "an extra"


def test_an_extra_that_is_absent_is_no_problem(without_probe, monkeypatch):
    monkeypatch.setitem(doctor.EXTRAS, "no-such-extra", "nobody needs it")
    finding = by_name(findings())["optional", "no-such-extra"]
    assert (finding.value, finding.status) == ("not installed; nobody needs it", "ok")


def test_variables_that_matter_are_told_without_secrets(without_probe, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=" + os.path.expanduser("~/dump"))
    monkeypatch.setenv("JAX_SOME_TOKEN", "tell-nobody")
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("UNRELATED_PASSWORD", "tell-nobody")
    found = by_name(findings())
    assert found["environment", "XLA_FLAGS"].value == "'--xla_dump_to=~/dump'"
    assert found["environment", "JAX_SOME_TOKEN"].value == "set, not shown"
    text = json.dumps(doctor.as_report(list(found.values())))
    assert "tell-nobody" not in text
    assert "10.0.0.1" not in text
    assert "UNRELATED" not in text
    assert os.path.expanduser("~") + "/" not in text


def test_homes_and_names_are_not_told(monkeypatch):
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(getpass, "getuser", lambda: "alice")
    assert scrubbed("/home/alice/x and /home/alice2") == "~/x and /home/alice2"
    assert scrubbed("/scratch/alice/cache") == "/scratch/<user>/cache"
    assert scrubbed("https://alice:secret@host/x") == "https://host/x"
    assert scrubbed("malice") == "malice"
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    assert scrubbed("/cache/root/x") == "/cache/root/x"


def test_limits_of_control_groups_count(without_probe, monkeypatch, tmp_path):
    group = tmp_path / "groups"
    group.mkdir()
    for name, text in (("memory.max", f"{3 * 2**30}\n"), ("memory.current", f"{2**30}\n"),
                       ("memory.stat", "inactive_file 0\n")):  # fmt: skip
        (group / name).write_text(text)
    (tmp_path / "of_process").write_text("0::/\n")
    monkeypatch.setattr(memory, "GROUPS", group)
    monkeypatch.setattr(memory, "GROUPS_OF_PROCESS", Path(tmp_path / "of_process"))
    finding = by_name(findings())["machine", "memory"]
    assert finding.value.startswith("2.0 GiB left within all limits, of ")
