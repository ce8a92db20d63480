"""Finds out that ZooKeeper was restored from an older state than a client has seen.

A server closes the connection of a client that has seen a newer transaction than it has, and says
nothing: to the client it looks as if nobody answered. It would wait until the server has caught up,
and then go on with what is true no more. So a client that is cut off for a session time-out asks in
a session of its own. To open one is a transaction: it gets a larger number than any before it. A
smaller one than this client has seen already says that those in between are lost.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from kazoo.client import KazooClient, KazooState

from .core import Keeper

#: A silent server is asked after a session time-out, then twice as long, and so on up to.
ASK_MAX_S = 60.0
_CONNECT_S = 5.0

logger = logging.getLogger("zkplan.keeper")


class HistoryWatch:
    """Ends a keeper by HistoryLost, for that reason alone. `probe` makes a client of its kind."""

    def __init__(self, keeper: Keeper, probe: Callable[[str], KazooClient]) -> None:
        self._keeper, self._probe = keeper, probe
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: Set when the connection is back; None while there is one.
        self._back: threading.Event | None = None
        keeper.client.add_listener(self._changed)

    def _changed(self, state: str) -> None:
        # On kazoo's connection thread, which must not wait.
        with self._lock:
            if state == KazooState.CONNECTED or self._keeper.client._stopped.is_set():
                if self._back is not None:
                    self._back.set()
                    self._back = None
            elif self._back is None and os.getpid() == self._pid:
                self._back = threading.Event()
                name = "zkplan-history"
                threading.Thread(
                    target=self._ask_now_and_then, args=[self._back], name=name, daemon=True
                ).start()

    def _ask_now_and_then(self, back: threading.Event) -> None:
        pause_s = self._keeper.session_timeout_s
        while not back.wait(pause_s):
            pause_s = min(ASK_MAX_S, 2 * pause_s)
            if self._keeper.client._stopped.is_set():
                return
            seen, now = self._keeper.client.last_zxid, self._last_transaction()
            if now is not None and now < seen:
                self._keeper.give_up(
                    f"ZooKeeper at {self._keeper.hosts} was restored from an older state: its last "
                    f"transaction is {now:#x}, this process has seen {seen:#x}. What it knows of "
                    "plans is true no more: start it anew"
                )
                return

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
                probe.stop()
                probe.close()
        except Exception as error:  # no descriptor or thread is left, say: there may be next time
            logger.debug("no answer to a new session either: %r", error)
            return None

    def _hosts(self) -> list[tuple[str, int]]:
        # As they are now: the server of a folder may be at another port than before.
        return [(str(host), int(port)) for host, port in self._keeper.client.hosts]
