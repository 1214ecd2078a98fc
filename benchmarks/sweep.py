"""Trials per minute of a study: pinned workers, one unpinned process, recompiling for each trial.

Every variant runs the same DP-SGD trials of the study `quickstart`, in turn within one run. A
warm-up trial for each worker loads the data, calibrates and compiles; the clock starts when all of
them are done. The variant that recompiles drops what JAX has compiled before each trial, and runs
fewer trials. With --quick trials have a seventh of the epochs.

    python benchmarks/sweep.py --repetitions 5 --output benchmarks/results/sweep.csv
"""

import argparse
import csv
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

EPOCHS, QUICK_EPOCHS = 20, 3


class Variant(NamedTuple):
    """One way to run a study.

    Attributes:
        name: how it is printed.
        function: the trial function in this file.
        workers: how many processes.
        share: which part of the trials is run.
    """

    name: str
    function: str
    workers: int
    share: float = 1.0


VARIANTS = (
    Variant("2 pinned workers", "pinned", 2),
    Variant("1 pinned worker", "pinned", 1),
    Variant("1 unpinned process", "unpinned", 1),
    Variant("1 pinned worker, recompiling", "recompiling", 1, 0.25),
)
RATIOS = ((0, 1), (0, 2), (1, 2), (1, 3))
"""Which variants are divided by which."""


def pinned(configuration: dict[str, Any], report: Any) -> dict[str, Any]:
    """A trial in a worker as it is."""
    from dpcompare.trial import run_trial

    return run_trial(configuration, report)  # type: ignore[arg-type]


def unpinned(configuration: dict[str, Any], report: Any) -> dict[str, Any]:
    """A trial in a worker that has all cores, before JAX is imported and starts its threads."""
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"  # it holds programs for one core
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return pinned(configuration, report)


def recompiling(configuration: dict[str, Any], report: Any) -> dict[str, Any]:
    """A trial in a worker that keeps nothing compiled, neither in memory nor on disk."""
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    import jax

    jax.clear_caches()
    return pinned(configuration, report)


def main() -> None:
    """Parse the arguments, measure, print, and write the table if wanted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=16, help="timed trials of a variant")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="shorter trials")
    parser.add_argument("--output", type=Path, help="CSV file for every repetition")
    arguments = parser.parse_args()
    epochs = QUICK_EPOCHS if arguments.quick else EPOCHS
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["DPCOMPARE_CACHE"] = cache
        for repetition in range(arguments.repetitions):
            for variant in VARIANTS:
                row = measure(variant, arguments.trials, epochs)
                rows.append({"repetition": repetition, **row})
    show(rows, epochs)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        with arguments.output.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


def configurations(trials: int, epochs: int) -> list[Any]:
    """DP-SGD trials of equal length: epsilon 1 of quickstart, one seed each."""
    from dpcompare import study
    from dpcompare.expansion import expand

    quickstart = study.load("quickstart")
    chosen = study.select(quickstart, seeds=trials, epsilons=["1"], mechanisms=["dp-sgd"])
    made = expand(chosen)
    for configuration in made:
        configuration["training"]["epochs"] = epochs
    return made


def measure(variant: Variant, trials: int, epochs: int) -> dict[str, Any]:
    """Run a variant once; a failed trial ends the benchmark."""
    from dpcompare.runner import LocalExecutor, WorkerFailure

    timed = max(1, round(trials * variant.share))
    executor = LocalExecutor(variant.workers)
    function = f"sweep:{variant.function}"
    starts = ends = 0.0
    results = executor.map(function, configurations(variant.workers + timed, epochs))
    for count, (_, result) in enumerate(results, start=1):
        if isinstance(result, WorkerFailure):
            raise SystemExit(f"{variant.name}: {result.reason}\n{result.traceback}")
        ends = time.perf_counter()
        if count == variant.workers:
            starts = ends
    seconds = ends - starts
    return {
        "variant": variant.name,
        "workers": variant.workers,
        "epochs": epochs,
        "trials": timed,
        "seconds": round(seconds, 3),
        "trials_per_minute": round(60 * timed / seconds, 2),
    }


def show(rows: list[dict[str, Any]], epochs: int) -> None:
    """Median, smallest and largest of each variant, and of ratios within a repetition."""
    rates = {
        variant.name: [r["trials_per_minute"] for r in rows if r["variant"] == variant.name]
        for variant in VARIANTS
    }
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} cores; DP-SGD "
        f"trials of quickstart, {epochs} epochs; load {os.getloadavg()[0]:.1f} at the end"
    )
    for name, values in rates.items():
        print(f"{name:<60} {_spread(values)} trials/min")
    for above, below in RATIOS:
        names = VARIANTS[above].name, VARIANTS[below].name
        ratios = [a / b for a, b in zip(rates[names[0]], rates[names[1]], strict=True)]
        print(f"{' / '.join(names):<60} {_spread(ratios)}")


def _spread(values: list[float]) -> str:
    middle, low, high = (f(values) for f in (statistics.median, min, max))
    return f"{middle:.2f} (median of {len(values)}; {low:.2f} to {high:.2f})"


if __name__ == "__main__":
    main()
