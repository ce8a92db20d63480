"""The links between the members of an ensemble: proxies that can cut, hold and delay."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from tests.tools.frames import hang_up, send
from zkplan.testing.server_process import LOOPBACK
from zkplan.testing.servers import PeerPorts

Port = Literal["quorum", "election"]
PORTS: tuple[Port, ...] = ("quorum", "election")
_CHUNK = 1 << 16
_CONNECT_S = 5.0
_AGAIN_S = 0.05
#: How the first message of a connection to the election port begins: version (negative), number of
#: the member, length of the addresses that follow.
_HELLO = struct.Struct("!qqi")


@dataclass
class Way:
    """One direction between two members on one port: bytes, and connections that it opens."""

    refused: bool = False
    held: bool = False
    delay_s: float = 0.0


@dataclass(eq=False)
class Connection:
    """One connection between two members; `ends` are the proxy's own, by member."""

    opener: int
    target: int
    port: Port
    ends: dict[int, socket.socket] = field(default_factory=dict)


class MemberLinks:
    """Proxies between members 1 to N; ZooKeeperEnsemble calls `detour`. Safe for threads."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int, Port], Way] = {}
        #: How often a way refused or broke a connection, held or delayed something; by sender,
        #: receiver and port.
        self.affected: Counter[tuple[int, int, Port]] = Counter()
        self._changed = threading.Condition()
        self._open: set[Connection] = set()
        self._listeners: list[socket.socket] = []
        self._ended = False

    def detour(self, member: int, other: int, own: PeerPorts) -> PeerPorts:
        """Make the proxies through which `member` reaches `other`."""
        made = []
        for port, real in zip(PORTS, own, strict=True):
            self._ways[member, other, port] = Way()
            listener = socket.create_server((LOOPBACK, 0))
            self._listeners.append(listener)
            accept = threading.Thread(
                target=self._accept, args=(listener, real, member, other, port), daemon=True
            )
            accept.start()
            made.append(int(listener.getsockname()[1]))
        return PeerPorts(*made)

    # ---- what faults do

    def cut(self, one: int, other: int, ports: Iterable[Port] = PORTS) -> None:
        """Break the connections between the two and refuse new ones: both notice at once."""
        for port in ports:
            self._set(one, other, port, refused=True)
            self._set(other, one, port, refused=True)
            self._hang_up(one, other, port)

    def isolate_silently(self, member: int, others: Iterable[int]) -> None:
        """The others lose `member` at once; it notices nothing, as its connections are silent.

        So a leader goes on leading while the others already follow a new one.
        """
        for other in others:
            for port in PORTS:
                self._set(member, other, port, held=True)
                self._set(other, member, port, held=True, refused=True)
                self._hang_up(member, other, port, only=other)

    def hold(self, sender: int, receiver: int) -> None:
        """Nothing from `sender` reaches `receiver`; the other direction stays open."""
        for port in PORTS:
            self._set(sender, receiver, port, held=True)

    def delay(self, one: int, other: int, seconds: float) -> None:
        """Delay everything between the two on the quorum port."""
        self._set(one, other, "quorum", delay_s=seconds)
        self._set(other, one, "quorum", delay_s=seconds)

    def hang_up(self, one: int, other: int) -> None:
        """Break the connections between the two; they may connect again at once."""
        for port in PORTS:
            self._hang_up(one, other, port)

    def heal(self) -> None:
        """Open all ways; what was held is delivered, as TCP does after a partition."""
        with self._changed:
            self._ways = {key: Way() for key in self._ways}
            self._changed.notify_all()

    def close(self) -> None:
        self._ended = True
        for listener in self._listeners:
            hang_up(listener)
            listener.close()
        self.heal()
        with self._changed:
            ends = [end for each in self._open for end in each.ends.values()]
        for end in ends:
            hang_up(end)

    # ---- the proxies

    def _set(self, sender: int, receiver: int, port: Port, **facts: object) -> None:
        with self._changed:
            way = self._ways[sender, receiver, port]
            self._ways[sender, receiver, port] = Way(**{**vars(way), **facts})
            self._changed.notify_all()

    def _hang_up(self, one: int, other: int, port: Port, only: int | None = None) -> None:
        """Break their connections; with `only` for that member, while the other hears nothing."""
        with self._changed:
            found = [each for each in self._open if set(each.ends) == {one, other}]
            found = [each for each in found if each.port == port]
            self.affected[one, other, port] += len(found)
            self.affected[other, one, port] += len(found)
        for each in found:
            for member, end in each.ends.items():
                if only in (None, member):
                    hang_up(end)

    def _accept(
        self, listener: socket.socket, real: int, member: int, other: int, port: Port
    ) -> None:
        while not self._ended:
            try:
                end, _ = listener.accept()
            except OSError:
                return
            made = Connection(member, other, port, {member: end})
            if self._ways[member, other, port].refused:
                with self._changed:
                    self.affected[member, other, port] += 1
                end.close()
                continue
            threading.Thread(target=self._connect, args=(made, real), daemon=True).start()

    def _connect(self, made: Connection, real: int) -> None:
        # A held way lets no connection through either: a member that accepted one and hears
        # nothing on it would listen to nobody else.
        self._wait_out(made.opener, made.target, made.port)
        target = self._reach(real)
        if target is None:
            made.ends[made.opener].close()
            return
        made.ends[made.target] = target
        for end in made.ends.values():
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._changed:
            self._open.add(made)
        back = threading.Thread(
            target=self._pump, args=(made, made.target, made.opener), daemon=True
        )
        back.start()
        self._pump(made, made.opener, made.target)
        back.join()
        with self._changed:
            self._open.discard(made)
        for end in made.ends.values():
            end.close()

    def _reach(self, real: int) -> socket.socket | None:
        """A connection to that port; a new leader listens there a moment after it was elected.

        Its followers, refused, would try again; with a connection that ends they vote anew.
        """
        until = time.monotonic() + _CONNECT_S
        while not self._ended:
            try:
                target = socket.create_connection((LOOPBACK, real), timeout=_CONNECT_S)
            except OSError:
                if time.monotonic() > until:
                    return None
                threading.Event().wait(_AGAIN_S)
                continue
            target.settimeout(None)
            return target
        return None

    def _pump(self, made: Connection, sender: int, receiver: int) -> None:
        source, sink = made.ends[sender], made.ends[receiver]
        is_hello = made.port == "election" and sender == made.opener
        while True:
            data = _receive_hello(source) if is_hello else _receive(source)
            is_hello = False
            # A held way also holds the end of a connection.
            self._wait_out(sender, receiver, made.port)
            if not data or not send(sink, data):
                break
        hang_up(source)
        hang_up(sink)

    def _wait_out(self, sender: int, receiver: int, port: Port) -> None:
        key = sender, receiver, port
        with self._changed:
            delay_s = self._ways[key].delay_s
            if delay_s or self._ways[key].held:
                self.affected[key] += 1
            if delay_s:
                self._changed.wait_for(lambda: not self._ways[key].delay_s, delay_s)
            self._changed.wait_for(lambda: not self._ways[key].held)


def _receive(end: socket.socket, size: int = _CHUNK, flags: int = 0) -> bytes:
    try:
        return end.recv(size, flags)
    except OSError:
        return b""


def _receive_hello(end: socket.socket) -> bytes:
    """The first message to an election port, without the addresses of its sender.

    A member with a larger number connects to the addresses in it, past the proxies. Without them it
    connects to those of its own configuration, which are proxies.
    """
    head = _receive(end, _HELLO.size, socket.MSG_WAITALL)
    if len(head) < _HELLO.size:
        return b""
    version, number, size = _HELLO.unpack(head)
    if version >= 0:
        return head
    addresses = _receive(end, size, socket.MSG_WAITALL)
    return struct.pack("!q", number) if len(addresses) == size else b""
