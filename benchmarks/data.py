"""How fast the synthetic log is made, and how fast raw text is prepared.

Preparation is compared with pyarrow's bare reader, on one thread, on the same file. The ratio is
taken within each repetition, so that a busy machine slows both sides down. (Preparation parses on a
second thread while it converts what was parsed before.)

    python benchmarks/data.py [rows]
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv

from dpcompare.data import load_schema, prepare, synthetic, write_text

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
    made, bare, prepared = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.txt"
        write_text(path, rows)
        megabytes = path.stat().st_size / 1e6
        for repetition in range(REPETITIONS):
            target = Path(folder) / f"prepared-{repetition}"
            made.append(rows_per_second(rows, partial(synthetic, rows)))
            bare.append(rows_per_second(rows, partial(read_bare, path)))
            prepared.append(rows_per_second(rows, partial(prepare, schema, [path], target)))
    print(f"{rows:,} rows, {megabytes:.0f} MB of text, {REPETITIONS} repetitions")
    show("synthetic()", made)
    show("pyarrow's bare reader, all text", bare)
    show("prepare()", prepared)
    ratios = [p / b for p, b in zip(prepared, bare, strict=True)]
    show("prepare() / bare reader", ratios, "")


if __name__ == "__main__":
    main()
