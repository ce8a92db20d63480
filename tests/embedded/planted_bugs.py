"""Bugs to plant in the embedded server: each is what a plausible slip would do.

A test without these proves little: it passes on a server that is right, and who knows whether it
would fail on one that is not. Each bug names the test that finds it.
"""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.embedded import connection, watches, wire
from zkplan.embedded.connection import Connection
from zkplan.embedded.database import StorageError
from zkplan.embedded.integrity import Answered
from zkplan.embedded.jute import WireError
from zkplan.embedded.operations import (
    AddAuth,
    BadVersionError,
    Check,
    CloseSession,
    Delete,
    NotEmptyError,
    Ping,
    SetData,
    TreeError,
)
from zkplan.embedded.server import Server
from zkplan.embedded.service import Service
from zkplan.embedded.sessions import Sessions
from zkplan.embedded.storage import Storage
from zkplan.embedded.tree import Tree
from zkplan.embedded.watches import Watches
from zkplan.embedded.writes import Writes
from zkplan.embedded.znodes import Node

from .planting import around, instead, value

# Promises.


@instead(Server, "_flush", "test_no_answer_or_event_is_sent_before_its_change_is_stored")
def answers_leave_before_the_commit(self: Any) -> None:
    self._flush_is_due = False
    self._send()
    self._commit()


@around(Server, "_commit", "test_a_disk_that_fails_ends_the_server_without_an_answer")
def a_failed_commit_is_answered_all_the_same(real: Any, self: Any) -> None:
    try:
        real(self)
    except StorageError:
        pass


@around(Service, "handle", "test_an_event_arrives_before_any_answer_that_shows_its_change")
def events_come_after_the_answer(real: Any, self: Any, peer: Any, frame: bytes) -> None:
    with pytest.MonkeyPatch.context() as inner:
        inner.setattr(Service, "_send_events", lambda *_: None)
        real(self, peer, frame)
    self._send_events()


@instead(Answered, "missing_after", "test_damage_to_the_files_of_a_killed_server_is_always_noticed")
def a_start_does_not_look_at_the_note(*_: Any, **__: Any) -> None:
    pass


@around(Tree, "apply", "test_every_write_takes_one_zxid_even_if_it_is_refused")
def refused_writes_take_no_zxid(real: Any, self: Any, *args: Any, **named: Any) -> Any:
    try:
        return real(self, *args, **named)
    except TreeError:
        self.zxid -= 1
        raise


@around(Storage, "commit", "test_the_zxid_of_a_refused_write_survives_a_restart", refused="delete")
def the_zxids_of_refused_writes_are_not_stored(real: Any, self: Any, **changes: Any) -> None:
    if changes["nodes"] or changes["sessions"]:
        real(self, **changes)


# Sessions.


@around(Sessions, "attach", "test_a_wrong_password_is_refused_and_the_session_is_undisturbed")
def a_password_is_not_checked(
    real: Any, self: Any, number: int, password: bytes, *times: int
) -> Any:
    session = self._live.get(number)
    return real(self, number, session.password if session else password, *times)


@instead(Sessions, "expired", "test_a_session_expires_on_time_and_not_before")
def sessions_never_expire(*_: Any) -> Any:
    return []


@around(Sessions, "expired", "test_a_session_expires_on_time_and_not_before")
def sessions_expire_early(real: Any, self: Any, now_ms: int) -> Any:
    return real(self, now_ms + 100)


@around(Service, "handle", "test_any_packet_keeps_a_session_alive", kind="read")
def only_pings_keep_a_session(real: Any, self: Any, peer: Any, frame: bytes) -> None:
    session = peer.session
    before = session and session.deadline_ms
    real(self, peer, frame)
    if session and peer.last_request != Ping.__name__:
        session.deadline_ms = before


@around(Sessions, "restore", "test_a_session_survives_a_restart_with_its_ephemerals")
def sessions_are_forgotten_at_a_restart(
    real: Any, self: Any, last_id: int, _saved: Any, now_ms: int
) -> None:
    real(self, last_id, [], now_ms)


@around(Sessions, "restore", "test_a_session_gets_its_full_timeout_again_after_a_restart")
def a_restart_does_not_give_the_whole_time_out(
    real: Any, self: Any, last_id: int, saved: Any, now_ms: int
) -> None:
    real(self, last_id, saved, now_ms - 200)


@around(Sessions, "restore", "test_session_ids_never_repeat_even_if_the_clock_steps_back")
def session_ids_begin_again_at_a_restart(
    real: Any, self: Any, _last_id: int, saved: Any, now_ms: int
) -> None:
    real(self, 0, saved, now_ms)


