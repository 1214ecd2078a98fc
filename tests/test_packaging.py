"""The wheel works away from the checkout, beside folders of the same names as its own."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import jax
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    source = tmp_path_factory.mktemp("source")
    for name in ("dpcompare", "mechanisms", "studies", "pyproject.toml", "README.md", "LICENSE"):
        os.symlink(ROOT / name, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = ["pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), "."]
    built = subprocess.run(
        [sys.executable, "-m", *command], cwd=source, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    return next(out.glob("*.whl"))


def test_the_wheel_holds_packages_and_data_and_nothing_else_at_its_top(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert top == {"dpcompare", "dpcompare_mechanisms", "dpcompare_studies"}
    for expected in (
        "dpcompare/py.typed",
        "dpcompare/data/schemas/criteo-kaggle.toml",
        "dpcompare_mechanisms/dp_sgd.py",
        "dpcompare_studies/quickstart.toml",
        "dpcompare_studies/pctr.toml",
    ):
        assert expected in names


def test_it_runs_from_a_folder_with_its_own_mechanisms_and_studies(wheel, tmp_path):
    # A bare environment that sees the libraries of this one, but not its editable install.
    venv.create(tmp_path / "env", with_pip=False)
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    for name in ("mechanisms", "studies", "dpcompare_results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('shadowed')\n")
    libraries = Path(jax.__file__).parents[1]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{installed}{os.pathsep}{libraries}",
        "DPCOMPARE_CACHE": str(tmp_path / "cache"),
    }

    def run(*arguments):
        code = "from dpcompare.cli import main; main()"
        return subprocess.run(
            [str(tmp_path / "env/bin/python"), "-c", code, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

    listed = run("list", "mechanisms")
    assert listed.returncode == 0, listed.stderr
    assert "dp-sgd" in listed.stdout
    shown = run("show", "dp-sgd")
    assert "clip_norm = 1.0" in shown.stdout, shown.stderr
    planned = run("run-study", "quickstart", "--dry-run")
    assert "57 trials" in planned.stdout, planned.stderr
