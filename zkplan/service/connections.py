"""The connections of a service: how many it accepts, whose they are, and which it closes.

A stranger is a connection without a valid token in its last request, or without a request yet.
Anybody can open such connections, so a new one is never refused: it replaces the oldest, and has
time for a request until enough others come to replace it.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import resource
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ..basics.log import get_logger
from .tokens import Caller

#: The most connections, if the system allows the process that many.
CONNECTIONS_MAX = 4000
#: Descriptors for other things: the connection to ZooKeeper, files, connections that are ending.
OTHERS_MAX = 300
#: The most strangers in all, and of one address.
STRANGERS_MAX, STRANGERS_OF_ADDRESS = 1500, 500
#: The most connections of one token.
OF_TOKEN_MAX = 800
#: Seconds from the start of a connection to the end of a request's head, with the TLS handshake;
#: and from an answer to the next head, in which the client must also accept the rest of the answer.
HEAD_S, NEXT_S = 10.0, 30.0
SWEEP_S = 1.0
#: The most connections accepted in one turn of the loop, so that the connections they replace are
#: closed before many others come; and the most that wait in the system to be accepted.
AT_ONCE, QUEUE = 32, 1024
_NEVER = float("inf")
_FULL = (errno.EMFILE, errno.ENFILE)

Peer = tuple[str, int]


def origin_of(address: str) -> str:
    """The address; for IPv6 its network, in which one client may have many addresses.

    >>> origin_of("192.0.2.7"), origin_of("2001:db8:0:1:2:3:4:5"), origin_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:0:1::/64', '192.0.2.7')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


class Connection(socket.socket):
    """One connection, from before the handshake to the end."""

    def __init__(self, accepted: socket.socket, peer: Peer, home: Connections) -> None:
        kind = (accepted.family, accepted.type, accepted.proto)
        super().__init__(*kind, fileno=accepted.detach())
        self.peer, self._home = peer, home
        self.origin = origin_of(peer[0])
        #: The key of the caller of the last request; empty for a stranger.
        self.key = ""
        self.caller: Caller | None = None
        self._requests = 0
        #: The deadlines for the client to send a request, and to accept an answer.
        self.reads_by, self.writes_by = time.monotonic() + HEAD_S, _NEVER

    @property
    def is_asking(self) -> bool:
        """Whether a request is being answered."""
        return self._requests > 0

    def give(self, key: str, caller: Caller | None) -> bool:
        """See `Connections.give`."""
        return self._home.give(self, key, caller)

    def begin(self) -> None:
        """Note that the head of a request has arrived."""
        self._requests += 1
        self.reads_by = _NEVER
        self._home.renew(self)

    def finish(self) -> None:
        """Note that a request was answered. Clients may send several: the next may have begun."""
        self._requests -= 1
        if not self._requests:
            self.reads_by, self.writes_by = time.monotonic() + NEXT_S, _NEVER

    def end(self) -> None:
        """End the connection at once, without sending the rest. A reader sees its end."""
        self._home.forget(self)
        with suppress(OSError):  # it has ended by itself
            # Let the system drop the data that the client has not accepted.
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        super().close()
        self._home.left(self)


