"""The link of one process to the servers: a TCP proxy for each, which can cut, lose and delay."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.tools.frames import (
    EVENT_XID,
    Session,
    frames,
    hang_up,
    send,
    session_of,
    step_of,
    without_session,
)

#: What happens to a request. `request`: the connection is cut before the server gets it. `answer`:
#: the connection is cut when the answer comes. `late`: the connection to the client is cut now, and
#: the server gets the request later, just before the client has connected again (a server drops the
#: old connection of a session that moved). `swallow`: it is applied, its answer and all later ones
#: are dropped, and the connection stays open.
Loss = Literal["request", "answer", "late", "swallow"]
HOST = "127.0.0.1"
LATE_S = 0.4


@dataclass
class LinkState:
    """What the link does to traffic now; read for every frame. Times in seconds.

    `lose` is called with the step and the number of each transaction. `seen` is called after
    a request was forwarded and before its answer is.
    """

    refuse: bool = False
    #: The port of the only server that can be reached; 0: all.
    only: int = 0
    request_delay_s: float = 0.0
    answer_delay_s: float = 0.0
    hold_requests: bool = False
    hold_answers: bool = False
    drop_events: bool = False
    #: A client that connects again gets a new session, without a word about the old one.
    new_sessions: bool = False
    lose: Callable[[str, int], Loss | None] | None = None
    seen: Callable[[str], None] | None = None
    changed: threading.Condition = field(default_factory=threading.Condition)


@dataclass(eq=False)
class Connection:
    """A connection of the process, and that of the proxy to the server at `port`."""

    client: socket.socket
    server: socket.socket
    port: int
    #: What is to happen at the answers to requests of those numbers.
    to_lose: dict[bytes, Loss] = field(default_factory=dict)
    #: Whether the process or this link has ended it, and not the server.
    ended_here: bool = False

    def hang_up(self) -> None:
        self.ended_here = True
        hang_up(self.client)
        hang_up(self.server)


class Link:
    """Proxies before `ports`; the process connects to `hosts`. Safe for several threads."""

    def __init__(self, ports: Sequence[int]) -> None:
        self.state = self._normal = LinkState()
        #: The newest session of this link, whether it still exists or not.
        self._newest: Session | None = None
        self.transactions = 0
        self.lost: list[str] = []
        #: How many frames and connections the link has cut, lost, held, delayed or refused.
        self.affected = 0
        #: How many watch events were dropped.
        self.events_lost = 0
        #: How many connections a server has closed (not the process, not this link).
        self.dropped = 0
        self._lock = threading.Lock()
        self._open: set[Connection] = set()
        #: The sessions of connections that a server has accepted; the newest is last.
        self._accepted: dict[Connection, Session] = {}
        self._ended = threading.Event()
        #: No connection reaches a server before this time, as a late request is on its way.
        self._late_until = 0.0
        self._listeners = [socket.create_server((HOST, 0)) for _ in ports]
        self.hosts = ",".join(f"{HOST}:{listener.getsockname()[1]}" for listener in self._listeners)
        for listener, port in zip(self._listeners, ports, strict=True):
            threading.Thread(target=self._accept, args=(listener, port), daemon=True).start()

    # ---- what faults do

    def cut(self) -> None:
        """Break every connection now."""
        with self._lock:
            self.affected += len(self._open)
        self._hang_up()

    def change(self, state: LinkState) -> None:
        """Set the state; what the old state held goes on."""
        before, self.state = self.state, state
        with before.changed:
            before.changed.notify_all()

    @property
    def at(self) -> set[int]:
        """The ports of the servers at which its process now has a session."""
        with self._lock:
            return {made.port for made in self._accepted}

    @property
    def session(self) -> Session | None:
        """The session of its process: the newest with a connection, else the newest of all.

        A client may open a second session for a moment, to ask whether history was lost.
        """
        with self._lock:
            return next(reversed(self._accepted.values()), self._newest)

    def forget_session(self) -> None:
        """Its process has ended, and the next one has no session yet."""
        with self._lock:
            self._newest = None
            self._accepted.clear()

    @property
    def is_normal(self) -> bool:
        """Whether no fault has changed its state since it was healed."""
        return self.state is self._normal

    def heal(self) -> None:
        """Normal, over new connections, so that nothing that was held is delivered late."""
        self._hang_up()
        self.restore()

    def restore(self) -> None:
        """Normal, over the connections of now: what was held is delivered."""
        self._normal = LinkState()
        self.change(self._normal)

    def close(self) -> None:
        self._ended.set()
        for listener in self._listeners:
            hang_up(listener)
            listener.close()
        self.heal()

    # ---- the proxies

    def _accept(self, listener: socket.socket, port: int) -> None:
        while not self._ended.is_set():
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.state.refuse or self.state.only not in (0, port):
                self._count()
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
        made = Connection(client, server, port)
        with self._lock:
            self._open.add(made)
        threading.Thread(target=self._answers, args=(made,), daemon=True).start()
        self._requests(made)
        made.hang_up()
        client.close()
        server.close()
        with self._lock:
            self._open.discard(made)

    def _requests(self, made: Connection) -> None:
        first = True
        for frame in frames(made.client):
            # The first frame of a connection is the handshake. It has no header.
            step = "" if first else step_of(frame)
            if first and self.state.new_sessions:
                frame = without_session(frame)
            first = False
            self._wait_out("hold_requests", self.state.request_delay_s)
            state = self.state
            loss = self._loss(state, step)
            if loss == "request":
                return
            if loss == "late":
                self._late_until = time.monotonic() + LATE_S + 0.1
                hang_up(made.client)
                self._ended.wait(LATE_S)
            elif loss is not None:
                made.to_lose[frame[4:8]] = loss
            if not send(made.server, frame):
                return
            if loss == "late":
                self._ended.wait(0.1)  # closed at once, it might never be read
                return
            if step and state.seen is not None:
                state.seen(step)

    def _loss(self, state: LinkState, step: str) -> Loss | None:
        if not step:
            return None
        with self._lock:
            self.transactions += 1
            loss = state.lose(step, self.transactions) if state.lose else None
            if loss:
                self.affected += 1
                self.lost.append(f"{step} {loss}")
        return loss

    def _answers(self, made: Connection) -> None:
        has_ended = self._pass_on(made)
        with self._lock:
            if has_ended:
                self.dropped += made in self._open and not made.ended_here
            self._accepted.pop(made, None)
        # The other direction may still have to send a late request.
        hang_up(made.client)

    def _pass_on(self, made: Connection) -> bool:
        """Whether the server ended the answers (and not the client's side)."""
        first, swallows = True, False
        for frame in frames(made.server):
            if first:
                first = False
                session = session_of(frame)
                if session is not None:
                    with self._lock:
                        self._newest = self._accepted[made] = session
            elif made.to_lose and frame[4:8] in made.to_lose:
                if made.to_lose[frame[4:8]] == "answer":
                    return False
                swallows = True
            if self.state.drop_events and struct.unpack_from("!i", frame, 4)[0] == EVENT_XID:
                with self._lock:
                    self.events_lost += 1
                continue
            self._wait_out("hold_answers", self.state.answer_delay_s)
            if not swallows and not send(made.client, frame):
                return False
        return True

    def _wait_out(self, hold: str, delay_s: float) -> None:
        if delay_s:
            self._count()
            self._ended.wait(delay_s)
        state = self.state
        if getattr(state, hold):
            self._count()
        while getattr(state, hold) and not self._ended.is_set():
            with state.changed:
                state.changed.wait(0.1)
            state = self.state

    def _hang_up(self) -> None:
        with self._lock:
            found = list(self._open)
            self._accepted.clear()
        for made in found:
            made.hang_up()

    def _count(self) -> None:
        with self._lock:
            self.affected += 1
