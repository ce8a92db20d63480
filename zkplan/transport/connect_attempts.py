"""How long one attempt to connect may take: less than the session that it is to save."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.serialization import Connect

from .kazoo_private import LoopStep, session_timeout_s, wrap

#: An attempt may take this long at first, unless a fifth of the session time-out is less.
ATTEMPT_S, _PART = 2.0, 5


def bound_attempts(client: KazooClient) -> None:
    """Give up an attempt that nobody answers, and make the next one, while the session lives.

    kazoo waits a whole session time-out for a connection (a machine that is gone sends nothing),
    and that time-out divided by the number of hosts for the handshake. A client that loses its
    connection, and then has such an attempt, would lose its session and its claims.

    A ZooKeeper that has just started may take a connection and never answer its handshake: 7 of 72
    reconnections to one that was killed and started again hung so. The next attempt was answered at
    once. A client without a session has none to lose: its handshake may take kazoo's time. Servers
    that are slow get more time with each attempt, up to kazoo's own, and next time twice what they
    have needed.
    """
    create = client.handler.create_connection
    handshakes = Attempts(session_timeout_s(client))
    connections = Attempts(session_timeout_s(client))

    def around_invoke(invoke: Callable[..., Any]) -> Callable[..., Any]:
        def invoke_within(timeout: float, request: Any, *rest: Any, **more: Any) -> Any:
            if type(request) is not Connect or not request.session_id:
                return invoke(timeout, request, *rest, **more)
            return handshakes.make(timeout, lambda within: invoke(within, request, *rest, **more))

        return invoke_within

    def create_within(*given: Any, timeout: float | None = None, **more: Any) -> Any:
        if timeout is None:  # kazoo's search for a server that writes
            return create(*given, **more)
        return connections.make(timeout, lambda within: create(*given, timeout=within, **more))

    wrap(client, LoopStep.INVOKE, around_invoke)
    client.handler.create_connection = create_within


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
