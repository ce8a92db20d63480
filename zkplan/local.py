"""`zkplan.local`: a server, workers and a client of its own for a notebook, a script or a test."""

from __future__ import annotations

import atexit
import fcntl
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

from .backoff import Backoff
from .client import DEFAULT_ROOT, Client, connect
from .errors import WaitTimeout, ZkplanError
from .transport.addresses import PREFIX, Lease, lease_folder, lease_in_memory
from .worker import THREADS_MAX, Worker

if TYPE_CHECKING:
    from .testing.process import WatchedProcess

#: After a worker process dies its tasks wait so long; they share one machine with their server.
SESSION_TIMEOUT_S = 5.0
WORKERS_MAX = 64
_REGISTER_S = 30.0
_POLL_S = 0.01
_TEND_S = 0.1
#: What a worker may take beyond its grace to hand back and leave, before it is killed.
_LEAVE_S = 3.0
#: What it gets instead where Ctrl-C ended the block.
_HURRY_S = 1.0
_RESTART = Backoff(initial_s=0.1, max_s=10.0, jitter=0.0)
_YOUNG_S = 10.0
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 8192
_LOG_BYTES_MAX = 16 * 1024 * 1024
_GRACE_MAX_S = 30 * 24 * 3600

logger = logging.getLogger("zkplan.local")


def local(
    workers: int = 2,
    threads: int = 4,
    data: str | Path | None = None,
    *,
    root: str = DEFAULT_ROOT,
    secret: bytes | str = b"",
    grace: float = 5.0,
    log: str | Path | None = None,
) -> Local:
    """All that a plan needs on one machine; a `with` block gives a connected client.

        with zkplan.local() as client, client.create_plan() as plan:
            answer = plan.add_task(lambda: 6 * 7)

    In a notebook, where one block cannot span several cells:

        here = zkplan.local()
        client = here.start()
        ...
        here.close()

    The server runs in this process. `workers` are processes with `threads` slots each; one that
    dies is replaced, with a warning in the log "zkplan.local". With `workers=0` the slots are
    threads of this process, where a debugger can stop in a task. `data` is a folder that keeps
    plans for the next time (the block uses the server of another process that serves it already);
    without it they are in memory and end with the block. What tasks print goes to the file `log`,
    or is dropped.

    Leaving the block gives running tasks `grace` seconds; those that are not finished are handed
    back (and lost, without `data`). Raises ZkplanError for a number out of range.
    """
    if type(workers) is not int or not 0 <= workers <= WORKERS_MAX:
        raise ZkplanError(f"workers must be 0 to {WORKERS_MAX}, not {workers!r}")
    if type(threads) is not int or not 1 <= threads <= THREADS_MAX:
        raise ZkplanError(f"threads must be 1 to {THREADS_MAX}, not {threads!r}")
    if not 0 <= grace <= _GRACE_MAX_S:
        raise ZkplanError(f"grace must be 0 to {_GRACE_MAX_S} seconds, not {grace!r}")
    if data is not None and not str(data).strip():
        raise ZkplanError('data must name a folder ("." is the current one), not be empty')
    folder = None if data is None else Path(data).expanduser().resolve()
    return Local(workers, threads, folder, root, secret, grace, None if log is None else Path(log))


