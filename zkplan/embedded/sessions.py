"""Sessions: create, attach, touch, expire; and the peer at the other end of a connection.

Pure: the caller passes the time in (milliseconds of a clock that never goes back) and the source
of passwords. A session expires once its whole time-out has passed since it was last heard of, and
never before: the times are rounded down, so one millisecond more than the time-out has to lie
between them. A real server rounds up to its next tick.
"""

from __future__ import annotations

import heapq
import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from .operations import Identity

PASSWORD_BYTES = 16
# As a real server with a server number of 0 would: the time in the upper bits, room to count below.
_COUNT_BITS = 16
_ID_MASK = (1 << 56) - 1


class SavedSession(NamedTuple):
    """What of a session outlives the server; `timeout_ms` is the negotiated one."""

    id: int
    password: bytes
    timeout_ms: int


class Session:
    """A live session; `deadline_ms` is when it expires unless it is heard of.

    Whoever moves the deadline because it was heard of sets `forgiven_ms` to 0.
    """

    __slots__ = ("deadline_ms", "forgiven_ms", "id", "password", "queued_ms", "timeout_ms")

    def __init__(self, id: int, password: bytes, timeout_ms: int, deadline_ms: int) -> None:  # noqa: A002
        self.id = id
        self.password = password
        self.timeout_ms = timeout_ms
        self.deadline_ms = deadline_ms
        self.forgiven_ms = 0  # of absences of the server, since it was last heard of
        self.queued_ms = deadline_ms  # which entry of the queue is valid; others are left-overs


class Sessions:
    """The live sessions of one server, and what of them has changed since it was last saved."""

    def __init__(
        self, *, min_timeout_ms: int, max_timeout_ms: int, make_password: Callable[[int], bytes]
    ) -> None:
        self.last_id = 0
        self._bounds = (min_timeout_ms, max_timeout_ms)
        self._make_password = make_password
        self._live: dict[int, Session] = {}
        # By deadline as it was when pushed: a touch moves the deadline alone, and `expired` pushes
        # again what it finds early. So a touch costs nothing, and one entry of each session counts.
        self._queue: list[tuple[int, int]] = []
        self._changes: dict[int, SavedSession | None] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._live.values())

    def create(self, timeout_ms: int, now_ms: int, wall_ms: int) -> Session:
        """A new session; its time-out is the wish within the server's bounds.

        Its id is larger than every earlier one, also of before a restart: a late request of a
        session long gone must never meet a new session of the same id.
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
        """The live session of this id, with the newly negotiated time-out; None if it is gone.

        None too for a wrong password: whoever guesses an id must not get, or disturb, its session.
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
        """The session was heard of."""
        session.deadline_ms = now_ms + session.timeout_ms
        session.forgiven_ms = 0

    def end(self, id: int) -> None:  # noqa: A002
        """Forget a session; nothing happens where it is gone."""
        if self._live.pop(id, None) is not None:
            self._changes[id] = None

    def expired(self, now_ms: int) -> list[Session]:
        """The sessions whose time is over, in the order of their deadlines; `end` them."""
        over = []
        while self._queue and self._queue[0][0] < now_ms:
            queued_ms, id = heapq.heappop(self._queue)  # noqa: A001
            session = self._live.get(id)
            if session is None or session.queued_ms != queued_ms:
                continue
            if session.deadline_ms >= now_ms:
                self._enqueue(session)
            else:
                session.queued_ms = -1  # a left-over for the same time must not end it twice
                over.append(session)
        return over

    def next_check_ms(self) -> int | None:
        """When `expired` has to be asked again: no session expires before."""
        return self._queue[0][0] + 1 if self._queue else None

    def forgive(self, away_ms: int, now_ms: int) -> None:
        """The server was stopped or suspended for so long: no session loses that time.

        No session gets more than its whole time-out either, which one that was heard of since has
        already. Absences that follow one another give a silent session one time-out more in all:
        the server reads in between, so a session that has sent nothing by then is dead. An absence
        of a whole time-out counts in any case: a client can have lost its connection in it.
        """
        for session in self._live.values():
            left_ms = away_ms
            if away_ms < session.timeout_ms:
                left_ms = min(away_ms, session.timeout_ms - session.forgiven_ms)
            before_ms = session.deadline_ms
            session.deadline_ms = min(before_ms + max(0, left_ms), now_ms + session.timeout_ms)
            session.forgiven_ms += session.deadline_ms - before_ms

    def restore(self, last_id: int, saved: Iterable[SavedSession], now_ms: int) -> None:
        """After a restart: every session has its whole time-out again, as on a real server."""
        self.last_id = last_id
        for id, password, timeout_ms in saved:  # noqa: A001
            self._add(Session(id, password, timeout_ms, now_ms + timeout_ms))

    def take_changes(self) -> list[tuple[int, SavedSession | None]]:
        """What was created, renegotiated or ended (None) since the last call."""
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


# ---- The other end of one connection, as the service knows it.


class Peer:
    """One connection: who it has proven to be, its session, and what it has done so far."""

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
        self.is_let_in = False  # whether it may ask anything besides
        self.session: Session | None = None
        self.session_id = 0  # stays when the session has ended
        self.leaving = False  # no request is answered any more
        self.unsent_bytes = 0  # of frames for it that wait for the commit
        self.received = 0
        self.sent = 0
        self.last_request = "NA"
