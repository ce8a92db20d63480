"""The server in an event loop: load, serve, and commit each group of requests.

The server applies requests to the tree in memory as they come, and holds back everything that
reveals them (answers, events, reads). It sends these only after the commit of the group, so clients
see only what is stored. While a commit runs, the requests of the next group gather in the sockets.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import time
from collections.abc import Hashable
from typing import Any

from ..basics.log import get_logger
from ..basics.private import is_loopback
from .acl import Who
from .connection import Connection, listening_socket
from .database import StorageDamaged, StorageError, remedy
from .limits import Settings
from .login import Access, Announcement
from .service import Service
from .sessions import Peer, Sessions
from .storage import Saved, Storage
from .tree import Tree
from .words import Traffic, answer_stranger, answer_word

# If `_expire` runs later than this, the server was stopped or got no CPU: see Sessions.forgive.
_AWAY_MS = 500
# How many connections asyncio accepts in a row. asyncio reports each one that fails.
_ACCEPTED_IN_A_ROW = 8
# How many connections may wait to be accepted.
_BACKLOG = 1024
# The shortest time between two log lines about failed connections.
_COMPLAINT_S = 1.0

logger = get_logger("zkplan.embedded")


class Server:
    """One server; `start`, `ended` and `close` belong to one event loop."""

    def __init__(self, settings: Settings, access: Access) -> None:
        """A closed server on loopback announces `access` to the programs of this user."""
        self.settings = settings
        self._access = access
        self._announcement: Announcement | None = None
        self.limits = settings.limits
        self.received_bytes = 0
        self.unread_bytes = 0
        self.slow: dict[Connection, None] = {}
        self.fatal: BaseException | None = None
        self.host, self.port = "", 0
        self._connections: dict[Peer, Connection] = {}
        self._storage: Storage | None = None
        self._stored_zxid = 0
        self._flush_is_due = False
        self._listener: asyncio.Server | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: Set this to end the server. An error of the disk sets it, too; `fatal` has the error.
        self.ended = asyncio.Event()
        self.traffic = Traffic()
        self._group_began_s = 0.0
        self._complained_s = -_COMPLAINT_S

    # Start and end.

    async def start(self, host: str, port: int) -> None:
        """Load the data and listen. Raises StorageError, and OSError if the address is in use."""
        asyncio.get_running_loop().set_exception_handler(self._unexpected)
        saved = self._load()
        try:
            endpoint = await listening_socket(host, port, _BACKLOG)
            listener = self._listener = await asyncio.get_running_loop().create_server(
                lambda: Connection(self),
                sock=endpoint,
                backlog=_ACCEPTED_IN_A_ROW,
                start_serving=False,
                ssl=self.settings.tls,
                ssl_handshake_timeout=self.limits.handshake_s if self.settings.tls else None,
            )
            self.host, self.port = endpoint.getsockname()[:2]
            if self._storage is not None:
                self._storage.publish_address(f"{self.host}:{self.port}")
            # An open server has no login to announce.
            if self._access.login and is_loopback(self.host):
                self._announcement = Announcement(self.host, self.port, self._access)
            # Nothing slow may follow before `start_serving`, or sessions would lose that time.
            self.sessions.restore(saved.last_session, saved.sessions, _now_ms())
            self._schedule_expiry()
            self._schedule_sweep()
            await listener.start_serving()
            endpoint.listen(_BACKLOG)  # asyncio has just set the backlog to _ACCEPTED_IN_A_ROW
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening, end the connections, close the data. Sessions stay in the data folder."""
        self.ended.set()
        for timer in self._timers.values():
            timer.cancel()
        if self._announcement is not None:
            self._announcement.withdraw()
        if self._listener is not None:
            self._listener.close()
        try:
            self._flush()
            for connection in list(self._connections.values()):
                if self.fatal is None:
                    connection.close()
                else:
                    connection.abort()
        finally:
            if self._storage is not None:
                self._storage.close()
        # Closed transports report their end in the next turn of the loop. Clients that do not read
        # the rest keep theirs open: abort those, and wait one more turn.
        await asyncio.sleep(0)
        for connection in list(self._connections.values()):
            connection.abort()
        await asyncio.sleep(0)

    def _load(self) -> Saved:
        self._storage, self.tree, saved = load(self.settings)
        self.sessions = Sessions(
            min_timeout_ms=self.settings.min_session_timeout_ms,
            max_timeout_ms=self.settings.max_session_timeout_ms,
            make_password=os.urandom,
        )
        self._stored_zxid = self.tree.zxid
        self.service = Service(self.tree, self.sessions, self.limits, self.settings.logins)
        return saved

    def _unexpected(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the server at an unexpected error: the tree may hold half of a request."""
        error = context.get("exception")
        if error is None:
            loop.default_exception_handler(context)
        elif isinstance(error, OSError):
            self._complain(loop, context, error)
        elif self.fatal is None:
            logger.critical("the server ends because of an unexpected error", exc_info=error)
            self._fail(error)

    def _complain(
        self, loop: asyncio.AbstractEventLoop, context: dict[str, Any], error: OSError
    ) -> None:
        # A connection failed, or cannot be accepted. The loop tries again for ever, so log rarely.
        now_s = time.monotonic()
        if now_s - self._complained_s < _COMPLAINT_S:
            return
        self._complained_s = now_s
        if error.errno in (errno.EMFILE, errno.ENFILE):
            logger.error(
                "cannot accept more connections: %s. %s are open; allow this process more open"
                " files (ulimit -n), or close connections",
                error,
                len(self._connections),
            )
        else:
            loop.default_exception_handler(context)

    # Called by connections.

    def opened(self, connection: Connection) -> bool:
        """Note a new connection. Returns whether the connection may stay."""
        if len(self._connections) >= self.limits.connections or self.ended.is_set():
            return False
        self._connections[connection.peer] = connection
        return True

    def closed(self, connection: Connection) -> None:
        """Note the end of a connection."""
        if self._connections.pop(connection.peer, None) is not None:
            self.service.disconnected(connection.peer)

    def before_requests(self) -> None:
        """Call this before a group of requests of one connection: it sets the time for them."""
        if not self._flush_is_due:
            self._group_began_s = time.monotonic()
        self.service.set_time(_now_ms(), int(self.settings.clock() * 1000))

    def after_requests(self) -> None:
        """Call this after a group of requests: it schedules a flush after the ready sockets."""
        if not self._flush_is_due and (self.service.out or self.tree.zxid != self._stored_zxid):
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def descriptors(self) -> list[int]:
        """The descriptors of the open sockets, whose copies a forked child has to close."""
        transports = [connection.transport for connection in self._connections.values()]
        sockets = [transport.get_extra_info("socket") for transport in transports]
        if self._listener is not None:
            sockets += self._listener.sockets
        return [number for number in (each.fileno() for each in sockets) if number >= 0]

    def peers(self) -> list[Peer]:
        """The other ends of the open connections."""
        return list(self._connections)

    def word(self, word: bytes) -> bytes | None:
        """The answer to a four-letter word; None if there is no such word."""
        return (answer_stranger if self.settings.logins else answer_word)(word, self)

    # Commit, then send.

    def _flush(self) -> None:
        self._flush_is_due = False
        if self.fatal is not None:
            return
        try:
            self._commit()
        except StorageError as error:
            self._fail(error)
            return
        self._send()

    def _fail(self, error: BaseException) -> None:
        # The tree in memory is ahead of the disk now, so no more answers may leave.
        self.fatal = error
        self.service.out.clear()
        self.service.held_bytes = 0
        self.ended.set()

    def _commit(self) -> None:
        # Every change takes a zxid, and so does a refused write. Store the zxid even if nothing
        # else changed: a client leaves a server whose zxid is lower than one that it has seen.
        sessions = self.sessions.take_changes()
        if self._storage is not None and (sessions or self.tree.zxid != self._stored_zxid):
            self._storage.commit(
                zxid=self.tree.zxid,
                last_session=self.sessions.last_id,
                nodes=self.tree.znodes.take_changes(),
                sessions=sessions,
            )
        self._stored_zxid = self.tree.zxid

    def _send(self) -> None:
        out, self.service.out, self.service.held_bytes = self.service.out, [], 0
        frames: dict[Peer, list[bytes]] = {}
        leaving = []
        for peer, frame in out:
            if frame is None:
                leaving.append(peer)
            else:
                frames.setdefault(peer, []).append(frame)
        count = sum(map(len, frames.values()))
        self.traffic.sent += count
        self.traffic.took((time.monotonic() - self._group_began_s) * 1000, count)
        for peer, parts in frames.items():
            connection = self._connections.get(peer)
            if connection is not None:
                connection.send(b"".join(parts))
                if self.unread_bytes > self.limits.unread_total_bytes:
                    self._cut_off()
        for peer in leaving:
            connection = self._connections.get(peer)
            if connection is not None:
                connection.close()

    def _cut_off(self) -> None:
        """Disconnect the clients with the most unread bytes until the total is within its limit."""
        for connection in self.slow:
            connection.count_unread()
        for connection in sorted(self.slow, key=lambda one: one.unread_bytes, reverse=True):
            if self.unread_bytes <= self.limits.unread_total_bytes:
                break
            connection.abort()

    # Timers.

    def _schedule_expiry(self) -> None:
        due_ms = self.sessions.next_check_ms()
        now_ms = _now_ms()
        latest_ms = now_ms + self.settings.tick_time_ms
        at_ms = max(now_ms + 1, latest_ms if due_ms is None else min(due_ms, latest_ms))
        self._timers["expiry"] = asyncio.get_running_loop().call_later(
            (at_ms - now_ms) / 1000, self._expire, at_ms
        )

    def _expire(self, due_ms: int) -> None:
        now_ms = _now_ms()
        away_ms = now_ms - due_ms
        if away_ms > _AWAY_MS:
            # Pings that came during the absence are still in the sockets.
            self.sessions.forgive(away_ms, now_ms)
        self._keep_readers(now_ms)
        self.before_requests()
        self.service.expire()
        self.after_requests()
        self._schedule_expiry()

    def _keep_readers(self, now_ms: int) -> None:
        # While a client has much to read, its requests and pings wait in its socket. So reading
        # counts as a sign of life, too.
        for connection in list(self.slow):
            session = connection.peer.session
            if connection.has_taken_more() and session is not None:
                self.sessions.touch(session, now_ms)

    def _schedule_sweep(self, after_s: float | None = None) -> None:
        self._timers["sweep"] = asyncio.get_running_loop().call_later(
            self.settings.sweep_s if after_s is None else after_s, self._sweep
        )

    def _sweep(self) -> None:
        self.before_requests()
        is_unfinished = self.service.sweep()
        self.after_requests()
        self._schedule_sweep(0.0 if is_unfinished else None)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# ---- Load the tree and the sessions of a data folder, or make new ones.


def load(settings: Settings) -> tuple[Storage | None, Tree, Saved]:
    """Load the tree of the data folder, or make a new one. Raises StorageError.

    Returns the storage (None without a data folder), which the caller has to close, the tree, and
    the other saved data.
    """
    data, limits = settings.data, settings.limits
    if data is None:
        tree = Tree(limits, system_nodes=True, identities=_identities)
        return None, tree, Saved(0, 0, [], [])
    storage = Storage(data, settings.sync)
    # Loading makes a million objects and no garbage, so collections would only take time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        saved = storage.load()
        is_new = not saved.nodes
        tree = Tree(limits, system_nodes=is_new, track_changes=True, identities=_identities)
        if not is_new:
            try:
                tree.restore(saved.zxid, saved.nodes)
            except ValueError as error:
                raise StorageDamaged(f"{data} has no tree: {error}. {remedy(data)}") from error
        return storage, tree, saved._replace(nodes=[])
    except BaseException:
        storage.close()
        raise
    finally:
        if collecting:
            gc.enable()


def _identities(watcher: Hashable) -> Who:
    return watcher.identities  # type: ignore[attr-defined,no-any-return]