class Local:
    """A server, workers and a client: from `start`, or the begin of a `with` block, to `close`.

    What is not closed when the interpreter ends is closed then, without waiting for running tasks.
    Made by `zkplan.local`, which says what the arguments mean.
    """

    def __init__(
        self,
        workers: int,
        threads: int,
        folder: Path | None,
        root: str,
        secret: bytes | str,
        grace: float,
        log: Path | None,
    ) -> None:
        self._workers, self._threads, self._folder = workers, threads, folder
        self._root, self._secret, self._grace, self._log = root, secret, grace, log
        self._opened: ExitStack | None = None
        self._client: Client | None = None
        self._pid = 0

    @property
    def client(self) -> Client:
        """The client, once started. Raises ZkplanError before and after that."""
        if self._client is None:
            raise ZkplanError("zkplan.local() is not started, or was closed: call start()")
        return self._client

    def start(self) -> Client:
        """Start all, once; the connected client. After `close` it may be started anew.

        Raises ZkplanError where a worker cannot start, ZooKeeperUnavailable where the folder cannot
        be used; then nothing is left running.
        """
        if self._client is not None:
            return self._client
        with ExitStack() as stack:
            folder = self._folder
            server = stack.enter_context(
                lease_in_memory() if folder is None else lease_folder(folder)
            )
            client = self._connect(server, stack)
            client.prepare()
            if self._workers == 0:
                worker = Worker(self._connect(server, stack), self._threads).start()
                hurry_s = min(self._grace, _HURRY_S)
                stack.push(
                    lambda kind, *_: worker.stop(
                        hurry_s if kind is KeyboardInterrupt else self._grace
                    )
                )
            else:
                stack.enter_context(self._crew(server, client, stack))
            self._opened, self._client, self._pid = stack.pop_all(), client, os.getpid()
        # Registered last, so that it comes first: the server is still there.
        atexit.register(self._end, KeyboardInterrupt)
        return client

    def _connect(self, server: Lease, stack: ExitStack) -> Client:
        client = stack.enter_context(
            connect(
                server.hosts, self._root, secret=self._secret, session_timeout=SESSION_TIMEOUT_S
            )
        )
        server.follow(client.transport.client)
        return client

    def _crew(self, server: Lease, client: Client, stack: ExitStack) -> _Crew:
        # Where another process serves the folder, each worker follows it by itself.
        hosts = f"{PREFIX}{self._folder}" if server.is_elsewhere else server.hosts
        command = [sys.executable, "-m", "zkplan", "worker", "--hosts", hosts]
        command += ["--root", self._root, "--threads", str(self._threads)]
        command += ["--grace", str(self._grace), "--session-timeout", str(SESSION_TIMEOUT_S)]
        return _Crew(
            client,
            command,
            _environment(self._secret),
            self._workers,
            self._grace,
            stack.enter_context(_output(self._log)),
        )

    def close(self) -> None:
        """End the workers, the client and the server; may be repeated. Does not raise for tasks."""
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        opened, self._opened, self._client = self._opened, None, None
        # In a forked child all of it belongs to the parent.
        if opened is not None and os.getpid() == self._pid:
            atexit.unregister(self._end)
            opened.__exit__(kind, None if kind is None else kind(), None)

    def __enter__(self) -> Client:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(kind)


def _output(log: Path | None) -> IO[bytes]:
    """Where the workers write: without a log a file without a name, which no signal leaves."""
    if log is not None:
        return log.open("ab", buffering=0)
    file = tempfile.TemporaryFile(prefix="zkplan-local-", buffering=0)  # noqa: SIM115
    # So that it can be cut while workers write to it.
    fcntl.fcntl(file, fcntl.F_SETFL, fcntl.fcntl(file, fcntl.F_GETFL) | os.O_APPEND)
    return file


def _environment(secret: bytes | str) -> dict[str, str]:
    """That of this process, but for the options which the command line of a worker would take."""
    # Imported here: who only wants a client does not load the tools for tests.
    from .testing.process import same_imports

    try:
        text = secret if isinstance(secret, str) else secret.decode()
    except UnicodeDecodeError:
        raise ZkplanError("the secret of local workers must be text, or bytes in UTF-8") from None
    kept = {name: value for name, value in same_imports().items() if not name.startswith("ZKPLAN_")}
    # In the environment, not on the command line, which every user of the machine can read.
    return kept | {"ZKPLAN_SECRET": text, "PYTHONUNBUFFERED": "1"}


