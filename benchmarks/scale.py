"""How cost grows with the log: preparation, and training from disk, from a million rows on.

For each number of rows: raw text in Criteo's format is written and prepared by the command, and
trials are trained on it by the command, one after the other, each by one worker. Memory is that of
all processes together without the file cache (RssAnon), at its peak, the command's own of about
half a gigabyte included. A step is then timed in a process of its own on one core, after everything
is compiled, and so are the drawing and the gathering of its rows, which a second thread does.

    python benchmarks/scale.py --rows 1000000 10000000 40000000 --folder /large/disk

The text of 40 million rows takes 10 GB, its columns 6.4 GB.
"""

import argparse
import csv
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
from registry import HERE

TRIALS = (("dp-sgd", 4096, 100), ("dp-sgd", 65_536, 10), ("randomized-response", 4096, 100))
"""Mechanism, batch size, and steps of the trial whose memory is measured."""

BUCKETS, TOWER = 10_000, (128, 128)
COLUMNS = (
    "rows",
    "text_bytes",
    "reader_rows_per_second",
    "prepare_rows_per_second",
    "prepare_over_reader",
    "prepare_peak_bytes",
    "trial",
    "batch",
    "step_ms",
    "draw_ms",
    "gather_ms",
    "draw_share",
    "trial_peak_bytes",
    "trial_stated_bytes",
    "data_seconds",
    "evaluate_seconds",
)


