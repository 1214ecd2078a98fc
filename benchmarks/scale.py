"""How cost grows with the log: preparation, and training from disk, from a million rows on.

For each number of rows: raw text in Criteo's format is written, prepared by the command, and two
trials are trained on it by the command (DP-SGD, and label DP), each alone. Memory is that of all
processes together without the file cache (RssAnon), at its peak. What sampling and gathering take
of a step is measured on the same columns, on one core, as are the steps.

    python benchmarks/scale.py --rows 1000000 10000000 40000000 --folder /large/disk

The text of 40 million rows takes 10 GB, its columns 6.4 GB.
"""

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from registry import HERE

STEPS = 300
BATCHES = (4096, 65_536)
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
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for count in options.rows:
        place = options.folder / f"scale-{count}"
        place.mkdir(parents=True)
        try:
            prepared = measure_preparation(count, place)
            for trial, batch in (
                ("dp-sgd", BATCHES[0]),
                ("dp-sgd", BATCHES[1]),
                ("randomized-response", BATCHES[0]),
            ):
                steps = options.steps if batch == BATCHES[0] else max(1, options.steps // 10)
                found = measure_trial(place, trial, batch, steps)
                rows.append({**prepared, "trial": trial, "batch": batch, **found})
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
        f'title = "At scale"\ntask = "pctr"\nepsilons = [1]\nseeds = 1\n[data]\nsource = "--data"\n'
        "[model]\nbuckets = 10000\ntower = [128, 128]\n"
        f"[training]\nbatch_size = {batch}\nsteps = {steps}\nlearning_rate = 0.1\n"
        f'[[mechanisms]]\nname = "{mechanism}"\n'
    )
    out = place / f"results-{mechanism}-{batch}"
    command = ["-m", "dpcompare", "run-study", study, "--data", place / "columns"]
    stated = estimate(study, place / "columns")
    peak = run([*command, "--workers", "1", "--out", out])
    record = json.loads((out / "trials.jsonl").read_text().splitlines()[-1])
    assert record["status"] == "done", record["error"]
    draw, gather = batch_costs(place / "columns", mechanism, batch)
    # The first block compiles; two trials of different length would be the alternative.
    step = 1e3 * record["timings"]["train"] / record["schedule"]["steps"]
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


def batch_costs(columns: Path, mechanism: str, batch: int) -> tuple[float, float]:
    """Milliseconds a step takes to draw its rows, and to gather them."""
    import numpy as np

    from dpcompare import data
    from dpcompare.batches import blocks, chunks_of, gathered, row_bytes
    from dpcompare.data.sampling import batch_draw
    from dpcompare.privacy import Sampling, Schedule

    dataset = data.load_prepared(columns)
    part = dataset.parts("pctr")[0]
    features = data.encode(dataset, part, data.HashBuckets.for_columns(10_000, dataset))
    examples = part.stop - part.start
    tree = (features, np.zeros(examples, np.float32))
    sampling: Sampling = "poisson" if mechanism == "dp-sgd" else "shuffle"
    schedule = Schedule(examples, batch, 40, sampling)
    draw = batch_draw(schedule, 1, "scale")
    chunks = chunks_of(schedule, 1)
    drawn = [1e3 * seconds(lambda s=s: draw(s)) for s in range(2, 22)]  # type: ignore[misc]
    made = list(blocks(draw, (), 20, chunks, chunks.steps_of_block(row_bytes(tree))))
    gather = sum(seconds(lambda b=b: gathered(tree, b)) for b in made)  # type: ignore[misc]
    return statistics.median(drawn), 1e3 * gather / 20


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
