"""Finds out that ZooKeeper was restored from an older state than a client has seen.

A server closes the connection of a client that has seen a newer transaction than it has, and says
nothing: to the client it looks as if nobody answered. It would wait until the server has caught up,
and then go on with what is true no more. So a client that is cut off for a session time-out asks in
a session of its own. To open one is a transaction: it gets a larger number than any before it. A
smaller one than this client has seen already says that those in between are lost. The same is asked
when a session begins in place of one that expired.
"""

from __future__ import annotations

import _thread
import logging
import os
import threading
from collections.abc import Callable

from kazoo.client import KazooClient, KazooState

from .core import Transport
from .kazoo_client import stop

#: A silent server is asked after a session time-out, then twice as long, and so on up to.
ASK_MAX_S = 60.0
_CONNECT_S = 5.0

logger = logging.getLogger("zkplan.transport")


class RollbackWatch:
    """Ends a transport by ServerRolledBack, for that reason alone. `probe` makes a client of its
    kind."""

    def __init__(self, transport: Transport, probe: Callable[[str], KazooClient]) -> None:
        self._transport, self._probe = transport, probe
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: Set when the connection is back; None while there is one.
        self._back: threading.Event | None = None
        #: The last transaction seen in any session: kazoo forgets it with each that expires.
        self._seen = 0
        transport.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        # On kazoo's connection thread, which must not wait.
        with self._lock:
            # kazoo tells of a lost session before it forgets what it has seen in it.
            last = self._transport.client.last_zxid
            anew, self._seen = last < self._seen, max(last, self._seen)
            if state == KazooState.CONNECTED or self._transport.client._stopped.is_set():
                if self._back is not None:
                    self._back.set()
                    self._back = None
                if anew and state == KazooState.CONNECTED:
                    # A server refuses who has seen more than it, but not a session that begins.
                    self._start(self._ask_until_told)
            elif self._back is None and os.getpid() == self._pid:
                self._back = threading.Event()
                self._start(self._ask_now_and_then, self._back)

    def _start(self, ask: Callable[..., None], *given: threading.Event) -> None:
        # Not a Thread: its start waits, without a bound, for one that may end at once for want of
        # memory. The connection may be lost for that very want, and kazoo's thread would stay here.
        _thread.start_new_thread(ask, given)

    def _ask_now_and_then(self, back: threading.Event) -> None:
        pause_s = self._transport.session_timeout_s
        while not back.wait(pause_s):
            pause_s = min(ASK_MAX_S, 2 * pause_s)
            if self._transport.client._stopped.is_set() or self._ask_once():
                return

    def _ask_until_told(self) -> None:
        while self._ask_once() is None:
            if self._transport.client._stopped.wait(self._transport.session_timeout_s):
                return

    def _ask_once(self) -> bool | None:
        """Whether ZooKeeper was restored, None where nobody tells; the transport is ended if so."""
        seen, now = self._seen, self._last_transaction()
        if now is None or now >= seen:
            return None if now is None else False
        self._transport.give_up(
            f"ZooKeeper at {self._transport.hosts} was restored from an older state: its last "
            f"transaction is {now:#x}, this process has seen {seen:#x}. What it knows of "
            "plans is true no more: start it anew"
        )
        return True

    def _last_transaction(self) -> int | None:
        """The number of a transaction made now; None where no server answers."""
        hosts = [(f"[{host}]" if ":" in host else host, port) for host, port in self._hosts()]
        try:
            probe = self._probe(",".join(f"{host}:{port}" for host, port in hosts))
            try:
                probe.start(timeout=_CONNECT_S)
                # Where sessions are local, one is opened without a transaction, also by a follower
                # that lags behind. Not without a time-out: connections may break here too.
                probe.sync_async("/").get(timeout=_CONNECT_S)
                probe.exists_async("/").get(timeout=_CONNECT_S)
                return int(probe.last_zxid)
            finally:
                stop(probe)
        except Exception as error:  # no descriptor or thread is left, say: there may be next time
            logger.debug("no answer to a new session either: %r", error)
            return None

    def _hosts(self) -> list[tuple[str, int]]:
        # As they are now: the server of a folder may be at another port than before.
        return [(str(host), int(port)) for host, port in self._transport.client.hosts]
