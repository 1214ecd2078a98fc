"""Runs trials on a Ray cluster: one that is there, or one of its own on this machine.

Trials run in Ray actors, one trial at a time on each. An actor settles like a worker process of
:mod:`dpcompare.runner`: on one core of its node, and before it loads what computes. So records are
equal to the last bit to those of local workers (on CPUs of the same kind).

Ray's own retries and restarts are off: what is tried again, and how often, is decided here.
"""

import contextlib
import os
import pkgutil
import random
import re
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dpcompare.errors import DpcompareError, UsageError
from dpcompare.runner import (
    SECONDS_BETWEEN_REPORTS,
    Configuration,
    OnProgress,
    Record,
    Results,
    WorkerFailure,
    settle,
    sigterm_exits,
    usable_cores,
)
from dpcompare.shipped_data import Parts, parts_of, remove_copies, visible, write_copy

ATTEMPTS = 3
"""Workers that a trial may lose, and starts in a row that may fail."""

SECONDS_WITHOUT_A_WORD = 30.0
SECONDS_TO_CONNECT = 10.0
SECONDS_TO_END = 1.0
SECONDS_TO_REMOVE = 10.0  # shipped data
LONGEST_TEMPORARY_FOLDER = 40  # characters; Ray adds about 65, and a socket's path has at most 107
OBJECT_STORE_BYTES = 100 * 2**20  # of an own cluster, which ships no data; records are small
LONGEST_REASON = 400
RAY_NAMES = re.compile(r"\s*(class_name|actor_id|namespace|name|repr|lease id|worker id): ", re.I)

LOCAL_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without it Ray leaves a secret in the home folder of a user who never asked for one.
    "RAY_AUTH_TOKEN": secrets.token_hex(16),
    # Despite its name, 0 keeps all servers of an own cluster on the loopback interface everywhere.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
"""For a cluster of its own; what the user's environment says comes first."""


class RayExecutor:
    """Runs trials on the CPUs of a Ray cluster, or on its GPUs where it has any.

    Within a process that is connected to a cluster already, that cluster is used.

    Args:
        workers: how many actors; by default one for each CPU, or GPU, of the cluster.
        address: of a running cluster, "auto" or "host:port". None: what the environment variable
            RAY_ADDRESS says, or a cluster of its own on this machine, which ends with the map.

    Raises:
        UsageError: `workers` is below 1, or Ray is not installed.
    """

    def __init__(self, workers: int | None = None, address: str | None = None) -> None:
        if workers is not None and workers < 1:
            raise UsageError(f"workers must be at least 1, got {workers}")
        self.workers = workers
        self.address = address or os.environ.get("RAY_ADDRESS") or None
        if self.address is None:
            for name, value in LOCAL_ENVIRONMENT.items():  # Ray reads some when it is imported
                os.environ.setdefault(name, value)
        self.ray = _import_ray()

    def map(
        self,
        function: str,
        configurations: Iterable[Configuration],
        progress: OnProgress | None = None,
    ) -> Results:
        """Run `function` on every configuration, started in the given order.

        As :meth:`dpcompare.runner.LocalExecutor.map`, but for one thing: a trial whose worker is
        lost (its process died, its node went away, its memory ran out) starts again on another
        one, and fails when it has lost ATTEMPTS of them.

        A prepared data set in the section `data` of a configuration is read where it lies by
        workers that see it there, and shipped to nodes that do not.

        Raises:
            DpcompareError: the cluster cannot be reached or started, or workers cannot start or
                import `function`.
            SystemExit: SIGTERM arrived (in the main thread, unless it is handled otherwise).
        """
        trials = deque(_Trial(i, configuration) for i, configuration in enumerate(configurations))
        tell = progress if progress is not None else lambda index, fraction: None
        if not trials:
            return
        with sigterm_exits(), self._connected():
            crew = _Crew(self.ray, function, self.workers, trials, tell)
            try:
                yield from crew.results()
            finally:
                crew.end()

    @contextlib.contextmanager
    def _connected(self) -> Iterator[None]:
        if self.ray.is_initialized():
            yield
        elif self.address is not None:
            with _no_news(self.ray), self._connected_to(self.address):
                yield
        else:
            with _no_news(self.ray), self._own_cluster():
                yield

    @contextlib.contextmanager
    def _connected_to(self, address: str) -> Iterator[None]:
        try:
            try:
                _knock(address)
                self._init(address=address)
            except (OSError, RuntimeError, ValueError, self.ray.exceptions.RayError) as error:
                raise DpcompareError(
                    f"no connection to the Ray cluster {address} ({_one_line(error)}); is it "
                    "running, and with the same versions of Python and Ray?"
                ) from error
            yield
        finally:
            self.ray.shutdown()

    @contextlib.contextmanager
    def _own_cluster(self) -> Iterator[None]:
        """A cluster on this machine; however it ends, no process and no file of it is left."""
        folder = _temporary_folder()
        try:
            self._init(
                address="local",
                num_cpus=self.workers or len(usable_cores()),
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                _node_ip_address="127.0.0.1",
                _temp_dir=str(folder),
            )
            yield
        finally:
            processes = _processes_of(folder)
            with contextlib.suppress(Exception):  # it may have been interrupted half-way
                self.ray.shutdown()
            _end(processes)
            shutil.rmtree(folder, ignore_errors=True)

    def _init(self, **arguments: Any) -> None:
        """Connect quietly, and keep the handler of SIGTERM, which Ray replaces."""
        handler = signal.getsignal(signal.SIGTERM)
        try:
            self.ray.init(logging_level="ERROR", log_to_driver=False, **arguments)
        except SystemExit as leaving:  # the code of Ray's own handler is the bare number
            code = leaving.code
            raise SystemExit(128 + code if code == signal.SIGTERM else code) from None
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f"Ray cannot be imported ({error}); to install it: pip install 'dpcompare[ray]'"
        ) from error
    return ray


