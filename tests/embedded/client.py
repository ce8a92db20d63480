"""A blocking client on a raw socket: it sees every frame, in its order, and when the end comes."""

from __future__ import annotations

import select
import socket
import struct
import time
from types import TracebackType
from typing import NamedTuple

from tests.rawsocket import Closed, FramedSocket

from . import requests

ANSWER_S_MAX = 10.0


class Reply(NamedTuple):
    """An answer; `body` is what follows its header."""

    xid: int
    zxid: int
    error: int
    body: bytes


class Event(NamedTuple):
    """A watch event: 1 created, 2 deleted, 3 changed, 4 child."""

    kind: int
    path: str


class Client(FramedSocket):
    """One connection, and the session that its handshake gave it (0: expired)."""

    def __init__(
        self,
        hosts: str,
        *,
        timeout_ms: int = 10_000,
        session: int = 0,
        password: bytes = bytes(16),
        zxid: int = 0,
        shake_hands: bool = True,
        receive_buffer: int | None = None,
    ) -> None:
        host, _, port = hosts.rpartition(":")
        super().__init__((host, int(port)), ANSWER_S_MAX, receive_buffer)
        self.xid = 0
        self.zxid = zxid
        self.events: list[Event] = []
        self.session, self.password, self.timeout_ms = 0, bytes(16), 0
        if shake_hands:
            hello = requests.connect(
                session=session, password=password, timeout_ms=timeout_ms, zxid=zxid
            )
            self.send_frames(hello)
            self.read_handshake()

    def read_handshake(self) -> None:
        body = self.frame()
        _, self.timeout_ms, self.session, size = struct.unpack_from(">iiqi", body)
        self.password = body[20 : 20 + size]

    # Sending.

    def send(self, *calls: bytes) -> list[int]:
        """Send requests in one go; their xids."""
        first = self.xid + 1
        self.xid += len(calls)
        self.send_frames(*(requests.numbered(first + i, call) for i, call in enumerate(calls)))
        return list(range(first, self.xid + 1))

    # Receiving.

    def next(self) -> Reply | Event:
        """The next frame, whatever it is."""
        body = self.frame()
        xid, zxid, error = struct.unpack_from(">iqi", body)
        if xid == -1:
            kind, _, size = struct.unpack_from(">iii", body, 16)
            event = Event(kind, body[28 : 28 + size].decode())
            self.events.append(event)
            return event
        self.zxid = max(self.zxid, zxid)
        return Reply(xid, zxid, error, body[16:])

    def reply(self, xid: int | None = None) -> Reply:
        """The next answer, which must be the one to `xid`; events before it go to `events`."""
        while isinstance(got := self.next(), Event):
            pass
        assert xid is None or got.xid == xid, f"the answer to {got.xid}, not to {xid}"
        return got

    def ask(self, call: bytes) -> Reply:
        """One request and its answer."""
        (xid,) = self.send(call)
        return self.reply(xid)

    def done(self, call: bytes) -> Reply:
        """One request that must succeed."""
        reply = self.ask(call)
        assert reply.error == 0, f"refused with {reply.error}"
        return reply

    def wait_event(self) -> Event:
        """The next frame, which must be an event."""
        got = self.next()
        assert isinstance(got, Event), f"{got} instead of an event"
        return got

    def authenticate(self, scheme: str, proof: bytes) -> Reply:
        """Prove an identity; the answer, error and all."""
        body = requests.numbered(requests.AUTH_XID, requests.auth(scheme, proof))
        self.send_frames(body)
        return self.reply(requests.AUTH_XID)

    def pinged(self) -> None:
        """Send a ping and read up to its answer: everything sent to this client before is in."""
        self.send_frames(requests.numbered(requests.PING_XID, requests.ping()))
        self.reply(requests.PING_XID)

    # The end.

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long (nothing is read; the end of the stream counts)."""
        return not self.buffer and not select.select([self.socket], [], [], seconds)[0]

    def until_closed(self, within_s: float | None = None) -> list[Reply | Event]:
        """All frames up to the end of the stream, which must come in time."""
        frames = []
        end = time.monotonic() + (ANSWER_S_MAX if within_s is None else within_s)
        while True:
            self.socket.settimeout(max(end - time.monotonic(), 0.001))
            try:
                frames.append(self.next())
            except Closed:
                return frames

    def waiting_bytes(self, at_most: int) -> int:
        """How much has arrived and was not read; for a client that has read all before."""
        try:
            return len(self.socket.recv(at_most, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except BlockingIOError:
            return 0

    def again(self, hosts: str, *, zxid: int | None = None) -> Client:
        """A new connection for the same session."""
        return Client(
            hosts,
            timeout_ms=self.timeout_ms,
            session=self.session,
            password=self.password,
            zxid=self.zxid if zxid is None else zxid,
        )

    def __del__(self) -> None:
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()


def word(hosts: str, letters: bytes) -> str:
    """The answer to four letters."""
    with Client(hosts, shake_hands=False) as client:
        client.send_bytes(letters)
        answer = b""
        while data := client.socket.recv(1 << 16):
            answer += data
        return answer.decode()


def monitored(hosts: str, name: str) -> int:
    """One number of `mntr`."""
    for line in word(hosts, b"mntr").splitlines():
        if line.startswith(f"{name}\t"):
            return int(float(line.partition("\t")[2]))
    raise AssertionError(f"mntr has no {name}")
