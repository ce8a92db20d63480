"""A signal's handler runs between any two lines of the main thread, and may raise.

Most often it meets a request at its wake-up: to send that lets other threads run, and takes long.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from .played_connection import CLAIM, READ, Line, line, returns

__all__ = ["line"]


class Signalled(socket.socket):
    """Sends, and then runs a handler, once."""

    handler: Callable[[], object] | None = None

    def send(self, data: bytes, flags: int = 0) -> int:  # type: ignore[override]
        sent = super().send(data, flags)
        handler, self.handler = self.handler, None
        if handler is not None:
            handler()
        return sent


def signal_at_next_wake_up(line: Line, handler: Callable[[], object]) -> None:
    connection = line.client._connection
    signalled = Signalled(fileno=connection._write_sock.detach())
    signalled.handler = handler
    connection._write_sock = signalled


def alarm() -> None:
    """As programs do to bound a time. It is an OSError, too."""
    raise TimeoutError("of the program")


def test_what_a_handler_raises_reaches_the_caller_and_other_requests_go_on(line: Line) -> None:
    signal_at_next_wake_up(line, alarm)
    with pytest.raises(TimeoutError, match="of the program"):
        line.submit(READ)
    assert len(line.waiting) == 1, "kazoo may be sending it: it must not be taken from the queue"
    line.submit(READ)
    assert line.wake_ups() >= len(line.waiting) == 2


def test_nobody_waits_for_a_thread_that_sends_a_wake_up(line: Line) -> None:
    line.submit(CLAIM)
    call = line.next_call()
    answered = []
    signal_at_next_wake_up(line, lambda: answered.append(returns(lambda: call.set([None]))))
    line.submit(READ)
    assert answered == [True]
