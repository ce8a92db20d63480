"""A TCP proxy before a ZooKeeper that loses requests or answers of transactions on purpose."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Literal

from tests.tools.frames import MULTI, frames, hang_up, send
from zkplan.embedded.operations import Multi
from zkplan.embedded.wire import multi_error, parse, refusal_codes

#: What is lost of a transaction: the request before it reaches the server, or the answer after it
#: was applied. Either way the connection breaks, and the client cannot tell which. `left out`: the
#: answer alone; the next one comes over the same connection. `stumbled`, `no leader`: the answer
#: says no more than that the server failed, or has lost a connection. `session over`, `session
#: moved`: the request, and its first operation is answered as by a leader that has begun to end the
#: session, or takes it for another server's. After all of these four the connection stands.
Loss = Literal[
    "request", "answer", "left out", "stumbled", "no leader", "session over", "session moved"
]
EXISTS, CLOSE = 3, -11
_NO_WATCH = struct.pack("!i", 1) + b"/" + b"\0"
MARSHALLING_ERROR, CONNECTION_LOSS, SESSION_EXPIRED, SESSION_MOVED = -5, -4, -112, -118
_ANSWERED: dict[Loss | None, int] = {"stumbled": MARSHALLING_ERROR, "no leader": CONNECTION_LOSS}
_FIRST_ANSWERED: dict[Loss | None, int] = {
    "session over": SESSION_EXPIRED,
    "session moved": SESSION_MOVED,
}


def every(
    period: int, kinds: tuple[Loss, ...] = ("answer", "request")
) -> Callable[[int], Loss | None]:
    """Loses something of every `period`-th transaction, each kind in turn."""

    def loss(number: int) -> Loss | None:
        return None if number % period else kinds[number // period % len(kinds)]

    return loss


class Proxy:
    """Forwards connections to `hosts`; `loss(n)` says what to lose of the n-th transaction, from 1.

    Transactions of all connections are counted together, repeated ones again.
    """

    def __init__(self, hosts: str, loss: Callable[[int], Loss | None]) -> None:
        self._target = int(hosts.partition(",")[0].rpartition(":")[2])
        self._loss = loss
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.count = 0
        #: So many of the next handshakes are taken and never answered.
        self.unanswered = 0
        #: Whether a session that is said to be over is: by a request to close it.
        self.ends_sessions = False
        self.lost: list[Loss] = []

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Break every connection now."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            hang_up(connection)

    def __enter__(self) -> Proxy:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        hang_up(self._listener)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for end in (client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections |= {client, server}
            doomed: dict[bytes, tuple[Loss, int]] = {}
            for pump in (self._requests, self._answers):
                threading.Thread(target=pump, args=(client, server, doomed), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, doomed: dict[bytes, tuple[Loss, int]]
    ) -> None:
        first = True
        for frame in frames(client):
            if first and self._is_silent():
                continue  # whatever comes next is taken for a handshake, too
            # The first frame of a connection is the handshake, which has no header.
            if not first and struct.unpack_from("!i", frame, 8)[0] == MULTI:
                with self._lock:
                    self.count += 1
                    loss = self._loss(self.count)
                    if loss is not None:
                        self.lost.append(loss)
                if loss == "request":
                    break
                if loss is not None:
                    doomed[frame[4:8]] = loss, _operations(frame)
                if loss in _FIRST_ANSWERED:
                    ends = loss == "session over" and self.ends_sessions
                    frame = _instead(frame, CLOSE) if ends else _instead(frame, EXISTS, _NO_WATCH)
            first = False
            if not send(server, frame):
                break
        self._end(client, server)

    def _is_silent(self) -> bool:
        with self._lock:
            silent = self.unanswered > 0
            self.unanswered -= silent
        return silent

    def _answers(
        self, client: socket.socket, server: socket.socket, doomed: dict[bytes, tuple[Loss, int]]
    ) -> None:
        for frame in frames(server):
            loss, operations = doomed.pop(frame[4:8], (None, 0))
            if loss == "left out":
                continue
            if loss in _FIRST_ANSWERED:
                xid, zxid = struct.unpack_from("!iq", frame, 4)
                codes = refusal_codes(operations, 0, _FIRST_ANSWERED[loss])
                frame, loss = multi_error(xid, zxid, codes), None
            if loss in _ANSWERED:
                frame = struct.pack("!i", 16) + frame[4:16] + struct.pack("!i", _ANSWERED[loss])
                loss = None
            if loss is not None or not send(client, frame):
                break
        self._end(client, server)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            hang_up(end)
            end.close()
        with self._lock:
            self._connections -= set(ends)


def _operations(frame: bytes) -> int:
    _, request = parse(frame[4:])
    assert isinstance(request, Multi)
    return len(request.ops)


def _instead(frame: bytes, kind: int, fields: bytes = b"") -> bytes:
    """Another request of the same number, so that its answer comes in its turn."""
    body = frame[4:8] + struct.pack("!i", kind) + fields
    return struct.pack("!i", len(body)) + body
