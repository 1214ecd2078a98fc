"""The step table of `benchmarks/steps.py` for a GPU, within five minutes.

The variants are the same programs as on a CPU; peers are left out. What is not reached in the time
is named. Install jax for the accelerator first, for example with pip install 'jax[cuda13]'.

    python benchmarks/gpu.py
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from registry import HERE

SECONDS = 285
CELLS = (
    "small/128/4096",
    "large/598/4096",
    "large/598/16384",
    "small/598/16384",
    "small/598/4096",
    "small/128/16384",
)
VARIANTS = (
    "non_private_dense",
    "non_private_sparse",
    "two_pass_ghost",
    "ours_eager",
    "ours_lazy",
    "ours_lazy_momentum",
)
# Each variant is a process of its own, and none may take the whole memory of the GPU.
SHARED = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def main() -> None:
    """Find the GPU, measure, and say what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "results" / "gpu")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="after which it stops")
    parser.add_argument("--any-device", action="store_true", help="try the script without a GPU")
    options = parser.parse_args()
    device = device_kind()
    if device["platform"] != "gpu" and not options.any_device:
        sys.exit(
            f"JAX finds no GPU here, only {device['kind']}. Install jax for the accelerator, for "
            "example with pip install 'jax[cuda13]', and look at: python -c 'import jax; "
            "print(jax.devices())'"
        )
    print(f"{device['count']} x {device['kind']}; one of them is measured", flush=True)
    command = [sys.executable, str(HERE / "steps.py"), "--out", str(options.out)]
    command += ["--repetitions", "5", "--seconds", "0.2"]
    command += ["--cells", *CELLS, "--variants", *VARIANTS]
    steps = subprocess.Popen(command, env=os.environ | SHARED)
    try:
        code = steps.wait(options.seconds)
    except subprocess.TimeoutExpired:
        steps.terminate()
        code = steps.wait()
    note(options.out / "machine.json", device)
    found = measured(options.out / "steps.csv")
    missing = [f"{v} in {c}" for c in CELLS for v in VARIANTS if (c, v) not in found]
    if missing:
        print(f"Not measured within {options.seconds} s: {', '.join(missing)}")
    sys.exit(0 if code in (0, 143) else code)


def device_kind() -> dict[str, str | int]:
    """What JAX runs on, asked in a process of its own: this one must not hold the GPU."""
    code = (
        "import jax, json; d = jax.devices(); "
        "print(json.dumps({'platform': d[0].platform, 'kind': d[0].device_kind, 'count': len(d)}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    device: dict[str, str | int] = json.loads(found.stdout.splitlines()[-1])
    return device


def note(path: Path, device: dict[str, str | int]) -> None:
    """Add the device to the description of the machine."""
    if path.exists():
        described = json.loads(path.read_text()) | {"device": device}
        path.write_text(json.dumps(described, indent=2) + "\n")


def measured(path: Path) -> set[tuple[str, str]]:
    """The cells and variants that have rows."""
    if not path.exists():
        return set()
    lines = [line.split(",") for line in path.read_text().splitlines()[1:]]
    return {("/".join(line[1:4]), line[0]) for line in lines}


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
