"""Prepared data for machines that do not see its folder: read in parts, and written there again."""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dpcompare.errors import DpcompareError

BYTES_OF_A_PART = 64 * 2**20

Parts = dict[str, list[Any]]
"""File name to what stands for its parts, in their order."""


def visible(path: str | Path, checksum: str) -> bool:
    """Whether this machine has the prepared data set `checksum` at `path`."""
    from dpcompare.data import read_manifest  # loads what a worker may load on its core only

    try:
        return read_manifest(Path(path)).checksum == checksum
    except (OSError, DpcompareError):
        return False


def parts_of(path: Path, put: Callable[[bytes], Any]) -> Parts:
    """Read a prepared folder, and hand every part of its files to `put`.

    Args:
        path: the prepared folder.
        put: called with at most BYTES_OF_A_PART bytes at a time; returns what stands for them.
    """
    from dpcompare.data import read_manifest
    from dpcompare.data.manifest import MANIFEST_FILE

    # The manifest comes last, so that a folder without one is known to be incomplete.
    names = [*read_manifest(path).files, MANIFEST_FILE]
    return {name: [put(part) for part in _read(path / name)] for name in names}


def _read(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while part := opened.read(BYTES_OF_A_PART):
            yield part


def write_copy(folder: Path, files: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Make `folder` a copy of a prepared folder; one process writes it, the others wait.

    Args:
        folder: where; its parent is made with access for this user only.
        files: name and parts of each file; read only if the folder is not there yet.

    Raises:
        OSError: the disk is full, or the parent was removed meanwhile.
    """
    folder.parent.mkdir(mode=0o700, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed, or its process dies
        if folder.exists():
            return
        unfinished = folder.with_name("unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)  # of a writer that died
        unfinished.mkdir()
        for name, parts in files:
            with (unfinished / name).open("wb") as file:
                file.writelines(parts)
        unfinished.rename(folder)


def remove_copies(parent: Path) -> None:
    """Remove the parent of all copies, even if another process is just writing one."""
    for _ in range(20):
        shutil.rmtree(parent, ignore_errors=True)
        if not parent.exists():
            return
        time.sleep(0.1)
