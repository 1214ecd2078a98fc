"""Runs the missing trials of a study on worker processes, and is the only writer of its records.

The runner does not know what a trial is. Plain configurations go to a worker, plain records come
back, and the function that turns one into the other travels as an import path, so that a worker
loads heavy libraries only after it has settled on its core.

Every worker is pinned to one core, even if they outnumber the cores. XLA cuts work by the cores it
sees: records are equal to the last bit for any number of workers (unless, as macOS, nothing pins).
"""

import contextlib
import multiprocessing
import os
import pkgutil
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any, Protocol

from dpcompare.compilation import use_cache
from dpcompare.errors import DpcompareError, UsageError

SECONDS_BETWEEN_REPORTS = 0.2
SECONDS_TO_END = 1.0
MOST_STARTS = 3
"""Tries to start a worker whose process is killed before it has imported anything."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Configuration = dict[str, Any]
Record = dict[str, Any]
OnProgress = Callable[[int, float], None]
Pending = deque[tuple[int, Configuration]]


@dataclass(frozen=True)
class WorkerFailure:
    """Why a trial has no record.

    Attributes:
        reason: one line: "ExceptionType: message", or how the worker process died.
        traceback: where the exception was raised; empty when the process died.
    """

    reason: str
    traceback: str = ""

    @classmethod
    def from_exception(cls, error: Exception) -> "WorkerFailure":
        """The failure that a caught exception stands for."""
        return cls(f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error)))


Results = Generator[tuple[int, Record | WorkerFailure], None, None]


class Executor(Protocol):
    """Anything that maps a function over configurations: local processes, or a cluster."""

    def map(
        self,
        function: str,
        configurations: Iterable[Configuration],
        progress: OnProgress | None = None,
    ) -> Results:
        """See :meth:`LocalExecutor.map`."""


class LocalExecutor:
    """Runs trials on processes of this machine, one trial at a time on each.

    Args:
        workers: how many processes; by default one per usable core. Two runs at once start at the
            same core: give each its own, for example with taskset.

    Raises:
        UsageError: `workers` is below 1.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, got {workers}")
        self.workers = workers if workers is not None else len(usable_cores())

    def map(
        self,
        function: str,
        configurations: Iterable[Configuration],
        progress: OnProgress | None = None,
    ) -> Results:
        """Run `function` on every configuration, started in the given order.

        Workers live until nothing is left to start, so a trial finds what its predecessors
        compiled. One that dies fails the trial it had in hand and is replaced. Whichever way the
        iteration ends (Ctrl-C and SIGTERM included), no worker is left; close the iterator, for
        example with ``contextlib.closing``, to leave early.

        Args:
            function: "package.module:attribute", importable with the caller's ``sys.path``.
                Called in the worker as ``function(configuration, report=report)``, where
                ``report(fraction_done)`` may be called at any rate. Returns the record.
            configurations: plain dicts; a configuration's index is its place in this order.
            progress: called in this process with (index, fraction done): with 0 when a trial
                starts, then at most about five times a second per worker.

        Yields:
            (index, record) or (index, failure), in the order in which trials finish.

        Raises:
            DpcompareError: a worker could not start or could not import `function`.
            SystemExit: SIGTERM arrived (in the main thread, unless it is handled otherwise).
        """
        pending = deque(enumerate(configurations))
        tell = progress if progress is not None else lambda index, fraction: None
        cores = usable_cores()
        workers: list[_Worker] = []
        with sigterm_exits():
            try:
                for place in range(min(self.workers, len(pending))):
                    workers.append(_Worker(function, cores[place % len(cores)]))
                    _start_next(workers[-1], pending, tell)
                while workers:
                    yield from _next_results(workers, pending, tell)
            finally:
                _end(workers)


