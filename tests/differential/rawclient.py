"""A synchronous ZooKeeper connection that records every frame in the order of arrival."""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

from tests.rawsocket import FramedSocket, Silent

from .packing import EVENT_XID, PING_XID, Ask, Reader, answer, request, xid_of

ANSWER_S_MAX = 20.0
PASSWORD_SIZE = 16
_PING = struct.pack(">iii", 8, PING_XID, 11)


class Event(NamedTuple):
    """A watch event as it came; `xid` and `zxid` are those of its header."""

    xid: int
    zxid: int
    error: int
    kind: int
    state: int
    path: str | None
    rest: bytes


class Answer(NamedTuple):
    """An answer as it came; `size` is that of its frame, `rest` what nobody expects after it."""

    xid: int
    zxid: int
    error: int
    fields: list[tuple[str, Any]]
    size: int
    rest: bytes


class Handshake(NamedTuple):
    """The server's first frame."""

    version: int
    timeout_ms: int
    session: int
    password: bytes
    rest: bytes


class RawConnection(FramedSocket):
    """One TCP connection; the caller knows which answers it is owed."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, ANSWER_S_MAX)
        self.frames: list[Event | Answer] = []

    def handshake(
        self, *, session: int, password: bytes, timeout_ms: int, zxid: int, tail: bytes
    ) -> Handshake:
        """Send the first frame and read the server's; `tail` is the read-only byte, or nothing."""
        body = struct.pack(">iqiqi", 0, zxid, timeout_ms, session, len(password)) + password + tail
        self.send_frames(body)
        reader = Reader(self.frame())
        version, timeout, identity = reader.take(">iiq")
        return Handshake(version, timeout, identity, reader.data() or b"", reader.rest())

    def ask(self, asks: tuple[Ask, ...], xid: int) -> None:
        """Send requests with xids from `xid` on in one go, and record frames up to the last answer.

        Raises Closed or Silent; what came before is recorded.
        """
        self.send_frames(*(request(ask, xid + number) for number, ask in enumerate(asks)))
        for number, ask in enumerate(asks):
            self.record_answer(ask, xid_of(ask, xid + number))

    def ping(self) -> None:
        """Send a ping; `pong` records what comes up to its answer."""
        self.send_bytes(_PING)

    def pong(self) -> None:
        """Record all that arrives up to the answer to a ping. Raises Closed, Silent."""
        self.record_answer(Ask("ping"), PING_XID)

    def record_answer(self, ask: Ask, xid: int) -> None:
        """Record frames up to the next answer, which is read as one to `ask`."""
        while True:
            body = self.frame()
            reader = Reader(body)
            got, zxid, error = reader.take(">iqi")
            if got == EVENT_XID:
                self.record_event(reader, zxid, error)
                continue
            fields = answer(ask, reader, error) if got == xid or ask.op == "ping" else []
            self.frames.append(Answer(got, zxid, error, fields, len(body), reader.rest()))
            return

    def record_event(self, reader: Reader, zxid: int, error: int) -> None:
        kind, state = reader.take(">ii")
        path = reader.text()
        self.frames.append(Event(EVENT_XID, zxid, error, kind, state, path, reader.rest()))

    def await_event(self, path: str) -> None:
        """Record events up to one about `path`. Raises Closed, Silent."""
        while True:
            reader = Reader(self.frame())
            _, zxid, error = reader.take(">iqi")
            self.record_event(reader, zxid, error)
            last = self.frames[-1]
            if isinstance(last, Event) and last.path == path:
                return

    def hang_up(self) -> int:
        """End the sending side and `drain`: a server that closes too has dropped the watches."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # The server was first.
        return self.drain()

    def drain(self) -> int:
        """Read to the end of the stream and close; how many bytes nobody expected were there."""
        unread = len(self.buffer)
        try:
            while data := self.socket.recv(1 << 16):
                unread += len(data)
        except TimeoutError as error:
            raise Silent("the server did not close its side") from error
        except OSError:
            pass  # Reset by a server that had not read all: closed as well.
        finally:
            self.socket.close()
        return unread
