"""Write the synthetic ads log as raw Criteo text, at any size in bounded memory.

The rows are those of `dpcompare.data.synthetic(rows, seed)`: click label, 13 integers and 26
categories of eight hex digits, separated by TABs, missing fields empty, no header; about 242 bytes
each. Preparing the file gives the columns of the synthetic log bit for bit, so it tests
preparation at full size: 40 million rows are 10 GB and about as many as Criteo's train.txt holds.

    python benchmarks/criteo_text.py rows file [seed]
"""

import sys
import time
from pathlib import Path

from dpcompare.data import write_text


def main() -> None:
    """Write the file and print how fast it was."""
    rows, path = int(sys.argv[1]), Path(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    start = time.perf_counter()
    write_text(path, rows, seed)
    seconds = time.perf_counter() - start
    size = path.stat().st_size / 1e9
    print(f"{rows:,} rows, {size:.2f} GB in {seconds:.0f} s: {rows / seconds:,.0f} rows/s")


if __name__ == "__main__":
    main()
