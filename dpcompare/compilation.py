"""Compiled programs, remembered on disk and shared by the workers of a study and by later runs.

Compiling takes seconds for every worker and curve; reading what another process has compiled takes
milliseconds and gives the same bits. JAX keys an entry by program, settings and library versions,
and ignores an entry that is damaged. What its key lacks is the processor: a program that was
compiled for instructions which another machine does not have would end the process there. So the
folder is named after the processor, and after the number of cores, by which XLA may cut work.
"""

import contextlib
import hashlib
import os
import platform
import re
import stat
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

LARGEST = 100 * 2**20
"""Bytes kept at most; a study adds about one million."""

OLDEST = 30 * 24 * 3600
"""Seconds after which an entry goes: JAX never replaces one that is damaged."""

FOLDER_NAME = re.compile(r"[0-9a-f]{16}-[0-9]+")
"""Processor and number of cores."""

CPU_INFO = Path("/proc/cpuinfo")


def use_cache() -> None:
    """Let JAX, which must not be imported yet, read and write compiled programs on disk.

    They lie in the folder ``programs`` beside the remembered calibrations (see
    :func:`cache_folder`). Nothing changes where the environment already names a folder in
    JAX_COMPILATION_CACHE_DIR, where the processor is unknown (other systems than Linux), and where
    the folder cannot be made or others may write to it, for its entries are executed.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    named = processor()
    if named is None:
        return
    programs = cache_folder() / "programs"
    folder = programs / f"{named}-{len(os.sched_getaffinity(0))}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(folder):
            return
        _prune(programs)
    except OSError:
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    # These are for GPUs, and would make the place of the folder a part of every key.
    os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"
    # An entry that cannot be read or written only costs time, as with calibrations.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def cache_folder() -> Path:
    """The folder of everything that is remembered between runs.

    The environment variable DPCOMPARE_CACHE names it; by default it is ``dpcompare`` in the user's
    cache folder, or ``.dpcompare-cache`` in the current folder for a user without a home.
    """
    if named := os.environ.get("DPCOMPARE_CACHE"):
        return Path(os.path.expanduser(named))
    base = os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    if base.startswith("~"):  # a user without a home, as in some containers
        return Path(".dpcompare-cache").absolute()
    return Path(base) / "dpcompare"


def processor() -> str | None:
    """A name for what compiled code depends on: the model and its instructions."""
    try:
        first = CPU_INFO.read_text().partition("\n\n")[0]  # one paragraph for each core
    except OSError:
        return None
    named = ("model name", "flags", "CPU implementer", "CPU part", "Features")  # x86, then ARM
    lines = [line for line in first.splitlines() if line.startswith(named)]
    if not lines:
        return None
    return hashlib.sha256("\n".join([platform.machine(), *lines]).encode()).hexdigest()[:16]


def _is_private(folder: Path) -> bool:
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def _prune(programs: Path) -> None:
    """Remove what is too old, and the oldest of what is too much; other workers may do so too.

    Nothing but JAX's entries in folders of the names given here is touched.
    """
    entries: list[tuple[float, int, Path]] = []
    for folder in programs.iterdir():
        if FOLDER_NAME.fullmatch(folder.name) and not folder.is_symlink():
            entries += _entries(folder)
    total = 0
    for modified, size, file in sorted(entries, reverse=True):
        total += size
        if total > LARGEST or modified < time.time() - OLDEST:
            file.unlink(missing_ok=True)


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of change, size, path) of what JAX has written into a folder."""
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            status = file.lstat()
            if stat.S_ISREG(status.st_mode) and file.name.endswith(("-cache", "-atime")):
                yield status.st_mtime, status.st_size, file
