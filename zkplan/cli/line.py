"""The line between a supervisor and its worker processes: who is ready goes up, its end is noticed.

One socket pair for all of them. A process that holds the lower end reads nothing from it until the
supervisor is gone, however it died: the kernel closes the upper end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable

logger = logging.getLogger("zkplan.supervisor")

#: Names the descriptor of the lower end.
_LINE_FD = "ZKPLAN_SUPERVISOR_FD"


class UpperEnd:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._upper, self._lower = socket.socketpair()
        self._upper.setblocking(False)
        self._begun = b""

    @property
    def to_pass(self) -> int:
        """The descriptor that a worker process must inherit."""
        return self._lower.fileno()

    def environment(self) -> dict[str, str]:
        """What a worker process must find in its environment."""
        return {_LINE_FD: str(self.to_pass)}

    def registered(self) -> list[tuple[int, str]]:
        """The worker processes that have registered since the last look, each with its worker's ID.

        All that was told before: also by those that have ended meanwhile.
        """
        try:
            while True:
                self._begun += self._upper.recv(4096)
        except BlockingIOError:
            pass
        *told, self._begun = self._begun.split(b"\n")
        pairs = (line.decode().split(" ", 1) for line in told)
        return [(int(process), worker) for process, worker in pairs]


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
            # Broken: the supervisor is gone, which is noticed below. Full: it reads nothing, so it
            # would not see the end of this process either. So short a message goes as a whole.
            with contextlib.suppress(BrokenPipeError, BlockingIOError):
                self._lower.send(f"{os.getpid()} {worker}\n".encode(), socket.MSG_DONTWAIT)

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
