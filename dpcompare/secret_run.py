"""The private folder of one training run: its checkpoints, and the secret that names its streams.

A published seed undoes the noise: whoever knows it draws the same noise and takes it off. A secret
seed is 32 bytes from the operating system. It is kept beside the checkpoints, readable by its
owner only, so that a killed run can go on; both are removed when the run has ended.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcompare.checkpoints import trials_in
from dpcompare.configuration import SECRET, Configuration, Run, identity
from dpcompare.errors import DpcompareError, UsageError
from dpcompare.results import LOCK, ResultsFolder

SECRET_BYTES = 32


@contextmanager
def private_run(
    folder: Path, configuration: Configuration, checkpoint_minutes: float
) -> Iterator[tuple[Configuration, bytes]]:
    """The configuration with a place for checkpoints, and its secret, while a training run lasts.

    Afterwards the folder is removed. It stays when the run was killed or failed; the same command
    then goes on.

    Args:
        folder: of this run alone.
        configuration: of the trial; with the seed SECRET it gets a secret.
        checkpoint_minutes: the time between two checkpoints.

    Raises:
        UsageError: there is something else in its place, or others could have written to it.
        DpcompareError: another run uses the folder, it cannot be written or removed, or there is a
            checkpoint whose secret is not there any more.
    """
    private = ResultsFolder(folder)
    _make_private(folder, configuration["seed"] == SECRET)
    with private.lock(), _removed(private):
        run: Run = {
            "devices": 1,
            "checkpoints": str(private.checkpoints.resolve()),
            "checkpoint_seconds": 60 * checkpoint_minutes,
            "token": private.token,
        }
        secret = b""
        if configuration["seed"] == SECRET:
            trial = identity(configuration)
            has_checkpoint = (private.checkpoints / trial).is_dir()
            secret = _secret(folder / f"{trial}.{SECRET}", has_checkpoint)
        yield {**configuration, "run": run}, secret
    if os.path.lexists(folder):
        raise DpcompareError(
            f"the training has ended, but {folder} cannot be removed whole. It may hold the secret "
            "that undoes the noise: remove it before anybody gets the model"
        )


@contextmanager
def _removed(private: ResultsFolder) -> Iterator[None]:
    """Remove what a run kept when it has ended, or was refused before it drew anything."""
    try:
        yield
    except UsageError:
        if not trials_in(private.checkpoints):
            shutil.rmtree(private.path, ignore_errors=True)
        raise
    shutil.rmtree(private.path, ignore_errors=True)


def _make_private(folder: Path, secret: bool) -> None:
    """A folder of its owner alone, with nothing in it but what a killed run left.

    It is removed when the run has ended, so nothing else may lie there; and who could put a
    `secret` there, or read it, would know the noise.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except FileExistsError:
        status = folder.lstat()
    except OSError as error:
        raise DpcompareError(f"cannot write to {folder}: {error.strerror}") from error
    what = f"a training run keeps its private state in {folder}"
    instead = "move it away, or name another folder for the model"
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{what}, which is there already and is no folder; {instead}")
    if foreign := sorted(entry.name for entry in folder.iterdir() if not _is_of_a_run(entry)):
        raise UsageError(f"{what}, which holds {foreign[0]}, and no run left that; {instead}")
    if secret and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
        raise UsageError(f"{what}, and others may read it or write to it; {instead}")


def _is_of_a_run(entry: Path) -> bool:
    return entry.name in (LOCK, "checkpoints") or entry.suffix == f".{SECRET}"


def _secret(file: Path, has_checkpoint: bool) -> bytes:
    """The secret of a run that goes on, or a new one."""
    try:
        secret = file.read_bytes()
    except FileNotFoundError:
        secret = b""
    if len(secret) == SECRET_BYTES:
        return secret
    if has_checkpoint:
        raise DpcompareError(
            f"{file.parent} holds a checkpoint, but not the secret of its run ({file.name}): going "
            "on would draw other noise. Delete that folder to train anew"
        )
    secret = os.urandom(SECRET_BYTES)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, secret)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DpcompareError(f"cannot write {file}: {error.strerror}") from error
    return secret
