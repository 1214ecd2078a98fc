"""The private folder of one training run: its checkpoints, and the secret that names its streams.

A published seed undoes the noise: whoever knows it draws the same noise and takes it off. A secret
seed is 32 bytes from the operating system. It is kept beside the checkpoints, readable by its
owner only, so that a killed run can go on; both are removed when the run has ended.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dpcompare.configuration import SECRET, Configuration, Run, identity
from dpcompare.errors import DpcompareError
from dpcompare.results import ResultsFolder

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
        DpcompareError: another run uses the folder, it cannot be written, or there is a checkpoint
            whose secret is not there any more.
    """
    private = ResultsFolder(folder)
    with private.lock():
        folder.chmod(0o700)
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
    shutil.rmtree(folder, ignore_errors=True)


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
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(descriptor, secret)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return secret
