"""Start `zkplan worker` or `zkplan serve` as a process, and read the reports of that process."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..basics.log import get_logger
from ..basics.settings import Handed, Settings
from ..errors import ZkplanError
from . import Relay, WatchedProcess, same_imports


class WorkerProcess(WatchedProcess):
    """See WatchedProcess. Over its line the process reports its worker's ID, and notices our end.

    `settings`, if given, replace the settings in the command and the environment.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path | Relay | None,
        environment: Mapping[str, str] | None = None,
        *,
        settings: Settings | None = None,
        watched: bool = True,
    ) -> None:
        self.line = UpperEnd()
        handed: Handed | None = None
        self.born = time.monotonic()
        #: When the process was last seen running, by the monotonic clock.
        self.seen = self.born
        try:
            handed = None if settings is None else Handed(settings)
            super().__init__(
                command,
                log,
                {
                    **(os.environ if environment is None else environment),
                    **self.line.environment(),
                    **({} if handed is None else handed.environment()),
                },
                pass_fds=[self.line.to_pass, *([] if handed is None else [handed.to_pass])],
                watched=watched,
            )
        except BaseException:
            self.line.close()
            raise
        finally:
            self.line.was_passed()
            if handed is not None:
                handed.was_passed()

    @property
    def worker(self) -> str:
        """The last ID under which its worker registered, also after the process has ended; empty
        before the first registration."""
        self.line.listen()
        return self.line.worker

    @property
    def drained(self) -> bool:
        """Whether an operator has drained its worker. Still known after the process has ended."""
        self.line.listen()
        return self.line.drained

    def is_running(self) -> bool:
        """See WatchedProcess."""
        now = time.monotonic()
        running = super().is_running()
        self.seen = now if running else self.seen
        return running

    def end(self, grace_s: float) -> None:
        """See WatchedProcess."""
        super().end(grace_s)
        self.line.listen()
        self.line.close()


def worker_command(threads: int, grace_s: float, *more: str) -> list[str]:
    """The command line of a worker, without its settings: every user of the machine can read it."""
    command = [sys.executable, "-m", "zkplan", "worker"]
    return [*command, "--threads", str(threads), "--grace", str(grace_s), *more]


def worker_environment() -> dict[str, str]:
    """The environment for a worker: this process's environment without its `ZKPLAN_…` variables.

    The worker can import everything that this process can.
    """
    kept = {name: value for name, value in same_imports().items() if not name.startswith("ZKPLAN_")}
    return kept | {"PYTHONUNBUFFERED": "1"}


# ---- A line from each worker process to its supervisor: the worker reports its registrations, and
# each end notices when the other dies.
#
# The line is a socket pair. The worker reads nothing from the lower end until the supervisor dies,
# however it dies: then the kernel closes the upper end.


logger = get_logger("zkplan.processes")

#: The environment variable that holds the descriptor of the lower end.
_LINE_FD = "ZKPLAN_SUPERVISOR_FD"
#: Sent instead of an ID, which is always longer: an operator has drained the worker.
_DRAINED = b"drained"


class UpperEnd:
    """The supervisor's end of the line to one process."""

    def __init__(self) -> None:
        self._upper, self._lower = socket.socketpair()
        self._upper.setblocking(False)
        self._begun = b""
        #: The last ID under which the worker registered; empty before the first registration.
        self.worker = ""
        #: Whether an operator has drained the worker. Its process is then not replaced.
        self.drained = False

    @property
    def to_pass(self) -> int:
        """The descriptor that the process must inherit."""
        return self._lower.fileno()

    def environment(self) -> dict[str, str]:
        """The environment variable through which the process finds its end."""
        return {_LINE_FD: str(self.to_pass)}

    def was_passed(self) -> None:
        """Close this process's copy of the lower end, after the worker process has started."""
        self._lower.close()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the process reports something or ends."""
        return self._upper.fileno()

    def listen(self) -> None:
        """Read all reports that have arrived, also from a process that has ended."""
        if self._upper.fileno() < 0:
            return
        try:
            while received := self._upper.recv(4096):
                *names, self._begun = (self._begun + received).split(b"\n")
                for name in names:
                    self.drained = self.drained or name == _DRAINED
                    self.worker = self.worker if name == _DRAINED else name.decode()
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close this end, after the end of the process."""
        self._upper.close()


class LowerEnd:
    """The worker's end of the line. Without a supervisor, its methods do nothing."""

    def __init__(self) -> None:
        # No child of this process or of its tasks may inherit the variable or the descriptor.
        number = os.environ.pop(_LINE_FD, None)
        self._lower = None if number is None else socket.socket(fileno=int(number))
        if self._lower is not None:
            self._lower.set_inheritable(False)

    def report_ready(self, worker: str) -> None:
        """Report that the worker has registered under the ID `worker`."""
        if self._lower is not None:
            # BrokenPipeError: the supervisor has died, see `leave_with_supervisor`.
            # BlockingIOError: the supervisor has not read for hundreds of registrations. A message
            # this short is sent completely or not at all.
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(f"{worker}\n".encode(), socket.MSG_DONTWAIT)

    def report_drained(self) -> None:
        """Report that the worker ends because an operator has drained it."""
        if self._lower is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(_DRAINED + b"\n", socket.MSG_DONTWAIT)

    def hand_on(self) -> dict[str, str]:
        """The environment variables that keep the line for a program that replaces this one."""
        if self._lower is None:
            return {}
        self._lower.set_inheritable(True)
        return {_LINE_FD: str(self._lower.fileno())}

    def leave_with_supervisor(self, leave: Callable[[], None]) -> None:
        """Call `leave` on a new thread when the supervisor has died.

        Otherwise this process would run on beside the processes of the next supervisor.
        """
        if self._lower is not None:
            given = [self._lower, leave]
            threading.Thread(target=_leave_after, args=given, daemon=True).start()


def _leave_after(lower: socket.socket, leave: Callable[[], None]) -> None:
    try:
        while lower.recv(1):
            pass
    except ConnectionResetError:
        pass  # the supervisor died before it had read all reports
    logger.warning("the supervisor of this worker process is gone: the worker drains")
    leave()


# ---- Start `zkplan serve` as a process, which serves the page of a root, and learn its address.


_PAGE_START_S, _PAGE_LOOK_S = 30.0, 0.1
_PAGE_STOP_S = 3.0
_PAGE_SAYS = "serving at "


class PageProcess(WatchedProcess):
    """See WatchedProcess. The service listens on a free port of loopback; `address` contains a
    token for this run."""

    def __init__(self, settings: Settings) -> None:
        """Raises ZkplanError if the service does not start, for example without zkplan[service]."""
        self.address = ""
        self._said = threading.Event()
        handed = Handed(settings)
        try:
            super().__init__(
                [sys.executable, "-m", "zkplan", "serve", "--listen", "127.0.0.1:0"],
                Relay(self._note),
                worker_environment() | handed.environment(),
                pass_fds=[handed.to_pass],
            )
        finally:
            handed.was_passed()
        try:
            until = time.monotonic() + _PAGE_START_S
            while (
                not self._said.wait(_PAGE_LOOK_S) and self.is_running() and time.monotonic() < until
            ):
                pass
            if not self.address:
                raise ZkplanError(f"the service of the page does not start.{self.log_tail()}")
        except BaseException:
            self.close()
            raise

    def _note(self, line: str, _: str) -> None:
        if line.startswith(_PAGE_SAYS):
            self.address = line.removeprefix(_PAGE_SAYS).strip()
            self._said.set()

    def close(self) -> None:
        """End the process."""
        self.end(_PAGE_STOP_S)