class Connections:
    """All connections of one service. Used by one event loop."""

    def __init__(self, most: int, proxies: Callable[[str], bool]) -> None:
        """Allow `most` connections. `proxies` tells whether many clients share an address."""
        self._proxies = proxies
        self._strangers_max = min(STRANGERS_MAX, most // 3)
        self._of_address_max = min(STRANGERS_OF_ADDRESS, self._strangers_max // 3)
        self._held_max = most - self._strangers_max
        self._of_token_max = min(OF_TOKEN_MAX, self._held_max // 3)
        self._all: dict[Peer, Connection] = {}
        self._strangers: set[Connection] = set()
        #: Strangers by origin, in the order in which they became strangers.
        self._strangers_of: dict[str, dict[Connection, None]] = {}
        self._held: Counter[str] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None
        self.seldom = Seldom()
        #: Whether the token of a caller is still valid.
        self.stands: Callable[[Caller], bool] = lambda _: True

    def __len__(self) -> int:
        return len(self._all)

    def at(self, peer: Peer | None) -> Connection | None:
        """The connection with that other end."""
        return None if peer is None else self._all.get(peer)

    def come(self, connection: Connection) -> None:
        """Count an accepted connection. If there are too many strangers, end the oldest."""
        same = self._strangers_of.get(connection.origin, {})
        if len(same) >= self._of_address_max and not self._proxies(connection.peer[0]):
            self._push_out(same)
        elif len(self._strangers) >= self._strangers_max:
            self._push_out(max(self._strangers_of.values(), key=len))
        self._all[connection.peer] = connection
        self._add_stranger(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _push_out(self, strangers: dict[Connection, None]) -> None:
        oldest = next(iter(strangers))
        text = f"{oldest.origin} has {len(strangers)} connections without a token: the oldest ends"
        self.seldom.info("pushed out", text)
        oldest.end()

    def give(self, connection: Connection, key: str, caller: Caller | None) -> bool:
        """Count the connection for the caller of its request; an empty `key` means a stranger.
        Returns False, and counts it for a stranger, if the caller, or all, have too many."""
        if connection.key == key:
            connection.caller = caller
            return True
        self.forget(connection)
        is_full = self._held.total() >= self._held_max
        if key and (is_full or self._held[key] >= self._of_token_max):
            self._add_stranger(connection)
            return False
        connection.key, connection.caller = key, caller
        if key:
            self._held[key] += 1
        else:
            self._add_stranger(connection)
        return True

    def _add_stranger(self, connection: Connection) -> None:
        self._strangers.add(connection)
        self._strangers_of.setdefault(connection.origin, {})[connection] = None

    def renew(self, connection: Connection) -> None:
        """Count a stranger as the newest, so that others are closed before it gets its answer."""
        if connection in self._strangers:
            self.forget(connection)
            self._add_stranger(connection)

    def forget(self, connection: Connection) -> None:
        """Stop counting the connection for its caller, though it may still be open."""
        self._strangers.discard(connection)
        same = self._strangers_of.get(connection.origin, {})
        same.pop(connection, None)
        if not same:
            self._strangers_of.pop(connection.origin, None)
        if connection.key:
            self._held[connection.key] -= 1
            if not self._held[connection.key]:
                del self._held[connection.key]
        connection.key, connection.caller = "", None

    def left(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self.forget(connection)
        if self._all.get(connection.peer) is connection:
            del self._all[connection.peer]

    def _sweep(self) -> None:
        """End the connections that missed a deadline, or whose token is no longer valid."""
        now, stands = time.monotonic(), dict[Caller, bool]()
        for each in list(self._all.values()):
            caller = each.caller
            if caller is not None and each.is_asking and caller not in stands:
                stands[caller] = self.stands(caller)
            counts = caller is None or stands.get(caller, True)
            if not counts or now > min(each.reads_by, each.writes_by):
                each.end()
        again = asyncio.get_running_loop().call_later
        self._sweeping = again(SWEEP_S, self._sweep) if self._all else None


class Door(socket.socket):
    """A listening socket that counts its connections, also before their TLS handshake.

    asyncio accepts with it. When the process is out of descriptors, asyncio would log a traceback
    for each waiting connection, again and again; this socket turns these connections away.
    """

    def __init__(
        self, family: int, kind: int, protocol: int, proxies: Callable[[str], bool]
    ) -> None:
        super().__init__(family, kind, protocol)
        self.connections = Connections(_allowed(), proxies)
        self._spare = os.open(os.devnull, os.O_RDONLY)

    def listen(self, backlog: int = QUEUE) -> None:
        """`backlog` is how many asyncio accepts in one turn: the queue is longer."""
        super().listen(max(backlog, QUEUE))

    def accept(self) -> tuple[Connection, Any]:
        try:
            accepted, address = super().accept()
        except OSError as error:
            if error.errno not in _FULL:
                raise
            self._turn_away(error)
            raise BlockingIOError from None
        connection = Connection(accepted, address[:2], self.connections)
        self.connections.come(connection)
        return connection, address

    def _turn_away(self, error: OSError) -> None:
        self.connections.seldom.info("full", f"a connection is turned away: {error.strerror}")
        os.close(self._spare)
        try:
            super().accept()[0].close()
        except OSError:
            pass  # another process was faster, or the client has gone
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY)

    def close(self) -> None:
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1


def _allowed() -> int:
    """How many connections this process may have, after raising its limit of descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OTHERS_MAX
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS_MAX
    return min(CONNECTIONS_MAX, soft - min(OTHERS_MAX, soft // 2))


#: Seconds between two lines of one kind in the log.
APART_S = 10.0
log = get_logger("zkplan.service")


class Seldom:
    """Logs what strangers can cause, each kind at most once in APART_S. Used by one event loop."""

    def __init__(self) -> None:
        #: For each kind, when its last line was written, and how many were left out since.
        self._kinds: dict[str, tuple[float, int]] = {}

    def info(self, kind: str, text: str) -> None:
        """Log the line, or count it. No kind may come from a request: kinds are never dropped."""
        now = time.monotonic()
        last, left_out = self._kinds.get(kind, (float("-inf"), 0))
        if now - last < APART_S:
            self._kinds[kind] = last, left_out + 1
            return
        self._kinds[kind] = now, 0
        more = f" ({left_out} more of this kind in the last {now - last:.0f} s)" if left_out else ""
        log.info("%s%s", text, more)