def usable_cores() -> list[int]:
    """The numbers of the cores that this process may run on, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _start_next(worker: "_Worker", pending: Pending, tell: OnProgress) -> None:
    index, configuration = pending.popleft()
    worker.take(index, configuration)
    tell(index, 0.0)


def _next_results(workers: list["_Worker"], pending: Pending, tell: OnProgress) -> Results:
    """Wait for messages and act on one of each worker; `workers` keeps the busy ones."""
    readable = wait([worker.connection for worker in workers])
    for worker in [worker for worker in workers if worker.connection in readable]:
        kind, content = worker.receive()
        if kind == "progress":
            tell(worker.index, content)
            continue
        if kind == "ready":
            worker.ready = True
            continue
        index = worker.index
        if not worker.ready:
            if worker.was_killed and worker.starts < MOST_STARTS:
                workers.remove(worker)
                _end([worker])
                pending.appendleft((index, worker.configuration))
                workers.append(worker.started_again())
                _start_next(workers[-1], pending, tell)
                continue
            # One like it has started, if it is a replacement: its death is this trial's alone.
            if kind == "unusable" or not worker.replaces:
                raise DpcompareError(_cannot_start(worker, content))
        # The next trial starts before this record is handed over: no worker waits for a disk.
        if not pending or kind == "died":
            workers.remove(worker)
            _end([worker])
        if pending:
            if kind == "died":
                worker = _Worker(worker.function, worker.core, replaces=True)
                workers.append(worker)
            _start_next(worker, pending, tell)
        yield index, content


def _cannot_start(worker: "_Worker", failure: WorkerFailure) -> str:
    if failure.traceback:
        return f"a worker process could not import {worker.function}: {failure.reason}"
    return (
        f"a worker process could not start ({failure.reason}); its own messages are above. "
        "A script that starts workers needs its code under: if __name__ == '__main__':"
    )


class _Worker:
    """A worker as the parent sees it: its process, the pipe to it, the trial it has in hand."""

    def __init__(self, function: str, core: int, starts: int = 1, replaces: bool = False) -> None:
        self.function = function
        self.core = core
        self.starts = starts
        self.replaces = replaces
        self.index = -1
        self.configuration: Configuration = {}
        self.ready = False  # has imported the function
        # A forked child would inherit JAX's locks without the threads that release them.
        spawn = multiprocessing.get_context("spawn")
        self.connection, far_end = spawn.Pipe()
        self.process = spawn.Process(target=_work, args=(far_end, function, core), daemon=True)
        with _interrupts_blocked():
            self.process.start()
        far_end.close()

    def take(self, index: int, configuration: Configuration) -> None:
        """Send a trial to the idle worker."""
        self.index, self.configuration = index, configuration
        with contextlib.suppress(BrokenPipeError):  # it died meanwhile: receive() tells
            self.connection.send(configuration)

    def receive(self) -> tuple[str, Any]:
        """The next message, or ("died", WorkerFailure)."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):  # OSError: it died within a message
            self.process.join(SECONDS_TO_END)
            return "died", WorkerFailure(_cause_of_death(self.process.exitcode))

    def started_again(self) -> "_Worker":
        """Another one in its place."""
        return _Worker(self.function, self.core, self.starts + 1, self.replaces)

    @property
    def was_killed(self) -> bool:
        """Whether a signal ended its process, which may not happen again."""
        return (self.process.exitcode or 0) < 0


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is None:
        return "worker process closed its pipe"
    if exit_code >= 0:
        return f"worker process ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:  # real-time signals have no name
        name = f"signal {-exit_code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"worker process was killed by {name}{hint}"