@instead(
    Sessions, "forgive", "test_a_server_process_that_was_paused_expires_no_session_on_resuming"
)
def a_stopped_server_blames_its_clients(*_: Any) -> None:
    pass


@instead(
    Sessions, "forgive", "test_a_server_that_was_held_up_extends_no_session_beyond_its_timeout"
)
def a_stopped_server_gives_its_clients_more_time(self: Any, away_ms: int, _now_ms: int) -> None:
    for session in self:
        session.deadline_ms += away_ms


@instead(
    Sessions,
    "_within_bounds",
    "test_session_timeouts_are_clamped_to_the_bounds",
    wish=999,
    given=1000,
)
def time_outs_are_as_the_client_wishes(_: Any, wish: int) -> int:
    return wish


@around(Service, "connect", "test_a_client_that_has_seen_a_newer_zxid_is_disconnected_unanswered")
def a_client_with_a_newer_zxid_is_accepted(real: Any, self: Any, peer: Any, request: Any) -> None:
    real(self, peer, request._replace(last_zxid_seen=0))


@around(Service, "_session_for", "test_a_session_keeps_its_ephemerals_on_a_new_connection")
def a_moved_session_leaves_its_old_connection_working(
    real: Any, self: Any, peer: Any, request: Any
) -> Any:
    self._peers.pop(request.session, None)
    return real(self, peer, request)


@instead(Service, "disconnected", "test_a_session_keeps_its_ephemerals_on_a_new_connection")
def the_late_end_of_an_old_connection_hurts_the_new_one(self: Any, peer: Any) -> None:
    self.tree.watches.drop(peer)
    if peer.session_id:
        self._peers.pop(peer.session_id, None)
    peer.session = None


@around(Service, "_handle_rare", "test_requests_after_the_close_of_a_session_are_not_applied")
def requests_behind_the_end_of_a_session_are_applied(
    real: Any, self: Any, peer: Any, xid: int, request: Any
) -> None:
    session = peer.session
    real(self, peer, xid, request)
    if isinstance(request, CloseSession):
        peer.session, peer.leaving = session, False


@instead(Tree, "close_session", "test_a_session_survives_a_restart_with_its_ephemerals")
def ephemerals_survive_their_session(self: Any, *_: Any, **__: Any) -> None:
    self.advance()


@instead(Tree, "close_session", "test_the_end_of_a_session_deletes_its_ephemerals_in_one_zxid")
def each_ephemeral_goes_in_a_zxid_of_its_own(self: Any, session: int, *, now_ms: int = 0) -> None:
    for path in sorted(self.ephemerals(session)):
        self.apply(Delete(path), now_ms=now_ms)


# Garbage.


@instead(
    Service, "_refuse_frame", "test_a_server_that_gets_damaged_requests_still_serves_others", seed=1
)
def a_malformed_request_is_not_answered(*_: Any) -> None:
    pass


@around(wire, "parse", "test_a_server_that_gets_damaged_requests_still_serves_others", seed=1)
def an_exception_escapes_the_parser(real: Any, frame: bytes) -> Any:
    try:
        return real(frame)
    except WireError as error:
        raise KeyError(str(error)) from error


@around(Server, "_send", "test_answers_come_in_the_order_of_the_requests")
def answers_overtake_each_other(real: Any, self: Any) -> None:
    out = self.service.out
    if len(out) > 1 and None not in (out[-1][1], out[-2][1]):
        out[-1], out[-2] = out[-2], out[-1]
    real(self)


@around(Service, "_handle_rare", "test_a_failed_authentication_closes_the_connection")
def who_fails_to_prove_an_identity_stays_connected(
    real: Any, self: Any, peer: Any, xid: int, request: Any
) -> None:
    real(self, peer, xid, request)
    if isinstance(request, AddAuth) and peer.leaving:
        peer.leaving = False
        self.out.pop()


# Limits.

value(
    "no frame is too large",
    connection,
    "MAX_FRAME_BYTES",
    2**31 - 1,
    "test_an_impossible_length_closes_the_connection",
    length=1_048_576,
)


@instead(Writes, "_judge_size", "test_more_znodes_than_allowed_are_refused_and_deletes_still_work")
def the_tree_may_grow_without_end(*_: Any) -> None:
    pass


@instead(Connection, "_has_room", "test_a_client_that_reads_no_answers_slows_no_other_client_down")
def answers_gather_for_a_client_that_does_not_read(self: Any) -> bool:
    return not self.transport.is_closing()


