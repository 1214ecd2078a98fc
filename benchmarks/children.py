"""Child processes that are asked one question at a time, under a time limit, and always ended."""

import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from registry import HERE, interpreter
from workload import Cell

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


class ChildFailed(Exception):
    """A child could not do its part; the message says why."""


class Child:
    """One variant of one cell, alive as long as the `with` block.

    Args:
        name: of the variant.
        cell: with the batch size truly used.
        core: the only core that it may use.
        peers_python: the interpreter of the peers' environment.
    """

    def __init__(self, name: str, cell: Cell, core: int, peers_python: Path) -> None:
        self.name, self.cell = name, cell
        python = interpreter(name, peers_python)
        if not python.exists():
            raise ChildFailed("its environment is missing (make peers)")
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__
        # A session of its own: an interrupt at the terminal is for the harness to handle.
        self._process = subprocess.Popen(
            [str(python), str(HERE / "child.py"), name, str(cell), str(core)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,
        )

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def ask(self, **request: Any) -> None:
        """Send a request; its answer comes by :meth:`answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write((json.dumps(request) + "\n").encode())
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ChildFailed(self._last_words()) from None

    def answer(self, limit: float) -> dict[str, Any]:
        """The next line that the child says; ChildFailed if it takes more than `limit` seconds."""
        assert self._process.stdout is not None
        line, end = b"", time.monotonic() + limit
        while not line.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise ChildFailed(f"no answer within {limit:g} s")
            part = os.read(self._process.stdout.fileno(), 65536)
            if not part:
                raise ChildFailed(self._last_words())
            line += part
        said: dict[str, Any] = json.loads(line)
        if "failed" in said:
            raise ChildFailed(said["failed"])
        return said

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        how = f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"{how}: {lines[-1]}" if lines else how
