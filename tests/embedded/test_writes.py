"""Writes on the wire: all or nothing, and who may do what. The rest: tests/unit/test_tree.py."""

from __future__ import annotations

from tests.differential.values import ANN

from . import requests as ask
from .client import Client
from .servers import serving

NO_NODE, NO_AUTH, AUTH_FAILED = -101, -102, -115


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
