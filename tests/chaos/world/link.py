"""The link of one process to the servers: a TCP proxy for each of them, with weather."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from .frames import (
    EVENT_XID,
    Session,
    hang_up,
    read_frame,
    send,
    session_of,
    step_of,
    without_session,
)

#: What happens to a request. `request`: cut before it reaches the server. `answer`: cut when its
#: answer comes. `late`: cut now, and it reaches the server later, over the connection of before;
#: just before the client is back, for a server drops the old connection of a session that moved.
#: `swallow`: it is applied, and from its answer on the client hears nothing over a connection that
#: stays open.
Loss = Literal["request", "answer", "late", "swallow"]
HOST = "127.0.0.1"
LATE_S = 0.4
#: Where a request begins in its frame, behind the length and the number.
_CONTENT_AT = 8


@dataclass
class Weather:
    """What the link does now; every frame looks at it. Times in seconds.

    `lose` is told the step and the number of each transaction. `seen` is called after a request was
    forwarded, before its answer is.
    """

    refuse: bool = False
    #: The only server that is reached, by its port; 0: all.
    only: int = 0
    request_delay_s: float = 0.0
    answer_delay_s: float = 0.0
    hold_requests: bool = False
    hold_answers: bool = False
    drop_events: bool = False
    #: Who connects again gets a new session, and is not told that the old one is over.
    new_sessions: bool = False
    #: Of each transaction of that step the answer is lost, when it is sent for the first time.
    lose_first: str = ""
    lose: Callable[[str, int], Loss | None] | None = None
    seen: Callable[[str], None] | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


class Link:
    """Proxies before `ports`; `hosts` is what the process is told. Safe for several threads."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.weather = self._fair = Weather()
        #: The newest session that went over this link, whether it stands or not.
        self._newest: Session | None = None
        self.transactions = 0
        self.lost: list[str] = []
        #: What was lost when it came first: it comes again under another number.
        self._lost_once: set[int] = set()
        #: How often the weather did something: to a frame, or to a connection.
        self.struck = 0
        #: How many events of watches have not reached the process.
        self.events_lost = 0
        #: How many connections a server has ended, and not the process or this link.
        self.dropped = 0
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        #: Of these, those that this link has ended.
        self._ended_here: set[socket.socket] = set()
        #: Who was let in, by a server at which port and with which session; the newest is last.
        self._let_in: dict[socket.socket, tuple[int, Session]] = {}
        self._ended = threading.Event()
        #: Nobody gets through to a server before: a late request is on its way.
        self._late_until = 0.0
        self._doors = [socket.create_server((HOST, 0)) for _ in ports]
        self.hosts = ",".join(f"{HOST}:{door.getsockname()[1]}" for door in self._doors)
        for door, port in zip(self._doors, ports, strict=True):
            threading.Thread(target=self._accept, args=(door, port), daemon=True).start()

    # ---- what faults do

    def cut(self) -> None:
        """Break every connection now."""
        with self._lock:
            self.struck += len(self._open)
        self._hang_up()

    def change(self, weather: Weather) -> None:
        """From now on that weather; connections held by the old one go on."""
        before, self.weather = self.weather, weather
        with before.changed:
            before.changed.notify_all()

    @property
    def at(self) -> set[int]:
        """The ports of the servers that have let its process in, over connections that stand."""
        with self._lock:
            return {port for port, _ in self._let_in.values()}

    @property
    def session(self) -> Session | None:
        """The session of its process: the newest that has a connection, or had one.

        Another one may come and go beside it, with which a client asks whether history was lost.
        """
        with self._lock:
            standing = [session for _, session in self._let_in.values()]
            return standing[-1] if standing else self._newest

    def forget_session(self) -> None:
        """Its process has ended: the next one has no session yet."""
        with self._lock:
            self._newest = None
            self._let_in.clear()

    @property
    def is_fair(self) -> bool:
        """Whether nothing was done to it since it was healed."""
        return self.weather is self._fair

    def heal(self) -> None:
        """Fair weather, over new connections: what was held is not delivered late by accident."""
        self._hang_up()
        self.calm()

    def calm(self) -> None:
        """Fair weather over the connections that stand: what was held goes on."""
        self._fair = Weather()
        self.change(self._fair)

    def close(self) -> None:
        self._ended.set()
        for door in self._doors:
            hang_up(door)
            door.close()
        self.heal()

    # ---- the proxies

    def _accept(self, door: socket.socket, port: int) -> None:
        while not self._ended.is_set():
            try:
                client, _ = door.accept()
            except OSError:
                return
            if self.weather.refuse or self.weather.only not in (0, port):
                self._strike()
                client.close()
                continue
            threading.Thread(target=self._connect, args=(client, port), daemon=True).start()

    def _connect(self, client: socket.socket, port: int) -> None:
        self._ended.wait(max(0.0, self._late_until - time.monotonic()))
        try:
            server = socket.create_connection((HOST, port), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._open |= {client, server}
        doomed: dict[bytes, Loss] = {}
        answers = (server.makefile("rb"), server, client, doomed, port)
        threading.Thread(target=self._answers, args=answers, daemon=True).start()
        with client.makefile("rb") as stream:
            self._requests(stream, client, server, doomed)
            self._end(client, server)

    def _requests(
        self,
        stream: BinaryIO,
        client: socket.socket,
        server: socket.socket,
        doomed: dict[bytes, Loss],
    ) -> None:
        first = True
        while frame := read_frame(stream):
            # The first frame of a connection is the handshake, which has no header.
            step = "" if first else step_of(frame)
            if first and self.weather.new_sessions:
                frame = without_session(frame)
            first = False
            self._wait_out("hold_requests", self.weather.request_delay_s)
            weather = self.weather
            loss = self._loss(weather, step, frame)
            if loss == "request":
                break
            if loss == "late":
                self._late_until = time.monotonic() + LATE_S + 0.1
                hang_up(client)
                self._ended.wait(LATE_S)
            elif loss is not None:
                doomed[frame[4:8]] = loss
            if not send(server, frame):
                break
            if loss == "late":
                self._ended.wait(0.1)  # closed at once, it might never be read
                break
            if step and weather.seen is not None:
                weather.seen(step)

    def _loss(self, weather: Weather, step: str, frame: bytes) -> Loss | None:
        if not step:
            return None
        with self._lock:
            self.transactions += 1
            loss = weather.lose(step, self.transactions) if weather.lose else None
            content = hash(frame[_CONTENT_AT:])
            if step == weather.lose_first and content not in self._lost_once:
                self._lost_once.add(content)
                loss = "answer"
            if loss:
                self.struck += 1
                self.lost.append(f"{step} {loss}")
        return loss

    def _answers(
        self,
        stream: BinaryIO,
        server: socket.socket,
        client: socket.socket,
        doomed: dict[bytes, Loss],
        port: int,
    ) -> None:
        with stream:
            has_ended = self._pass_on(stream, client, doomed, port)
        with self._lock:
            if has_ended:
                self.dropped += server in self._open and server not in self._ended_here
            self._let_in.pop(client, None)
        # The other side may still owe the server a late request.
        hang_up(client)

    def _pass_on(
        self, stream: BinaryIO, client: socket.socket, doomed: dict[bytes, Loss], port: int
    ) -> bool:
        """Whether the answers have come to an end, and not what took them on."""
        first, deaf = True, False
        while frame := read_frame(stream):
            if first:
                first = False
                session = session_of(frame)
                if session is not None:
                    with self._lock:
                        self._newest = session
                        self._let_in[client] = (port, session)
            elif doomed and frame[4:8] in doomed:
                if doomed[frame[4:8]] == "answer":
                    return False
                deaf = True
            if self.weather.drop_events and struct.unpack_from("!i", frame, 4)[0] == EVENT_XID:
                with self._lock:
                    self.events_lost += 1
                continue
            self._wait_out("hold_answers", self.weather.answer_delay_s)
            if not deaf and not send(client, frame):
                return False
        return True

    def _wait_out(self, hold: str, delay_s: float) -> None:
        if delay_s:
            self._strike()
            self._ended.wait(delay_s)
        weather = self.weather
        if getattr(weather, hold):
            self._strike()
        while getattr(weather, hold) and not self._ended.is_set():
            with weather.changed:
                weather.changed.wait(0.1)
            weather = self.weather

    def _hang_up(self) -> None:
        with self._lock:
            ends = list(self._open)
            self._ended_here |= self._open
            self._let_in.clear()
        for end in ends:
            hang_up(end)

    def _strike(self) -> None:
        with self._lock:
            self.struck += 1

    def _end(self, *ends: socket.socket) -> None:
        with self._lock:
            self._ended_here |= set(ends)
        for end in ends:
            hang_up(end)
            end.close()
        with self._lock:
            self._open -= set(ends)
            self._ended_here -= set(ends)
