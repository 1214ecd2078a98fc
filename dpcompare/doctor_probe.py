"""The part of the doctor that loads JAX and plug-ins, in a process of its own.

It prints one finding a line, as JSON, as soon as it has it: a crash of a library keeps those that
came before.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from dpcompare.doctor import Finding
from dpcompare.privacy import Budget, Schedule

EPSILON, DELTA = 1.0, 1e-5
SUBSAMPLED = 0.95910
"""The multiplier of 1,000 steps at sampling rate .01 for epsilon 2 and delta 1e-5.

Found with the PLD accountant of dp-accounting 0.6.0 at a discretization of 1e-5.
"""
STUDY = """
task = "pctr"
epsilons = [1]
seeds = 1
[data]
rows = 1000
[model]
buckets = 20
tower = [4]
[training]
batch_size = 100
epochs = 1
[[mechanisms]]
name = "dp-sgd"
"""


def main(scratch: str) -> None:
    """Print the findings of all probes; what fails in one of them is a problem in its name.

    Args:
        scratch: an empty folder to write in.
    """
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no finding
    folder = Path(scratch)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leave a GPU to those at work
    probes: dict[str, Callable[[], Iterator[Finding]]] = {
        "JAX": _jax,
        "mechanisms": _plugins,
        "noise of one release": lambda: _one_release(folder),
        "noise of many steps": lambda: _many_steps(folder),
        "a tiny trial": lambda: _trial(folder),
    }
    for name, probe in probes.items():
        try:
            for finding in probe():
                print(json.dumps(asdict(finding)), file=results, flush=True)
        except Exception as error:
            failed = Finding("self-test", name, f"{type(error).__name__}: {error}", "problem")
            print(json.dumps(asdict(failed)), file=results, flush=True)


def _jax() -> Iterator[Finding]:
    from dpcompare.compilation import use_cache

    use_cache()
    import jax
    from threadpoolctl import threadpool_info

    devices = jax.devices()
    kinds = ", ".join(dict.fromkeys(device.device_kind for device in devices))
    yield Finding("JAX", "devices", f"{len(devices)} ({jax.default_backend()}: {kinds})")
    if jax.numpy.zeros(()).dtype.itemsize == 8:
        advice = "on: records will differ from those of others; unset JAX_ENABLE_X64"
        yield Finding("JAX", "64 bits", advice, "warning")
    else:
        yield Finding("JAX", "64 bits", "off")
    import numpy  # noqa: F401  # its library tells its threads

    pools = {f"{pool['internal_api']} {pool['num_threads']}" for pool in threadpool_info()}
    yield Finding("JAX", "threads", ", ".join(sorted(pools)) or "unknown")
    cache = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    yield Finding("JAX", "compiled programs", cache or "are not kept on this machine")


def _plugins() -> Iterator[Finding]:
    from dpcompare import catalog
    from dpcompare.errors import UsageError
    from dpcompare.mechanism import find

    try:
        points = catalog.mechanisms()
    except UsageError:  # the doctor tells it
        return
    for name, point in points.items():
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown package"
        try:
            find(name)
        except (Exception, SystemExit) as error:
            reason = f"{package}, {point.value} does not load: {type(error).__name__}: {error}"
            yield Finding("mechanisms", name, reason, "problem")
        else:
            yield Finding("mechanisms", name, package)


def _one_release(folder: Path) -> Iterator[Finding]:
    """The noise of one Gaussian release, against the closed form.

    Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy" (2018), Theorem 8:
    delta = Phi(1 / (2 sigma) - epsilon sigma) - exp(epsilon) Phi(-1 / (2 sigma) - epsilon sigma).
    """
    from scipy import optimize
    from scipy.stats import norm

    def excess(sigma: float) -> float:
        half, shift = 1 / (2 * sigma), EPSILON * sigma
        return norm.cdf(half - shift) - math.exp(EPSILON) * norm.cdf(-half - shift) - DELTA

    known = optimize.brentq(excess, 1, 10, xtol=1e-12)
    budget = Budget(EPSILON, DELTA, "zero-out", "pld")
    found = _calibrated(budget, Schedule(100, 100, 1, "poisson"), folder)
    yield _compared("noise of one release", found, known)


def _many_steps(folder: Path) -> Iterator[Finding]:
    schedule = Schedule(10_000, 100, 1000, "poisson")
    found = _calibrated(Budget(2.0, DELTA, "zero-out", "pld"), schedule, folder)
    yield _compared("noise of many steps", found, SUBSAMPLED)


def _calibrated(budget: Budget, schedule: Schedule, folder: Path) -> float:
    """The noise multiplier, computed anew: what was remembered may be of better days."""
    from dpcompare import calibration

    before = os.environ.get("DPCOMPARE_CACHE")
    os.environ["DPCOMPARE_CACHE"] = str(folder / "cache")
    try:
        return calibration.noise_multiplier(budget, schedule)
    finally:
        del os.environ["DPCOMPARE_CACHE"]
        if before is not None:
            os.environ["DPCOMPARE_CACHE"] = before


def _compared(name: str, found: float, known: float) -> Finding:
    """Noise may be a little more than is needed, and not less."""
    words = f"multiplier {found:.5g}, known value {known:.5g}"
    right = -1e-4 < found / known - 1 < 1e-3
    return Finding("self-test", name, words, "ok" if right else "problem")


def _trial(folder: Path) -> Iterator[Finding]:
    from dpcompare import expansion, study
    from dpcompare.trial import run_trial

    path = folder / "doctor.toml"
    path.write_text(STUDY)
    start = time.perf_counter()
    (configuration,) = expansion.expand(study.load(str(path)))
    record = run_trial(configuration, lambda fraction: None)
    seconds = time.perf_counter() - start
    loss, claim = record["test"]["log_loss"], record["guarantee"]
    words = f"dp-sgd, log loss {loss:.3f}, epsilon {claim['epsilon']:.4f}, {seconds:.1f} s"
    right = math.isfinite(loss) and 0 < claim["epsilon"] <= 1
    yield Finding("self-test", "a tiny trial", words, "ok" if right else "problem")