def _knock(address: str) -> None:
    """Raise OSError if nothing listens at host:port; Ray would try for minutes, and loudly."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        socket.create_connection((host, int(port)), timeout=SECONDS_TO_CONNECT).close()


@contextlib.contextmanager
def _no_news(ray: Any) -> Iterator[None]:
    """Keep out of standard output what Ray says of lost workers; log_to_driver does not."""
    module: Any = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)  # not a part of Ray's interface
    module.print_to_stdstream = lambda *arguments, **named: None
    try:
        yield
    finally:
        module.print_to_stdstream = before


def _temporary_folder() -> Path:
    usual = tempfile.gettempdir()
    short = usual if len(usual) + len("/dpcompare-12345678") <= LONGEST_TEMPORARY_FOLDER else "/tmp"
    return Path(tempfile.mkdtemp(prefix="dpcompare-", dir=short))


def _processes_of(folder: Path) -> list[psutil.Process]:
    """The processes of the cluster that keeps its files in `folder`, and what they started."""
    found: dict[int, psutil.Process] = {}
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in child.cmdline()):
                own = [child, *child.children(recursive=True)]
                found.update({process.pid: process for process in own})
    return list(found.values())


def _end(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=SECONDS_TO_END)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=SECONDS_TO_END)


def _one_line(error: Exception) -> str:
    """What an error of Ray says, without the names that it gives to everything."""
    told = [line for line in str(error).splitlines() if not RAY_NAMES.match(line)]
    text = " ".join(" ".join(told).split()) or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."


@dataclass
class _Trial:
    index: int
    configuration: Configuration
    losses: int = 0


class _Worker:
    """A worker as the driver sees it: its actor, and the trial that it has in hand."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.ready = False  # has imported the function
        self.asked = False  # is about to say how far it is
        self.trial: _Trial | None = None


