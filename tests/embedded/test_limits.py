"""Limits: the server refuses or cuts off a client that exceeds one, without blocking others."""

from __future__ import annotations

import re
import struct
import time

import pytest

from tests.tools import requests as ask
from tests.tools.rawsocket import Closed, Silent, framed
from tests.tools.session import Client, word
from tests.tools.support import wait_until
from zkplan.embedded import Limits

from .servers import ServerProcess, serving

FRAME_BYTES_MAX = 1_048_575
QUOTA_EXCEEDED = -125


@pytest.mark.parametrize("length", [FRAME_BYTES_MAX + 1, 2**31 - 1, -1, -(2**31)])
def test_an_impossible_length_closes_the_connection(length: int) -> None:
    with serving() as server, Client(server.hosts) as client:
        client.send_bytes(struct.pack(">i", length))
        if length > 0:
            try:
                client.send_bytes(bytes(min(length, 1 << 21)))
            except Closed:
                pass  # closed already, as it has to be
        assert client.until_closed(3.0) == []
        with client.again(server.hosts) as after:
            assert after.session == client.session


@pytest.mark.parametrize("hello", [b"", b"\0" * 27, b"\xff" * 27, bytes(20) + b"\x7f\xff\xff\xff"])
def test_a_garbage_handshake_closes_the_connection(hello: bytes) -> None:
    with serving() as server, Client(server.hosts, shake_hands=False) as client:
        client.send_bytes(framed(hello))
        with pytest.raises(Closed):
            client.frame()


def test_a_client_without_a_handshake_is_disconnected() -> None:
    with serving(limits=Limits(handshake_s=0.3)) as server:
        started = time.monotonic()
        with Client(server.hosts, shake_hands=False) as client, Client(server.hosts) as quick:
            client.send_bytes(b"\0\0\0")
            client.socket.settimeout(2)
            with pytest.raises(Closed):
                client.frame()
            assert time.monotonic() - started >= 0.3
            quick.pinged()


def test_a_connection_over_the_limit_is_closed_at_once() -> None:
    with serving(limits=Limits(connections=3)) as server:
        clients = [Client(server.hosts) for _ in range(3)]
        with pytest.raises(Closed):
            Client(server.hosts)
        clients[0].close()

        def admitted() -> bool:
            try:
                clients[1].pinged()
                return Client(server.hosts).session != 0
            except Closed:
                return False

        wait_until(admitted, "the free place is given away")


def test_more_znodes_than_allowed_are_refused_and_deletes_still_work() -> None:
    with serving(limits=Limits(znodes=20)) as server, Client(server.hosts) as client:
        made = 0
        while client.once(ask.create(f"/n{made}")).error == 0:
            made += 1
            assert made < 20
        assert client.once(ask.create("/more")).error == QUOTA_EXCEEDED
        client.once(ask.multi(ask.delete("/n0"), ask.create("/instead")))
        client.done(ask.exists("/instead"))
        client.done(ask.set_data("/n1", b"x"))
        client.done(ask.delete("/n2"))
        client.done(ask.create("/more"))


def test_more_identities_than_allowed_are_refused() -> None:
    with serving(limits=Limits(identities=4)) as server, Client(server.hosts) as client:
        for _ in range(10):
            assert client.authenticate("digest", b"ann:secret").error == 0  # one and the same
        codes = [client.authenticate("digest", b"u%d:x" % number).error for number in range(3)]
        assert codes == [0, 0, -115]
        assert client.until_closed() == []


def test_a_client_that_reads_no_answers_slows_no_other_client_down() -> None:
    with ServerProcess() as server:
        with Client(server.hosts) as other:
            other.done(ask.create("/big", bytes(500_000)))
            before = server.memory_mib()
            slow = Client(server.hosts, receive_buffer=65_536, timeout_ms=60_000)
            with slow:
                # 200 answers of half a megabyte: 100 MB if the server kept them.
                slow.socket.settimeout(0.5)
                try:
                    slow.send(*[ask.get_data("/big")] * 200)
                    slow.send(*[ask.set_data("/late", bytes(900_000))] * 20)
                except Silent:
                    pass  # what does not fit into the sockets waits here
                for _ in range(50):
                    asked = time.monotonic()
                    other.done(ask.get_data("/"))
                    assert time.monotonic() - asked < 1.0
                assert server.memory_mib() - before < 40
                # Once it reads, it gets what it asked for.
                slow.socket.settimeout(10)
                for xid in range(1, 201):
                    assert len(slow.reply(xid).body) > 500_000
        assert server.errors() == ""


