"""The links between the members of an ensemble: proxies for each pair, cut, held or slow."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from zkplan.testing.loopback import LOOPBACK
from zkplan.testing.servers import PeerPorts

from .frames import hang_up, send

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
    """What happens to bytes from one member to another on one port; to connections it opens."""

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


class Peers:
    """The proxies between members 1 to N. `detour` is for ZooKeeperEnsemble. Safe for threads."""

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int, Port], Way] = {}
        #: How often a way let something through; and how often it refused or broke a connection,
        #: held something or kept it back for a while. By sender, receiver and port.
        self.passed: Counter[tuple[int, int, Port]] = Counter()
        self.struck: Counter[tuple[int, int, Port]] = Counter()
        self._changed = threading.Condition()
        self._open: set[Connection] = set()
        self._doors: list[socket.socket] = []
        self._ended = False

    def detour(self, member: int, other: int, own: PeerPorts) -> PeerPorts:
        """Proxies by which `member` reaches `other`."""
        made = []
        for port, real in zip(PORTS, own, strict=True):
            self._ways[member, other, port] = Way()
            door = socket.create_server((LOOPBACK, 0))
            self._doors.append(door)
            accept = threading.Thread(
                target=self._accept, args=(door, real, member, other, port), daemon=True
            )
            accept.start()
            made.append(int(door.getsockname()[1]))
        return PeerPorts(*made)

    # ---- what faults do

    def cut(self, one: int, other: int, ports: Iterable[Port] = PORTS) -> None:
        """Break the connections between these two, and refuse new ones: both notice at once."""
        for port in ports:
            self._set(one, other, port, refused=True)
            self._set(other, one, port, refused=True)
            self._hang_up(one, other, port)

    def leave(self, member: int, others: Iterable[int]) -> None:
        """The others notice at once that `member` is gone, and it notices nothing: all is silent.

        So a leader goes on leading while the others already follow a new one.
        """
        for other in others:
            for port in PORTS:
                self._set(member, other, port, held=True)
                self._set(other, member, port, held=True, refused=True)
                self._hang_up(member, other, port, only=other)

    def hold(self, sender: int, receiver: int) -> None:
        """From now on nothing that `sender` says reaches `receiver`; the other way all passes."""
        for port in PORTS:
            self._set(sender, receiver, port, held=True)

    def delay(self, one: int, other: int, seconds: float) -> None:
        """Whatever these two say to each other on the quorum port comes later by that."""
        self._set(one, other, "quorum", delay_s=seconds)
        self._set(other, one, "quorum", delay_s=seconds)

    def hang_up(self, one: int, other: int) -> None:
        """Break the connections between these two; they may connect again at once."""
        for port in PORTS:
            self._hang_up(one, other, port)

    def heal(self) -> None:
        """All ways are open; what was held is delivered, as TCP does after a partition."""
        with self._changed:
            self._ways = {key: Way() for key in self._ways}
            self._changed.notify_all()

    def standing(self, one: int, other: int, port: Port) -> set[Connection]:
        """The connections between these two on that port; one that is made again is another one."""
        with self._changed:
            return {
                each
                for each in self._open
                if {each.opener, each.target} == {one, other} and each.port == port
            }

    def close(self) -> None:
        self._ended = True
        for door in self._doors:
            hang_up(door)
            door.close()
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
        mine = self.standing(one, other, port)
        with self._changed:
            ends = [
                end for each in mine for whose, end in each.ends.items() if only in (None, whose)
            ]
            for each in mine:
                self.struck[each.opener, each.target, port] += 1
                self.struck[each.target, each.opener, port] += 1
        for end in ends:
            hang_up(end)

    def _accept(self, door: socket.socket, real: int, member: int, other: int, port: Port) -> None:
        while not self._ended:
            try:
                end, _ = door.accept()
            except OSError:
                return
            made = Connection(member, other, port, {member: end})
            if self._ways[member, other, port].refused:
                with self._changed:
                    self.struck[member, other, port] += 1
                end.close()
                continue
            threading.Thread(target=self._connect, args=(made, real), daemon=True).start()

    def _connect(self, made: Connection, real: int) -> None:
        # Not even the connection itself gets through a silent way: a member that is connected to
        # and told nothing listens to nobody else meanwhile.
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
            # The end of a connection is silent too while the way is.
            self._wait_out(sender, receiver, made.port)
            if not data or not send(sink, data):
                break
            with self._changed:
                self.passed[sender, receiver, made.port] += 1
        hang_up(source)
        hang_up(sink)

    def _wait_out(self, sender: int, receiver: int, port: Port) -> None:
        key = sender, receiver, port
        with self._changed:
            delay_s = self._ways[key].delay_s
            if delay_s or self._ways[key].held:
                self.struck[key] += 1
            if delay_s:
                self._changed.wait_for(lambda: not self._ways[key].delay_s, delay_s)
            self._changed.wait_for(lambda: not self._ways[key].held)


def _receive(end: socket.socket, size: int = _CHUNK) -> bytes:
    try:
        return end.recv(size)
    except OSError:
        return b""


def _receive_hello(end: socket.socket) -> bytes:
    """The first message to an election port, without the addresses of the one who says it.

    A member with a larger number calls back the address that it is told, past the proxies; told a
    number alone, it takes the address of its own configuration.
    """
    head = _receive_all(end, _HELLO.size)
    if len(head) < _HELLO.size:
        return b""
    version, number, size = _HELLO.unpack(head)
    if version >= 0:
        return head
    return struct.pack("!q", number) if _receive_all(end, size) else b""


def _receive_all(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = _receive(end, size - len(data))
        if not part:
            return b""
        data += part
    return data
