"""The worker processes of a demonstration: started, watched, and one of them killed."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from zkplan.errors import ZkplanError
from zkplan.processes.watched import WatchedProcess

#: Short, so that a takeover is seen soon; at work a longer one outlasts pauses of the machine.
SESSION_TIMEOUT_S = 4.0
_READY_DEADLINE_S = 30.0
_STOP_GRACE_S = 5.0
_POLL_S = 0.02
# Time for ZooKeeper to read from its socket what a worker sent before it was stopped.
_SETTLE_S = 0.05
_LOG_TAIL_LINES = 15


class DemoFailed(ZkplanError):
    """The demonstration did not come to its end; the message says why."""


class Killed(NamedTuple):
    """A worker killed while it held claims; `at` is the monotonic clock at the kill."""

    worker: str
    pid: int
    tasks: list[str]
    at: float


class Workers:
    """A few `zkplan worker` processes, which end with the `with` block at the latest.

    They run in sessions of their own: Ctrl-C reaches only the demonstration, which then ends them.
    """

    def __init__(self, hosts: str, root: str, count: int, threads: int, folder: Path) -> None:
        """Start them; each logs to a file in `folder`."""
        command = [sys.executable, "-m", "zkplan", "worker", "--hosts", hosts, "--root", root]
        command += ["--threads", str(threads), "--session-timeout", str(SESSION_TIMEOUT_S)]
        #: Names by process id, once they are registered.
        self.names: dict[int, str] = {}
        self._logs: dict[int, Path] = {}
        self._processes: dict[int, WatchedProcess] = {}
        try:
            for number in range(1, count + 1):
                log = folder / f"worker-{number}.log"
                process = WatchedProcess(command, log)
                self._processes[process.pid] = process
                self._logs[process.pid] = log
        except BaseException:
            self.close()
            raise

    def wait_registered(self, registered: Callable[[], dict[int, str]]) -> None:
        """Wait until `registered` names each process; raises DemoFailed where one ends or lags."""
        deadline = time.monotonic() + _READY_DEADLINE_S
        while not self._processes.keys() <= self.names.keys():
            self.require_alive()
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"not all workers registered within {_READY_DEADLINE_S:g} s{self._log_tails()}"
                )
            time.sleep(_POLL_S)
            self.names = registered()

    def require_alive(self) -> None:
        """Raise DemoFailed where a worker ended that nobody killed."""
        for pid, process in self._processes.items():
            if not process.is_running():
                raise DemoFailed(f"worker process {pid} ended by itself{self._log_tails()}")

    def kill_one(self, held_by: Callable[[str], list[str]]) -> Killed | None:
        """SIGKILL a worker that holds claims; None where none of them does just now.

        A worker is stopped before it is asked about: what `held_by` says of a running one may have
        been committed before the kill arrives.
        """
        for pid, process in self._processes.items():
            process.pause()
            time.sleep(_SETTLE_S)
            held = held_by(self.names[pid])
            if held:
                process.send(signal.SIGKILL)
                killed = Killed(self.names[pid], pid, held, time.monotonic())
                process.end(0)
                del self._processes[pid]
                return killed
            process.send(signal.SIGCONT)
        return None

    def close(self) -> None:
        """End them all: they hand back what they hold."""
        processes = list(self._processes.values())
        self._processes.clear()
        with ExitStack() as stack:
            for process in processes:
                stack.callback(process.end, 0)
                stack.callback(process.wait_ended, _STOP_GRACE_S)
            for process in processes:
                process.send(signal.SIGTERM)
                process.send(signal.SIGCONT)  # Ctrl-C may have come while it was stopped.

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _log_tails(self) -> str:
        found = ""
        for pid, log in self._logs.items():
            lines = log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
            found += f"\nThe end of the log of process {pid}:\n" + "\n".join(lines)
        return found
