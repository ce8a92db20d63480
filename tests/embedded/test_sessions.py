"""Sessions on real sockets: when they end, who may use them, and what survives a restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.tools import requests as ask
from tests.tools.packing import PING_XID
from tests.tools.rawsocket import Closed
from tests.tools.session import Client, monitored
from tests.tools.support import wait_until

from .servers import ServerProcess, gated_commits, serving

# Tests wait for the end of sessions, so these are short; ends may be late by a busy machine.
SHORT_MS = 400
LATE_S_MAX = 2.5


def wait_for_end(watcher: Client, path: str) -> float:
    """When `watcher` heard that the session ended that owned the ephemeral `path`."""
    watcher.socket.settimeout(SHORT_MS / 1000 + LATE_S_MAX)
    event = watcher.wait_event()
    assert event == (2, path)
    return time.monotonic()


def test_a_session_expires_on_time_and_not_before() -> None:
    with serving() as server, Client(server.hosts) as watcher:
        for number in range(3):
            path = f"/e{number}"
            owner = Client(server.hosts, timeout_ms=SHORT_MS)
            assert owner.timeout_ms == SHORT_MS
            watcher.once(ask.exists(path, watch=True))
            last_heard = time.monotonic()
            owner.done(ask.create(path, flags=ask.EPHEMERAL))
            assert watcher.wait_event() == (1, path)
            watcher.done(ask.exists(path, watch=True))
            lived_s = wait_for_end(watcher, path) - last_heard
            assert SHORT_MS / 1000 <= lived_s < SHORT_MS / 1000 + LATE_S_MAX
            assert owner.until_closed() == []


def test_a_session_without_a_connection_also_expires() -> None:
    with serving() as server, Client(server.hosts) as watcher:
        owner = Client(server.hosts, timeout_ms=SHORT_MS)
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        watcher.done(ask.exists("/e", watch=True))
        owner.close()
        wait_for_end(watcher, "/e")
        assert owner.again(server.hosts).session == 0


@pytest.mark.parametrize("kind", ["ping", "read", "write", "refused write", "garbage"])
def test_any_packet_keeps_a_session_alive(kind: str) -> None:
    packets = {
        "ping": ask.PING,
        "read": ask.get_data("/"),
        "write": ask.set_data("/e"),
        "refused write": ask.delete("/nowhere"),
        "garbage": ask.get_data("/")._replace(cut=2),
    }
    with serving() as server, Client(server.hosts, timeout_ms=SHORT_MS) as owner:
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        end = time.monotonic() + 1.6 * SHORT_MS / 1000
        while time.monotonic() < end:
            owner.send(packets[kind])
            owner.reply()
            assert owner.is_silent(SHORT_MS / 4000)
        owner.done(ask.exists("/e"))


def test_a_wrong_password_is_refused_and_the_session_is_undisturbed() -> None:
    with serving() as server, Client(server.hosts) as owner:
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        owner.done(ask.get_data("/e", watch=True))
        guesses = [bytes(16), b"", owner.password[:15], owner.password + b"x", b"\xff" * 16]
        for guess in guesses:
            thief = Client(server.hosts, session=owner.session, password=guess)
            assert (thief.session, thief.timeout_ms, thief.password) == (0, 0, bytes(16))
            assert thief.until_closed() == []
        assert owner.done(ask.set_data("/e", b"mine")).error == 0
        assert owner.events == [(3, "/e")]


def test_a_session_keeps_its_ephemerals_on_a_new_connection() -> None:
    with serving() as server, Client(server.hosts, timeout_ms=1000) as old:
        zxid = old.done(ask.create("/e", flags=ask.EPHEMERAL)).zxid
        with old.again(server.hosts) as new, Client(server.hosts) as other:
            assert (new.session, new.password) == (old.session, old.password)
            new.done(ask.exists("/e", watch=True))
            assert old.until_closed() == []
            # The late end of the old connection takes nothing away from the new one.
            assert other.done(ask.set_data("/e")).zxid == zxid + 2, "a zxid to attach"
            assert new.wait_event() == (3, "/e")
            assert new.until_closed() == [], "it was not told that it expired"
            assert other.once(ask.exists("/e")).error == -101


def test_requests_on_the_old_connection_of_a_moved_session_are_not_applied() -> None:
    with ServerProcess() as server, Client(server.hosts) as old:
        old.done(ask.create("/before"))
        # The server wakes up to find all at once: the move first, as it was accepted first, or the
        # late write first. Either way the old connection says which: answered means applied.
        new = Client(server.hosts, shake_hands=False)
        with new:
            wait_until(
                lambda: monitored(server.hosts, "zk_num_alive_connections") >= 3, "3 of them"
            )
            server.pause()
            new.greet(session=old.session, password=old.password)
            old.send(*[ask.create(f"/late-{number}") for number in range(50)])
            server.resume()
            new.read_handshake()
            assert new.session == old.session
            answered = old.until_closed()
            names = new.done(ask.children("/")).fields["names"]
            assert sum(name.startswith("late-") for name in names) == len(answered)
            try:
                old.send(ask.create("/much-later"))
            except Closed:
                pass  # or into a closed socket: neither may reach the tree
            assert new.once(ask.exists("/much-later")).error == -101


def test_a_session_survives_a_restart_with_its_ephemerals(tmp_path: Path) -> None:
    server = serving(tmp_path)
    with server, Client(server.hosts, timeout_ms=5000) as before:
        before.done(ask.create("/e", b"claim", flags=ask.EPHEMERAL))
    with server, before.again(server.hosts) as after, Client(server.hosts) as other:
        assert (after.session, after.password) == (before.session, before.password)
        assert after.timeout_ms == 5000
        assert b"claim" in after.done(ask.get_data("/e")).body
        stolen = Client(server.hosts, session=before.session, password=b"x" * 16)
        assert stolen.session == 0
        other.done(ask.exists("/e", watch=True))
        after.done(ask.CLOSE_SESSION)
        assert other.wait_event() == (2, "/e")


def test_a_session_gets_its_full_timeout_again_after_a_restart(tmp_path: Path) -> None:
    server = serving(tmp_path)
    with server, Client(server.hosts, timeout_ms=SHORT_MS) as owner:
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
    left = time.monotonic()
    wait_until(lambda: time.monotonic() > left + 1.5 * SHORT_MS / 1000, "its time was over")
    started = time.monotonic()
    with server, Client(server.hosts) as watcher:
        watcher.done(ask.exists("/e", watch=True))
        lived_s = wait_for_end(watcher, "/e") - started
        assert SHORT_MS / 1000 <= lived_s < SHORT_MS / 1000 + LATE_S_MAX


def test_closed_and_expired_sessions_do_not_come_back_after_a_restart(tmp_path: Path) -> None:
    server = serving(tmp_path)
    with server, Client(server.hosts) as watcher:
        closed = Client(server.hosts)
        closed.done(ask.CLOSE_SESSION)
        expired = Client(server.hosts, timeout_ms=SHORT_MS)
        expired.done(ask.create("/e", flags=ask.EPHEMERAL))
        watcher.done(ask.exists("/e", watch=True))
        wait_for_end(watcher, "/e")
    with server:
        assert closed.again(server.hosts).session == 0
        assert expired.again(server.hosts).session == 0
        with watcher.again(server.hosts) as after:
            assert after.once(ask.exists("/e")).error == -101


def test_a_client_that_has_seen_a_newer_zxid_is_disconnected_unanswered() -> None:
    with serving() as server, Client(server.hosts) as client:
        newest = client.done(ask.create("/a")).zxid
        with pytest.raises(Closed):
            Client(server.hosts, zxid=newest + 1)
        with pytest.raises(Closed):
            client.again(server.hosts, zxid=newest + 1)
        client.pinged()  # the refused connection did not take the session along
        with client.again(server.hosts, zxid=newest) as after:
            assert after.session == client.session


@pytest.mark.parametrize("refused", ["delete", "multi", "malformed"])
def test_the_zxid_of_a_refused_write_survives_a_restart(tmp_path: Path, refused: str) -> None:
    calls = {
        "delete": ask.delete("/nowhere"),
        "multi": ask.multi(ask.create("/a"), ask.check("/nowhere")),
        "malformed": ask.create("/a")._replace(cut=2),
    }
    server = serving(tmp_path)
    with server, Client(server.hosts) as client:
        before = client.done(ask.create("/b")).zxid
        assert client.once(calls[refused]).zxid == before + 1
    with server, client.again(server.hosts) as after:
        assert after.session == client.session


def test_session_ids_never_repeat_even_if_the_clock_steps_back(tmp_path: Path) -> None:
    step_s = 0.0
    server = serving(tmp_path, clock=lambda: time.time() + step_s)
    ids = []
    for step_s in (0.0, -86_400.0, -10 * 365 * 86_400.0):  # noqa: B007 - the clock reads it
        with server:
            for _ in range(3):
                client = Client(server.hosts)
                ids.append(client.session)
                client.done(ask.CLOSE_SESSION)
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("wish", "given"), [(0, 1000), (-1, 1000), (999, 1000), (3000, 3000), (2**31 - 1, 5000)]
)
def test_session_timeouts_are_clamped_to_the_bounds(wish: int, given: int) -> None:
    with serving(min_session_timeout_ms=1000, max_session_timeout_ms=5000) as server:
        client = Client(server.hosts, timeout_ms=wish)
        assert client.timeout_ms == given
        after = Client(
            server.hosts, timeout_ms=wish, session=client.session, password=client.password
        )
        assert after.timeout_ms == given


def stopped_for(server: ServerProcess, seconds: float, client: Client) -> None:
    """Stop the server for so long; meanwhile the client sends a ping, which waits in its socket."""
    server.pause()
    began = time.monotonic()
    client.ping()
    wait_until(lambda: time.monotonic() > began + seconds, "longer than the time-out")
    server.resume()
    client.reply(PING_XID)


def test_a_server_process_that_was_paused_expires_no_session_on_resuming() -> None:
    with ServerProcess() as server, Client(server.hosts, timeout_ms=1000) as owner:
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        silent = Client(server.hosts, timeout_ms=1000)
        silent.done(ask.create("/silent", flags=ask.EPHEMERAL))
        stopped_for(server, 2.0, owner)
        owner.done(ask.exists("/e"))
        # One that had nothing to say has not lost the time that the server was away either.
        assert silent.once(ask.exists("/silent")).error == 0
        assert server.errors() == ""


def test_a_server_that_was_held_up_extends_no_session_beyond_its_timeout(tmp_path: Path) -> None:
    # By a disk, and not by a signal: after it the ping is read before the clock, in any case.
    with serving(tmp_path) as server, gated_commits() as gate, Client(server.hosts) as watcher:
        owner = Client(server.hosts, timeout_ms=SHORT_MS)
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        watcher.done(ask.exists("/e", watch=True))
        gate.shut()
        watcher.send(ask.create("/a"))
        assert gate.waits.wait(5)
        owner.send(ask.PING)
        held_up = time.monotonic()
        wait_until(lambda: time.monotonic() > held_up + LATE_S_MAX + 1.0, "longer than allowed")
        gate.open()
        watcher.reply()
        owner.reply()
        owner.close()
        wait_for_end(watcher, "/e")


def test_watches_end_with_their_connection() -> None:
    with serving() as server, Client(server.hosts) as other:
        owner = Client(server.hosts)
        owner.done(ask.children("/", watch=True))
        owner.once(ask.exists("/a", watch=True))
        owner.done(ask.add_watch("/", 1))
        assert monitored(server.hosts, "zk_watch_count") > 0
        owner.close()
        wait_until(lambda: monitored(server.hosts, "zk_watch_count") == 0, "no watch is left", 2.0)
        with owner.again(server.hosts) as after:
            other.done(ask.create("/a"))
            after.pinged()
            assert after.events == []


def test_a_reconnected_client_gets_the_events_it_missed() -> None:
    with serving() as server, Client(server.hosts) as other:
        owner = Client(server.hosts)
        for path in ("/changes", "/goes", "/stays", "/parent"):
            owner.done(ask.create(path))
        seen = owner.zxid
        owner.close()
        other.done(ask.set_data("/changes"))
        other.done(ask.delete("/goes"))
        other.done(ask.create("/comes"))
        other.done(ask.create("/parent/child"))
        with owner.again(server.hosts, zxid=seen) as after:
            data, exist = ("/changes", "/goes", "/stays"), ("/comes", "/never")
            after.done(ask.set_watches(seen, data, exist, ("/parent", "/stays")))
            told = {(3, "/changes"), (2, "/goes"), (1, "/comes"), (4, "/parent")}
            after.pinged()
            assert set(after.events) == told
            after.events.clear()
            other.done(ask.set_data("/changes"))  # its watch is spent
            other.done(ask.create("/never"))
            other.done(ask.delete("/stays"))
            after.pinged()
            assert after.events == [(1, "/never"), (2, "/stays")]


def test_the_end_of_a_session_deletes_its_ephemerals_in_one_zxid() -> None:
    with serving() as server, Client(server.hosts) as watcher:
        owner = Client(server.hosts)
        owner.done(ask.create("/parent"))
        paths = [f"/parent/{number}" for number in range(5)]
        for path in paths:
            owner.done(ask.create(path, flags=ask.EPHEMERAL))
            watcher.done(ask.exists(path, watch=True))
        watcher.done(ask.children("/parent", watch=True))
        before = owner.zxid
        closed = owner.done(ask.CLOSE_SESSION)
        assert closed.zxid == before + 1
        told = [watcher.wait_event() for _ in range(6)]
        assert {event for event in told if event[0] == 2} == {(2, path) for path in paths}
        assert told.count((4, "/parent")) == 1
        reply = watcher.done(ask.exists("/parent"))
        assert (reply.zxid, reply.fields["stat"].pzxid) == (closed.zxid, closed.zxid)


def test_requests_after_the_close_of_a_session_are_not_applied() -> None:
    with serving() as server, Client(server.hosts) as other:
        client = Client(server.hosts)
        client.send(ask.create("/a"), ask.CLOSE_SESSION, ask.create("/b"), ask.get_data("/"))
        frames = client.until_closed()
        assert len(frames) == 2
        other.done(ask.exists("/a"))
        assert other.once(ask.exists("/b")).error == -101
        assert client.again(server.hosts).session == 0