class _Crew:
    """The workers of one map, and the calls to them that have not returned yet."""

    def __init__(
        self,
        ray: Any,
        function: str,
        workers: int | None,
        trials: deque[_Trial],
        tell: OnProgress,
    ) -> None:
        resources = ray.cluster_resources()
        gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 0))
        self.ray = ray
        self.function = function
        self.size = workers or gpus or max(1, cpus)
        self.pending = trials
        self.tell = tell
        copies = f"dpcompare-{secrets.token_hex(8)}"
        search_path = [os.path.abspath(folder) for folder in sys.path]
        arguments = function, search_path, os.getcwd(), copies
        # Two calls at once: one runs a trial, one asks how far it is.
        kind = ray.remote(TrialActor).options(
            num_cpus=1, num_gpus=min(1, gpus), max_concurrency=2, max_restarts=0
        )
        self.new_actor = lambda: kind.remote(*arguments)
        self.workers: list[_Worker] = []
        self.calls: dict[Any, tuple[str, _Worker]] = {}
        self.failed_starts = 0
        self.shipped: dict[str, Parts] = {}

    def results(self) -> Results:
        """Run all trials; see :meth:`RayExecutor.map`."""
        started, waited = time.monotonic(), False
        while self.pending or any(worker.trial for worker in self.workers):
            self._hire()
            done, _ = self.ray.wait(list(self.calls), timeout=1.0)
            for call in done:
                yield from self._act_on(call)
            waited = waited or any(worker.ready for worker in self.workers)
            if not waited and time.monotonic() - started > SECONDS_WITHOUT_A_WORD:
                waited = True
                print("Waiting for free places on the Ray cluster (ray status).", file=sys.stderr)

    def end(self) -> None:
        """Remove shipped data from the nodes, and kill all workers."""
        with contextlib.suppress(self.ray.exceptions.RayError):
            if self.shipped:
                calls = [w.actor.remove_copies.remote() for w in self.workers if w.ready]
                self.ray.wait(calls, num_returns=len(calls), timeout=SECONDS_TO_REMOVE)
            for worker in self.workers:
                self.ray.kill(worker.actor)

    def _hire(self) -> None:
        """Give every pending trial to an idle worker, or start one for it."""
        for worker in self.workers:
            if worker.ready and worker.trial is None:
                self._start_next(worker)
        busy = sum(worker.trial is not None for worker in self.workers)
        while len(self.workers) < min(self.size, busy + len(self.pending)):
            worker = _Worker(self.new_actor())
            self.workers.append(worker)
            self.calls[worker.actor.ready.remote()] = "ready", worker

    def _start_next(self, worker: _Worker) -> None:
        worker.trial = self.pending.popleft() if self.pending else None
        if worker.trial is not None:
            self._run(worker, worker.trial)
            self.tell(worker.trial.index, 0.0)
            self._ask(worker)

    def _run(self, worker: _Worker, trial: _Trial, parts: Parts | None = None) -> None:
        call = worker.actor.run.remote(trial.index, trial.configuration, parts)
        self.calls[call] = "trial", worker

    def _ask(self, worker: _Worker) -> None:
        if worker.trial is not None and not worker.asked:
            worker.asked = True
            self.calls[worker.actor.fraction.remote()] = "fraction", worker

    def _act_on(self, call: Any) -> Results:
        kind, worker = self.calls.pop(call)
        if worker not in self.workers:
            return  # another of its calls has told that it is lost
        try:
            answer = self.ray.get(call)
        except self.ray.exceptions.RayTaskError as error:  # e.g. a record that cannot be sent
            answer = "failure", WorkerFailure.from_exception(error)
        except self.ray.exceptions.RayError as error:
            yield from self._lost(worker, error)
            return
        if kind == "ready":
            self._begin(worker, answer)
        elif kind == "fraction":
            self._report(worker, *answer)
        elif worker.trial is not None:
            yield from self._answered(worker, worker.trial, *answer)

    def _begin(self, worker: _Worker, failure: WorkerFailure | None) -> None:
        if failure is not None:
            raise DpcompareError(f"a worker could not import {self.function}: {failure.reason}")
        worker.ready = True
        self.failed_starts = 0
        self._start_next(worker)

    def _report(self, worker: _Worker, index: int, fraction: float) -> None:
        worker.asked = False
        if worker.trial is not None and worker.trial.index == index:
            self.tell(index, fraction)
        self._ask(worker)

    def _answered(self, worker: _Worker, trial: _Trial, kind: str, content: Any) -> Results:
        if kind == "needs data":
            parts = self._parts(trial.configuration["data"])
            if parts is not None:
                self._run(worker, trial, parts)
                return
            content = WorkerFailure(
                f"DpcompareError: the data set {trial.configuration['data']['path']} is gone, or "
                "has changed since the study was expanded; run the study again"
            )
        # The next trial starts before this record is handed over: no worker waits for a disk.
        self._start_next(worker)
        yield trial.index, content

    def _parts(self, data: dict[str, Any]) -> Parts | None:
        """The data set as parts in the object store, put there once; None if it is not here."""
        path = data["path"]
        if path not in self.shipped and visible(path, data["checksum"]):
            self.shipped[path] = parts_of(Path(path), self.ray.put)
        return self.shipped.get(path)

    def _lost(self, worker: _Worker, error: Exception) -> Results:
        """Let the trial of a lost worker start again, or give it up."""
        self.workers.remove(worker)
        self.ray.kill(worker.actor)  # it may be out of reach only
        trial = worker.trial
        if not worker.ready:
            self.failed_starts += 1
            if self.failed_starts == ATTEMPTS:
                raise DpcompareError(
                    f"workers cannot start on the Ray cluster: {_one_line(error)} (dpcompare and "
                    "its libraries must be installed on every node)"
                )
        elif trial is not None:
            trial.losses += 1
            if trial.losses < ATTEMPTS:
                print(
                    f"A worker was lost, its trial starts again: {_one_line(error)}",
                    file=sys.stderr,
                )
                self.pending.appendleft(trial)
            else:
                yield (
                    trial.index,
                    WorkerFailure(f"{ATTEMPTS} workers were lost: {_one_line(error)}"),
                )


