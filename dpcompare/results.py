"""The results folder of a study, and the records in it.

A results folder holds ``study.toml`` (the resolved study), ``plan.txt`` (the identities of its
trials), ``trials.jsonl`` (one record a line), ``summary.csv`` and ``figures/``. Only
``trials.jsonl`` is precious: the rest is made again without training. While long trials run there
is also ``checkpoints/``, which is private (see :mod:`dpcompare.checkpoints`).

A record is a plain dict with the fields of :data:`FIELDS`, each of them always present, and is
written as one line of strict JSON: infinity is the string ``"inf"`` (``"-inf"``), NaN is null, a
bare ``NaN`` or ``Infinity`` never appears. Reading turns ``"inf"`` back into ``math.inf``, except
in the fields that are text; null stays None.
"""

import errno
import fcntl
import json
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from dpcompare.errors import DpcompareError, UsageError

FORMAT = 1
LOCK = ".lock"

Say = Callable[[str], Any]
"""What receives lines for the user."""

FIELDS: dict[str, str] = {
    "format": "version of this table: 1",
    "id": "identity of the trial: hex hash of everything that may change its result",
    "status": "done or failed",
    "error": "why the trial failed; null when done",
    "study": "name of the study",
    "title": "title of the study",
    "task": "pctr, pcvr or pconvs",
    "metric": "the metric that the study draws first",
    "mechanism": "name of the mechanism",
    "label": "name of the curve: the mechanism, or what the study calls this variant of it",
    "epsilon": "epsilon asked for; inf for no privacy",
    "seed": "seed of the trial; trials of one seed are paired over mechanisms",
    "candidate": "values of the tuned parameters in this trial; empty when nothing is tuned",
    "configuration": "the complete canonical configuration of the trial",
    "guarantee": "what may be claimed: epsilon, delta, unit, neighboring, accountant, "
    "other_relations (relation to epsilon, null where not defined), events; null when failed early",
    "schedule": "examples, batch_size, steps, sampling; null when failed early",
    "rows": "rows of train, validation and test",
    "validation": "metrics on the validation rows, with rows and positives; null where undefined",
    "test": "metrics on the test rows, in the same form; outside the guarantee; null in trials "
    "that compare candidates or train nothing",
    "best_possible": "metrics of the true rates on the test rows; null where they are not known",
    "notes": "remarks that belong under every figure, as a list of sentences",
    "diagnostics": "what helps to understand the run; outside the guarantee",
    "timings": "seconds per phase; train_before_resuming: until the checkpoint that was resumed",
    "versions": "version of each library that took part",
    "prng": "kind of random number generator",
}
"""Every field of a record and what it holds.

:meta hide-value:
"""

_TEXT = {"id", "status", "error", "study", "title", "task", "metric", "mechanism", "label", "prng"}


def encode(record: Mapping[str, Any]) -> str:
    """One record as a line of strict JSON, without the newline.

    Args:
        record: a dict with exactly the fields of :data:`FIELDS`; numpy scalars and arrays are
            accepted wherever a number or a list may stand.

    Raises:
        DpcompareError: a field is missing or not in the table, or a value has no JSON form.
    """
    missing, unknown = sorted(FIELDS.keys() - record), sorted(record.keys() - FIELDS)
    if missing or unknown:
        raise DpcompareError(
            f"a record must have exactly the fields of results.FIELDS: missing {missing}, "
            f"not in the table {unknown}"
        )
    _check(record)
    return json.dumps(to_json(dict(record), "record"), allow_nan=False, separators=(",", ":"))


def decode(line: str | bytes) -> dict[str, Any]:
    """The record on one line: the inverse of :func:`encode`.

    Raises:
        DpcompareError: the line is not strict JSON, has another format, or lacks a field.
    """
    try:
        return _check(_parse(line))
    except ValueError as error:
        raise DpcompareError(f"not a record: {error}") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a whole file, so that a reader (or a kill) meets the old or the new one.

    Raises:
        DpcompareError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise DpcompareError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def holds_token(path: Path, token: str) -> bool:
    """Whether a folder is the one that a running study has locked with this token."""
    try:
        return token in (path / LOCK).read_text().split()
    except OSError:
        return False


