"""Notices that ZooKeeper was restored from an older state than this client has seen.

A server closes the connection of a client that has seen a newer transaction than the server has,
and says nothing: to the client it looks as if nobody answered. The client would wait until the
server has caught up, and then go on with an old picture of its plans. So a client that is cut off
for a session time-out asks in a second session. To open one is a transaction, with a larger number
than any before it. If that number is smaller than one that this client has seen, transactions are
lost. The same is asked when a session begins in place of one that expired.
"""

from __future__ import annotations

import _thread
import os
import threading
from collections.abc import Callable

from kazoo.client import KazooClient, KazooState

from ..log import get_logger
from .kazoo_client import stop
from .kazoo_private import stopped
from .transport import Transport

#: A silent server is asked after a session time-out, then after twice as long, up to this.
ASK_MAX_S = 60.0
_CONNECT_S = 5.0

logger = get_logger("zkplan.transport")


class RollbackWatch:
    """Ends a transport by ServerRolledBack. `probe(hosts)` makes the client that asks."""

    def __init__(self, transport: Transport, probe: Callable[[str], KazooClient]) -> None:
        self._transport, self._probe = transport, probe
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: Set when the connection is back; None while there is a connection.
        self._back: threading.Event | None = None
        #: The last transaction seen in any session: kazoo forgets it with each that expires.
        self._seen = 0
        transport.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        # On kazoo's connection thread, which must not wait.
        client = self._transport.client
        with self._lock:
            # kazoo tells of a lost session before it forgets what it has seen in it.
            last = client.last_zxid
            is_new_session = last < self._seen
            self._seen = max(last, self._seen)
            if state == KazooState.CONNECTED or stopped(client).is_set():
                if self._back is not None:
                    self._back.set()
                    self._back = None
                if is_new_session and state == KazooState.CONNECTED:
                    # A server refuses a client that has seen more than it, but not a new session.
                    self._start(self._ask_until_told)
            elif self._back is None and os.getpid() == self._pid:
                self._back = threading.Event()
                self._start(self._ask_now_and_then, self._back)

    def _start(self, ask: Callable[..., None], *given: threading.Event) -> None:
        # Not a Thread: without memory the new thread may end at once, and `start` would wait for it
        # for ever, on kazoo's thread. The connection may have been lost for want of memory, too.
        _thread.start_new_thread(ask, given)

    def _ask_now_and_then(self, back: threading.Event) -> None:
        pause_s = self._transport.session_timeout_s
        while not back.wait(pause_s):
            pause_s = min(ASK_MAX_S, 2 * pause_s)
            if stopped(self._transport.client).is_set() or self._ask_once():
                return

    def _ask_until_told(self) -> None:
        while self._ask_once() is None:
            if stopped(self._transport.client).wait(self._transport.session_timeout_s):
                return

    def _ask_once(self) -> bool | None:
        """Whether ZooKeeper was restored, and end the transport if so. None: nobody answers."""
        seen, now = self._seen, self._last_transaction()
        if now is None or now >= seen:
            return None if now is None else False
        self._transport.give_up(
            f"ZooKeeper at {self._transport.hosts} was restored from an older state: its last "
            f"transaction is {now:#x}, this process has seen {seen:#x}. What this process knows of "
            "plans is no longer true: restart it"
        )
        return True

    def _last_transaction(self) -> int | None:
        """The number of a transaction made now; None where no server answers."""
        try:
            probe = self._probe(self._transport.hosts)
            try:
                probe.start(timeout=_CONNECT_S)
                # A local session is opened without a transaction, also by a follower that lags
                # behind: `sync` waits for it. With a time-out: this connection may break, too.
                probe.sync_async("/").get(timeout=_CONNECT_S)
                probe.exists_async("/").get(timeout=_CONNECT_S)
                return int(probe.last_zxid)
            finally:
                stop(probe)
        except Exception as error:  # no descriptor or thread is left, say: next time there may be
            logger.debug("no answer to a new session either: %r", error)
            return None
