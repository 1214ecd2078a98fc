"""The folder of an unfinished preparation: one process at a time works in it, and may go on in it.

It lies beside the destination. From time to time the state of the work is saved, after the rows it
speaks of have reached the disk; a later preparation of the same files goes on from there.
"""

import fcntl
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcompare.data.sources import SourceUnreadable
from dpcompare.errors import DpcompareError

LOCK = "lock"
SECONDS_BETWEEN_STATES = 20.0

State = dict[str, Any]
"""Plain values and numpy arrays in dictionaries and lists of any depth."""

_ARRAY = "array"  # the only key of what stands for an array among plain values
_PLAIN = "plain"  # the plain values in a state file


class PartialFolder:
    """The unfinished work on one destination.

    Attributes:
        path: the folder.
        read: where the columns grow, in the order of the files.
        ordered: where they are put into another order, if need be.
    """

    def __init__(self, destination: Path) -> None:
        self.path = destination.parent / f".{destination.name}.partial.dpcompare"
        self.read = self.path / "read"
        self.ordered = self.path / "ordered"
        self._destination = destination
        self._state = self.path / "state.npz"

    @property
    def has_state(self) -> bool:
        """Whether a later preparation could go on here."""
        return self._state.exists()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one who works here.

        In the end the folder is removed, unless it ends with an exception that is not about the
        data (Ctrl-C, a full disk) and there is a state to go on from. The lock is the kernel's
        (flock) and ends with the process, so a kill leaves none behind.

        Raises:
            DpcompareError: another process is preparing this destination.
            OSError: the folder cannot be written.
        """
        descriptor = self._lock()
        kept = False
        try:
            yield
        except SourceUnreadable:
            kept = self.has_state
            raise
        except DpcompareError:
            raise
        except BaseException:
            kept = self.has_state
            raise
        finally:
            if not kept:
                self._remove()
            os.close(descriptor)

    def remove_leftover(self) -> None:
        """Remove what a kill left behind after the destination was complete."""
        with suppress(OSError, DpcompareError):
            if self.path.exists():
                with self.locked():
                    pass

    def _remove(self) -> None:
        """Remove the folder, its lock last: nobody must find what is left of it unlocked."""
        for entry in self.path.iterdir():
            if entry.name != LOCK:
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink()
        shutil.rmtree(self.path, ignore_errors=True)

    def _lock(self) -> int:
        lock = self.path / LOCK
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):  # the one who held the lock has removed the folder
                descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.path.samestat(os.fstat(descriptor), lock.stat()):
                        return descriptor
                except BlockingIOError:
                    os.close(descriptor)
                    raise DpcompareError(
                        f"another process is preparing {self._destination}; wait for it to end, or "
                        "choose another destination"
                    ) from None
                except OSError:
                    os.close(descriptor)
                    raise
                os.close(descriptor)

    def take_up(self, request: str, say: Callable[[str], None]) -> State | None:
        """The state to go on from; without one, remove what there is of earlier work.

        Args:
            request: what is prepared and how. A state of another request is not used.
            say: told what was found and what follows from it.
        """
        found = self.read.exists()
        state = self._usable_state(request) if self.has_state else None
        shutil.rmtree(self.ordered, ignore_errors=True)
        self.ordered.mkdir()
        if state is not None:
            return state
        if self.has_state:
            say(
                f"{self.path} holds the unfinished preparation of another request or of files that "
                "have changed since; starting anew"
            )
        elif found:
            say("an interrupted preparation had saved nothing to go on from yet; starting anew")
        self._state.unlink(missing_ok=True)
        shutil.rmtree(self.read, ignore_errors=True)
        self.read.mkdir()
        return None

    def _usable_state(self, request: str) -> State | None:
        try:
            state = _load(self._state)
            files = state["writer"]["files"]
            sizes = {name: (self.read / name).stat().st_size for name in files}
        except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile):
            return None
        whole = all(sizes[name] >= file["bytes"] for name, file in files.items())
        return state if whole and state["request"] == request else None

    @contextmanager
    def saver(self, request: str, sync: Callable[[], None]) -> Iterator["StateSaver"]:
        """Saves states until the context ends, and then waits until that is done.

        Args:
            request: see :meth:`take_up`.
            sync: waits until the rows that the last state speaks of are on the disk.
        """
        with ThreadPoolExecutor(max_workers=1) as thread:

            def save(state: State) -> None:
                sync()
                _save(self._state, {**state, "request": request})

            yield StateSaver(thread, save)


class StateSaver:
    """Saves states beside the work, at most one at a time."""

    def __init__(self, thread: ThreadPoolExecutor, save: Callable[[State], None]) -> None:
        self._thread, self._save = thread, save
        self._saving: Future[None] | None = None
        self._last = monotonic()

    @property
    def is_due(self) -> bool:
        """Whether it is time for the next state.

        Raises:
            OSError: the last one could not be saved.
        """
        if self._saving is not None and self._saving.done():
            self._saving.result()
        idle = self._saving is None or self._saving.done()
        return idle and monotonic() - self._last >= SECONDS_BETWEEN_STATES

    def save(self, state: State) -> None:
        """Save a state that nobody changes any more."""
        self._last = monotonic()
        self._saving = self._thread.submit(self._save, state)


def _save(path: Path, state: State) -> None:
    """Write a state so that a kill leaves the old one or the new one."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    plain = json.dumps(_without_arrays(state, arrays)).encode()
    arrays[_PLAIN] = np.frombuffer(plain, dtype=np.uint8)
    temporary = path.with_suffix(".new")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _load(path: Path) -> State:
    with np.load(path, allow_pickle=False) as content:
        state: State = _with_arrays(json.loads(content[_PLAIN].tobytes()), content)
    return state


def _without_arrays(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    """The same with a name in place of each array, which goes to `arrays`."""
    if isinstance(value, np.ndarray):
        name = f"{_ARRAY}{len(arrays)}"
        arrays[name] = value
        return {_ARRAY: name}
    if isinstance(value, dict):
        return {key: _without_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_arrays(item, arrays) for item in value]
    return value


def _with_arrays(value: Any, arrays: Any) -> Any:
    """The arrays back in their places."""
    if isinstance(value, dict) and set(value) == {_ARRAY}:
        return arrays[value[_ARRAY]]
    if isinstance(value, dict):
        return {key: _with_arrays(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_arrays(item, arrays) for item in value]
    return value
