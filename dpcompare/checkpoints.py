"""Private checkpoints: where a long trial goes on after its process was killed.

A checkpoint holds the state between two steps as it is, with embedding tables that lack noise which
the guarantee counts on (:mod:`dpcompare.lazy_tables`): it is as private as the training rows.
Nothing is settled for its sake, since settling draws noise: a resumed run would then not be the
uninterrupted one. It draws the batches and the noise of every step from the same streams, so no
step's noise is ever drawn in two ways.

orbax writes the arrays: each checkpoint is complete or absent, whenever the process dies.
"""

import logging
import platform
import shutil
import time
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from dpcompare.compilation import processor
from dpcompare.errors import DpcompareError

_FORMAT = 1
_START_ANEW = "To have the trial start anew, delete that folder and run again with --retry-failed"
_SHOWN = 150  # characters of another library's message
_README = """Private training state of trials that are not finished. Do not publish it: embedding
tables in here lack part of the noise that the guarantees count on. A trial's folder is removed when
the trial is done; a folder without a running study may be deleted, its trial then starts anew.
"""


class Checkpoints:
    """The checkpoints of one trial; only the newest is kept.

    Attributes:
        kept: what the caller wants back after a resume: a list of plain JSON values. It is
            stored with every checkpoint, and filled by :meth:`restored`.
        seconds_before: how long the run had trained when the checkpoint was made that it went on
            from; 0 if there was none.
    """

    def __init__(
        self, folder: Path, trial: str, every_seconds: float, devices: int = 1, streams: str = ""
    ) -> None:
        """See the class.

        Args:
            folder: of all checkpoints of a study.
            trial: identity of the trial, which names every setting that may change its result.
            every_seconds: the time between two checkpoints.
            devices: that share the trial.
            streams: a hash of what names the draws of noise and labels. It follows from the
                trial, but through numbers that another library may compute otherwise; a run that
                went on with labels drawn anew would have seen both draws.
        """
        self.kept: list[Any] = []
        self.seconds_before = 0.0
        self._folder = folder
        self._path = folder / trial
        self._every = every_seconds
        self._start = self._last = time.monotonic()
        self._settings = {
            "format": _FORMAT,
            "trial": trial,
            "devices": devices,
            "streams": streams,
            "device": jax.devices()[0].device_kind,
            "processor": processor() or platform.machine(),
            **{name: version(name) for name in ("dpcompare", "jax", "jaxlib", "optax", "numpy")},
        }

    def is_due(self) -> bool:
        """Whether the time between two checkpoints has passed."""
        return time.monotonic() - self._last >= self._every

    def save(self, step: int, state: Any) -> None:
        """Store the state after `step` steps, in place of the checkpoint before.

        Raises:
            DpcompareError: it cannot be written; the checkpoint before is still there.
        """
        try:
            self._make_private_folder()
            with self._manager() as manager:
                manager.save(step, args=self._contents(state))
                manager.wait_until_finished()
        except (OSError, ValueError) as error:  # tensorstore reports a full disk as a ValueError
            raise DpcompareError(
                f"{self._name} cannot be written: {_beginning(error)}. Make room and run again "
                "with --retry-failed: the trial goes on from its last checkpoint"
            ) from error
        self._last = time.monotonic()

    def restored(self, start: Any) -> tuple[int, Any]:
        """The step and the state to go on from; 0 and `start` if there is no checkpoint.

        Args:
            start: the state of the first step; tells shapes, types and devices.

        Raises:
            DpcompareError: the checkpoint is damaged, or belongs to other settings.
        """
        if not self._path.is_dir():
            return 0, start
        try:
            with self._manager() as manager:
                step = manager.latest_step()
                if step is None:
                    return 0, start
                self._take_progress(manager.restore(step, args=self._progress_only())["progress"])
                found = manager.restore(step, args=self._state_like(start))["state"]
                return step, _with_arrays(start, found)
        except DpcompareError:
            raise
        except Exception as error:  # whatever orbax raises for files that were changed
            # It leaves unread futures, which would print their tracebacks when they are collected.
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
            raise DpcompareError(
                f"{self._name} cannot be read: {_beginning(error)}. {_START_ANEW}"
            ) from error

    def _manager(self) -> Any:
        # Imported here: most trials end before their first checkpoint.
        import orbax.checkpoint as ocp

        options = ocp.CheckpointManagerOptions(
            max_to_keep=1, enable_async_checkpointing=False, cleanup_tmp_directories=True
        )
        return ocp.CheckpointManager(self._path, options=options)

    def _contents(self, state: Any) -> Any:
        import orbax.checkpoint as ocp

        progress = {
            "settings": self._settings,
            "kept": self.kept,
            "seconds": self.seconds_before + time.monotonic() - self._start,
        }
        return ocp.args.Composite(
            state=ocp.args.StandardSave(_arrays(state)), progress=ocp.args.JsonSave(progress)
        )

    @staticmethod
    def _progress_only() -> Any:
        import orbax.checkpoint as ocp

        return ocp.args.Composite(progress=ocp.args.JsonRestore())

    @staticmethod
    def _state_like(start: Any) -> Any:
        import orbax.checkpoint as ocp

        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, _arrays(start))
        return ocp.args.Composite(state=ocp.args.StandardRestore(shapes))

    def _take_progress(self, progress: dict[str, Any]) -> None:
        before = progress["settings"]
        differences = [
            _difference(name, before.get(name), now)
            for name, now in self._settings.items()
            if before.get(name) != now
        ]
        if differences:
            raise DpcompareError(
                f"{self._name} was made with other settings ({'; '.join(differences)}), so a run "
                "that goes on from it would not be the one that was interrupted. Go back to those "
                f"settings, and run again with --retry-failed. {_START_ANEW}"
            )
        self.kept[:] = progress["kept"]
        self.seconds_before = progress["seconds"]

    @property
    def _name(self) -> str:
        """For messages, which end up in records: they say nothing of the machine's folders."""
        return f"the checkpoint {self._folder.name}/{self._path.name} of the results folder"

    def _make_private_folder(self) -> None:
        for folder in (self._folder, self._path):
            folder.mkdir(mode=0o700, exist_ok=True)
        readme = self._folder / "PRIVATE.txt"
        if not readme.exists():
            readme.write_text(_README)


