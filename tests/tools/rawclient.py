"""A synchronous ZooKeeper connection that sees every frame, in the order of arrival."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple

from .packing import EVENT_XID, PING_XID, Ask, Reader, answer, hello, request, xid_of
from .rawsocket import FramedSocket, Silent

ANSWER_S_MAX = 20.0
PASSWORD_SIZE = 16


class Event(NamedTuple):
    """A watch event as it came; `xid` and `zxid` are those of its header."""

    kind: int
    path: str | None
    state: int
    xid: int
    zxid: int
    error: int
    rest: bytes


class Answer(NamedTuple):
    """An answer as it came: `body` is what follows its header, `fields` what that means.

    `rest` is what nobody expects after the fields.
    """

    xid: int
    zxid: int
    error: int
    body: bytes
    fields: dict[str, Any]
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

    def __init__(
        self,
        address: tuple[str, int],
        answer_s: float = ANSWER_S_MAX,
        receive_buffer: int | None = None,
    ) -> None:
        super().__init__(address, answer_s, receive_buffer)
        self.frames: list[Event | Answer] = []

    def greet(self, **fields: Any) -> None:
        """Send the first frame: see packing.hello. Raises Closed, Silent."""
        self.send_frames(hello(**fields))

    def greeted(self) -> Handshake:
        """The server's first frame. Raises Closed, Silent."""
        reader = Reader(self.frame())
        version, timeout, identity = reader.take(">iiq")
        return Handshake(version, timeout, identity, reader.data() or b"", reader.rest())

    def ask(self, asks: tuple[Ask, ...], xid: int) -> list[Answer]:
        """Send requests with xids from `xid` on in one go, and record frames up to the last answer.

        Gives the answers. Raises Closed or Silent; what came before is recorded.
        """
        self.send_frames(*(request(ask, xid + number) for number, ask in enumerate(asks)))
        return [
            self.record_answer(ask, xid_of(ask, xid + number)) for number, ask in enumerate(asks)
        ]

    def ping(self) -> None:
        """Send a ping; `pong` records what comes up to its answer."""
        self.send_frames(request(Ask("ping"), PING_XID))

    def pong(self) -> None:
        """Record all that arrives up to the answer to a ping. Raises Closed, Silent."""
        self.record_answer(Ask("ping"), PING_XID)

    def record_answer(self, ask: Ask, xid: int) -> Answer:
        """Record frames up to the next answer, which is read as one to `ask`."""
        while True:
            self.frames.append(got := self.read({xid: ask}))
            if isinstance(got, Answer):
                return got

    def read(self, asked: dict[int, Ask]) -> Event | Answer:
        """The next frame; an answer to none of `asked` has no fields. Raises Closed, Silent."""
        reader = Reader(self.frame())
        xid, zxid, error = reader.take(">iqi")
        if xid == EVENT_XID:
            kind, state = reader.take(">ii")
            return Event(kind, reader.text(), state, xid, zxid, error, reader.rest())
        body = reader.rest()
        fields = answer(asked[xid], reader, error) if xid in asked else {}
        return Answer(xid, zxid, error, body, fields, reader.rest())

    def await_event(self, path: str) -> None:
        """Record events up to one about `path`. Raises Closed, Silent."""
        while True:
            self.frames.append(got := self.read({}))
            if isinstance(got, Event) and got.path == path:
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
