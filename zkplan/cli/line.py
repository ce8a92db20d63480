"""The line between a supervisor and its worker processes: `ready` goes up, its end is noticed.

One socket pair for all of them. A process that holds the lower end reads nothing from it until the
supervisor is gone, however it died: the kernel closes the upper end.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading

logger = logging.getLogger("zkplan.supervisor")

#: Names the descriptor of the lower end.
_LINE_FD = "ZKPLAN_SUPERVISOR_FD"


class UpperEnd:
    """The supervisor's end."""

    def __init__(self) -> None:
        self._upper, self._lower = socket.socketpair()
        self._upper.setblocking(False)

    @property
    def to_pass(self) -> int:
        """The descriptor that a worker process must inherit."""
        return self._lower.fileno()

    def environment(self) -> dict[str, str]:
        """What a worker process must find in its environment."""
        return {_LINE_FD: str(self.to_pass)}

    def one_was_ready(self) -> bool:
        """Whether a process said so since the last look, to be taken often: a full line blocks."""
        try:
            return bool(self._upper.recv(4096))
        except BlockingIOError:
            return False


class LowerEnd:
    """The end of a worker process; without a supervisor nothing happens."""

    def __init__(self) -> None:
        # Neither the name nor the descriptor may come to what this process or a task of it starts.
        number = os.environ.pop(_LINE_FD, None)
        self._lower = None if number is None else socket.socket(fileno=int(number))
        if self._lower is not None:
            self._lower.set_inheritable(False)

    def tell_ready(self) -> None:
        """A worker is registered. Harmless when repeated."""
        if self._lower is not None:
            try:
                self._lower.sendall(b"\n")
            except BrokenPipeError:
                pass  # the supervisor is gone, and `leave_with_supervisor` knows

    def leave_with_supervisor(self) -> None:
        """Have this process sent SIGTERM, which drains it, when its supervisor is gone.

        Else it would serve on beside those of the next supervisor, and nobody would replace it.
        """
        if self._lower is not None:
            waiting = threading.Thread(target=_leave_after, args=[self._lower], daemon=True)
            waiting.start()


def _leave_after(lower: socket.socket) -> None:
    try:
        while lower.recv(1):
            pass
    except ConnectionResetError:
        pass  # it went with something unread
    logger.warning("the supervisor of this worker process is gone: it drains")
    os.kill(os.getpid(), signal.SIGTERM)
