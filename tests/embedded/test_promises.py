"""Promises to clients: changes are stored before they are told, ordered, atomic and permitted."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools import requests as ask
from tests.tools.packing import Ask
from tests.tools.rawclient import Answer, Event
from tests.tools.rawsocket import Closed
from tests.tools.session import Client
from tests.tools.support import wait_until
from tests.tools.values import ANN
from zkplan.embedded import StorageError
from zkplan.embedded.storage import Storage

from .servers import gated_commits, serving

NO_NODE, NO_AUTH, AUTH_FAILED = -101, -102, -115
# How long a client listens for what must not arrive.
LISTEN_S = 0.3


def test_no_answer_or_event_is_sent_before_its_change_is_stored(tmp_path: Path) -> None:
    with serving(tmp_path) as server, gated_commits() as gate:
        writer, reader, watcher = (Client(server.hosts) for _ in range(3))
        with writer, reader, watcher:
            writer.done(ask.create("/a", b"old"))
            watcher.done(ask.get_data("/a", watch=True))
            gate.shut()
            writer.send(ask.set_data("/a", b"new"))
            reader.send(ask.get_data("/a"))
            assert gate.waits.wait(5), "the server answered without a commit"
            for client in (writer, reader, watcher):
                assert client.is_silent(LISTEN_S)
            gate.open()
            assert writer.reply().error == 0
            assert watcher.wait_event() == (3, "/a")
            reader.reply()


def test_a_handshake_waits_until_the_session_is_stored(tmp_path: Path) -> None:
    with serving(tmp_path) as server, gated_commits() as gate:
        gate.shut()
        with Client(server.hosts, shake_hands=False) as client:
            client.greet()
            assert gate.waits.wait(5)
            assert client.is_silent(LISTEN_S)
            gate.open()
            client.read_handshake()
            assert client.session != 0


def test_the_end_of_a_session_is_stored_before_any_client_sees_it(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        gated_commits() as gate,
        Client(server.hosts) as watcher,
        Client(server.hosts, timeout_ms=300) as owner,
    ):
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        watcher.done(ask.exists("/e", watch=True))
        gate.shut()
        assert gate.waits.wait(5), "the session ended without a commit"
        assert watcher.is_silent(LISTEN_S)
        assert owner.is_silent(0)
        gate.open()
        assert watcher.wait_event() == (2, "/e")
        assert owner.until_closed() == []


def test_a_disk_that_fails_ends_the_server_without_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving(tmp_path)
    with server, Client(server.hosts) as client, Client(server.hosts) as watcher:
        client.done(ask.create("/a", b"old"))
        watcher.done(ask.get_data("/a", watch=True))

        def failing(self: Storage, **changes: Any) -> None:
            raise StorageError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "commit", failing)
            client.send(ask.set_data("/a", b"new"))
            assert client.until_closed() == []
            assert watcher.until_closed() == []
            wait_until(lambda: not server.is_running(), "the server has ended")
        assert isinstance(server.fatal, StorageError)
    with server, client.again(server.hosts) as after:
        assert b"old" in after.done(ask.get_data("/a")).body


def test_answers_come_in_the_order_of_the_requests() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        calls = [
            call
            for number in range(500)
            for call in (
                ask.set_data("/a", b"%d" % number),
                ask.get_data("/a"),
                ask.delete("/nowhere"),
                ask.create("/a")._replace(cut=20),
                ask.multi(ask.check("/a", number + 1), ask.set_data("/a", b"x", 10**6)),
                ask.sync("/"),
            )
        ]
        xids = client.send(*calls)
        replies = [client.reply(xid) for xid in xids]
        zxids = [reply.zxid for reply in replies]
        assert zxids == sorted(zxids)
        shown = [reply.fields["data"] for reply in replies[1::6]]
        assert shown == [b"%d" % number for number in range(500)]


def test_a_request_of_an_unknown_kind_is_refused_and_ends_the_connection() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.send(ask.get_data("/"), Ask("opcode", (999,)), ask.create("/a"))
        assert [reply.error for reply in client.until_closed()] == [0, -6]
        with client.again(server.hosts) as after:
            assert after.session == client.session
            assert after.once(ask.exists("/a")).error == -101


def test_an_event_arrives_before_any_answer_that_shows_its_change() -> None:
    with serving() as server, Client(server.hosts) as other, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        for number in range(20):
            client.done(ask.get_data("/a", watch=True))
            if number % 2:
                client.send(ask.set_data("/a"))  # its own write
            else:
                other.done(ask.set_data("/a"))
                client.send(ask.get_data("/a"))
            frames = [client.next(), client.next()]
            assert isinstance(frames[0], Event)
            assert frames[0][:2] == (3, "/a")
            assert isinstance(frames[1], Answer)


def test_each_watch_fires_once() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        client.done(ask.get_data("/a", watch=True))
        client.done(ask.children("/a", watch=True))
        for _ in range(3):
            client.done(ask.set_data("/a"))
        for name in "bcd":
            client.done(ask.create(f"/a/{name}"))
        client.pinged()
        assert client.events == [(3, "/a"), (4, "/a")]


def test_every_write_takes_one_zxid_even_if_it_is_refused() -> None:
    with serving() as server, Client(server.hosts) as client:
        first = client.done(ask.create("/a")).zxid
        calls = [
            ask.delete("/nowhere"),
            ask.create("/a"),
            ask.set_data("/a", b"", 77),
            ask.multi(ask.create("/b"), ask.check("/nowhere")),
            ask.set_data("/a"),
        ]
        assert [client.once(call).zxid for call in calls] == list(range(first + 1, first + 6))
        assert client.once(ask.get_data("/a")).zxid == first + 5


def test_a_session_that_pings_does_not_expire_on_a_slow_disk(tmp_path: Path) -> None:
    with (
        serving(tmp_path) as server,
        gated_commits() as gate,
        Client(server.hosts, timeout_ms=600) as owner,
        Client(server.hosts) as writer,
    ):
        owner.done(ask.create("/e", flags=ask.EPHEMERAL))
        gate.shut()
        writer.send(ask.create("/a"))
        assert gate.waits.wait(5)
        owner.send(ask.PING)
        slow = time.monotonic()
        wait_until(lambda: time.monotonic() > slow + 1.5, "longer than the time-out")
        gate.open()
        owner.reply()
        owner.done(ask.exists("/e"))


def test_a_stopped_server_has_stored_every_answered_write(tmp_path: Path) -> None:
    server = serving(tmp_path)
    answered = 0
    with server:
        client = Client(server.hosts)
        with client:
            client.send(*[ask.create("/n-", flags=ask.SEQUENCE) for _ in range(3000)])
            client.reply()
            answered = 1
            stopping = threading.Thread(target=server.stop)
            stopping.start()
            try:
                while True:
                    client.reply()
                    answered += 1
            except Closed:
                stopping.join()
    with server, Client(server.hosts) as after:
        names = after.done(ask.children("/")).fields["names"]
        assert len(names) - 1 >= answered  # beside /zookeeper


def test_a_failed_multi_changes_nothing() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a", b"old"))
        calls = (
            ask.create("/b"),
            ask.set_data("/a", b"new"),
            ask.delete("/a"),
            ask.check("/nowhere"),
            ask.create("/c"),
        )
        reply = client.once(ask.multi(*calls))
        assert [error for _, error, *_ in reply.fields["results"][:-1]] == [0, 0, 0, NO_NODE, -2]
        assert client.once(ask.exists("/b")).error == NO_NODE
        assert b"old" in client.done(ask.get_data("/a")).body


def test_an_access_list_hides_data_and_events() -> None:
    with serving() as server, Client(server.hosts) as owner, Client(server.hosts) as other:
        owner.authenticate("digest", b"ann:secret")
        owner.done(ask.create("/mine", b"secret", entries=((31, *ANN),)))
        refused = [
            ask.get_data("/mine"),
            ask.children("/mine"),
            ask.children2("/mine"),
            ask.get_acl("/mine"),
            ask.set_data("/mine"),
            ask.create("/mine/child"),
            ask.set_acl("/mine", ask.OPEN),
            ask.count_descendants("/mine"),
        ]
        assert [other.once(call).error for call in refused] == [NO_AUTH] * len(refused)
        other.done(ask.exists("/mine", watch=True))
        owner.done(ask.set_data("/mine", b"more"))
        other.pinged()
        assert other.events == []
        other.authenticate("digest", b"ann:secret")
        assert b"more" in other.done(ask.get_data("/mine")).body


def test_a_failed_authentication_closes_the_connection() -> None:
    with serving() as server, Client(server.hosts) as client:
        assert client.authenticate("kerberos", b"ann").error == AUTH_FAILED
        assert client.until_closed() == []
        with client.again(server.hosts) as after:
            assert after.session == client.session