@around(Server, "__init__", "test_long_requests_of_one_client_do_not_block_other_clients")
def long_requests_are_handled_in_one_go(real: Any, self: Any, settings: Any, *more: Any) -> None:
    real(self, settings._replace(limits=settings.limits._replace(turn_s=1e6)), *more)


@instead(Connection, "close", "test_a_client_that_does_not_read_is_disconnected_after_its_session")
def a_client_that_does_not_read_keeps_its_place(self: Any) -> None:
    self.transport.close()


@around(Connection, "connection_made", "test_a_client_without_a_handshake_is_disconnected")
def a_handshake_may_take_for_ever(real: Any, self: Any, transport: Any) -> None:
    real(self, transport)
    self._timer.cancel()


@around(Watches, "__init__", "test_the_watches_of_all_connections_together_are_bounded")
def any_number_of_connections_may_watch_much(
    real: Any, self: Any, limits: Any, identities: Any
) -> None:
    real(self, limits._replace(watch_total_bytes=1 << 60), identities)


@instead(Server, "opened", "test_a_connection_over_the_limit_is_closed_at_once")
def any_number_of_connections_is_accepted(self: Any, one: Any) -> bool:
    self._connections[one.peer] = one
    return True


# Watches.


@instead(Watches, "drop", "test_watches_end_with_their_connection")
def watches_survive_their_connection(*_: Any) -> None:
    pass


value("watches fire again and again", watches, "_ONCE", 99, "test_each_watch_fires_once")


@around(Watches, "deleted", "test_a_deletion_notifies_each_watcher_once_and_then_the_parent")
def a_deletion_does_not_wake_who_watches_the_parent(
    real: Any, self: Any, path: str, _parent: str, *acls: Any
) -> None:
    real(self, path, "\0", *acls)


@instead(Writes, "forget", "test_a_multi_refused_at_any_position_leaves_no_trace", position=6)
def a_failing_multi_fires_watches(self: Any) -> None:
    self.znodes.take_back()
    for tell, path, parent_path, node, parent in self._changes:
        tell(path, parent_path, node.acl, parent.acl)
    self._changes.clear()


@around(Tree, "set_watches", "test_a_reconnected_client_gets_the_events_it_missed")
def what_a_reconnected_client_missed_is_not_told(
    real: Any, self: Any, again: Any, watcher: Any
) -> None:
    real(self, again._replace(relative_zxid=2**62), watcher)


@instead(Watches, "_may_read", "test_an_access_list_hides_data_and_events")
def events_are_told_to_who_may_not_read(*_: Any) -> bool:
    return True


# Writes.


@instead(Writes, "forget", "test_a_failed_multi_changes_nothing")
def a_failing_multi_keeps_its_first_operations(self: Any) -> None:
    self.notify()


@instead(wire, "refusal_codes", "test_a_failed_multi_changes_nothing")
def every_operation_of_a_failing_multi_has_the_real_error(
    count: int, _index: int, code: int
) -> list[int]:
    return [code] * count


_REFUSED = "test_a_refused_operation_writes_nothing_but_takes_a_zxid"


@around(Writes, "execute", _REFUSED, op=Check("/a", version=1), error=BadVersionError)
def a_check_ignores_the_version(real: Any, self: Any, op: Any, *args: Any) -> Any:
    return real(self, op._replace(version=-1) if isinstance(op, Check) else op, *args)


@instead(Writes, "_judge_version", _REFUSED, op=SetData("/a", version=1), error=BadVersionError)
def set_and_delete_ignore_the_version(*_: Any) -> None:
    pass


@around(Writes, "_delete", _REFUSED, op=Delete("/a"), error=NotEmptyError)
def a_delete_ignores_children(real: Any, self: Any, op: Any, *args: Any) -> Any:
    try:
        return real(self, op, *args)
    except NotEmptyError:
        for name in list(self.nodes[op.path].children):
            self._delete(Delete(f"{op.path}/{name}"), *args)
        return real(self, op, *args)


@around(Node, "unlist_child", "test_sequence_numbers_count_creates_and_are_never_reused")
def a_sequence_goes_back_after_a_delete(real: Any, self: Any, name: str) -> None:
    real(self, name)
    self.creates -= 1


@around(Tree, "_readable", "test_an_access_list_hides_data_and_events")
def no_list_is_asked_before_a_read(real: Any, self: Any, path: str, _who: Any, *args: Any) -> Any:
    return real(self, path, None, *args)
