"""One study on local workers and on a Ray cluster of its own: the same records, and how long.

python benchmarks/ray_study.py [STUDY [OPTIONS OF run-study ...]]
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

EXECUTORS = (("--workers", "1"), ("--workers", "2"), ("--executor", "ray", "--workers", "2"))


def main() -> None:
    """Run the study three times and compare."""
    study = sys.argv[1:] or ["quickstart", "--epsilons", "1,5", "--seeds", "1"]
    found: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, options in enumerate(EXECUTORS):
            out = Path(folder) / str(number)
            begun = time.perf_counter()
            command = [sys.executable, "-m", "dpcompare", "run-study", *study, *options]
            subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
            name = " ".join(options)
            found[name] = records(out / "trials.jsonl")
            print(f"{name:32}{len(found[name]):4} trials in {time.perf_counter() - begun:6.1f} s")
    first, *others = found.values()
    if any(other != first for other in others):
        sys.exit("The records differ.")
    print("The records are equal, apart from timings.")


def records(path: Path) -> list[dict[str, Any]]:
    """The records by identity, without what may differ."""
    made = [json.loads(line) | {"timings": None} for line in path.read_text().splitlines()]
    return sorted(made, key=lambda record: str(record["id"]))


if __name__ == "__main__":
    main()
