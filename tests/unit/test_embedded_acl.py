"""Access control lists are mended, judged and shown as ZooKeeper does."""

from __future__ import annotations

import pytest

from zkplan.embedded.acl import authenticate, digest_identity, mended, permits, shown, size_of
from zkplan.embedded.records import (
    ADMIN,
    OPEN_ACL,
    READ,
    Acl,
    Identity,
)

ANN = digest_identity("ann:secret")
BOB = digest_identity("bob:secret")
HERE = Identity("ip", "127.0.0.1")
NOBODY: tuple[Identity, ...] = ()


def of_ip(text: str, perms: int = 31) -> tuple[Acl, ...]:
    return (Acl(perms, "ip", text),)


def test_a_digest_is_the_one_that_zookeeper_documents() -> None:
    # The example of ZooKeeper's own programmer's guide and of every client library.
    assert digest_identity("super:test") == ("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    assert authenticate("digest", b"super:test", "::1") == digest_identity("super:test")


def test_an_unknown_scheme_proves_nothing() -> None:
    assert authenticate("sasl", b"super:test", "127.0.0.1") is None
    assert authenticate("world", b"anyone", "127.0.0.1") is None
    assert authenticate("ip", b"10.0.0.1", "127.0.0.1") == HERE
    assert authenticate("digest", b"\xff:\xfe", "127.0.0.1") is not None


def test_a_list_without_a_restriction_is_stored_as_none() -> None:
    assert mended("/a", OPEN_ACL, NOBODY) is None
    assert mended("/a", OPEN_ACL * 3, NOBODY) is None
    assert mended("/a", (Acl(31, "world", "anyone"),), None) is None


def test_an_entry_that_comes_twice_is_kept_once() -> None:
    one, two = Acl(1, "world", "anyone"), Acl(31, "digest", "a:b")
    assert mended("/a", (one, two, one, two), NOBODY) == (one, two)


def test_auth_becomes_every_password_of_the_requester_and_no_address() -> None:
    acl = mended("/a", (Acl(7, "auth", "ignored"), Acl(1, "world", "anyone")), (HERE, ANN, BOB))
    assert acl == (Acl(7, *ANN), Acl(7, *BOB), Acl(1, "world", "anyone"))


@pytest.mark.parametrize(
    ("text", "address", "matches"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("127.0.0.0/8", "127.9.9.9", True),
        ("127.0.0.0/9", "127.128.0.0", False),
        ("10.1.2.3/0", "192.168.0.1", True),
        ("10.1.2.128/25", "10.1.2.200", True),
        ("10.1.2.128/25", "10.1.2.100", False),
        ("10.1.2.3/32", "10.1.2.3", True),
        ("::1", "::1", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("fe80::/10", "2001:db8::1", False),
        ("0.0.0.0/0", "::1", False),
        ("::/0", "127.0.0.1", False),
        ("127.0.0.0/8", "unknown", False),
    ],
)
def test_an_address_matches_where_the_first_bits_agree(
    text: str, address: str, matches: bool
) -> None:
    acl = mended("/a", of_ip(text), NOBODY)
    assert acl is not None
    assert permits(acl, READ, (Identity("ip", address),)) is matches


def test_the_server_itself_and_the_superuser_may_do_everything() -> None:
    acl = (Acl(0, "world", "anyone"),)
    assert not permits(acl, READ, (HERE,))
    assert permits(acl, READ, None)
    assert permits(acl, READ, (HERE, Identity("super", "")))
    assert permits(None, READ, NOBODY)


def test_hashes_of_passwords_are_shown_to_who_may_change_the_list() -> None:
    acl = (Acl(ADMIN, *ANN), Acl(READ, *BOB), Acl(READ, "world", "anyone"))
    assert shown(acl, (ANN,)) == acl
    assert shown(acl, None) == acl
    masked = (Acl(ADMIN, "digest", "ann:x"), Acl(READ, "digest", "bob:x"), acl[2])
    assert shown(acl, (BOB,)) == masked
    assert shown(None, NOBODY) == OPEN_ACL


def test_an_open_list_takes_no_bytes() -> None:
    assert size_of(None) == 0
    assert size_of((Acl(1, "world", "anyone"),)) > 11
