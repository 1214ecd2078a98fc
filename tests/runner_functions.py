"""Tiny trials that the runner's tests execute in worker processes, by import path."""

import hashlib
import os
import pkgutil
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = Callable[[float], None]

CORES_AT_IMPORT = sorted(os.sched_getaffinity(0))
PROGRAMS_AT_IMPORT = os.environ.get("JAX_COMPILATION_CACHE_DIR")


def square(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    time.sleep(configuration.get("seconds", 0.0))
    return {"x": configuration["x"], "square": configuration["x"] ** 2}


def wait_or_signal(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """Either wait for a file, at most 20 seconds, or create it."""
    if "creates" in configuration:
        Path(configuration["creates"]).touch()
        return {}
    ends = time.monotonic() + 20
    while not Path(configuration["waits_for"]).exists() and time.monotonic() < ends:
        time.sleep(0.01)
    return {}


def surroundings(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    print("a mechanism prints", flush=True)
    return {
        "pid": os.getpid(),
        "cores": sorted(os.sched_getaffinity(0)),
        "cores_at_import": CORES_AT_IMPORT,
        "programs_at_import": PROGRAMS_AT_IMPORT,
        "openmp": os.environ["OMP_NUM_THREADS"],
        "heavy": "numpy" in sys.modules or "jax" in sys.modules,
    }


def weight_gradient(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """A product that XLA rounds differently on one core and on two."""
    import jax  # the other functions need neither, and it takes a second
    import numpy as np

    rng = np.random.default_rng(configuration["seed"])
    inputs = rng.normal(size=(4096, 247)).astype(np.float32)
    gradients = rng.normal(size=(4096, 128)).astype(np.float32)
    product = jax.jit(lambda x, g: x.T @ g)(inputs, gradients)
    return {"digest": hashlib.sha256(product.tobytes()).hexdigest()}


def with_cache_counts(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """Call the function that is named, and count the compiled programs read and written."""
    import jax

    counts = {"cache_hits": 0, "cache_misses": 0}

    def count(event: str, **details: Any) -> None:
        name = event.rpartition("/")[2]
        if name in counts:
            counts[name] += 1

    jax.monitoring.register_event_listener(count)
    function = pkgutil.resolve_name(configuration["function"])
    return {"result": function(configuration["configuration"], report), **counts}


def end_badly(configuration: dict[str, Any], report: Report) -> Any:
    match configuration["how"]:
        case "raise":
            raise ValueError("no such thing")
        case "exit":
            os._exit(7)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "segfault":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "unpicklable":
            return {"function": lambda: None}
    return {"pid": os.getpid(), "how": configuration["how"]}


def die_at_random(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    if random.Random(configuration["seed"]).random() < 0.25:
        os._exit(3)
    return {"seed": configuration["seed"]}


def report_often(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    calls = 0
    started = time.monotonic()
    while time.monotonic() - started < 1.0:
        report(min(1.0, time.monotonic() - started))
        calls += 1
        time.sleep(0.001)
    return {"calls": calls}


def stubborn(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """Busy for a minute, and ends neither on Ctrl-C nor on SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    report(0.0)
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        sum(range(1000))
    return {}


def made_up(configuration: dict[str, Any], report: Report) -> dict[str, Any]:
    """A record that depends on the configuration alone, after a while."""
    from dpcompare.results import FIELDS, FORMAT

    name = configuration["name"]
    bits = hashlib.sha256(name.encode()).digest()
    time.sleep(0.01 + bits[0] / 255 * 0.1)
    report(0.5)
    scores = {"auc": bits[1] / 255, "log_loss": bits[2] / 7}
    made = {
        "format": FORMAT,
        "id": name,
        "status": "done",
        "test": scores,
        "notes": ["x" * bits[3]],
    }
    return dict.fromkeys(FIELDS) | made