class _Crew:
    """The worker processes of a block: all registered before it begins, replaced when they die."""

    def __init__(
        self,
        client: Client,
        command: Sequence[str],
        environment: Mapping[str, str],
        count: int,
        grace_s: float,
        log: IO[bytes],
    ) -> None:
        self._client, self._command, self._environment = client, command, environment
        self._count, self._grace_s, self._log = count, grace_s, log
        self._processes: dict[WatchedProcess, float] = {}
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._tending = threading.Thread(target=self._tend, name="zkplan-local", daemon=True)

    def __enter__(self) -> _Crew:
        try:
            self._fill()
            self._wait_registered()
            self._tending.start()
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain (after Ctrl-C only shortly); whatever interrupts that, no process outlives it."""
        try:
            self._leaving.set()
            self._tending.join()
            for process in self._processes:
                process.send(signal.SIGTERM)
            grace_s = self._grace_s + _LEAVE_S
            deadline = time.monotonic() + (_HURRY_S if kind is KeyboardInterrupt else grace_s)
            for process in self._processes:
                process.wait_ended(max(0.0, deadline - time.monotonic()))
        finally:
            self._kill_all()

    def _fill(self) -> None:
        """Start what is missing, unless the block is left."""
        from .testing.process import WatchedProcess

        # A process started beside `_kill_all` would be forgotten.
        with self._lock:
            while len(self._processes) < self._count and not self._leaving.is_set():
                process = WatchedProcess(self._command, self._log, self._environment)
                self._processes[process] = time.monotonic()

    def _wait_registered(self) -> None:
        deadline = time.monotonic() + _REGISTER_S
        waited_for = {process.pid: process for process in self._processes}
        while waited_for:
            for worker in self._client.workers():
                waited_for.pop(worker.pid, None)
            for pid, process in waited_for.items():
                if not process.is_running():
                    raise ZkplanError(f"worker process {pid} ended at its start.{self._log_tail()}")
            if time.monotonic() > deadline:
                raise WaitTimeout(
                    f"workers did not register within {_REGISTER_S:g} s.{self._log_tail()}"
                )
            time.sleep(_POLL_S)

    def _tend(self) -> None:
        """Replace those that end by themselves, slower and slower while they die young."""
        deaths, due = 0, 0.0
        while not self._leaving.wait(_TEND_S):
            now = time.monotonic()
            for process, born in list(self._processes.items()):
                if process.is_running():
                    continue
                del self._processes[process]
                process.end(0)
                deaths = deaths + 1 if now - born < _YOUNG_S else 0
                due = now + _RESTART.delay_s(deaths, 0.0)
                logger.warning(
                    "worker process %d has ended; it is replaced, and its tasks are taken over "
                    "after %g s.%s",
                    process.pid,
                    SESSION_TIMEOUT_S,
                    self._log_tail(),
                )
            if now < due:
                continue
            try:
                self._cut_log()
                self._fill()
            except OSError as error:
                # No memory, no processes, no descriptors for the moment: this thread must not end.
                deaths += 1
                due = now + _RESTART.delay_s(deaths, 0.0)
                logger.error("a worker process cannot be started; it is tried again: %s", error)

    def _kill_all(self) -> None:
        self._leaving.set()
        with self._lock, ExitStack() as stack:
            while self._processes:
                stack.callback(self._processes.popitem()[0].end, 0)

    def _cut_log(self) -> None:
        """Nobody can read the file without a name but for its end, and notebooks live long."""
        if self._log.readable() and os.fstat(self._log.fileno()).st_size > _LOG_BYTES_MAX:
            os.ftruncate(self._log.fileno(), 0)

    def _log_tail(self) -> str:
        lines = self._tail_bytes().decode(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return " The end of its log:\n" + "\n".join(lines) if lines else " It wrote nothing."

    def _tail_bytes(self) -> bytes:
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        # Not by `seek`: all the workers write at the position of this file.
        if self._log.readable():
            return os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start)
        with Path(self._log.name).open("rb") as log:
            log.seek(start)
            return log.read()
