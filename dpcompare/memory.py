"""How much memory new processes may take, on this machine and within its control groups."""

from collections.abc import Iterator
from pathlib import Path

import psutil

GROUPS_OF_PROCESS = Path("/proc/self/cgroup")
GROUPS = Path("/sys/fs/cgroup")

# Of control groups version 2 and 1: where they lie, limit, use, and what of the use is file cache
# that the system takes back when memory is short.
VERSIONS = {
    "": (".", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def available() -> int:
    """Bytes that can still be allocated without swapping or reaching a limit.

    The smaller of what the machine has and what is left to each control group around this process:
    containers and cluster jobs are limited by these, and a process that exceeds one is killed.
    """
    return max(0, min([psutil.virtual_memory().available, *_left_in_groups()]))


def _left_in_groups() -> Iterator[int]:
    """What is left of each limit, from the group of this process up to the root."""
    try:
        lines = GROUPS_OF_PROCESS.read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in VERSIONS:
            continue
        place, *files = VERSIONS[controllers]
        root = GROUPS / place
        group = root / name.lstrip("/")
        for folder in [group, *group.parents]:
            if folder.is_relative_to(root):
                yield from _left(folder, *files)


def _left(folder: Path, limit: str, use: str, cache: str) -> Iterator[int]:
    try:
        allowed = (folder / limit).read_text().strip()
        used = int((folder / use).read_text())
        statistics = (folder / "memory.stat").read_text().splitlines()
    except OSError:  # the root has no limit; a container may not see the groups around it
        return
    if allowed != "max":
        values = dict(line.split() for line in statistics)
        yield int(allowed) - used + int(values.get(cache, 0))
