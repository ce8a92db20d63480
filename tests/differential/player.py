"""Plays one program on one server, in lockstep, and writes down all that every client received.

After each step every connected client is pinged: an event precedes the answer to a later ping, so
what a step caused is known before the next begins, and two servers can be compared step by step.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from tests.tools.packing import Ask, Broken, request
from tests.tools.rawclient import PASSWORD_SIZE, Answer, Event, RawConnection
from tests.tools.rawsocket import Closed, Silent

from .steps import MOST_BYTES_OF_A_FRAME, Attach, Big, Burst, Bytes, Drop, Expire, Step, Stranger
from .translation import Translation

#: Beyond the length of any program, so that nothing but an Expire step lets a session expire.
TIMEOUT_MS = 30_000
#: Below the shortest the servers grant.
TOO_SHORT_MS = 0
OPEN = ((31, "world", "anyone"),)

#: Requests that send events to nobody but their sender, before their answer.
READS = frozenset(
    (
        *("exists", "get", "get_acl", "children", "children2", "multi_read", "count"),
        *("sync", "ping", "ephemerals", "who_am_i"),
        *("add_watch", "check_watches", "remove_watches", "set_watches", "set_watches2"),
    )
)
#: Requests after whose answer a server may close the connection.
CLOSING = frozenset(("auth", "opcode"))

#: What happened to one client in a step: plain values, equal on equal servers.
Note = tuple[Any, ...]


@dataclass
class Client:
    """One session and, while it has one, its connection."""

    number: int
    session: int = 0
    password: bytes = bytes(PASSWORD_SIZE)
    connection: RawConnection | None = None
    asked: list[Ask] = field(default_factory=list)
    xid: int = 0


class Player:
    """One program under way on one server."""

    def __init__(self, address: tuple[str, int], root: str, clients: int) -> None:
        self.address = address
        self.translation = Translation(root)
        self.clients = [Client(number) for number in range(clients)]
        self.notes: list[Note] = []

    def play(self, steps: list[Step]) -> list[list[Note]]:
        """The notes of the beginning, of each step, and of the end, when all sessions are closed.

        A server that is silent ends the program there, with a note.
        """
        transcript: list[list[Note]] = []
        try:
            self.begin()
            transcript.append(self.take_notes())
            for number, step in enumerate(steps):
                self.step(step, number)
                self.settle(self.touched(step), reordered=self.ends_a_session(step))
                transcript.append(self.take_notes())
            self.end()
        except Silent as silence:
            self.notes.append(("silent", str(silence)))
        except Broken as error:
            self.notes.append(("broken", str(error)))
        finally:
            for client in self.clients:
                if client.connection is not None:
                    client.connection.close()
        return [*transcript, self.take_notes()]

    def take_notes(self) -> list[Note]:
        notes, self.notes = self.notes, []
        return notes

    def begin(self) -> None:
        first = self.clients[0]
        self.attach(first, noted=False)
        connection = self.connected(first)
        # Zxids and the root's counters are compared from here on.
        self.translation.begin(connection.ask((Ask("ping"), Ask("exists", ("/", False))), 0))
        connection.frames.clear()
        for client in self.clients[1:]:
            self.attach(client)
        self.ask(first, (Ask("create", ("~", b"", OPEN, 0)),))
        self.settle()

    def end(self) -> None:
        for client in self.clients:
            if client.connection is None:
                self.attach(client)
            self.ask(client, (Ask("close"),))
            self.settle(reordered=True)

    def touched(self, step: Step) -> list[Client]:
        """Whom the step may have sent something without an answer that follows it."""
        if not isinstance(step, Burst):
            return self.clients
        # Its answers come after its events; only where it closes the connection they are the last.
        if all(ask.op in READS for ask in step.asks):
            return []
        if len(step.asks) == 1 and step.asks[0].op in CLOSING:
            return [self.clients[step.client % len(self.clients)]]
        return [client for client in self.clients if client.number != step.client]

    @staticmethod
    def ends_a_session(step: Step) -> bool:
        """Whether ephemerals go all at once: in an order that is no server's promise."""
        closes = isinstance(step, Burst) and any(ask.op == "close" for ask in step.asks)
        return closes or isinstance(step, Expire)

    def step(self, step: Step, number: int) -> None:
        client = self.clients[step.client % len(self.clients)]
        if client.connection is None:
            self.attach(client)
        match step:
            case Burst(_, asks):
                self.ask(client, asks)
            case Drop():
                self.drop(client)
            case Attach():
                self.attach_again(client, step)
            case Stranger(_, session):
                self.try_handshake(session, bytes(PASSWORD_SIZE), TIMEOUT_MS, -1, b"\x00")
            case Expire(_, observer):
                self.expire(client, self.clients[observer % len(self.clients)], number)
            case Big(_, path, excess):
                self.ask(client, (self.big(path, excess),))
            case Bytes(_, data):
                self.send_bytes(client, data)

    # -- what a step does

    def big(self, path: str | bytes | None, excess: int) -> Ask:
        empty = request(self.translation.outward(Ask("set", (path, b"", -1))), 0)
        return Ask("set", (path, bytes(MOST_BYTES_OF_A_FRAME + excess - len(empty)), -1))

    def ask(self, client: Client, asks: tuple[Ask, ...]) -> None:
        if client.connection is None:
            return
        client.asked.extend(asks)
        try:
            client.connection.ask(tuple(map(self.translation.outward, asks)), client.xid + 1)
        except Closed:
            self.lose(client)
        client.xid += len(asks)
        if any(ask.op == "close" for ask in asks):
            # ZooKeeper forgets to close its side after some of its answers.
            self.drop(client, reordered=True)
            client.session = 0

    def send_bytes(self, client: Client, data: bytes) -> None:
        try:
            self.connected(client).send_bytes(data)
        except Closed:
            pass  # Noted when the next ping finds it out.

    def drop(self, client: Client, *, reordered: bool = False) -> None:
        if client.connection is None:
            return
        connection, client.connection = client.connection, None
        unread = connection.hang_up()
        self.record(client, connection, reordered=reordered)
        self.notes.append((client.number, "hung up", unread))

    def lose(self, client: Client) -> None:
        """The server closed, or will at once."""
        if client.connection is None:
            return
        connection, client.connection = client.connection, None
        self.record(client, connection)
        self.notes.append((client.number, "closed by the server", connection.drain()))

    def attach(self, client: Client, *, noted: bool = True) -> None:
        """Connect, to the client's session or, where that has gone, to a new one."""
        for _ in range(2):
            shake = self.try_handshake(
                client.session, client.password, TIMEOUT_MS, 0, b"\x00", keep=client, noted=noted
            )
            if shake:
                return
            client.session, client.password = 0, bytes(PASSWORD_SIZE)
        raise Broken("a new session was refused")

    def attach_again(self, client: Client, step: Attach) -> None:
        if step.password != "right":
            # Permitted difference: whose connection a wrong password ends.
            self.drop(client)
        old, client.connection = client.connection, None
        password = {
            "right": client.password,
            "wrong": bytes(byte ^ 1 for byte in client.password),
            "short": client.password[:8],
            "empty": b"",
        }[step.password]
        zxid = self.translation.zxid_outward(step.zxid)
        tail = b"\x01" if step.read_only_byte else b""
        self.try_handshake(client.session, password, step.timeout_ms, zxid, tail, keep=client)
        if old is not None:
            if client.connection is None and step.zxid > 10**5:
                # Refused before its session was looked at: the old connection lives on.
                client.connection = old
                return
            self.record(client, old)
            self.notes.append((client.number, "the old connection ended", old.drain()))

    def expire(self, client: Client, observer: Client, number: int) -> None:
        path = f"~/alive-{number}"
        if observer is client:
            return
        if observer.connection is None:
            self.attach(observer)
        self.ask(client, (Ask("create", (path, b"", OPEN, 1)),))
        self.ask(observer, (Ask("exists", (path, True)),))
        watched = self.connected(observer)
        last = watched.frames[-1] if watched.frames else None
        if not isinstance(last, Answer) or last.error or client.connection is None:
            return
        self.drop(client)
        shake = self.try_handshake(
            client.session, client.password, TOO_SHORT_MS, 0, b"\x00", keep=client
        )
        if not shake:
            return
        self.drop(client)
        watched.await_event(self.translation.outward_path(path))

    def try_handshake(
        self,
        session: int,
        password: bytes,
        timeout_ms: int,
        zxid: int,
        tail: bytes,
        *,
        keep: Client | None = None,
        noted: bool = True,
    ) -> bool:
        """Connect; whether the server agreed. `keep` gets the connection."""
        connection = RawConnection(self.address)
        who = keep.number if keep else -1
        try:
            connection.greet(
                session=session, password=password, timeout_ms=timeout_ms, zxid=zxid, tail=tail
            )
            shake = connection.greeted()
        except Closed:
            connection.close()
            self.notes.append((who, "no answer to the handshake"))
            return False
        agreed = shake.timeout_ms != 0
        name = self.translation.session_name(shake.session)
        known = "same" if shake.password == password else "other"
        note: Note = (who, "handshake", shake.version, shake.timeout_ms, name, known)
        note = (*note, len(shake.password), shake.rest)
        if noted:
            self.notes.append(note)
        if agreed and keep is not None:
            keep.session, keep.password = shake.session, shake.password
            keep.connection = connection
            return True
        if agreed:
            connection.hang_up()
        else:
            self.notes.append((who, "refused and closed", connection.drain()))
        return False

    # -- writing down

    def settle(self, clients: list[Client] | None = None, *, reordered: bool = False) -> None:
        """Write down all that came on every connection; ping these clients (all) before."""
        pinged = []
        for client in self.clients if clients is None else clients:
            if client.connection is not None:
                try:
                    client.connection.ping()
                except Closed:
                    self.lose(client)
                else:
                    pinged.append(client)
        for client in pinged:
            try:
                self.connected(client).pong()
            except Closed:
                self.lose(client)
            else:
                client.asked.append(Ask("ping"))
        for client in self.clients:
            if client.connection is not None:
                self.record(client, client.connection, reordered=reordered)

    def record(self, client: Client, connection: RawConnection, *, reordered: bool = False) -> None:
        """Write down the frames of a connection since the last time."""
        asked = iter(client.asked)
        notes: list[Note] = []
        for frame in connection.frames:
            if isinstance(frame, Event):
                notes.append((client.number, "event", *self.translation.event(frame)))
            else:
                ask = next(asked)
                notes.append((client.number, ask.op, *self.translation.answer(ask, frame)))
        connection.frames.clear()
        client.asked.clear()
        self.notes.extend(in_any_order(notes) if reordered else notes)

    def connected(self, client: Client) -> RawConnection:
        if client.connection is None:
            raise Broken(f"client {client.number} is not connected")
        return client.connection


def in_any_order(notes: list[Note]) -> list[Note]:
    """The notes with each run of events sorted: ephemerals of one session go in any order."""
    result: list[Note] = []
    for _, run in itertools.groupby(notes, lambda note: note[1] == "event"):
        result += sorted(run, key=lambda note: repr(note) if note[1] == "event" else "")
    return result
