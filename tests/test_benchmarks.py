"""The step benchmark works end to end on a tiny model, and its references agree."""

import csv
import importlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture
def load(monkeypatch):
    """Imports a module of the benchmarks as their scripts do."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("steps")
    options = ["--cells", "tiny/8/64", "--repetitions", "2", "--seconds", "0.01", "--out", str(out)]
    variants = ["non_private_dense", "two_pass_ghost_without_noise", "opacus_ghost"]
    options += ["--peers-python", str(out / "missing"), "--variants", *variants]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "steps.py"), *options],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return out, done


def test_the_gpu_benchmark_says_what_is_missing_where_there_is_no_gpu():
    if jax.devices()[0].platform == "gpu":
        pytest.skip("this machine has a GPU")
    command = [sys.executable, str(BENCHMARKS / "gpu.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert done.stderr.startswith("JAX finds no GPU here, only ")


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_every_variant_that_can_take_part_has_a_row_with_the_documented_columns(run):
    out, _ = run
    rows = rows_of(out / "steps.csv")
    assert list(rows[0]) == [
        "variant", "model", "width", "batch", "examples_per_second_median",
        "examples_per_second_min", "examples_per_second_max", "repetitions", "temp_bytes",
        "peak_rss",
    ]  # fmt: skip
    names = [row["variant"] for row in rows]
    assert names == ["non_private_dense", "two_pass_ghost_without_noise"]
    for row in rows:
        low, middle, high = (
            float(row[f"examples_per_second_{which}"]) for which in ("min", "median", "max")
        )
        assert 0 < low <= middle <= high
        assert (row["batch"], row["repetitions"]) == ("64", "2")
        assert 0 < int(row["temp_bytes"]) < int(row["peak_rss"])


def test_a_missing_peer_is_left_out_with_the_reason(run):
    _, done = run
    assert "LEFT OUT: opacus_ghost in tiny/8/64: its environment is missing" in done.stderr


def test_ratios_and_machine_are_written(run):
    out, _ = run
    (row,) = rows_of(out / "ratios.csv")
    assert (row["numerator"], row["denominator"]) == (
        "two_pass_ghost_without_noise",
        "non_private_dense",
    )
    assert float(row["ratio_min"]) <= float(row["ratio_median"]) <= float(row["ratio_max"])
    machine = json.loads((out / "machine.json").read_text())
    assert machine["libraries"]["main"]["jax"] == jax.__version__


def test_a_child_that_fails_or_dies_or_is_slow_says_why(load, tmp_path):
    children, cell = load("children"), load("workload").Cell("tiny", 8, 64)
    python = tmp_path / "python"
    for script, reason in (
        ("echo no room >&2; exit 3", "exit code 3: no room"),
        ("""echo '{"failed": "ImportError: torch"}'; read line""", "ImportError: torch"),
        ("exec sleep 60", "no answer within"),
    ):
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        with (
            children.Child("torch_dense", cell, 0, python) as child,
            pytest.raises(children.ChildFailed, match=reason),
        ):
            child.answer(0.5)
        assert child._process.returncode is not None


def test_the_references_agree_on_the_clipped_sum(load, monkeypatch):
    monkeypatch.setitem(load("workload").VOCABULARIES, "tiny", (29, 3, 160))
    cell = load("workload").Cell("tiny", 8, 64)
    batch = load("workload").batches(cell)[0]
    initial = partial(load("references.model").initial, cell)
    parameters = jax.jit(initial)(jax.random.key(0)).parameters
    naive, ghost = load("references.naive"), load("references.two_pass_ghost")
    norms = np.sqrt(jax.jit(ghost.squared_norms)(parameters, batch))
    clip_norm = float(np.median(norms))
    expected = jax.jit(partial(naive.clipped_sum, chunk=16))(parameters, batch, clip_norm)
    found = jax.jit(ghost.clipped_sum)(parameters, batch, clip_norm)
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-6 * np.abs(a).max())


def test_the_largest_batch_is_the_last_of_the_grid_within_the_budget(load):
    largest_batch = load("largest_batch")
    assert largest_batch.largest(lambda batch: 100 + 10 * batch, 1000) == (64, 740)
    assert largest_batch.largest(lambda batch: 1000 + batch, 1000) == (0, None)


def test_every_variant_has_a_look(load):
    assert set(load("registry").NAMES) == set(load("figures").LOOKS)
