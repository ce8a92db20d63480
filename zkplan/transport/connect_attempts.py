"""How long one attempt to connect may take: not the session that it is to save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect

#: What an attempt may take at first, unless a fifth of the session time-out is less.
ATTEMPT_S, _PART = 2.0, 5


def bound_attempts(client: KazooClient) -> None:
    """Give up an attempt that nobody answers, and make the next one, while the session lives.

    kazoo waits a whole session time-out for a connection (from a machine that is gone nothing comes
    back), and one divided by the number of hosts for the answer to the handshake. So who loses
    the connection once, and then has such an attempt, loses the session and its claims.

    A ZooKeeper that has just started may take a connection, and never answer its handshake: of 72
    reconnections to one that was killed and started again 7 hung so, until the time was over; the
    next attempt was answered at once. Who has no session yet has none to lose: that handshake takes
    as long as it takes. Servers that are slow to answer get more time with each attempt, up to
    kazoo's own, and next time twice what they have needed.
    """
    connection, handler = client._connection, client.handler
    invoke, create = connection._invoke, handler.create_connection
    session_s = client._session_timeout / 1000.0
    handshakes, connections = Attempts(session_s), Attempts(session_s)

    def invoke_within(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
        if type(request) is not Connect or not request.session_id:
            return invoke(timeout, request, *rest, **more)
        return handshakes.make(timeout, lambda within: invoke(within, request, *rest, **more))

    def create_within(*given: Any, timeout: float | None = None, **more: Any) -> Any:
        if timeout is None:  # kazoo's search for a server that writes
            return create(*given, **more)
        return connections.make(timeout, lambda within: create(*given, timeout=within, **more))

    connection._invoke, handler.create_connection = invoke_within, create_within


class Attempts:
    """The time that each attempt of one client gets, by what the ones before it took."""

    def __init__(self, session_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._least_s = self.within_s = min(ATTEMPT_S, session_s / _PART)
        self._now = now

    def make(self, most_s: float, attempt: Callable[[float], Any]) -> Any:
        within_s, began = min(most_s, self.within_s), self._now()
        try:
            made = attempt(within_s)
        except BaseException:  # the time-outs of gevent are no Exceptions
            if self._now() - began >= within_s:
                self.within_s = min(most_s, 2 * within_s)
            raise
        self.within_s = max(self._least_s, 2 * (self._now() - began))
        return made
