"""Writes on the wire: all or nothing, versions, sequences, children, and who may do what."""

from __future__ import annotations

import base64
import hashlib
import struct

from . import requests as ask
from .client import Client
from .servers import serving

NO_NODE, NO_AUTH, BAD_VERSION, NOT_EMPTY, AUTH_FAILED = -101, -102, -103, -111, -115


def errors_of(body: bytes) -> list[int]:
    """The codes in the answer of a refused multi."""
    codes = []
    for at in range(0, len(body) - 9, 13):
        kind, done, code, again = struct.unpack_from(">i?ii", body, at)
        assert (kind, done, code) == (-1, False, again)
        codes.append(code)
    return codes


def test_a_failing_multi_leaves_nothing_behind() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a", b"old"))
        calls = (
            ask.create("/b"),
            ask.set_data("/a", b"new"),
            ask.delete("/a"),
            ask.check("/nowhere"),
            ask.create("/c"),
        )
        reply = client.ask(ask.multi(*calls))
        assert errors_of(reply.body) == [0, 0, 0, NO_NODE, -2]
        assert client.ask(ask.exists("/b")).error == NO_NODE
        assert b"old" in client.done(ask.get_data("/a")).body


def test_a_failing_multi_fires_no_watch() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        client.done(ask.get_data("/a", watch=True))
        client.ask(ask.exists("/b", watch=True))
        client.done(ask.children("/", watch=True))
        client.ask(ask.multi(ask.set_data("/a"), ask.create("/b"), ask.check("/nowhere")))
        client.pinged()
        assert client.events == []
        client.done(ask.set_data("/a"))
        assert client.events == [(3, "/a")]


def test_a_check_compares_the_version() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        client.done(ask.set_data("/a"))
        reply = client.ask(ask.multi(ask.check("/a", 0), ask.create("/b")))
        assert errors_of(reply.body) == [BAD_VERSION, -2]
        assert client.ask(ask.exists("/b")).error == NO_NODE
        client.ask(ask.multi(ask.check("/a", 1), ask.create("/b")))
        client.done(ask.exists("/b"))


def test_set_and_delete_compare_the_version() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a", b"old"))
        assert client.ask(ask.set_data("/a", b"new", 1)).error == BAD_VERSION
        assert client.ask(ask.delete("/a", 1)).error == BAD_VERSION
        assert b"old" in client.done(ask.get_data("/a")).body
        client.done(ask.set_data("/a", b"new", 0))
        client.done(ask.delete("/a", 1))


def test_a_node_with_children_is_not_deleted() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/a"))
        client.done(ask.create("/a/b"))
        assert client.ask(ask.delete("/a")).error == NOT_EMPTY
        client.done(ask.exists("/a/b"))


def test_a_sequence_number_is_never_given_twice() -> None:
    with serving() as server, Client(server.hosts) as client:
        client.done(ask.create("/q"))
        paths = []
        for _ in range(5):
            path = client.done(ask.create("/q/n-", flags=ask.SEQUENCE)).body[4:].decode()
            paths.append(path)
            client.done(ask.delete(path))
        assert paths == [f"/q/n-{number:010d}" for number in range(5)]


def digest(user: str, password: str) -> tuple[int, str, str]:
    """An entry of a list that lets this user alone do everything."""
    secret = base64.b64encode(hashlib.sha1(f"{user}:{password}".encode()).digest()).decode()
    return (31, "digest", f"{user}:{secret}")


def test_nobody_reads_or_hears_of_what_a_list_keeps_from_them() -> None:
    with serving() as server, Client(server.hosts) as owner, Client(server.hosts) as other:
        owner.authenticate("digest", b"ann:secret")
        owner.done(ask.create("/mine", b"secret", entries=(digest("ann", "secret"),)))
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
        assert [other.ask(call).error for call in refused] == [NO_AUTH] * len(refused)
        other.done(ask.exists("/mine", watch=True))
        owner.done(ask.set_data("/mine", b"more"))
        other.pinged()
        assert other.events == []
        other.authenticate("digest", b"ann:secret")
        assert b"more" in other.done(ask.get_data("/mine")).body


def test_who_fails_to_prove_an_identity_is_disconnected() -> None:
    with serving() as server, Client(server.hosts) as client:
        assert client.authenticate("kerberos", b"ann").error == AUTH_FAILED
        assert client.until_closed() == []
        with client.again(server.hosts) as after:
            assert after.session == client.session