def _difference(name: str, before: Any, now: Any) -> str:
    """In words. A hash of streams is not told: secret ones are named by a secret."""
    if name == "streams":
        return "its noise or labels are other draws, as where a library computes other last digits"
    return f"{name} was {before!r} and is {now!r}"


def _beginning(error: Exception) -> str:
    """The first words of an error; those of tensorstore go on for a page."""
    return str(error).partition("\n")[0][:_SHOWN]


def _arrays(state: Any) -> dict[str, jax.Array]:
    """The arrays of a state by their place; those without numbers cannot be stored, nor need be."""
    leaves = jax.tree.leaves(state)
    return {f"{place:03}": leaf for place, leaf in enumerate(leaves) if leaf.size}


def _with_arrays(start: Any, arrays: dict[str, jax.Array]) -> Any:
    leaves, structure = jax.tree.flatten(start)
    found = [arrays.get(f"{place:03}", leaf) for place, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, found)


def trials_in(folder: Path) -> set[str]:
    """The trials that have a checkpoint in the folder of a study's checkpoints."""
    if not folder.is_dir():
        return set()
    return {entry.name for entry in folder.iterdir() if entry.is_dir()}


def remove(folder: Path, trials: Iterable[str]) -> None:
    """Remove the checkpoints of some trials, as far as there are any."""
    for trial in trials_in(folder) & set(trials):
        shutil.rmtree(folder / trial, ignore_errors=True)


def remove_empty(folder: Path) -> None:
    """Remove the folder of a study's checkpoints if it has none. No trial may be running."""
    if folder.is_dir() and not trials_in(folder):
        shutil.rmtree(folder, ignore_errors=True)