class ResultsFolder:
    """The results of one study on disk: many readers, one writer.

    Attributes:
        path: the folder.
        study: path of the study as it was resolved.
        planned: path of the identities of the present trials.
        trials: path of the records.
        summary: path of the summary.
        figures: path of the folder of figures.
        checkpoints: path of the private state of trials that are not finished.
        warnings: what the last :meth:`records` or :meth:`append` had to skip, as sentences.
        token: a word that the lock holds while this object does; see :func:`holds_token`.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self.study = self.path / "study.toml"
        self.planned = self.path / "plan.txt"
        self.trials = self.path / "trials.jsonl"
        self.summary = self.path / "summary.csv"
        self.figures = self.path / "figures"
        self.checkpoints = self.path / "checkpoints"
        self.warnings: list[str] = []
        self.token = secrets.token_hex(8)
        self._locked = False

    def warning_lines(self) -> list[str]:
        """The warnings as lines for the user."""
        return [f"Warning: {warning}" for warning in self.warnings]

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer while the context lasts; the folder is created if needed.

        The lock is the kernel's (flock) and ends with the process, so a kill leaves none behind.

        Raises:
            DpcompareError: another run is writing here, or the folder cannot be written.
        """
        file = self.path / LOCK
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise DpcompareError(f"cannot write to {self.path}: {error.strerror}") from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                owner = os.read(descriptor, 32).decode(errors="replace").partition(" ")[0]
                raise DpcompareError(
                    f"another run is writing to {self.path}"
                    + (f" (process {owner})" if owner else "")
                    + "; wait for it to end, or write to another folder"
                ) from None
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {self.token}\n".encode(), 0)
            except OSError as error:
                raise DpcompareError(f"cannot write to {self.path}: {error.strerror}") from error
            self._locked = True
            try:
                yield
            finally:
                self._locked = False
        finally:
            os.close(descriptor)

    def write_plan(self, ids: Iterable[str]) -> None:
        """Remember which trials the present study has, in its order.

        An edited study leaves the records of its earlier versions in the folder; the plan tells
        which of them still count.

        Raises:
            DpcompareError: the file cannot be written.
        """
        write_atomically(self.planned, "".join(f"{key}\n" for key in ids).encode())

    def plan(self) -> list[str] | None:
        """The identities that :meth:`write_plan` stored; None where there is no plan.

        Raises:
            DpcompareError: the file cannot be read.
        """
        content = self._content(self.planned)
        return None if content is None else content.decode(errors="replace").split()

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record, durably: a kill at any time loses at most this one line.

        A last line that an earlier kill tore is removed first (and named in `warnings`), for
        anything written behind it would become unreadable. Takes the lock if it is not held.

        Raises:
            DpcompareError: the record is not valid, another run holds the lock, or the disk
                refuses; then the file is as it was before.
        """
        line = (encode(record) + "\n").encode()
        with nullcontext() if self._locked else self.lock():
            try:
                descriptor = os.open(self.trials, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
                try:
                    self._mend_tail(descriptor)
                    _write_line(descriptor, line)
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise DpcompareError(
                    f"cannot append to {self.trials}: {error.strerror}; the records before are safe"
                ) from error

    def records(self, ids: Iterable[str] | None = None) -> list[dict[str, Any]]:
        """The newest record of each trial, in the order in which they were written.

        Args:
            ids: return these trials only, in this order, as far as they have records: a study
                gives its :meth:`plan`, for the folder may also hold trials of earlier versions.

        Raises:
            UsageError: there is no such folder.
            DpcompareError: there are no records, a line before the last is damaged (the message
                names it), or a record has a format that this version does not know.
        """
        if not self.path.is_dir():
            wrong = f"is a file; name its folder, {self.path.parent}" if self.path.exists() else ""
            raise UsageError(
                f"{self.path} {wrong or 'does not exist; name a results folder'} (one is made by: "
                "dpcompare run-study <study>)"
            )
        newest: dict[str, dict[str, Any]] = {}
        for record in self._read():
            newest.pop(record["id"], None)  # so that the order is that of the newest records
            newest[record["id"]] = record
        found = [newest[key] for key in (newest if ids is None else ids) if key in newest]
        if not found:
            of_study = "" if ids is None else " of the present study"
            lost = "".join(f" ({warning})" for warning in self.warnings)
            raise DpcompareError(
                f"{self.path} holds no results{of_study}{lost}; run a study first: "
                "dpcompare run-study <study>"
            )
        return found

    def done_ids(self) -> set[str]:
        """The trials that need not run again; empty for a new folder.

        Raises:
            DpcompareError: as for :meth:`records`, except that no records are no error.
        """
        return self._ids("done")

    def failed_ids(self) -> set[str]:
        """The trials that failed when they ran last.

        Raises:
            DpcompareError: as for :meth:`done_ids`.
        """
        return self._ids("failed")

    def _ids(self, wanted: str) -> set[str]:
        status = {record["id"]: record["status"] for record in self._read()}
        return {key for key, value in status.items() if value == wanted}

    def _content(self, file: Path) -> bytes | None:
        try:
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise DpcompareError(f"cannot read {file}: {error.strerror}") from error

    def _read(self) -> Iterator[dict[str, Any]]:
        self.warnings = []
        lines = (self._content(self.trials) or b"").split(b"\n")
        last = max((number for number, line in enumerate(lines) if line.strip()), default=0)
        for number, line in enumerate(lines):
            where = f"{self.trials}, line {number + 1}"
            if not line.strip():
                continue
            try:
                yield _check(_parse(line))
            except ValueError as error:
                if number < last:
                    raise DpcompareError(
                        f"{where} is damaged: {error}; delete that line to have its trial run again"
                    ) from None
                self.warnings.append(
                    f"{where} is damaged, as by a run that was killed: skipped, its trial will "
                    "run again"
                )
            except DpcompareError as error:
                raise DpcompareError(f"{where}: {error}") from None

    def _mend_tail(self, descriptor: int) -> None:
        """End the file in a whole line: add the newline that is missing, or cut a torn line."""
        size = os.fstat(descriptor).st_size
        content = os.pread(descriptor, size, 0)
        start = content.rstrip(b"\n").rfind(b"\n") + 1
        tail = content[start:]
        if not tail.strip():
            return
        try:
            _parse(tail)
        except ValueError:
            os.ftruncate(descriptor, start)
            self.warnings.append(f"{self.trials}: removed a damaged last line of {len(tail)} bytes")
        else:
            if not tail.endswith(b"\n"):
                _write_line(descriptor, b"\n")


def _write_line(descriptor: int, line: bytes) -> None:
    """One write and one fsync; on failure the file keeps its former length."""
    size = os.fstat(descriptor).st_size
    try:
        written = os.write(descriptor, line)
        if written < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _parse(line: str | bytes) -> dict[str, Any]:
    """Strict JSON to a dict, with "inf" as infinity. ValueError where the line is damaged."""

    def refuse(token: str) -> None:
        raise ValueError(f"{token} is not JSON")

    value = json.loads(line, parse_constant=refuse)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return {key: item if key in _TEXT else from_json(item) for key, item in value.items()}


def _check(record: Mapping[str, Any]) -> dict[str, Any]:
    if record.get("format") != FORMAT:
        raise DpcompareError(
            f"record format {record.get('format')!r}, but this version of dpcompare reads format "
            f"{FORMAT}; use the version that wrote it"
        )
    missing = sorted(FIELDS.keys() - record)
    if missing:
        raise DpcompareError(f"the record lacks {', '.join(missing)}")
    if record["status"] not in ("done", "failed"):
        raise DpcompareError(f"status must be done or failed, got {record['status']!r}")
    return dict(record)


def to_json(value: Any, where: str) -> Any:
    """Values that strict JSON can hold: infinity is the text "inf", nan is null.

    Args:
        value: plain values, or scalars and arrays of numpy and jax.
        where: how a message calls it.

    Raises:
        DpcompareError: a value or a key is of another type.
    """
    if hasattr(value, "tolist"):  # scalars and arrays of numpy and jax
        value = value.tolist()
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [to_json(item, f"{where}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):  # json would turn 1 and 1.0 into different texts
                raise DpcompareError(f"{where} has the key {key!r}; keys must be text")
        return {key: to_json(item, f"{where}.{key}") for key, item in value.items()}
    raise DpcompareError(f"{where} is a {type(value).__name__}, which a record cannot hold")


def from_json(value: Any) -> Any:
    """What :func:`to_json` was given, as far as JSON can tell."""
    if isinstance(value, str):
        return {"inf": math.inf, "-inf": -math.inf}.get(value, value)
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    return value
