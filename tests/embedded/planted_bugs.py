"""Bugs to plant in the embedded server: each is what a plausible slip would do, as a patch.

A test without these proves little: it passes on a server that is right, and who knows whether it
would fail on one that is not. test_planted_bugs.py names for each bug the test that finds it. The
bugs of the tree are in planted_tree_bugs.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.embedded import connection, server, service, sessions, storage, wire, writes
from zkplan.embedded.records import Delete, TreeError
from zkplan.embedded.requests import CloseSession, Ping
from zkplan.embedded.tree import Tree

from . import planted_tree_bugs  # noqa: F401  # they register themselves
from .planting import around, bug, no_effect

# Promises.


@bug
def answers_leave_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def flush(self: Any) -> None:
        self._flush_is_due = False
        self._send()
        self._commit()

    patch.setattr(server.Server, "_flush", flush)


@bug
def a_failed_commit_is_answered_all_the_same(patch: pytest.MonkeyPatch) -> None:
    def commit(real: Any, self: Any) -> None:
        try:
            real(self)
        except storage.StorageError:
            pass

    around(patch, server.Server, "_commit", commit)


@bug
def events_come_after_the_answer(patch: pytest.MonkeyPatch) -> None:
    send_events = service.Service._send_events

    def handle(real: Any, self: Any, peer: Any, frame: bytes) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(service.Service, "_send_events", no_effect)
            real(self, peer, frame)
        send_events(self)

    around(patch, service.Service, "handle", handle)


@bug
def refused_writes_take_no_zxid(patch: pytest.MonkeyPatch) -> None:
    def apply(real: Any, self: Any, *args: Any, **named: Any) -> Any:
        try:
            return real(self, *args, **named)
        except TreeError:
            self.zxid -= 1
            raise

    around(patch, Tree, "apply", apply)


@bug
def the_zxids_of_refused_writes_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    def commit(real: Any, self: Any, **changes: Any) -> None:
        if changes["nodes"] or changes["sessions"]:
            real(self, **changes)

    around(patch, storage.Storage, "commit", commit)


# Sessions.


@bug
def a_password_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    def attach(real: Any, self: Any, id: int, password: bytes, *times: int) -> Any:  # noqa: A002
        session = self.get(id)
        return real(self, id, session.password if session else password, *times)

    around(patch, sessions.Sessions, "attach", attach)


@bug
def sessions_never_expire(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions.Sessions, "expired", lambda *_: [])


@bug
def sessions_expire_early(patch: pytest.MonkeyPatch) -> None:
    around(patch, sessions.Sessions, "expired", lambda real, self, now_ms: real(self, now_ms + 100))


@bug
def only_pings_keep_a_session(patch: pytest.MonkeyPatch) -> None:
    def handle(real: Any, self: Any, peer: Any, frame: bytes) -> None:
        session = peer.session
        before = session and session.deadline_ms
        real(self, peer, frame)
        if session and peer.last_request != Ping.__name__:
            session.deadline_ms = before

    around(patch, service.Service, "handle", handle)


@bug
def sessions_are_forgotten_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def restore(real: Any, self: Any, last_id: int, _saved: Any, now_ms: int) -> None:
        real(self, last_id, [], now_ms)

    around(patch, sessions.Sessions, "restore", restore)


@bug
def a_restart_does_not_give_the_whole_time_out(patch: pytest.MonkeyPatch) -> None:
    def restore(real: Any, self: Any, last_id: int, saved: Any, now_ms: int) -> None:
        real(self, last_id, saved, now_ms - 200)

    around(patch, sessions.Sessions, "restore", restore)


@bug
def session_ids_begin_again_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    def restore(real: Any, self: Any, _last_id: int, saved: Any, now_ms: int) -> None:
        real(self, 0, saved, now_ms)

    around(patch, sessions.Sessions, "restore", restore)


@bug
def a_stopped_server_blames_its_clients(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions.Sessions, "forgive", no_effect)


@bug
def a_stopped_server_gives_its_clients_more_time(patch: pytest.MonkeyPatch) -> None:
    def forgive(self: Any, away_ms: int, _now_ms: int) -> None:
        for session in self:
            session.deadline_ms += away_ms

    patch.setattr(sessions.Sessions, "forgive", forgive)


@bug
def time_outs_are_as_the_client_wishes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sessions.Sessions, "_within_bounds", lambda _, wish: wish)


@bug
def a_client_with_a_newer_zxid_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def connect(real: Any, self: Any, peer: Any, request: Any) -> None:
        real(self, peer, request._replace(last_zxid_seen=0))

    around(patch, service.Service, "connect", connect)


@bug
def a_moved_session_leaves_its_old_connection_working(patch: pytest.MonkeyPatch) -> None:
    def session_for(real: Any, self: Any, peer: Any, request: Any) -> Any:
        self._peers.pop(request.session, None)
        return real(self, peer, request)

    around(patch, service.Service, "_session_for", session_for)


@bug
def requests_behind_the_end_of_a_session_are_applied(patch: pytest.MonkeyPatch) -> None:
    def handle_rare(real: Any, self: Any, peer: Any, xid: int, request: Any) -> None:
        session = peer.session
        real(self, peer, xid, request)
        if isinstance(request, CloseSession):
            peer.session, peer.leaving = session, False

    around(patch, service.Service, "_handle_rare", handle_rare)


@bug
def ephemerals_survive_their_session(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tree, "close_session", lambda self, *_, **__: self.advance())


@bug
def each_ephemeral_goes_in_a_zxid_of_its_own(patch: pytest.MonkeyPatch) -> None:
    def close_session(self: Any, session: int, *, now_ms: int = 0) -> None:
        for path in sorted(self.ephemerals(session)):
            self.apply(Delete(path), now_ms=now_ms)

    patch.setattr(Tree, "close_session", close_session)


# Garbage.


@bug
def a_malformed_request_is_not_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service.Service, "_refuse_frame", no_effect)


@bug
def an_exception_escapes_the_parser(patch: pytest.MonkeyPatch) -> None:
    def parse(real: Any, frame: bytes) -> Any:
        try:
            return real(frame)
        except wire.WireError as error:
            raise KeyError(str(error)) from error

    around(patch, wire, "parse", parse)


@bug
def answers_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    def send(real: Any, self: Any) -> None:
        out = self.service.out
        if len(out) > 1 and None not in (out[-1][1], out[-2][1]):
            out[-1], out[-2] = out[-2], out[-1]
        real(self)

    around(patch, server.Server, "_send", send)


# Limits.


@bug
def no_frame_is_too_large(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(connection, "MAX_FRAME_BYTES", 2**31 - 1)


@bug
def the_tree_may_grow_without_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes.Writes, "_judge_size", no_effect)


@bug
def answers_gather_for_a_client_that_does_not_read(patch: pytest.MonkeyPatch) -> None:
    def has_room(self: Any) -> bool:
        return not self.transport.is_closing()

    patch.setattr(connection.Connection, "_has_room", has_room)


@bug
def long_requests_are_handled_in_one_go(patch: pytest.MonkeyPatch) -> None:
    def make(real: Any, self: Any, *, limits: Any, **settings: Any) -> None:
        real(self, limits=limits._replace(turn_s=1e6), **settings)

    around(patch, server.Server, "__init__", make)


@bug
def a_client_that_does_not_read_keeps_its_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(connection.Connection, "close", lambda self: self.transport.close())


@bug
def a_handshake_may_take_for_ever(patch: pytest.MonkeyPatch) -> None:
    def connection_made(real: Any, self: Any, transport: Any) -> None:
        real(self, transport)
        if self._handshake_timer is not None:
            self._handshake_timer.cancel()

    around(patch, connection.Connection, "connection_made", connection_made)


@bug
def any_number_of_connections_is_accepted(patch: pytest.MonkeyPatch) -> None:
    def opened(self: Any, one: Any) -> bool:
        self._connections[one.peer] = one
        return True

    patch.setattr(server.Server, "opened", opened)
