"""`zkplan.local`: a server, workers and a client of its own for a notebook, a script or a test."""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from .addresses import PREFIX, Lease, lease, lease_in_memory
from .backoff import Backoff
from .client import DEFAULT_ROOT, Client, connect
from .errors import WaitTimeout, ZkplanError
from .worker import Worker

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

logger = logging.getLogger("zkplan.local")


@contextmanager
def local(
    workers: int = 2,
    threads: int = 4,
    data: str | Path | None = None,
    *,
    root: str = DEFAULT_ROOT,
    secret: bytes | str = b"",
    grace: float = 5.0,
    log: str | Path | None = None,
) -> Iterator[Client]:
    """All that a plan needs, for the length of a `with` block: gives a connected client.

        with zkplan.local() as client, client.create_plan() as plan:
            answer = plan.add_task(lambda: 6 * 7)

    The server runs in this process. `workers` are processes with `threads` slots each; one that
    dies is replaced, with a warning in the log "zkplan.local". With `workers=0` the slots are
    threads of this process, where a debugger can stop in a task. `data` is a folder that keeps
    plans for the next time (the block uses the server of another process that serves it already);
    without it they are in memory and end with the block. What tasks print goes to the file `log`,
    or is dropped.

    Leaving the block gives running tasks `grace` seconds; those that are not finished are handed
    back (and lost, without `data`). Raises ZkplanError where a worker cannot start, or a number is
    out of range, KeeperUnavailable where the folder cannot be used; then nothing is left running.
    """
    if type(workers) is not int or not 0 <= workers <= WORKERS_MAX:
        raise ZkplanError(f"workers must be 0 to {WORKERS_MAX}, not {workers!r}")
    with ExitStack() as stack:
        server = stack.enter_context(_serve(data))
        client = stack.enter_context(
            connect(server.hosts, root, secret=secret, session_timeout=SESSION_TIMEOUT_S)
        )
        client.prepare()
        if workers == 0:
            own = connect(server.hosts, root, secret=secret, session_timeout=SESSION_TIMEOUT_S)
            stack.enter_context(own)
            stack.callback(Worker(own, threads).start().stop, grace)
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zkplan-local-")))
            command = [sys.executable, "-m", "zkplan", "worker", "--hosts", server.hosts]
            command += ["--root", root, "--threads", str(threads), "--grace", str(grace)]
            command += ["--session-timeout", str(SESSION_TIMEOUT_S)]
            output = Path(log or folder / "log")
            stack.enter_context(
                _Crew(client, command, _environment(secret), workers, grace, output)
            )
        yield client


def _serve(data: str | Path | None) -> Lease:
    return lease_in_memory() if data is None else lease(f"{PREFIX}{Path(data).resolve()}")


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
        log: Path,
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
            if now >= due:
                self._fill()

    def _kill_all(self) -> None:
        self._leaving.set()
        with self._lock, ExitStack() as stack:
            while self._processes:
                stack.callback(self._processes.popitem()[0].end, 0)

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return " The end of its log:\n" + "\n".join(lines) if lines else " It wrote nothing."