class TrialActor:
    """The life of a worker: settle on a core, import, then one trial after the other.

    Args:
        function: import path of the trial function.
        search_path: where the driver looks for modules; used as far as it exists on this node.
        folder: the driver's working folder, for paths that are relative to it.
        copies: name of the folder for shipped data, in this node's folder of temporary files.
    """

    def __init__(self, function: str, search_path: list[str], folder: str, copies: str) -> None:
        self._core = _pin_to_free_core()
        settle()
        there = [path for path in search_path if os.path.exists(path)]
        sys.path[:] = [*there, *(path for path in sys.path if path not in there)]
        if os.path.isdir(folder):
            os.chdir(folder)
        self._copies = Path(tempfile.gettempdir()) / copies
        self._at = (-1, 0.0)
        self._failure: WorkerFailure | None = None
        try:
            self._function = pkgutil.resolve_name(function)
        except Exception as error:
            self._failure = WorkerFailure.from_exception(error)

    def ready(self) -> WorkerFailure | None:
        """Why the function could not be imported."""
        return self._failure

    def run(
        self, index: int, configuration: Configuration, parts: Parts | None
    ) -> tuple[str, Record | WorkerFailure | None]:
        """One trial: ("record", record), ("failure", failure) or ("needs data", None)."""
        self._at = (index, 0.0)
        try:
            data = configuration.get("data", {})
            if "path" in data and not visible(data["path"], data["checksum"]):
                copy = self._copies / data["checksum"]
                if parts is None and not copy.exists():
                    return "needs data", None
                if parts is not None:
                    write_copy(copy, _received(parts))
                configuration = {**configuration, "data": {**data, "path": str(copy)}}
            return "record", self._function(configuration, report=self._report)
        except Exception as error:
            return "failure", WorkerFailure.from_exception(error)

    def _report(self, fraction_done: float) -> None:
        self._at = (self._at[0], float(fraction_done))

    def fraction(self) -> tuple[int, float]:
        """(index, fraction done) of the last trial, a while after it is asked for."""
        time.sleep(SECONDS_BETWEEN_REPORTS)
        return self._at

    def remove_copies(self) -> None:
        """Remove shipped data from this node."""
        remove_copies(self._copies)


def _received(parts: Parts) -> Iterator[tuple[str, Iterator[bytes]]]:
    """The files that a driver shipped, fetched part by part."""
    get: Any = _import_ray().get
    for name, references in parts.items():
        yield name, (get(reference) for reference in references)


def _pin_to_free_core() -> socket.socket | None:
    """Pin all threads of this process to one core, if possible one that no other worker has.

    Returns:
        What marks the core as taken as long as this process lives: an abstract socket, which needs
        no file. None where processes cannot be pinned, and where workers outnumber the cores.
    """
    if not hasattr(os, "sched_setaffinity"):
        return None
    # In random order: containers on one machine do not see each other's marks.
    cores = random.sample(usable_cores(), len(usable_cores()))
    mark, core = None, cores[0]
    for candidate in cores:
        taken = socket.socket(socket.AF_UNIX)
        try:
            taken.bind(f"\0dpcompare-core-{candidate}")
        except OSError:
            taken.close()
            continue
        mark, core = taken, candidate
        break
    for _ in range(2):  # twice: a thread may have been started meanwhile by one not pinned yet
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), {core})
    return mark
