"""How long one attempt to connect may take: not the session that it is to save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect

#: What an attempt may take at first; twice as long after each that took it all.
ATTEMPT_S = 2.0


def bound_attempts(client: KazooClient) -> None:
    """Give up an attempt that nobody answers, and make the next one, long before the session ends.

    kazoo waits a whole session time-out for a connection (from a machine that is gone nothing comes
    back), and one divided by the number of hosts for the answer to the handshake. So who loses
    the connection once, and then has such an attempt, loses the session and its claims.

    A ZooKeeper that has just started may take a connection, and never answer its handshake: of 72
    reconnections to one that was killed and started again 7 hung so, until the time was over; the
    next attempt was answered at once. A server that is slow to answer all of them gets more time
    with each, up to kazoo's own.
    """
    connection, handler = client._connection, client.handler
    invoke, create = connection._invoke, handler.create_connection
    attempts = Attempts()

    def invoke_within(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
        if type(request) is not Connect:
            return invoke(timeout, request, *rest, **more)
        answer = attempts.make(timeout, lambda within: invoke(within, request, *rest, **more))
        attempts.within_s = ATTEMPT_S  # this one was answered
        return answer

    def create_within(*given: Any, timeout: float, **more: Any) -> Any:
        return attempts.make(timeout, lambda within: create(*given, timeout=within, **more))

    connection._invoke, handler.create_connection = invoke_within, create_within


class Attempts:
    """The time that each attempt of one client gets, by what the ones before it took."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.within_s = ATTEMPT_S
        self._now = now

    def make(self, most_s: float, attempt: Callable[[float], Any]) -> Any:
        within_s, began = min(most_s, self.within_s), self._now()
        try:
            return attempt(within_s)
        except Exception:
            if self._now() - began >= within_s:
                self.within_s = min(most_s, 2 * within_s)
            raise
