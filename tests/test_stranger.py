"""A package of a stranger adds two mechanisms: installed, listed, shown and run, nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpcompare.results import ResultsFolder
from tests import tiny_studies as tiny

PACKAGE = Path(__file__).parent / "stranger"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """Runs dpcompare where the stranger's package is installed."""
    folder = tmp_path_factory.mktemp("stranger")
    source = folder / "source"
    source.mkdir()
    for file in PACKAGE.iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    place = folder / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--no-build-isolation", "--target", str(place), str(source)],
        check=True,
    )  # fmt: skip

    def run(*arguments):
        environment = os.environ | {"PYTHONPATH": str(place)}
        return subprocess.run(
            [sys.executable, "-c", "from dpcompare.cli import main; main()", *map(str, arguments)],
            env=environment, cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


def test_the_mechanisms_are_listed_beside_the_built_in_ones(stranger):
    names = stranger("list", "mechanisms").stdout.split()
    assert {"truncated-geometric", "smooth-clipping", "dp-sgd", "randomized-response"} <= set(names)


def test_the_label_mechanism_prints_its_kernel_with_the_worst_ratio(stranger):
    shown = stranger(
        "show", "truncated-geometric", "--epsilon", "1", "--task", "pconvs", "--cap", "2"
    )
    assert shown.returncode == 0, shown.stderr
    assert "worst likelihood ratio of an output between two labels: exp(1)" in shown.stdout
    bias = next(line for line in shown.stdout.splitlines() if line.startswith("bias"))
    assert [float(cell) for cell in bias.split()[1:]] == [0.0, 0.0, 0.0]


def test_both_run_in_a_study_beside_a_built_in_one(stranger, tmp_path):
    made = tiny.content(
        {"name": "non-private"},
        {"name": "truncated-geometric"},
        {"name": "smooth-clipping", "clip_norm": 0.5},
        task="pconvs",
        cap=2,
    )
    file, out = tiny.write(tmp_path, made), tmp_path / "out"
    outcome = stranger("run-study", file, "--out", out, "--workers", 1)
    assert outcome.returncode == 0, outcome.stderr
    records = {record["mechanism"]: record for record in ResultsFolder(out).records()}
    assert {record["status"] for record in records.values()} == {"done"}
    geometric, smooth = records["truncated-geometric"], records["smooth-clipping"]
    assert geometric["guarantee"]["epsilon"] == pytest.approx(1.0, rel=1e-9)
    assert (geometric["guarantee"]["unit"], geometric["guarantee"]["delta"]) == ("label", 0.0)
    assert 0.999 < smooth["guarantee"]["epsilon"] <= 1.0
    assert smooth["guarantee"]["unit"] == "example"
    assert "stranger-mechanisms==0.0.1" in geometric["configuration"]["mechanism"]["version"]
    for record in records.values():
        assert record["test"]["poisson_loss"] > record["best_possible"]["poisson_loss"]
