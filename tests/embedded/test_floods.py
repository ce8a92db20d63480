"""Floods: clients that ask for much and read little cost bounded memory and block no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tools import requests as ask
from tests.tools.packing import Ask
from tests.tools.rawsocket import Closed, Silent
from tests.tools.session import Client, monitored, word
from tests.tools.support import wait_until
from zkplan.embedded import EmbeddedServer, Limits
from zkplan.embedded.connection import Connection
from zkplan.embedded.server import Server

from .planting import wrap
from .servers import gated_commits, serving

QUOTA_EXCEEDED = -125
LONG = 200_000


def connections(server: EmbeddedServer) -> list[Connection]:
    assert server._server is not None
    return list(server._server._connections.values())


def with_long_names(client: Client, count: int = 5) -> None:
    client.done(ask.create("/p"))
    for number in range(count):
        client.done(ask.create(f"/p/{number}" + "é" * LONG, flags=ask.EPHEMERAL))


def test_a_request_for_a_thousand_long_lists_is_refused() -> None:
    with serving(limits=Limits(answer_bytes=10 << 20)) as server, Client(server.hosts) as client:
        with_long_names(client)
        names = 5 * 2 * LONG
        assert len(client.done(ask.multi_read(*[ask.children("/p")] * 2)).body) > 2 * names
        many = ask.multi_read(*[ask.children("/p")] * 1000)
        assert client.once(many).error == QUOTA_EXCEEDED
        # Refusals have their size as well.
        assert client.once(ask.multi_read(*[ask.get_data("/")] * 30_000)).error == 0
        client.pinged()


def test_a_list_that_is_too_large_is_refused_and_sets_no_watch() -> None:
    with serving(limits=Limits(answer_bytes=2 << 20)) as server, Client(server.hosts) as client:
        with_long_names(client)
        calls = [ask.children("/p", True), ask.children2("/p", True), ask.get_ephemerals("/")]
        assert [client.once(call).error for call in calls] == [QUOTA_EXCEEDED] * 3
        assert monitored(server.hosts, "zk_watch_count") == 0
        client.done(ask.children("/", watch=True))
        client.done(ask.create("/a"))
        assert client.events == [(4, "/")]


def test_data_and_identities_that_are_too_large_are_refused_and_writes_are_not() -> None:
    with serving(limits=Limits(answer_bytes=1000)) as server, Client(server.hosts) as client:
        path = "/" + "n" * 2000
        assert client.done(ask.create(path, bytes(3000))).fields["path"] == path
        assert client.once(ask.get_data(path)).error == QUOTA_EXCEEDED
        client.done(ask.WHO_AM_I)
        assert client.authenticate("digest", b"u" * 2000 + b":x").error == 0
        assert client.once(ask.WHO_AM_I).error == QUOTA_EXCEEDED
        entries = ((31, "digest", "u" * 2000 + ":x"), (31, "world", "anyone"))
        client.done(ask.create("/kept", entries=entries))
        assert client.once(ask.get_acl("/kept")).error == QUOTA_EXCEEDED


def large(client: Client, count: int) -> Ask:
    """A request for so many megabytes."""
    client.once(ask.create("/x", bytes(1_000_000)))
    return ask.multi_read(*[ask.get_data("/x")] * count)


def test_the_client_with_the_most_unread_answers_is_disconnected_first() -> None:
    limits = Limits(unread_total_bytes=50 << 20)
    with serving(limits=limits) as server, Client(server.hosts) as other:
        call = large(other, 15)
        first = Client(server.hosts, receive_buffer=4096, timeout_ms=60_000)
        (most,) = first.send(large(first, 30))
        slow = [Client(server.hosts, receive_buffer=4096, timeout_ms=60_000) for _ in range(6)]
        for client in slow:
            client.send(call)
            other.pinged()
        wait_until(lambda: len(connections(server)) <= 5, "some are gone")
        assert server._server is not None
        assert server._server.unread_bytes <= limits.unread_total_bytes
        with pytest.raises(Closed):
            first.reply(most)
        left = [client for client in slow if client.is_silent(0) or client.waiting_bytes(1)]
        assert left
        other.pinged()
        for client in (first, *slow):
            client.close()
        wait_until(lambda: len(connections(server)) == 1, "all are gone")
        assert server._server.unread_bytes == 0


def test_answers_held_by_one_commit_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[int] = []

    def send(real: Any, self: Any) -> None:
        held.append(sum(len(frame or b"") for _, frame in self.service.out))
        real(self)

    wrap(monkeypatch, Server, "_send", send)
    limits = Limits(held_bytes=2 << 20)
    with serving(tmp_path, limits=limits) as server, gated_commits() as gate:
        clients = [Client(server.hosts) for _ in range(12)]
        clients[0].done(ask.create("/x", bytes(900_000)))
        held.clear()
        gate.shut()
        clients[0].send(ask.set_data("/"))
        assert gate.waits.wait(5)
        for client in clients[1:]:
            client.send(ask.get_data("/x"))
        gate.open()
        clients[0].reply()
        assert {len(client.reply(1).body) > 900_000 for client in clients[1:]} == {True}
        assert max(held) < limits.held_bytes + 1_000_000


def test_unread_events_wait_outside_the_transport() -> None:
    with serving() as server, Client(server.hosts) as other:
        path = "/" + "n" * 20_000
        other.done(ask.create(path))
        with Client(server.hosts, receive_buffer=4096, timeout_ms=60_000) as slow:
            slow.done(ask.add_watch(path, 0))
            for _ in range(1000):  # 20 MB of events
                other.done(ask.set_data(path))
            one = connections(server)[-1]
            assert one.unread_bytes > 5 << 20
            # Later versions of Python count what a transport holds piece by piece, at each write.
            assert one.transport.get_write_buffer_size() < 1 << 20
            slow.pinged()
            assert slow.events == [(3, path)] * 1000
            assert one.unread_bytes == 0


def test_a_half_closed_client_that_does_not_read_is_disconnected() -> None:
    limits = Limits(handshake_s=0.5, unsent_bytes=1 << 30)
    with serving(limits=limits) as server, Client(server.hosts) as other:
        call = large(other, 20)
        slow = Client(server.hosts, receive_buffer=4096, timeout_ms=60_000)
        slow.send(call)
        wait_until(lambda: connections(server)[-1].unread_bytes > 0, "it does not read")
        slow.socket.shutdown(1)
        wait_until(lambda: len(connections(server)) == 1, "it is gone", 3.0)
        other.pinged()


@contextmanager
def pinging(client: Client) -> Iterator[None]:
    """It pings from a thread of its own: the answer that it waits for may take the server long."""
    over = threading.Event()

    def ping() -> None:
        while not over.wait(0.1):
            client.ping()

    thread = threading.Thread(target=ping, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def test_a_slow_reader_keeps_its_session_as_long_as_it_reads() -> None:
    with serving() as server, Client(server.hosts, timeout_ms=60_000) as other:
        call = large(other, 60)
        slow = Client(server.hosts, receive_buffer=65_536, timeout_ms=1000)
        slow.done(ask.create("/mine", flags=ask.EPHEMERAL))
        other.done(ask.exists("/mine", watch=True))
        slow.send(call)
        with pinging(slow):
            began = time.monotonic()
            while time.monotonic() < began + 3.0:
                assert slow.socket.recv(400_000)
                assert other.is_silent(0.04), "its session has ended"
        stopped = time.monotonic()
        assert other.wait_event() == (2, "/mine")
        assert time.monotonic() - stopped < 5.0


def test_the_watched_paths_of_one_connection_are_bounded() -> None:
    with serving(limits=Limits(watch_bytes=10_000)) as server, Client(server.hosts) as client:
        paths = [f"/{number}" + "n" * 2998 for number in range(5)]
        codes = [client.once(ask.exists(path, watch=True)).error for path in paths]
        assert codes == [-101] * 3 + [QUOTA_EXCEEDED] * 2
        assert client.once(ask.children("/", watch=True)).error == 0
        assert client.once(ask.add_watch(paths[4], 0)).error == QUOTA_EXCEEDED
        with Client(server.hosts) as other:
            assert other.once(ask.exists(paths[4], watch=True)).error == -101
            other.done(ask.create(paths[0]))
        assert client.wait_event() == (1, paths[0])
        assert client.once(ask.exists(paths[3], watch=True)).error == -101
        client.done(ask.remove_watches(paths[3], 3))
        assert client.once(ask.exists(paths[4], watch=True)).error == -101


def test_the_watches_of_all_connections_together_are_bounded() -> None:
    limits = Limits(watch_total_bytes=200_000)
    with serving(limits=limits) as server, Client(server.hosts) as last:
        clients = [Client(server.hosts) for _ in range(6)]
        made = 0
        for number in range(10):
            for at, client in enumerate(clients):
                call = ask.exists(f"/{at}-{number}" + "n" * 9990, watch=True)
                made += client.once(call).error == -101
        assert made == 19  # each takes ten thousand bytes and a little
        short = ask.children("/", watch=True)
        assert last.once(ask.exists("/" + "n" * 9990, watch=True)).error == QUOTA_EXCEEDED
        assert last.once(short).error == 0
        paths = ("/" + "n" * 9990, "/" + "m" * 9990)
        assert last.once(ask.set_watches(0, exist=paths)).error == QUOTA_EXCEEDED
        clients[0].close()
        wait_until(lambda: last.once(ask.set_watches(0, exist=paths)).error == 0, "there is room")
        assert last.once(short).error == 0


def test_many_expired_nodes_are_deleted_in_several_turns() -> None:
    limits = Limits(sweep_nodes=2)
    with serving(limits=limits, sweep_s=1.0) as server, Client(server.hosts) as client:
        client.done(ask.create("/p"))
        for number in range(40):
            client.done(ask.create_ttl(f"/p/{number}", 1))
        count = ask.count_descendants("/p")
        wait_until(lambda: client.done(count).fields["int"] == 0, "all are gone", 5.0)


def test_a_four_letter_word_is_answered_after_the_commit(tmp_path: Path) -> None:
    with serving(tmp_path) as server, gated_commits() as gate, Client(server.hosts) as client:
        asking = Client(server.hosts, shake_hands=False)
        with asking:
            wait_until(lambda: len(connections(server)) == 2, "it is accepted")
            gate.shut()
            client.send(ask.create("/a"))
            assert gate.waits.wait(5)
            # Both are read in one turn now, whose commit waits at the gate as well.
            client.send(ask.create("/b"))
            asking.send_bytes(b"srvr")
            gate.let_one_through()
            client.reply()
            assert gate.waits.wait(5)
            assert asking.is_silent(0.3)
            gate.open()
            assert asking.socket.recv(1 << 16).startswith(b"Zookeeper version")
            try:
                assert asking.socket.recv(1 << 16) == b""
            except OSError:
                pass


def test_a_half_closed_client_gets_one_answer_to_a_four_letter_word() -> None:
    with serving() as server:
        for letters in (b"ruok", b"ruokruok", b"ruok\n"):
            with Client(server.hosts, shake_hands=False) as client:
                client.send_bytes(letters)
                client.socket.shutdown(1)
                answer = b""
                try:
                    while data := client.socket.recv(100):
                        answer += data
                except OSError:
                    pass  # closed with something unread
                assert answer == b"imok"
        assert word(server.hosts, b"ruok") == "imok"


def test_requests_after_a_flood_are_answered_in_order() -> None:
    with serving() as server, Client(server.hosts, receive_buffer=4096) as client:
        call = large(client, 8)
        client.socket.settimeout(0.5)
        asked: list[int] = []
        try:
            for _ in range(3):
                asked += client.send(call, ask.get_data("/"), ask.exists("/nowhere"))
        except Silent:
            pass
        client.socket.settimeout(10)
        assert [client.reply(xid).error for xid in asked] == [0, 0, -101] * 3
