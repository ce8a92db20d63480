"""Each planted bug is found by the test that is named here: that test, run on a server with it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from . import client, test_fuzz, test_limits, test_promises, test_sessions, test_writes
from .planting import BUGS, planted

# Where a server with a bug is silent, nobody waits as long as for one that is slow.
SILENCE_S = 2.0

Test = Callable[..., None]
FOUND_BY: dict[str, Test] = {
    "answers leave before the commit": test_promises.test_nothing_leaves_before_it_is_stored,
    "a failed commit is answered all the same": (
        test_promises.test_a_disk_that_fails_ends_the_server_without_an_answer
    ),
    "events come after the answer": (
        test_promises.test_an_event_comes_before_the_answer_that_shows_the_change
    ),
    "refused writes take no zxid": (
        test_promises.test_every_write_takes_one_zxid_also_when_it_is_refused
    ),
    "the zxids of refused writes are not stored": functools.partial(
        test_sessions.test_the_zxid_of_a_refused_write_survives_a_restart, refused="delete"
    ),
    "a password is not checked": (
        test_sessions.test_a_wrong_password_is_refused_and_disturbs_nobody
    ),
    "sessions never expire": test_sessions.test_a_session_expires_on_time_and_not_before,
    "sessions expire early": test_sessions.test_a_session_expires_on_time_and_not_before,
    "only pings keep a session": functools.partial(
        test_sessions.test_any_packet_keeps_a_session, kind="read"
    ),
    "sessions are forgotten at a restart": (
        test_sessions.test_a_session_survives_a_restart_with_all_that_it_owns
    ),
    "a restart does not give the whole time out": (
        test_sessions.test_a_session_has_its_whole_time_out_again_after_a_restart
    ),
    "session ids begin again at a restart": (
        test_sessions.test_session_ids_never_repeat_even_when_the_clock_steps_back
    ),
    "a stopped server blames its clients": (
        test_sessions.test_a_server_that_was_stopped_expires_no_session_whose_pings_wait
    ),
    "a stopped server gives its clients more time": (
        test_sessions.test_a_server_that_was_held_up_gives_nobody_more_than_the_time_out
    ),
    "time outs are as the client wishes": functools.partial(
        test_sessions.test_time_outs_are_kept_within_the_bounds, wish=999, given=1000
    ),
    "a client with a newer zxid is accepted": (
        test_sessions.test_a_client_that_has_seen_a_newer_zxid_gets_no_answer
    ),
    "a moved session leaves its old connection working": (
        test_sessions.test_a_session_that_moves_takes_its_ephemerals_and_leaves_its_old_connection
    ),
    "requests behind the end of a session are applied": (
        test_sessions.test_what_was_sent_behind_the_end_of_a_session_is_not_applied
    ),
    "ephemerals survive their session": (
        test_sessions.test_a_session_survives_a_restart_with_all_that_it_owns
    ),
    "each ephemeral goes in a zxid of its own": (
        test_sessions.test_the_end_of_a_session_deletes_its_ephemerals_in_one_zxid
    ),
    "watches survive their connection": test_sessions.test_watches_go_with_the_connection,
    "watches fire again and again": test_promises.test_each_watch_fires_once,
    "a deletion does not wake who watches the parent": (
        test_promises.test_a_deletion_wakes_who_watches_the_list_of_the_parent
    ),
    "a failing multi fires watches": test_writes.test_a_failing_multi_fires_no_watch,
    "what a reconnected client missed is not told": (
        test_sessions.test_a_reconnected_client_is_told_what_it_missed
    ),
    "events are told to who may not read": (
        test_writes.test_nobody_reads_or_hears_of_what_a_list_keeps_from_them
    ),
    "a failing multi keeps its first operations": (
        test_writes.test_a_failing_multi_leaves_nothing_behind
    ),
    "every operation of a failing multi has the real error": (
        test_writes.test_a_failing_multi_leaves_nothing_behind
    ),
    "a check ignores the version": test_writes.test_a_check_compares_the_version,
    "set and delete ignore the version": test_writes.test_set_and_delete_compare_the_version,
    "a delete ignores children": test_writes.test_a_node_with_children_is_not_deleted,
    "a sequence goes back after a delete": (
        test_writes.test_a_sequence_number_is_never_given_twice
    ),
    "no list is asked before a read": (
        test_writes.test_nobody_reads_or_hears_of_what_a_list_keeps_from_them
    ),
    "who fails to prove an identity stays connected": (
        test_writes.test_who_fails_to_prove_an_identity_is_disconnected
    ),
    "a malformed request is not answered": functools.partial(
        test_fuzz.test_damaged_requests_hinder_nobody_and_break_nothing, seed=1
    ),
    "an exception escapes the parser": functools.partial(
        test_fuzz.test_damaged_requests_hinder_nobody_and_break_nothing, seed=1
    ),
    "answers overtake each other": (test_promises.test_answers_come_in_the_order_of_the_requests),
    "no frame is too large": functools.partial(
        test_limits.test_an_impossible_length_closes_the_connection, length=1_048_576
    ),
    "the tree may grow without end": (
        test_limits.test_more_znodes_than_allowed_are_refused_and_deletes_still_work
    ),
    "answers gather for a client that does not read": (
        test_limits.test_a_client_that_does_not_read_answers_hinders_nobody
    ),
    "long requests are handled in one go": (
        test_limits.test_a_client_with_long_requests_leaves_turns_to_others
    ),
    "a client that does not read keeps its place": (
        test_limits.test_a_client_that_does_not_read_is_gone_some_time_after_its_session
    ),
    "a handshake may take for ever": test_limits.test_who_never_shakes_hands_is_disconnected,
    "any number of connections is accepted": (
        test_limits.test_one_connection_too_many_is_closed_at_once
    ),
}


def test_every_planted_bug_has_a_test_that_finds_it() -> None:
    assert set(FOUND_BY) == set(BUGS)
    table = (Path(__file__).parent / "README.md").read_text()
    for name, finder in FOUND_BY.items():
        assert f"| {name} | `{name_of(finder)}` |" in table


def name_of(test: Test) -> str:
    """The name of a test function, and which module has it."""
    function = test.func if isinstance(test, functools.partial) else test
    return f"{function.__module__.rpartition('.')[2]}.{function.__name__}"


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_is_found(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_S_MAX", SILENCE_S)
    find = FOUND_BY[name]
    wanted = find.func if isinstance(find, functools.partial) else find
    fixtures: dict[str, Any] = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    names = wanted.__code__.co_varnames[: wanted.__code__.co_argcount]
    given = {each: fixtures[each] for each in names if each in fixtures}
    # pytest.fail and pytest.raises end in Failed, which is no AssertionError; with the others a
    # client says that the server was silent, or closed the connection.
    found = (AssertionError, pytest.fail.Exception, TimeoutError, ConnectionError)
    with planted(name), pytest.raises(found):
        find(**given)
