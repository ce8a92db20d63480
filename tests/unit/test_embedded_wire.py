"""The embedded server reads what kazoo writes, and refuses garbage by name."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from zkplan.embedded import wire
from zkplan.embedded.records import (
    NO_DATA,
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Delete,
    Op,
    SetAcl,
    SetData,
)
from zkplan.embedded.requests import (
    AddAuth,
    AddWatch,
    CloseSession,
    ConnectRequest,
    CountDescendants,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    GetEphemerals,
    Multi,
    MultiRead,
    Ping,
    RemoveWatches,
    SetWatches,
    Sync,
    Unsupported,
    WhoAmI,
)

from .jute_bytes import (
    ACLS,
    MULTI_END,
    OPEN,
    PATHS,
    VERSIONS,
    frame,
    kazoo_acl,
    long,
)


def of_kazoo(request: Any) -> tuple[int, Any]:
    return wire.parse(struct.pack("!ii", 5, request.type) + bytes(request.serialize()))


@given(PATHS, st.binary(), ACLS, st.booleans(), st.booleans())
def test_a_create_of_kazoo_is_understood(
    path: str, data: bytes, acl: tuple[Acl, ...], ephemeral: bool, sequence: bool
) -> None:
    flags = ephemeral + 2 * sequence
    for kind, with_stat in ((kazoo.Create, False), (kazoo.Create2, True)):
        asked = of_kazoo(kind(path, data, kazoo_acl(acl), flags))
        assert asked == (5, Create(path, data, ephemeral, sequence, acl, with_stat=with_stat))


@given(PATHS, st.binary(), VERSIONS, st.booleans(), ACLS)
def test_what_else_kazoo_asks_is_understood(
    path: str, data: bytes, version: int, watch: bool, acl: tuple[Acl, ...]
) -> None:
    pairs = [
        (kazoo.Delete(path, version), Delete(path, version)),
        (kazoo.Exists(path, watch), Exists(path, watch)),
        (kazoo.GetData(path, watch), GetData(path, watch)),
        (kazoo.SetData(path, data, version), SetData(path, data, version)),
        (kazoo.GetACL(path), GetAcl(path)),
        (kazoo.SetACL(path, kazoo_acl(acl), version), SetAcl(path, acl, version)),
        (kazoo.GetChildren(path, watch), GetChildren(path, watch)),
        (kazoo.GetChildren2(path, watch), GetChildren(path, watch, with_stat=True)),
        (kazoo.Sync(path), Sync(path)),
        (kazoo.Ping(), Ping()),
        (kazoo.Close(), CloseSession()),
        (kazoo.Auth(0, "digest", path), AddAuth("digest", path.encode())),
        (kazoo.CheckVersion(path, version), Unsupported(13)),
        (kazoo.Reconfig(path, None, None, 1), Unsupported(16)),
        (kazoo.SASL(data), Unsupported(102)),
    ]
    for asked, understood in pairs:
        assert of_kazoo(asked) == (5, understood)
        assert type(of_kazoo(asked)[1]) is type(understood)


@given(st.lists(st.tuples(PATHS, st.binary(), VERSIONS, ACLS), max_size=5))
def test_a_transaction_of_kazoo_is_understood(fields: list[Any]) -> None:
    asked: list[Any] = []
    understood: list[Op] = []
    for path, data, version, acl in fields:
        asked += [
            kazoo.Create(path, data, kazoo_acl(acl), 3),
            kazoo.CheckVersion(path, version),
            kazoo.SetData(path, data, version),
            kazoo.Delete(path, version),
        ]
        understood += [
            Create(path, data, True, True, acl),
            Check(path, version),
            SetData(path, data, version),
            Delete(path, version),
        ]
    assert of_kazoo(kazoo.Transaction(asked)) == (5, Multi(tuple(understood)))


def test_the_requests_that_kazoo_lacks_are_understood() -> None:
    path, paths = "/ä", ["/a", "/ä"]
    zxid = long(2**40)
    reads = [(4, False, -1, path, True), (8, False, -1, path, False), MULTI_END]
    lists = [tuple(paths), (), ("/c",)]
    more = [("/p",), tuple(paths)]
    pairs: list[tuple[bytes, Any]] = [
        (frame(17, path, 3), RemoveWatches(path, 3, only_check=True)),
        (frame(18, path, 1), RemoveWatches(path, 1)),
        (frame(22, *reads), MultiRead((GetData(path), GetChildren(path)))),
        (frame(101, zxid, paths, [], ["/c"]), SetWatches(2**40, *lists)),
        (
            frame(105, zxid, paths, [], ["/c"], ["/p"], paths),
            SetWatches(2**40, *lists, *more),
        ),
        (frame(103, path), GetEphemerals(path)),
        (frame(103, None), GetEphemerals("")),
        (frame(104, path), CountDescendants(path)),
        (frame(106, path, 0), AddWatch(path, False)),
        (frame(106, path, 1), AddWatch(path, True)),
        (frame(107), WhoAmI()),
        (frame(999, path), Unsupported(999)),
    ]
    for body, understood in pairs:
        assert wire.parse(body) == (7, understood)
        assert type(wire.parse(body)[1]) is type(understood)


@pytest.mark.parametrize("opcode", [1, 15])
@pytest.mark.parametrize("flags", [5, 6, 7, -1])
def test_a_create_with_flags_that_no_server_accepts_is_impossible(opcode: int, flags: int) -> None:
    assert wire.parse(frame(opcode, "/a", b"", OPEN, flags)) == (7, wire.IMPOSSIBLE)


def test_containers_and_nodes_with_a_time_to_live_have_requests_of_their_own() -> None:
    container = Create("/a", b"x", container=True, with_stat=True)
    assert wire.parse(frame(19, "/a", b"x", OPEN, 4)) == (7, container)
    # The kind decides: a server makes a plain node when only the flag says container.
    assert wire.parse(frame(1, "/a", b"x", OPEN, 4)) == (7, Create("/a", b"x"))
    mortal = Create("/a", b"x", ttl_ms=2**33, with_stat=True)
    assert wire.parse(frame(21, "/a", b"x", OPEN, 5, long(2**33))) == (7, mortal)
    numbered = mortal._replace(sequence=True)
    assert wire.parse(frame(21, "/a", b"x", OPEN, 6, long(2**33))) == (7, numbered)
    for flags, ttl_ms in [(5, 0), (5, -1), (5, 2**40), (0, 5), (4, -1), (9, 5)]:
        body = frame(21, "/a", b"x", OPEN, flags, long(ttl_ms))
        assert wire.parse(body) == (7, wire.IMPOSSIBLE)


def test_in_a_multi_the_flags_of_a_create_decide_and_not_its_kind() -> None:
    ops = [
        (15, False, -1, "/a", b"", OPEN, 1),
        (1, False, -1, "/b", b"", OPEN, 4),
        (21, False, -1, "/c", b"", OPEN, 5, long(9)),
        (21, False, -1, "/d", b"", OPEN, 2, long(9)),
        (1, False, -1, "/e", b"", OPEN, 7),
        MULTI_END,
    ]
    assert wire.parse(frame(14, *ops))[1] == Multi(
        (
            Create("/a", ephemeral=True),
            Create("/b", container=True, with_stat=True),
            Create("/c", ttl_ms=9, with_stat=True),
            Create("/d", sequence=True),
            wire.IMPOSSIBLE,
        )
    )


def test_null_data_is_told_from_empty_data() -> None:
    for request in (kazoo.Create("/a", None, OPEN_ACL_UNSAFE, 0), kazoo.SetData("/a", None, -1)):
        assert of_kazoo(request)[1].data is NO_DATA
    for request in (kazoo.Create("/a", b"", OPEN_ACL_UNSAFE, 0), kazoo.SetData("/a", b"", -1)):
        assert of_kazoo(request)[1].data is not NO_DATA


def test_where_a_server_stumbles_over_null_the_request_is_refused() -> None:
    null_paths = [
        frame(1, None, b"", OPEN, 0),
        frame(2, None, -1),
        frame(3, None, False),
        frame(4, None, False),
        frame(6, None),
        frame(8, None, False),
        frame(17, None, 3),
        frame(14, (13, False, -1, None, -1), MULTI_END),
        frame(22, (4, False, -1, None, False), MULTI_END),
        frame(101, long(1), None, [], []),
        frame(101, long(1), [None], [], []),
        frame(104, None),
    ]
    for body in null_paths:
        with pytest.raises(wire.WireError) as caught:
            wire.parse(body)
        assert (caught.value.xid, caught.value.code) == (7, -5)
        opcode = struct.unpack_from("!ii", body)[1]
        assert caught.value.takes_zxid == (opcode in (1, 2, 14))


def test_where_a_server_judges_null_as_a_path_the_tree_shall_do_so() -> None:
    assert wire.parse(frame(5, None, b"x", 1)) == (7, SetData("", b"x", 1))
    assert wire.parse(frame(7, None, None, 1)) == (7, SetAcl("", (), 1))
    assert wire.parse(frame(1, "/a", b"", [(31, "auth", None)], 0))[1] == Create(
        "/a", acl=(Acl(31, "auth", ""),)
    )


def test_an_invalid_multi_is_refused_as_a_whole() -> None:
    for opcode, kind in [(14, 4), (14, 7), (14, 99), (14, -1), (22, 1), (22, 12)]:
        with pytest.raises(wire.WireError):
            wire.parse(frame(opcode, (kind, False, -1, "/a", b"", 1), MULTI_END))
    with pytest.raises(wire.WireError):  # no end
        wire.parse(frame(14, (13, False, -1, "/a", -1)))
    with pytest.raises(wire.WireError):  # a time to live without the time
        wire.parse(frame(14, (1, False, -1, "/a", b"", OPEN, 5), MULTI_END))
    assert wire.parse(frame(14, MULTI_END)) == (7, Multi(()))


def test_unknown_modes_and_kinds_of_watches_are_refused() -> None:
    for body in (frame(106, "/a", 2), frame(17, "/a", 0), frame(18, "/a", 4)):
        with pytest.raises(wire.WireError):
            wire.parse(body)


def test_invalid_utf_8_is_replaced_and_what_follows_a_request_ignored() -> None:
    assert wire.parse(frame(6, b"/\xff", xid=1)) == (1, GetAcl("/\ufffd"))
    # The answer of a real server to these bytes.
    broken = b"/\xff\xc3(\xed\xa0\x80\xf0\x9f\x98x\xe2\x82"
    assert wire.parse(frame(6, broken))[1] == GetAcl("/??(??x?".replace("?", "\ufffd"))
    assert wire.parse(frame(6, b"/a") + b"garbage") == (7, GetAcl("/a"))


def test_a_count_of_two_billion_allocates_nothing() -> None:
    for count in (2**31 - 1, -(2**31)):
        with pytest.raises(wire.WireError):
            wire.parse(frame(101, long(1), count))
    for size in (2**31 - 1, -2, -(2**31)):
        with pytest.raises(wire.WireError):
            wire.parse(frame(6, size))
        with pytest.raises(wire.WireError):
            wire.parse(frame(5, "/a", size))


def test_where_nothing_can_be_answered_the_error_carries_no_xid() -> None:
    for body in (b"", b"1234567", frame(100, 0, "digest")):
        with pytest.raises(wire.WireError) as caught:
            wire.parse(body)
        assert caught.value.must_close
        assert caught.value.xid is None


EVERY_OPCODE = st.sampled_from([*range(-11, 23), *range(100, 108), 2**31 - 1])


@given(EVERY_OPCODE, st.binary(max_size=200))
@example(14, struct.pack("!i?i", 1, False, -1))
def test_garbage_raises_nothing_but_wire_errors(opcode: int, garbage: bytes) -> None:
    for body in (frame(opcode) + garbage, frame(opcode, garbage), garbage):
        try:
            xid, request = wire.parse(body)
        except wire.WireError as error:
            assert str(error)  # noqa: PT017 -- most examples must raise nothing
        else:
            assert isinstance(xid, int)
            assert isinstance(request, tuple)
    try:
        wire.parse_connect(garbage)
    except wire.WireError as error:
        assert error.xid is None  # noqa: PT017


def test_a_request_cut_short_anywhere_is_refused() -> None:
    acl = [(31, "digest", "a:b")]
    bodies = [
        frame(1, "/a", b"x", acl, 0),
        frame(2, "/a", 1),
        frame(4, "/a", True),
        frame(5, "/a", b"x", 1),
        frame(6, "/a"),
        frame(7, "/a", acl, 1),
        frame(14, (1, False, -1, "/a", b"x", acl, 0), (13, False, -1, "/a", 1), MULTI_END),
        frame(21, "/a", b"x", OPEN, 5, long(9)),
        frame(22, (4, False, -1, "/a", True), MULTI_END),
        frame(100, 0, "digest", b"a:b"),
        frame(105, long(1), ["/a"], ["/a"], ["/a"], ["/a"], ["/a"]),
        frame(106, "/a", 0),
    ]
    for body in bodies:
        wire.parse(body)
        for size in range(len(body)):
            with pytest.raises(wire.WireError):
                wire.parse(body[:size])


# Connecting.


@given(st.integers(0, 2**62), VERSIONS, st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20))
def test_a_request_to_connect_is_understood_with_and_without_the_last_byte(
    zxid: int, timeout_ms: int, session: int, password: bytes
) -> None:
    body = bytes(kazoo.Connect(0, zxid, timeout_ms, session, password, True).serialize())
    asked = ConnectRequest(zxid, timeout_ms, session, password, True)
    assert wire.parse_connect(body) == asked
    assert wire.parse_connect(body[:-1]) == asked._replace(read_only=None)
    assert wire.parse_connect(body[:-1] + b"\0") == asked._replace(read_only=False)
    for size in range(len(body) - 1):
        with pytest.raises(wire.WireError):
            wire.parse_connect(body[:size])


def test_acls_of_kazoo_are_understood() -> None:
    acl = [make_digest_acl("u", "p", all=True), make_acl("ip", "10.0.0.1", read=True)]
    understood = of_kazoo(kazoo.Create("/a", b"", acl, 0))[1].acl
    assert understood == tuple(Acl(entry.perms, entry.id.scheme, entry.id.id) for entry in acl)
    assert of_kazoo(kazoo.Create("/a", b"", OPEN_ACL_UNSAFE, 0))[1].acl is OPEN_ACL
