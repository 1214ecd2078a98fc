"""How long a calibration of DP-SGD's noise takes, and how much noise it leaves unneeded.

Every configuration is calibrated with an empty cache in a temporary folder (seconds), and again
from that cache (milliseconds). Unneeded noise is stated against the estimate by contour integral
of ``dpcompare.saddle_point``, which is not a bound but good to about six digits over many steps.
One calibration beforehand, which is not measured, imports and warms everything up.

    python benchmarks/calibration.py [--repetitions 3] [--output benchmarks/results/calibration.csv]
"""

import argparse
import csv
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from dpcompare.accounting import directions
from dpcompare.calibration import noise_multiplier
from dpcompare.privacy import Budget, Schedule, default_delta
from dpcompare.saddle_point import estimated_noise

EPSILONS = (0.1, 0.25, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 50.0)


class Case(NamedTuple):
    """A schedule by its rows, expected batch and epochs, and what it may spend."""

    rows: int
    batch_size: int
    epochs: int
    delta: float
    epsilon: float


class Row(NamedTuple):
    """A case and its medians over the repetitions."""

    rows: int
    batch_size: int
    epochs: int
    delta: float
    epsilon: float
    steps: int
    noise_multiplier: float
    estimate: float
    over_noise_percent: float
    cold_seconds: float
    cached_milliseconds: float


def cases() -> list[Case]:
    """The quickstart's schedule, the paper's, and ones of millions of steps."""
    listed = [Case(100_000, 4096, 20, default_delta(100_000), e) for e in EPSILONS]
    listed += [Case(32_000_000, 65_536, 150, 1 / 32_000_000, e) for e in EPSILONS]
    listed += [Case(32_000_000, 1024, 150, 1 / 32_000_000, e) for e in (0.1, 0.5, 3.0, 50.0)]
    return [*listed, *(Case(100_000_000, 1024, 150, 1e-8, e) for e in (0.1, 0.5, 10.0))]


def measured(case: Case, repetitions: int) -> Row:
    """Calibrate one case `repetitions` times, each with an own empty cache."""
    schedule = Schedule.from_epochs(case.rows, case.batch_size, case.epochs, "poisson")
    budget = Budget(case.epsilon, case.delta)
    probability = schedule.sampling_probability()
    cold, cached, sigma = [], [], 0.0
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["DPCOMPARE_CACHE"] = folder
            start = time.perf_counter()
            sigma = noise_multiplier(budget, schedule)
            middle = time.perf_counter()
            noise_multiplier(budget, schedule)
            cold.append(middle - start)
            cached.append(1e3 * (time.perf_counter() - middle))
    estimate = estimated_noise(
        case.epsilon,
        case.delta,
        probability,
        schedule.steps,
        directions("zero-out", probability),
    )
    over = 100 * (sigma / estimate - 1)
    seconds, milliseconds = statistics.median(cold), statistics.median(cached)
    return Row(*case, schedule.steps, sigma, estimate, over, seconds, milliseconds)


def main() -> None:
    """Run all cases, print a table, and write it where that is asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--output", type=Path, help="a CSV file")
    arguments = parser.parse_args()
    measured(Case(1000, 100, 1, 1e-5, 1.0), 1)
    print("       rows   batch epochs      steps epsilon      noise over-noise  cold s  cached ms")
    table = []
    for case in cases():
        row = measured(case, arguments.repetitions)
        table.append(row)
        print(
            f"{row.rows:11,} {row.batch_size:7,} {row.epochs:6} {row.steps:10,} {row.epsilon:7g} "
            f"{row.noise_multiplier:10.5f} {row.over_noise_percent:8.3f} % "
            f"{row.cold_seconds:7.2f} {row.cached_milliseconds:10.2f}",
            flush=True,
        )
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        with arguments.output.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(Row._fields)
            writer.writerows(table)


if __name__ == "__main__":
    main()