def _end(workers: list[_Worker]) -> None:
    """End workers and wait until they are gone. Nothing they hold is worth waiting for."""
    for worker in workers:
        worker.process.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.connection.close()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Hold back Ctrl-C; a process started meanwhile inherits that, so its start-up is covered."""
    resource_tracker.ensure_running()  # starting it later would let Ctrl-C through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def sigterm_exits() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that ``finally`` blocks run, unless it has a handler."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    code = 128 + signal.SIGTERM  # what a shell reports for a death by this signal
    arrived = False

    def leave(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        arrived = True
        raise SystemExit(code)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except SystemExit:
        if arrived:  # a library that waits (Ray) may have raised it with another code
            raise SystemExit(code) from None
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def settle() -> None:
    """Make this process, which is on its core already, fit for trials; before heavy imports."""
    os.environ.update(ONE_THREAD)
    use_cache()
    # What a mechanism prints stays visible, but out of the output of the command that runs it.
    os.dup2(2, 1)
    sys.stdout = sys.stderr


def _work(connection: Connection, function: str, core: int) -> None:
    """The life of a worker process: settle on a core, import, then one trial after the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    settle()
    try:
        run_trial = pkgutil.resolve_name(function)
    except Exception as error:
        connection.send(("unusable", WorkerFailure.from_exception(error)))
        return
    with contextlib.suppress(EOFError, ConnectionError):  # the parent is gone
        connection.send(("ready", None))
        while True:
            configuration = connection.recv()
            try:
                record = run_trial(configuration, report=_reporter(connection))
                connection.send(("record", record))
            except Exception as error:
                connection.send(("failure", WorkerFailure.from_exception(error)))


def _exit_with_parent() -> None:
    """Leave at once when the parent is gone, even if it was killed and a trial is running."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


def _reporter(connection: Connection) -> Callable[[float], None]:
    last = -SECONDS_BETWEEN_REPORTS

    def report(fraction_done: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_REPORTS:
            last = now
            connection.send(("progress", float(fraction_done)))

    return report


class Bar(Protocol):
    """What the runner tells a progress display; see :class:`dpcompare.progress.ProgressBar`."""

    def skip(self, index: int) -> None:
        """A trial was done before."""

    def update(self, index: int, fraction: float) -> None:
        """A running trial has come this far."""

    def finish(self, index: int, failed: bool = False) -> None:
        """A trial has ended."""


@dataclass(frozen=True)
class RunOutcome:
    """How many trials gave a record, how many failed, and how many needed no run."""

    done: int
    failed: int
    skipped: int


def run_missing(
    configurations: Sequence[Configuration],
    identities: Sequence[str],
    settled: Iterable[str],
    store: Callable[[Record], None],
    executor: Executor,
    function: str,
    failed_record: Callable[[Configuration, str, WorkerFailure], Record],
    bar: Bar,
) -> RunOutcome:
    """Run the trials that are missing, and store each record as it arrives.

    A failed trial is recorded with its reason and does not stop the others. When the run is
    interrupted, everything stored so far stays, and the next call runs only the rest.

    Args:
        configurations: all trials of the study, longest first for the shortest run.
        identities: the identity of each, in the same order; equal ones run once.
        settled: identities of the trials that need not run.
        store: stores one record safely; nobody else does meanwhile.
        executor: where trials run.
        function: import path of the trial function, see :meth:`LocalExecutor.map`.
        failed_record: (configuration, identity, failure) to the record of a failed trial.
        bar: told about every trial by its index in `configurations`.

    Returns:
        The counts; they add up to the number of configurations.

    Raises:
        DpcompareError: workers could not start, or a record could not be stored.
    """
    seen = set(settled)
    missing: list[int] = []
    for index, (_, identity) in enumerate(zip(configurations, identities, strict=True)):
        if identity in seen:
            bar.skip(index)
        else:
            seen.add(identity)
            missing.append(index)
    failed = 0
    results = executor.map(
        function,
        [configurations[index] for index in missing],
        lambda place, fraction: bar.update(missing[place], fraction),
    )
    with contextlib.closing(results):
        for place, result in results:
            index = missing[place]
            is_failure = isinstance(result, WorkerFailure)
            if isinstance(result, WorkerFailure):
                failed += 1
                result = failed_record(configurations[index], identities[index], result)
            store(result)
            bar.finish(index, failed=is_failure)
    return RunOutcome(len(missing) - failed, failed, len(configurations) - len(missing))
