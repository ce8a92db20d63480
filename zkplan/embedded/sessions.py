"""Sessions: create, attach, touch, expire; and the peer at the other end of a connection.

Pure: the caller passes the time (milliseconds of a monotonic clock) and the source of passwords. A
session expires when its whole time-out has passed since its client's last sign of life. Times are
rounded down, so one more millisecond has to pass. A real server rounds up to its next tick.
"""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .operations import Identity

PASSWORD_BYTES = 16
# As on a real server with server number 0: the time in the upper bits, a counter in the lower.
_COUNT_BITS = 16
_ID_MASK = (1 << 56) - 1


class SavedSession(NamedTuple):
    """The part of a session that outlives the server. `timeout_ms` is the negotiated time-out."""

    id: int
    password: bytes
    timeout_ms: int


class Session:
    """A live session. It expires after `deadline_ms` unless its client gives a sign of life before.

    Each sign of life moves the deadline and sets `forgiven_ms` to 0.
    """

    __slots__ = ("deadline_ms", "forgiven_ms", "id", "password", "queued_ms", "timeout_ms")

    def __init__(self, id: int, password: bytes, timeout_ms: int, deadline_ms: int) -> None:  # noqa: A002
        self.id = id
        self.password = password
        self.timeout_ms = timeout_ms
        self.deadline_ms = deadline_ms
        self.forgiven_ms = 0  # for absences of the server, since the client's last sign of life
        self.queued_ms = deadline_ms  # the time of the valid entry in the queue; others are old


class Sessions:
    """The live sessions of one server, and their changes since the last save."""

    def __init__(
        self, *, min_timeout_ms: int, max_timeout_ms: int, make_password: Callable[[int], bytes]
    ) -> None:
        self.last_id = 0
        self._bounds = (min_timeout_ms, max_timeout_ms)
        self._make_password = make_password
        self._live: dict[int, Session] = {}
        # A heap of (deadline at the time of the push, id). A touch costs nothing, because it moves
        # only the deadline of the session; `expired` pushes a session again that it finds too soon.
        self._queue: list[tuple[int, int]] = []
        self._changes: dict[int, SavedSession | None] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._live.values())

    def create(self, timeout_ms: int, now_ms: int, wall_ms: int) -> Session:
        """Create a session with the time-out `timeout_ms`, limited by the server's bounds.

        The id is larger than all earlier ids, even before a restart: a late request of an old
        session must never meet a new session with the same id.
        """
        self.last_id = max(self.last_id + 1, (wall_ms << _COUNT_BITS) & _ID_MASK)
        timeout_ms = self._within_bounds(timeout_ms)
        session = Session(
            self.last_id, self._make_password(PASSWORD_BYTES), timeout_ms, now_ms + timeout_ms
        )
        self._add(session)
        self._note(session)
        return session

    def attach(self, id: int, password: bytes, timeout_ms: int, now_ms: int) -> Session | None:  # noqa: A002
        """Return the live session `id`, with the newly negotiated time-out, or None.

        A wrong password also returns None: guessing an id must neither give nor disturb a session.
        """
        session = self._live.get(id)
        if session is None or not hmac.compare_digest(session.password, password):
            return None
        timeout_ms = self._within_bounds(timeout_ms)
        if timeout_ms != session.timeout_ms:
            session.timeout_ms = timeout_ms
            self._note(session)
        self.touch(session, now_ms)
        if session.deadline_ms < session.queued_ms:
            self._enqueue(session)
        return session

    def touch(self, session: Session, now_ms: int) -> None:
        """Note a sign of life of the session's client."""
        session.deadline_ms = now_ms + session.timeout_ms
        session.forgiven_ms = 0

    def end(self, id: int) -> None:  # noqa: A002
        """Forget a session. Does nothing if there is none with this id."""
        if self._live.pop(id, None) is not None:
            self._changes[id] = None

    def expired(self, now_ms: int) -> list[Session]:
        """Return the sessions whose time is over, by deadline. The caller has to `end` them."""
        over = []
        while self._queue and self._queue[0][0] < now_ms:
            queued_ms, id = heapq.heappop(self._queue)  # noqa: A001
            session = self._live.get(id)
            if session is None or session.queued_ms != queued_ms:
                continue
            if session.deadline_ms >= now_ms:
                self._enqueue(session)
            else:
                session.queued_ms = -1  # an old entry for the same time must not end it twice
                over.append(session)
        return over

    def next_check_ms(self) -> int | None:
        """When to call `expired` again. No session expires before that; None without sessions."""
        return self._queue[0][0] + 1 if self._queue else None

    def forgive(self, away_ms: int, now_ms: int) -> None:
        """Give sessions back the `away_ms` for which the server was stopped or suspended.

        No session gets more than its whole time-out. Several absences in a row give a silent
        session at most one time-out in all: the server reads in between, so a session that has sent
        nothing by then is dead. An absence of a whole time-out always counts, because the client
        may have lost its connection meanwhile.
        """
        for session in self._live.values():
            left_ms = away_ms
            if away_ms < session.timeout_ms:
                left_ms = min(away_ms, session.timeout_ms - session.forgiven_ms)
            before_ms = session.deadline_ms
            session.deadline_ms = min(before_ms + max(0, left_ms), now_ms + session.timeout_ms)
            session.forgiven_ms += session.deadline_ms - before_ms

    def restore(self, last_id: int, saved: Iterable[SavedSession], now_ms: int) -> None:
        """Restore sessions after a restart, each with its whole time-out, as on a real server."""
        self.last_id = last_id
        for id, password, timeout_ms in saved:  # noqa: A001
            self._add(Session(id, password, timeout_ms, now_ms + timeout_ms))

    def take_changes(self) -> list[tuple[int, SavedSession | None]]:
        """Return the sessions created, renegotiated or ended (None) since the last call, by id."""
        changes, self._changes = self._changes, {}
        return list(changes.items())

    def _add(self, session: Session) -> None:
        self._live[session.id] = session
        self._enqueue(session)

    def _enqueue(self, session: Session) -> None:
        session.queued_ms = session.deadline_ms
        heapq.heappush(self._queue, (session.queued_ms, session.id))

    def _note(self, session: Session) -> None:
        self._changes[session.id] = SavedSession(session.id, session.password, session.timeout_ms)

    def _within_bounds(self, timeout_ms: int) -> int:
        low, high = self._bounds
        return min(max(timeout_ms, low), high)


class Peer:
    """The other end of a connection: its proven identities, its session, and its counts."""

    __slots__ = (
        "address",
        "identities",
        "is_let_in",
        "last_request",
        "leaving",
        "port",
        "received",
        "sent",
        "session",
        "session_id",
        "unsent_bytes",
    )

    def __init__(self, address: str, port: int) -> None:
        self.address = address
        self.port = port
        self.identities: tuple[Identity, ...] = (Identity("ip", address),)
        self.is_let_in = False  # whether the client has logged in, or needs no login
        self.session: Session | None = None
        self.session_id = 0  # kept after the end of the session
        self.leaving = False  # whether the connection closes, and further requests get no answer
        self.unsent_bytes = 0  # of frames that wait for the commit
        self.received = 0
        self.sent = 0
        self.last_request = "NA"