def test_long_requests_of_one_client_do_not_block_other_clients() -> None:
    with (
        ServerProcess(limits={"turn_s": 0.005}) as server,
        Client(server.hosts) as greedy,
        Client(server.hosts) as other,
    ):
        greedy.done(ask.create("/a"))
        for _ in range(7):
            greedy.once(ask.multi(*[ask.create("/a/n-", b"", ask.SEQUENCE)] * 2000))
        # As many as one turn may have; the short answers would all fit into it.
        count = Limits().turn_requests - 1
        asked = greedy.send(*[ask.count_descendants("/a")] * count)
        others_turns, all_bytes = 0, count * 24
        while greedy.waiting_bytes(all_bytes) < all_bytes:
            other.pinged()
            others_turns += 1
        assert others_turns >= 3
        assert {greedy.reply(xid).error for xid in asked} == {0}


def test_one_request_with_many_access_checks_of_a_long_list_is_answered_fast() -> None:
    networks = tuple((1, "ip", f"10.0.{number}.0/24") for number in range(200))
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a", b"", entries=(*networks, (31, "world", "anyone"))))
        for call in (
            ask.multi_read(*[ask.get_data("/a")] * 30_000),
            ask.multi(*[ask.check("/a")] * 3_000),
        ):
            began = time.monotonic()
            client.done(call)
            assert time.monotonic() - began < 5.0


def test_a_stop_does_not_wait_for_a_client_that_does_not_read() -> None:
    server = serving()
    with server, Client(server.hosts, receive_buffer=4096) as slow:
        slow.done(ask.create("/big", bytes(500_000)))
        slow.send(*[ask.get_data("/big")] * 40)
        with Client(server.hosts) as other:
            other.pinged()
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 2.0
        assert len(slow.until_closed()) < 40


def test_a_client_that_does_not_read_its_events_is_disconnected() -> None:
    limits = {"unread_bytes": 1 << 20}
    with ServerProcess(limits=limits) as server:
        with Client(server.hosts) as other:
            path = "/" + "n" * 20_000
            other.done(ask.create(path))
            slow = Client(server.hosts, receive_buffer=4096, timeout_ms=60_000)
            before = server.memory_mib()
            with slow:
                slow.done(ask.add_watch(path, 0))
                for _ in range(1000):  # 20 MB of events
                    other.done(ask.set_data(path))
                assert server.memory_mib() - before < 40
                slow.until_closed()
        assert server.errors() == ""


def test_a_client_that_does_not_read_is_disconnected_after_its_session() -> None:
    limits = {"handshake_s": 0.5}
    with ServerProcess(limits=limits) as server, Client(server.hosts) as other:
        other.done(ask.create("/big", bytes(500_000)))
        with Client(server.hosts, receive_buffer=4096, timeout_ms=300) as slow:
            slow.socket.settimeout(0.2)
            slow.send(*[ask.get_data("/big")] * 40)
            wait_until(lambda: "Connections: 2\n" in word(server.hosts, b"srvr"), "it is gone", 3.0)
        other.pinged()


def test_the_memory_of_many_half_sent_frames_is_bounded() -> None:
    with ServerProcess(limits={"received_bytes": 5 << 20}) as server:
        before = server.memory_mib()
        clients = [Client(server.hosts) for _ in range(30)]
        for client in clients:
            client.socket.settimeout(0.5)
            try:
                client.send_bytes(struct.pack(">i", FRAME_BYTES_MAX) + bytes(900_000))
            except Closed:
                pass  # cut off in the middle
        with Client(server.hosts) as after:
            after.pinged()
        assert server.memory_mib() - before < 40
        for client in clients:
            client.close()


WORDS = {
    b"ruok": r"imok",
    b"isro": r"rw",
    b"srvr": r"Zookeeper version: 3\.8\.0.*Node count: \d+\n",
    b"stat": r"Zookeeper version: 3\.8\.0.*Clients:\n /127.*Mode: standalone\n.*",
    b"mntr": r"zk_version\t3\.8\.0.*zk_znode_count\t\d+\n.*",
    b"cons": r" /127\.0\.0\.1:\d+\[1\].*",
    b"conf": r"clientPort=\d+\n.*",
    b"dump": r"SessionTracker dump:.*/e\n",
    b"wchs": r"1 connections watching 1 paths\nTotal watches:1\n",
    b"envi": r"Environment:\nzookeeper\.version=3\.8\.0.*",
}


@pytest.mark.parametrize("letters", WORDS)
def test_a_four_letter_word_is_answered(letters: bytes) -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/e", flags=ask.EPHEMERAL))
        client.done(ask.exists("/e", watch=True))
        assert re.fullmatch(WORDS[letters], word(server.hosts, letters), re.DOTALL)


def test_an_unknown_word_and_a_word_after_the_handshake_close_the_connection() -> None:
    with serving() as server:
        assert word(server.hosts, b"quit") == ""
        with Client(server.hosts) as client:
            client.send_bytes(b"ruok")
            assert client.until_closed() == []
