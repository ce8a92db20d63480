"""A line from each worker process to its supervisor: it reports registrations, and each notices the
other's end.

The line is a socket pair. The lower end has nothing to read until the supervisor is gone, however
it died: then the kernel closes the upper end.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable

from ..log import get_logger

logger = get_logger("zkplan.processes")

#: The environment variable that holds the descriptor of the lower end.
_LINE_FD = "ZKPLAN_SUPERVISOR_FD"
#: In place of an ID, which is never so short: the worker was drained from elsewhere.
_DRAINED = b"drained"


class UpperEnd:
    """The supervisor's end of the line to one process."""

    def __init__(self) -> None:
        self._upper, self._lower = socket.socketpair()
        self._upper.setblocking(False)
        self._begun = b""
        #: The last ID under which the worker of that process registered; empty before the first.
        self.worker = ""
        #: Whether that worker was drained from elsewhere, so that nobody replaces its process.
        self.drained = False

    @property
    def to_pass(self) -> int:
        """The descriptor that the process must inherit."""
        return self._lower.fileno()

    def environment(self) -> dict[str, str]:
        """What the process must find in its environment."""
        return {_LINE_FD: str(self.to_pass)}

    def was_passed(self) -> None:
        """Close our copy of the lower end, once the process has its own."""
        self._lower.close()

    def fileno(self) -> int:
        """The descriptor that becomes readable when the process reports something or ends."""
        return self._upper.fileno()

    def listen(self) -> None:
        """Read all reports, also those of a process that has ended meanwhile."""
        if self._upper.fileno() < 0:
            return
        try:
            while told := self._upper.recv(4096):
                *names, self._begun = (self._begun + told).split(b"\n")
                for name in names:
                    self.drained = self.drained or name == _DRAINED
                    self.worker = self.worker if name == _DRAINED else name.decode()
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Nobody is at the other end any more."""
        self._upper.close()


class LowerEnd:
    """The worker's end of the line. Without a supervisor it does nothing."""

    def __init__(self) -> None:
        # No process that this one or its tasks start may inherit the variable or the descriptor.
        number = os.environ.pop(_LINE_FD, None)
        self._lower = None if number is None else socket.socket(fileno=int(number))
        if self._lower is not None:
            self._lower.set_inheritable(False)

    def tell_ready(self, worker: str) -> None:
        """Report that the worker is registered under this ID."""
        if self._lower is not None:
            # A broken pipe: the supervisor is gone, which is noticed below. A full pipe: it has not
            # read for hundreds of lost sessions. So short a message is sent as a whole or not at
            # all.
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(f"{worker}\n".encode(), socket.MSG_DONTWAIT)

    def tell_drained(self) -> None:
        """Report that the worker ends because somebody drained it from elsewhere."""
        if self._lower is not None:
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(_DRAINED + b"\n", socket.MSG_DONTWAIT)

    def hand_on(self) -> dict[str, str]:
        """What this process must find in its environment when it runs a program in its place."""
        if self._lower is None:
            return {}
        self._lower.set_inheritable(True)
        return {_LINE_FD: str(self._lower.fileno())}

    def leave_with_supervisor(self, leave: Callable[[], None]) -> None:
        """Call `leave` on a thread of its own when the supervisor is gone.

        Otherwise this process would run on beside those of the next supervisor, and nobody would
        replace it.
        """
        if self._lower is not None:
            given = [self._lower, leave]
            threading.Thread(target=_leave_after, args=given, daemon=True).start()


def _leave_after(lower: socket.socket, leave: Callable[[], None]) -> None:
    try:
        while lower.recv(1):
            pass
    except ConnectionResetError:
        pass  # it went with something unread
    logger.warning("the supervisor of this worker process is gone: the worker drains")
    leave()
