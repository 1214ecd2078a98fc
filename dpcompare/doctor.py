"""Is this machine fit for dpcompare? What a bug report needs, without names of people in it.

Whatever loads JAX or a plug-in runs in :mod:`dpcompare.doctor_probe`, a process of its own: one
that breaks there is a finding, and the rest is still told.
"""

import contextlib
import getpass
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import psutil
from packaging.requirements import Requirement

from dpcompare import catalog, compilation, memory, runner
from dpcompare.errors import UsageError

STATUSES = ("ok", "warning", "problem")
"""From good to bad; a warning costs speed or convenience, a problem makes results fail or wrong."""

EXTRAS = {
    "ray": "only --executor ray needs it: pip install 'dpcompare[ray]'",
    "jax-privacy": "only some tests compare with it",
}
"""Optional packages, and what says that they are not needed."""

VARIABLES = re.compile(
    r"(DPCOMPARE|JAX|XLA|NCCL|LIBTPU|TPU)_\w+"
    r"|TF_CPP_MIN_LOG_LEVEL|(CUDA|ROCR)_VISIBLE_DEVICES|\w+_NUM_THREADS"
    r"|NO_COLOR|FORCE_COLOR|PYTHON(PATH|HASHSEED|WARNINGS|OPTIMIZE)|RAY_ADDRESS"
)
"""Names of the environment variables that are told."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|ADDRESS", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(?<=://)[^/\s@]+@")
WORKER_MEMORY = 2**30
"""Bytes that a worker on a small model wants; docs/scale.md."""
LITTLE_DISK = 2**30
PROBE_SECONDS = 120


@dataclass(frozen=True)
class Finding:
    """One line of the report.

    Attributes:
        topic: what it is about: versions, machine, disk, plug-ins and so on.
        name: what was looked at.
        value: what was found, in words; free of home folders and user names once in a report.
        status: one of :data:`STATUSES`.
    """

    topic: str
    name: str
    value: str
    status: str = "ok"


def findings() -> Iterator[Finding]:
    """Everything that is looked at, as it is found; takes a few seconds."""
    parts = (_versions, _extras, _machine, _disk, _environment, _plugins, _probed)
    for part in parts:
        for found in part():
            yield Finding(found.topic, found.name, scrubbed(found.value), found.status)


def scrubbed(text: str) -> str:
    """The text with ~ for the home folder, and without the user's name and what is before an @."""
    text = _CREDENTIALS.sub("", text)
    home = os.path.expanduser("~")
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in some containers
        return text
    # "root" names no one, and is a word of many paths.
    return text if user == "root" else re.sub(rf"(?<!\w){re.escape(user)}(?!\w)", "<user>", text)


def _versions() -> Iterator[Finding]:
    found = f"{platform.python_version()} ({platform.python_implementation()})"
    yield Finding("versions", "Python", found)
    yield Finding("versions", "dpcompare", version("dpcompare"))
    for text in [*(requires("dpcompare") or []), "jaxlib"]:
        needed = Requirement(text)
        if needed.marker is None or needed.marker.evaluate({"extra": ""}):
            yield _library(needed)


def _library(needed: Requirement) -> Finding:
    try:
        there = version(needed.name)
    except PackageNotFoundError:
        advice = f"not installed; pip install '{needed.name}{needed.specifier}'"
        return Finding("versions", needed.name, advice, "problem")
    if not needed.specifier.contains(there, prereleases=True):
        return Finding("versions", needed.name, f"{there}, needs {needed.specifier}", "problem")
    return Finding("versions", needed.name, there)


def _extras() -> Iterator[Finding]:
    for name, advice in EXTRAS.items():
        try:
            yield Finding("optional", name, version(name))
        except PackageNotFoundError:
            yield Finding("optional", name, f"not installed; {advice}")


