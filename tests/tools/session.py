"""A client for these tests: one session, whose requests are answered in their order."""

from __future__ import annotations

import select
import socket
import time

from .packing import AUTH_XID, PING_XID, Ask, request, xid_of
from .rawclient import Answer, Event, RawConnection
from .rawsocket import Closed

ANSWER_S_MAX = 10.0


class Client(RawConnection):
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
        #: Kind and path: 1 created, 2 deleted, 3 changed, 4 child.
        self.events: list[tuple[int, str | None]] = []
        self.session, self.password, self.timeout_ms = 0, bytes(16), 0
        self._asked: dict[int, Ask] = {}
        if shake_hands:
            self.greet(session=session, password=password, timeout_ms=timeout_ms, zxid=zxid)
            self.read_handshake()

    def read_handshake(self) -> None:
        _, self.timeout_ms, self.session, self.password, _ = self.greeted()

    # Sending.

    def send(self, *asks: Ask) -> list[int]:
        """Send requests in one go; the xids of their answers."""
        first, self.xid = self.xid + 1, self.xid + len(asks)
        numbers = range(first, self.xid + 1)
        pairs = list(zip(asks, numbers, strict=True))
        xids = [PING_XID if ask.op == "ping" else xid_of(ask, xid) for ask, xid in pairs]
        self._asked.update(zip(xids, asks, strict=True))
        self.send_frames(*(request(ask, xid) for ask, xid in pairs))
        return xids

    # Receiving.

    def next(self) -> Answer | Event:
        """The next frame, whatever it is."""
        got = self.read(self._asked)
        if isinstance(got, Event):
            self.events.append(got[:2])
        else:
            self._asked.pop(got.xid, None)
            self.zxid = max(self.zxid, got.zxid)
        return got

    def reply(self, xid: int | None = None) -> Answer:
        """The next answer, which must be the one to `xid`; events before it go to `events`."""
        while isinstance(got := self.next(), Event):
            pass
        assert xid is None or got.xid == xid, f"the answer to {got.xid}, not to {xid}"
        return got

    def once(self, ask: Ask) -> Answer:
        """One request and its answer."""
        (xid,) = self.send(ask)
        return self.reply(xid)

    def done(self, ask: Ask) -> Answer:
        """One request that must succeed."""
        reply = self.once(ask)
        assert reply.error == 0, f"refused with {reply.error}"
        return reply

    def wait_event(self) -> tuple[int, str | None]:
        """Kind and path of the next frame, which must be an event."""
        got = self.next()
        assert isinstance(got, Event), f"{got} instead of an event"
        return got[:2]

    def authenticate(self, scheme: str, proof: bytes) -> Answer:
        """Prove an identity; the answer, error and all."""
        self.send(Ask("auth", (0, scheme, proof)))
        return self.reply(AUTH_XID)

    def pinged(self) -> None:
        """Send a ping and read up to its answer: everything sent to this client before is in."""
        self.ping()
        self.reply(PING_XID)

    # The end.

    def is_silent(self, seconds: float) -> bool:
        """Whether nothing arrives for so long (nothing is read; the end of the stream counts)."""
        return not self.buffer and not select.select([self.socket], [], [], seconds)[0]

    def until_closed(self, within_s: float | None = None) -> list[Answer | Event]:
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

    def __exit__(self, *_: object) -> None:
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
