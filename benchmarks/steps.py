"""How fast are training steps, ours beside references and peers, as ratios within one run?

Every variant of a cell (model, width, batch) lives in a process of its own on one shared core. When
all have compiled, they step in turn, repetition by repetition, so that whatever slows the machine
slows all of them. A variant that cannot take part is left out, with the reason.

    python benchmarks/steps.py
    python benchmarks/steps.py --cells small/598/4096 --variants ours_lazy non_private_dense
"""

import argparse
import csv
import json
import math
import os
import platform
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from children import Child, ChildFailed
from ratios import COLUMNS as RATIO_COLUMNS
from ratios import Measured, ratios, spread
from registry import HERE, NAMES, PEERS_PYTHON, family_of, own_cell
from workload import Cell

CELLS = [
    f"{model}/{width}/{batch}"
    for model, width in (("large", 598), ("small", 598), ("small", 128))
    for batch in (1024, 4096, 16384)
]
START_LIMIT = 600.0  # seconds to import, compile and make one step
STEP_LIMIT = 60.0  # seconds of a single step
SLOW_STEP = 3.0  # seconds; slower variants take part in fewer repetitions
MEMORY_RESERVE = 2.5e9  # bytes that must be free before another child is started
COLUMNS = (
    "variant",
    "model",
    "width",
    "batch",
    "examples_per_second_median",
    "examples_per_second_min",
    "examples_per_second_max",
    "repetitions",
    "temp_bytes",
    "peak_rss",
)


def main() -> None:
    """Parse the arguments, measure every cell, write after each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cells", nargs="+", type=Cell.parse, metavar="MODEL/WIDTH/BATCH")
    parser.add_argument("--variants", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one repetition, about")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--peers-python", type=Path, default=PEERS_PYTHON)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    options = parser.parse_args()
    # So that an ended harness ends its children like an interrupted one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    ratio_rows: list[dict[str, Any]] = []
    libraries: dict[str, dict[str, str]] = {}
    for cell in options.cells or [Cell.parse(text) for text in CELLS]:
        measured = measure(cell, options, libraries)
        rows += [row_of(name, found) for name, found in measured.items()]
        ratio_rows += ratios(measured)
        write(options.out / "steps.csv", COLUMNS, rows)
        write(options.out / "ratios.csv", RATIO_COLUMNS, ratio_rows)
        (options.out / "machine.json").write_text(json.dumps(machine(libraries), indent=2) + "\n")
        show(cell, measured)
    if not rows:
        sys.exit("no variant could be measured")


def measure(
    cell: Cell, options: argparse.Namespace, libraries: dict[str, dict[str, str]]
) -> dict[str, Measured]:
    """Start the variants of a cell and let them step in turn."""
    measured: dict[str, Measured] = {}
    with ExitStack() as stack:
        running: list[tuple[Child, Plan]] = []
        for name in options.variants:
            own = own_cell(name, cell)
            begun = time.monotonic()
            try:
                free = psutil.virtual_memory().available
                if free < MEMORY_RESERVE:
                    raise ChildFailed(f"only {free / 1e9:.1f} GB of memory are free")
                child = stack.enter_context(Child(name, own, options.core, options.peers_python))
                ready = child.answer(START_LIMIT)
                seconds = step(child, 0, 1)["seconds"]
            except ChildFailed as reason:
                skip(name, cell, reason)
                continue
            took = time.monotonic() - begun
            tell(f"{name} in {own}: ready after {took:.0f} s, {seconds:.3g} s per step")
            environment = "peers" if family_of(name).peers else "main"
            libraries.setdefault(environment, {}).update(ready["versions"])
            measured[name] = Measured(own, ready["temp_bytes"], {})
            running.append((child, Plan.of(seconds, options.seconds)))
        for repetition in range(options.repetitions):
            for child, plan in list(running):
                if repetition % plan.stride:
                    continue
                try:
                    said = step(child, plan.untimed, plan.timed)
                except ChildFailed as reason:
                    skip(child.name, cell, reason)
                    running.remove((child, plan))
                    continue
                measured[child.name].seconds[repetition] = said["seconds"]
                measured[child.name].peak_rss = said["peak_rss"]
    return {name: found for name, found in measured.items() if found.seconds}


class Plan:
    """How much of a variant is measured: steps per repetition, and every which repetition."""

    def __init__(self, untimed: int, timed: int, stride: int) -> None:
        self.untimed, self.timed, self.stride = untimed, timed, stride

    @classmethod
    def of(cls, seconds: float, wanted: float) -> "Plan":
        """For a variant whose step takes so many seconds.

        The first step after other variants pays for a cold cache, so quick ones make it untimed.
        """
        if seconds > SLOW_STEP:
            return cls(0, 1, math.ceil(seconds / SLOW_STEP))
        return cls(1, max(1, round(wanted / seconds)), 1)


def step(child: Child, untimed: int, timed: int) -> dict[str, Any]:
    """Let a child step; its answer."""
    child.ask(untimed=untimed, timed=timed)
    return child.answer(STEP_LIMIT * (untimed + timed))


def skip(name: str, cell: Cell, reason: Exception) -> None:
    """Say that a variant is left out."""
    tell(f"LEFT OUT: {name} in {cell}: {reason}")


def tell(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def row_of(name: str, found: Measured) -> dict[str, Any]:
    """One row of steps.csv."""
    values = (
        name,
        found.cell.model,
        found.cell.width,
        found.cell.batch,
        *spread(found.speeds),
        len(found.seconds),
        found.temp_bytes,
        found.peak_rss,
    )
    return dict(zip(COLUMNS, values, strict=True))


def write(path: Path, columns: Iterable[str], rows: list[dict[str, Any]]) -> None:
    """Write a CSV file; numbers with six digits, nothing for None."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def machine(libraries: dict[str, dict[str, str]]) -> dict[str, Any]:
    """What was measured on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": platform.system(),
        "python": platform.python_version(),
        "libraries": libraries,
    }


def show(cell: Cell, measured: dict[str, Measured]) -> None:
    """The cell's tables on the terminal."""
    print(f"\n{cell}: examples/s, one core")
    print(
        f"{'variant':30}{'batch':>7}{'median':>10}{'min':>10}{'max':>10}{'n':>4}{'temp':>9}{'peak':>9}"
    )
    for name, found in measured.items():
        speeds = "".join(f"{value:10,.0f}" for value in spread(found.speeds))
        memory = f"{megabytes(found.temp_bytes):>9}{megabytes(found.peak_rss):>9}"
        print(f"{name:30}{found.cell.batch:7}{speeds}{len(found.seconds):4}{memory}")
    for row in ratios(measured):
        pair = f"{row['numerator']} / {row['denominator']}"
        values = "".join(f"{row[f'ratio_{which}']:10.3f}" for which in ("median", "min", "max"))
        required = row["required_minimum"]
        mark = "" if required is None else f"  required {required:g}"
        missed = "  MISSED" if required is not None and row["ratio_median"] < required else ""
        print(f"{pair:57}{values}{row['repetitions']:4}{mark}{missed}")
    sys.stdout.flush()


def megabytes(value: int | None) -> str:
    """For the terminal."""
    return "" if value is None else f"{value / 1e6:,.0f}MB"


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