def _machine() -> Iterator[Finding]:
    yield Finding("machine", "platform", f"{platform.system()} {platform.release()}")
    yield Finding("machine", "processor", f"{platform.machine()}, {_processor_model()}")
    usable = len(runner.usable_cores())
    yield Finding("machine", "cores", f"{usable} usable of {os.cpu_count()}")
    total, left = psutil.virtual_memory().total, memory.available()
    words = f"{_size(left)} left within all limits, of {_size(total)}"
    if left < WORKER_MEMORY:
        advice = f"{words}; a worker wants about {_size(WORKER_MEMORY)}: close other programs"
        yield Finding("machine", "memory", advice, "warning")
    else:
        yield Finding("machine", "memory", words)


def _processor_model() -> str:
    try:
        lines = compilation.CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.processor() or "model unknown"
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else "model unknown"


def _disk() -> Iterator[Finding]:
    cache = compilation.cache_folder()
    reason = _cannot_write(cache)
    if reason:
        advice = f"{cache} cannot be written ({reason}); set DPCOMPARE_CACHE to another folder"
        yield Finding("disk", "cache", advice, "warning")
    else:
        yield Finding("disk", "cache", f"{cache}, {_size(_bytes_in(cache))}")
    for name, folder in (("cache", cache), ("current folder", Path.cwd())):
        free = shutil.disk_usage(_existing(folder)).free
        if free < LITTLE_DISK:
            yield Finding("disk", f"free for {name}", f"{_size(free)}; make room", "warning")
        else:
            yield Finding("disk", f"free for {name}", _size(free))


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # another process tidies up
            total += file.lstat().st_size if file.is_file() else 0
    return total


def _existing(folder: Path) -> Path:
    """The folder, or the closest one above it that exists."""
    return next(path for path in (folder, *folder.absolute().parents) if path.is_dir())


def _cannot_write(folder: Path) -> str | None:
    """Why no file can be made in a folder that is made when it is needed; None if one can."""
    if folder.exists() and not folder.is_dir():
        return "it is a file"
    try:
        with tempfile.TemporaryFile(dir=_existing(folder)):
            return None
    except OSError as error:
        return error.strerror


def _environment() -> Iterator[Finding]:
    for name in sorted(filter(VARIABLES.fullmatch, os.environ)):
        hidden = "set, not shown"
        yield Finding(
            "environment", name, hidden if _SECRET.search(name) else repr(os.environ[name])
        )


def _plugins() -> Iterator[Finding]:
    """What packages announce; whether it loads is asked by the probe."""
    try:
        catalog.mechanisms()
    except UsageError as error:
        yield Finding("mechanisms", "names", str(error), "problem")


def _probed() -> Iterator[Finding]:
    """What only a process that loads JAX and the plug-ins can tell."""
    with tempfile.TemporaryDirectory(prefix="dpcompare-doctor-") as folder:
        # The same modules as here, which ``-m`` would not find if a folder shadows some of them.
        code = f"import sys; sys.path[:] = {sys.path}; from dpcompare.doctor_probe import main"
        command = [sys.executable, "-P", "-c", f"{code}; main({folder!r})"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=PROBE_SECONDS
            )
            lines, errors, ended = done.stdout, done.stderr, done.returncode
            ending = f"its process ended with exit code {ended}"
        except subprocess.TimeoutExpired as late:
            lines, errors, ended = _text(late.stdout), _text(late.stderr), None
            ending = f"its process took longer than {PROBE_SECONDS} s"
    for line in lines.splitlines():
        yield Finding(**json.loads(line))
    if ended != 0:
        last = errors.strip().splitlines()[-1:] or ["it said nothing"]
        yield Finding("self-test", "process", f"{ending}: {last[0]}", "problem")


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 / 10 else f"{count / 2**20:.1f} MiB"


def worst(found: list[Finding]) -> str:
    """The worst status among some findings; "ok" for none."""
    return max((finding.status for finding in found), key=STATUSES.index, default="ok")


def as_report(found: list[Finding]) -> dict[str, object]:
    """Findings as plain data: the worst `status`, and all `findings`."""
    return {"status": worst(found), "findings": [asdict(finding) for finding in found]}
