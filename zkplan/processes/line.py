"""The line between a supervisor and a worker process: who registered goes up, its end is noticed.

A socket pair for each process. One that holds the lower end reads nothing from it until the
supervisor is gone, however it died: the kernel closes the upper end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable

logger = logging.getLogger("zkplan.processes")

#: Names the descriptor of the lower end.
_LINE_FD = "ZKPLAN_SUPERVISOR_FD"


class UpperEnd:
    """The supervisor's end of the line to one process."""

    def __init__(self) -> None:
        self._upper, self._lower = socket.socketpair()
        self._upper.setblocking(False)
        self._begun = b""
        #: The ID under which a worker of that process registered last; empty before.
        self.worker = ""

    @property
    def to_pass(self) -> int:
        """The descriptor that the process must inherit."""
        return self._lower.fileno()

    def environment(self) -> dict[str, str]:
        """What the process must find in its environment."""
        return {_LINE_FD: str(self.to_pass)}

    def was_passed(self) -> None:
        """The process has its end: what is here of it is needed no longer."""
        self._lower.close()

    def fileno(self) -> int:
        """The descriptor to wait for until something is told, or the process has ended."""
        return self._upper.fileno()

    def listen(self) -> None:
        """Take in all that was told, also by a process that has ended meanwhile."""
        if self._upper.fileno() < 0:
            return
        try:
            while told := self._upper.recv(4096):
                *names, self._begun = (self._begun + told).split(b"\n")
                if names:
                    self.worker = names[-1].decode()
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Nobody is at the other end any more."""
        self._upper.close()


class LowerEnd:
    """The end of a worker process; without a supervisor nothing happens."""

    def __init__(self) -> None:
        # Neither the name nor the descriptor may come to what this process or a task of it starts.
        number = os.environ.pop(_LINE_FD, None)
        self._lower = None if number is None else socket.socket(fileno=int(number))
        if self._lower is not None:
            self._lower.set_inheritable(False)

    def tell_ready(self, worker: str) -> None:
        """A worker is registered, under this ID."""
        if self._lower is not None:
            # Broken: the supervisor is gone, which is noticed below. Full: after hundreds of lost
            # sessions in which it was not awake; so short a message goes as a whole or not at all.
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(f"{worker}\n".encode(), socket.MSG_DONTWAIT)

    def leave_with_supervisor(self, leave: Callable[[], None]) -> None:
        """Have `leave` called, on a thread, when the supervisor is gone.

        Else this process would serve on beside those of the next one, and nobody would replace it.
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
    logger.warning("the supervisor of this worker process is gone: it drains")
    leave()
