"""One variant of one cell in a process of its own, asked for steps by `steps.py`.

    python benchmarks/child.py two_pass_ghost small/128/1024 0

Answers on standard output, one JSON object a line: first {"ready": ...} or {"failed": ...}, then
{"seconds": ...} for every request {"untimed": steps, "timed": steps} on standard input. It ends
when its input does, so it never outlives who started it.
"""

import ctypes
import json
import os
import resource
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

LIBRARIES = ("numpy", "jax", "jaxlib", "flax", "jax_privacy", "torch", "opacus")


def main() -> None:
    """Prepare the variant, then serve requests."""
    name, cell, core = sys.argv[1:]
    # Before anything is imported: libraries size their thread pools by the cores they may use.
    os.sched_setaffinity(0, {int(core)})
    # Whatever a library prints must not disturb the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        serve(name, cell, answers)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        say(answers, failed=f"{type(error).__name__}: {lines[0]}")


def serve(name: str, cell: str, answers: TextIO) -> None:
    """Start the variant and time steps until there are no more requests."""
    from registry import load
    from workload import Cell

    variant = load(name)(Cell.parse(cell))
    variant.start()
    forget_peak()
    versions = {library: found for library in LIBRARIES if (found := version_of(library))}
    say(answers, ready=True, temp_bytes=variant.temp_bytes(), versions=versions)
    for line in sys.stdin:
        request = json.loads(line)
        variant.run(request["untimed"])
        start = time.perf_counter()
        variant.run(request["timed"])
        seconds = (time.perf_counter() - start) / request["timed"]
        say(answers, seconds=seconds, peak_rss=peak_rss())


def say(answers: TextIO, **content: Any) -> None:
    """Write one line."""
    answers.write(json.dumps(content) + "\n")


def version_of(library: str) -> str | None:
    """The version of a library that was imported, else None."""
    if library not in sys.modules:
        return None
    try:
        return version(library)
    except PackageNotFoundError:
        return None


def forget_peak() -> None:
    """Count the peak from here on, so that it is the step's and not the compiler's."""
    try:
        # The compiler's memory is free, but the allocator keeps it.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak memory includes that of compilation", file=sys.stderr)


def peak_rss() -> int:
    """Largest resident memory in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