def main() -> None:
    """Measure every size, and write the table after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000, 40_000_000])
    parser.add_argument("--folder", type=Path, required=True, help="for text and columns")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "scale.csv")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for count in options.rows:
        place = options.folder / f"scale-{count}"
        place.mkdir(parents=True)
        try:
            prepared = measure_preparation(count, place)
            for mechanism, batch, steps in TRIALS:
                found = measure_trial(place, mechanism, batch, steps)
                rows.append({**prepared, "trial": mechanism, "batch": batch, **found})
                write(options.out, rows)
        finally:
            shutil.rmtree(place)
    print(options.out.read_text())


def measure_preparation(rows: int, place: Path) -> dict[str, Any]:
    """Write the text, read it barely, prepare it."""
    from data import read_bare

    text = place / "train.txt"
    run([HERE / "criteo_text.py", rows, text])
    tell(f"{rows:,} rows: {text.stat().st_size / 1e9:.1f} GB of text")
    reader = rows / seconds(lambda: read_bare(text))
    begun = time.perf_counter()
    peak = run(["-m", "dpcompare", "prepare", "criteo-kaggle", text, place / "columns"])
    rate = rows / (time.perf_counter() - begun)
    size = text.stat().st_size
    text.unlink()
    tell(f"{rows:,} rows: prepared at {rate:,.0f} rows/s, the bare reader reads {reader:,.0f}")
    return {
        "rows": rows,
        "text_bytes": size,
        "reader_rows_per_second": reader,
        "prepare_rows_per_second": rate,
        "prepare_over_reader": rate / reader,
        "prepare_peak_bytes": peak,
    }


def measure_trial(place: Path, mechanism: str, batch: int, steps: int) -> dict[str, Any]:
    """One trial by the command, and what its batches cost."""
    study = place / f"{mechanism}-{batch}.toml"
    study.write_text(
        'title = "At scale"\ntask = "pctr"\nepsilons = [1]\nseeds = 1\n'
        '[data]\nsource = "--data"\nsplit = [0.9, 0.05, 0.05]\n'
        f"[model]\nbuckets = {BUCKETS}\ntower = {list(TOWER)}\n"
        f"[training]\nbatch_size = {batch}\nsteps = {steps}\nlearning_rate = 0.1\n"
        f'[[mechanisms]]\nname = "{mechanism}"\n'
    )
    out = place / f"results-{mechanism}-{batch}"
    command = ["-m", "dpcompare", "run-study", study, "--data", place / "columns"]
    stated = estimate(study, place / "columns")
    peak = run([*command, "--workers", "1", "--out", out])
    record = json.loads((out / "trials.jsonl").read_text().splitlines()[-1])
    assert record["status"] == "done", record["error"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        arguments = (place / "columns", mechanism, batch)
        step, draw, gather = pool.apply(costs_of_a_step, arguments)
    tell(f"  {mechanism}, batch {batch}: {step:.1f} ms a step, drawing {draw:.2f} ms")
    return {
        "step_ms": step,
        "draw_ms": draw,
        "gather_ms": gather,
        "draw_share": draw / step,
        "trial_peak_bytes": peak,
        "trial_stated_bytes": stated,
        "data_seconds": record["timings"]["data"],
        "evaluate_seconds": record["timings"]["evaluate"],
    }


def costs_of_a_step(columns: Path, name: str, batch: int) -> tuple[float, float, float]:
    """Milliseconds that a step takes, and that drawing and gathering its rows take, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import numpy as np

    from dpcompare import data
    from dpcompare.batches import blocks, chunks_of, gathered, row_bytes
    from dpcompare.data.sampling import batch_draw
    from dpcompare.embeddings import EmbeddingTables
    from dpcompare.mechanism import find
    from dpcompare.model import Model
    from dpcompare.optimizers import Recipe
    from dpcompare.privacy import Schedule
    from dpcompare.tasks import PCTR
    from dpcompare.trainer import Streams, train

    dataset = data.load_prepared(columns)
    part = dataset.parts("pctr", (0.9, 0.05, 0.05))[0]
    encoder = data.HashBuckets.for_columns(BUCKETS, dataset)
    features = data.encode(dataset, part, encoder)
    labels = np.asarray(dataset.labels["pctr"][part], np.float32)
    mechanism = find("dp-sgd").build({"clip_norm": 1.0}).replace(noise_multiplier=1.0)
    if name != "dp-sgd":
        mechanism = find("non-private").build({})  # what a label mechanism trains as
    any_length = Schedule(len(labels), batch, 1, mechanism.sampling)
    chunks = chunks_of(any_length, 1)
    room = chunks.steps_of_block(row_bytes((features, labels)))
    schedule = replace(any_length, steps=4 * room)
    draw = batch_draw(schedule, 1, "scale")
    draw(0)
    drawn = [1e3 * seconds(lambda s=s: draw(s)) for s in range(1, 21)]  # type: ignore[misc]
    made = list(blocks(draw, (), schedule.steps, chunks, room))
    gather = [1e3 / room * seconds(lambda b=b: gathered((features, labels), b)) for b in made]  # type: ignore[misc]
    model = Model(dataset.numeric.shape[1], EmbeddingTables(encoder.sizes), TOWER)
    reports: list[float] = []
    train(
        mechanism,
        PCTR,
        model,
        features,
        labels,
        schedule,
        Recipe("momentum", 0.1),
        Streams(("scale",), ("noise",)),
        lambda fraction: reports.append(time.perf_counter()),
    )
    step = 1e3 * (reports[-2] - reports[0]) / room / (len(reports) - 2)
    return step, statistics.median(drawn), statistics.median(gather)


def estimate(study: Path, columns: Path) -> float:
    """What the dry run states as the memory of the trial."""
    from dpcompare import estimate as estimates
    from dpcompare.expansion import expand
    from dpcompare.study import load, select

    (trial,) = expand(select(load(str(study)), data_path=columns))
    return estimates.memory(trial)


def run(command: list[Any]) -> int:
    """Run a Python command; the peak of the anonymous memory of all its processes, in bytes."""
    process = psutil.Popen([sys.executable, *map(str, command)], stdout=subprocess.DEVNULL)
    peak = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            peak = max(peak, anonymous_bytes(process))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        code = process.wait()
    finally:
        done.set()
        watcher.join()
    if code:
        sys.exit(f"{' '.join(map(str, command))} ended with {code}")
    return peak


def anonymous_bytes(process: psutil.Process) -> int:
    """Memory of a process and its descendants that no file backs."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.Error:
        return 0
    return sum(map(_anonymous_bytes, family))


def _anonymous_bytes(process: psutil.Process) -> int:
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def seconds(action: Callable[[], object]) -> float:
    """Wall-clock seconds of an action."""
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()})


def tell(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
