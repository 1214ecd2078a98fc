"""How fast the synthetic log is made, and how fast raw text is prepared.

Preparation, on all cores that the process may use, is compared with pyarrow's bare reader, on one
thread, on the same file: once read in its own blocks, which is the faster way, and once parsed in
the blocks of preparation. The ratio is taken within each repetition, so that a busy machine slows
both sides down, though not equally: preparation wants more cores. Memory is the largest resident
set of a process that prepares the file and does nothing else.

    python benchmarks/data.py [rows]
    taskset -c 0,1 python benchmarks/data.py 2000000
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from dpcompare.data import load_schema, prepare, synthetic, write_text
from dpcompare.data.sources import Notes
from dpcompare.data.text_source import read_text
from dpcompare.runner import usable_cores

REPETITIONS = 5


def read_bare(path: Path) -> None:
    """Read every field as text with pyarrow, in bounded memory, on one thread."""
    names = [column.name for column in load_schema("criteo-kaggle").columns]
    reader = pyarrow.csv.open_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=names),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, ignore_empty_lines=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    for _ in reader:
        pass


def parse_blocks(path: Path) -> None:
    """Parse the blocks that preparation cuts, one after the other, and throw them away."""
    for piece in read_text(path, load_schema("criteo-kaggle"), False, False, Notes()):
        piece.batch()


def megabytes_to_prepare(path: Path, target: Path) -> float:
    """The largest resident set of a process that prepares the file, in MB."""
    code = (
        "import sys; from pathlib import Path; from dpcompare.data import prepare; "
        "prepare('criteo-kaggle', [Path(sys.argv[1])], Path(sys.argv[2])); "
        "print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])"
    )
    command = [sys.executable, "-c", code, str(path), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) * 1024 / 1e6


def rows_per_second(rows: int, action: Callable[[], object]) -> float:
    """Rows divided by the wall-clock seconds that the action takes."""
    start = time.perf_counter()
    action()
    return rows / (time.perf_counter() - start)


def show(name: str, values: list[float], unit: str = "rows/s") -> None:
    """Print median, minimum and maximum."""
    low, middle, high = min(values), statistics.median(values), max(values)
    form = ",.0f" if middle > 10 else ".2f"
    print(f"{name:34} median {middle:{form}}  min {low:{form}}  max {high:{form}} {unit}")


def main() -> None:
    """Run all measurements and print them."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    schema = load_schema("criteo-kaggle")
    synthetic(1)  # the tables of the log are built once per process
    made, bare, parsed, prepared = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        write_text(path, rows)
        megabytes = path.stat().st_size / 1e6
        for repetition in range(REPETITIONS):
            target = Path(folder) / f"prepared-{repetition}"
            made.append(rows_per_second(rows, partial(synthetic, rows)))
            bare.append(rows_per_second(rows, partial(read_bare, path)))
            parsed.append(rows_per_second(rows, partial(parse_blocks, path)))
            prepared.append(rows_per_second(rows, partial(prepare, schema, [path], target)))
            shutil.rmtree(target)
        memory = megabytes_to_prepare(path, Path(folder) / "prepared")
    print(f"{rows:,} rows, {megabytes:.0f} MB of text, {REPETITIONS} repetitions")
    show("synthetic()", made)
    show("pyarrow's bare reader, all text", bare)
    show("parsing the blocks of prepare()", parsed)
    show(f"prepare() on {len(usable_cores())} cores", prepared)
    for name, readers in (("bare reader", bare), ("parsing", parsed)):
        ratios = [p / r for p, r in zip(prepared, readers, strict=True)]
        show(f"prepare() / {name}", ratios, "")
    print(f"memory of prepare(): {memory:.0f} MB")


if __name__ == "__main__":
    main()
