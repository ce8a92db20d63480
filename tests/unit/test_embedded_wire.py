"""The embedded server reads requests, refuses garbage with a reason, and is understood by kazoo.

What real answers look like, byte by byte, tests/differential compares with a ZooKeeper.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import make_acl, make_digest_acl

from zkplan.embedded import operations as ask
from zkplan.embedded import wire
from zkplan.embedded.jute import MARSHALLING, WireError
from zkplan.embedded.operations import (
    NO_DATA,
    OPEN_ACL,
    Acl,
    Check,
    Create,
    Delete,
    SetAcl,
    SetData,
)
from zkplan.embedded.words import answer_word

OPEN = [(31, "world", "anyone")]
MULTI_END = (-1, True, -1)
KAZOO_ACL = [make_digest_acl("u", "p", all=True), make_acl("ip", "10.0.0.1", read=True)]
ACL = tuple(Acl(entry.perms, entry.id.scheme, entry.id.id) for entry in KAZOO_ACL)


def frame(opcode: int, *parts: Any, xid: int = 7) -> bytes:
    """A request whose fields are packed by their types; numbers have 32 bits."""
    return struct.pack("!ii", xid, opcode) + b"".join(map(packed, parts))


def packed(part: Any) -> bytes:
    match part:
        case None:
            return struct.pack("!i", -1)
        case bool():
            return struct.pack("!?", part)
        case int():
            return struct.pack("!i", part)
        case str():
            return packed(part.encode())
        case bytes():
            return struct.pack("!i", len(part)) + part
        case tuple():  # an entry of a list: its fields one after the other
            return b"".join(map(packed, part))
        case list():
            return struct.pack("!i", len(part)) + b"".join(map(packed, part))
    raise TypeError(part)


def long(number: int) -> tuple[int, int]:
    """A number of 64 bits, as two of 32."""
    high, low = struct.unpack("!ii", struct.pack("!q", number))
    return high, low


def of_kazoo(request: Any) -> bytes:
    return struct.pack("!ii", 7, request.type) + bytes(request.serialize())


PATH, PATHS = "/ä", ["/a", "/ä"]
LISTS = [tuple(PATHS), (), ("/c",), ("/p",), tuple(PATHS)]
READS = [(4, False, -1, PATH, True), (8, False, -1, PATH, False), MULTI_END]
TRANSACTION: list[tuple[Any, Any]] = [
    (kazoo.Create(PATH, b"x", KAZOO_ACL, 3), Create(PATH, b"x", True, True, ACL)),
    (kazoo.CheckVersion(PATH, 5), Check(PATH, 5)),
    (kazoo.SetData(PATH, b"x", 5), SetData(PATH, b"x", 5)),
    (kazoo.Delete(PATH, 5), Delete(PATH, 5)),
]
MORTAL = Create("/a", b"x", ttl_ms=2**33, with_stat=True)
UNDERSTOOD: list[tuple[bytes, Any]] = [
    *((of_kazoo(asked), found) for asked, found in TRANSACTION if not isinstance(found, Check)),
    (
        of_kazoo(kazoo.Transaction([asked for asked, _ in TRANSACTION])),
        ask.Multi(tuple(found for _, found in TRANSACTION)),
    ),
    (of_kazoo(kazoo.Create2(PATH, b"", KAZOO_ACL, 0)), Create(PATH, acl=ACL, with_stat=True)),
    (of_kazoo(kazoo.Exists(PATH, True)), ask.Exists(PATH, True)),
    (of_kazoo(kazoo.GetData(PATH, True)), ask.GetData(PATH, True)),
    (of_kazoo(kazoo.GetACL(PATH)), ask.GetAcl(PATH)),
    (of_kazoo(kazoo.SetACL(PATH, KAZOO_ACL, 5)), SetAcl(PATH, ACL, 5)),
    (of_kazoo(kazoo.GetChildren(PATH, True)), ask.GetChildren(PATH, True)),
    (of_kazoo(kazoo.GetChildren2(PATH, True)), ask.GetChildren(PATH, True, with_stat=True)),
    (of_kazoo(kazoo.Sync(PATH)), ask.Sync(PATH)),
    (of_kazoo(kazoo.Ping()), ask.Ping()),
    (of_kazoo(kazoo.Close()), ask.CloseSession()),
    (of_kazoo(kazoo.Auth(0, "digest", "a:b")), ask.AddAuth("digest", b"a:b")),
    (of_kazoo(kazoo.CheckVersion(PATH, 5)), ask.Unsupported(13)),
    (of_kazoo(kazoo.Reconfig(PATH, None, None, 1)), ask.Unsupported(16)),
    (of_kazoo(kazoo.SASL(b"x")), ask.Unsupported(102)),
    (frame(17, PATH, 3), ask.RemoveWatches(PATH, 3, only_check=True)),
    (frame(18, PATH, 1), ask.RemoveWatches(PATH, 1)),
    (frame(22, *READS), ask.MultiRead((ask.GetData(PATH), ask.GetChildren(PATH)))),
    (frame(101, long(2**40), PATHS, [], ["/c"]), ask.SetWatches(2**40, *LISTS[:3])),
    (frame(105, long(2**40), *map(list, LISTS)), ask.SetWatches(2**40, *LISTS)),
    (frame(103, PATH), ask.GetEphemerals(PATH)),
    (frame(103, None), ask.GetEphemerals("")),
    (frame(104, PATH), ask.CountDescendants(PATH)),
    (frame(106, PATH, 0), ask.AddWatch(PATH, False)),
    (frame(106, PATH, 1), ask.AddWatch(PATH, True)),
    (frame(107), ask.WhoAmI()),
    (frame(999, PATH), ask.Unsupported(999)),
    # The kind decides: a server makes a plain node when only the flag says container.
    (frame(19, "/a", b"x", OPEN, 4), Create("/a", b"x", container=True, with_stat=True)),
    (frame(1, "/a", b"x", OPEN, 4), Create("/a", b"x")),
    (frame(21, "/a", b"x", OPEN, 5, long(2**33)), MORTAL),
    (frame(21, "/a", b"x", OPEN, 6, long(2**33)), MORTAL._replace(sequence=True)),
    # No server accepts these.
    *(
        (frame(kind, "/a", b"", OPEN, flags), wire.IMPOSSIBLE)
        for kind in (1, 15)
        for flags in (5, 7)
    ),
    *((frame(21, "/a", b"", OPEN, 5, long(ttl)), wire.IMPOSSIBLE) for ttl in (0, -1, 2**40)),
    (frame(21, "/a", b"", OPEN, 0, long(5)), wire.IMPOSSIBLE),
    # Null, where a server judges it as a path; and text that is no UTF-8.
    (frame(5, None, b"x", 1), SetData("", b"x", 1)),
    (frame(7, None, None, 1), SetAcl("", (), 1)),
    (frame(1, "/a", b"", [(31, "auth", None)], 0), Create("/a", acl=(Acl(31, "auth", ""),))),
    (frame(6, b"/\xff\xc3(\xed\xa0\x80"), ask.GetAcl("/\ufffd\ufffd(\ufffd")),
    # Bytes after a request are ignored.
    (frame(6, b"/a") + b"garbage", ask.GetAcl("/a")),
]


@pytest.mark.parametrize(("body", "request_"), UNDERSTOOD, ids=range(len(UNDERSTOOD)))
def test_a_request_is_understood(body: bytes, request_: Any) -> None:
    assert wire.parse(body) == (7, request_)
    assert type(wire.parse(body)[1]) is type(request_)


def test_the_flags_of_a_create_in_a_multi_decide_and_not_its_kind() -> None:
    pairs = [
        ((15, False, -1, "/a", b"", OPEN, 1), Create("/a", ephemeral=True)),
        ((1, False, -1, "/b", b"", OPEN, 4), Create("/b", container=True, with_stat=True)),
        ((21, False, -1, "/c", b"", OPEN, 5, long(9)), Create("/c", ttl_ms=9, with_stat=True)),
        ((21, False, -1, "/d", b"", OPEN, 2, long(9)), Create("/d", sequence=True)),
        ((1, False, -1, "/e", b"", OPEN, 7), wire.IMPOSSIBLE),
    ]
    multi = frame(14, *(packed_op for packed_op, _ in pairs), MULTI_END)
    assert wire.parse(multi)[1] == ask.Multi(tuple(op for _, op in pairs))


def test_the_open_access_list_and_null_data_are_singletons() -> None:
    assert wire.parse(frame(1, "/a", None, OPEN, 0))[1].acl is OPEN_ACL  # type: ignore[union-attr]
    assert wire.parse(frame(5, "/a", None, 1))[1].data is NO_DATA  # type: ignore[union-attr]
    assert wire.parse(frame(5, "/a", b"", 1))[1].data is not NO_DATA  # type: ignore[union-attr]


REFUSED = [
    # Null where a server stumbles over it.
    frame(1, None, b"", OPEN, 0),
    frame(2, None, -1),
    frame(3, None, False),
    frame(8, None, False),
    frame(17, None, 3),
    frame(14, (13, False, -1, None, -1), MULTI_END),
    frame(22, (4, False, -1, None, False), MULTI_END),
    frame(101, long(1), None, [], []),
    frame(101, long(1), [None], [], []),
    # An operation that a multi cannot hold, a missing end, a TTL node without its TTL.
    *(frame(14, (kind, False, -1, "/a", b"", 1), MULTI_END) for kind in (4, 7, 99, -1)),
    *(frame(22, (kind, False, -1, "/a", b"", 1), MULTI_END) for kind in (1, 12)),
    frame(14, (13, False, -1, "/a", -1)),
    frame(14, (1, False, -1, "/a", b"", OPEN, 5), MULTI_END),
    # Modes and kinds of watches that there are not.
    frame(106, "/a", 2),
    frame(17, "/a", 0),
    frame(18, "/a", 4),
    # Counts and lengths of two billion, or below none.
    *(frame(101, long(1), count) for count in (2**31 - 1, -(2**31))),
    *(frame(6, size) for size in (2**31 - 1, -2, -(2**31))),
    *(frame(5, "/a", size) for size in (2**31 - 1, -2, -(2**31))),
]


@pytest.mark.parametrize("body", REFUSED, ids=range(len(REFUSED)))
def test_a_malformed_request_is_refused_by_its_number(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        wire.parse(body)
    assert (caught.value.xid, MARSHALLING) == (7, -5)
    assert caught.value.takes_zxid == (struct.unpack_from("!ii", body)[1] in (1, 2, 5, 14))


@pytest.mark.parametrize("body", [b"", b"1234567", frame(100, 0, "digest")])
def test_an_error_that_cannot_be_answered_carries_no_xid(body: bytes) -> None:
    with pytest.raises(WireError) as caught:
        wire.parse(body)
    assert caught.value.xid is None


@given(st.sampled_from([*range(-11, 23), *range(100, 108), 2**31 - 1]), st.binary(max_size=200))
@example(14, struct.pack("!i?i", 1, False, -1))
def test_garbage_raises_nothing_but_wire_errors(opcode: int, garbage: bytes) -> None:
    for body in (frame(opcode) + garbage, frame(opcode, garbage), garbage):
        try:
            xid, request = wire.parse(body)
        except WireError as error:
            assert str(error)  # noqa: PT017 -- most examples must raise nothing
        else:
            assert isinstance(xid, int)
            assert isinstance(request, tuple)
    try:
        wire.parse_connect(garbage)
    except WireError as error:
        assert error.xid is None  # noqa: PT017


CUT = [body for body, _ in UNDERSTOOD[:-1] if struct.unpack_from("!ii", body)[1] in wire._READERS]


@pytest.mark.parametrize("body", CUT, ids=range(len(CUT)))
def test_a_request_cut_short_anywhere_is_refused(body: bytes) -> None:
    wire.parse(body)
    for size in range(8 if len(body) == 8 else len(body)):
        with pytest.raises(WireError):
            wire.parse(body[:size])


def test_a_connect_request_is_understood_with_and_without_the_last_byte() -> None:
    body = bytes(kazoo.Connect(0, 2**62, -5, -(2**63), b"secret", True).serialize())
    asked = ask.ConnectRequest(2**62, -5, -(2**63), b"secret", True)
    assert wire.parse_connect(body) == asked
    assert wire.parse_connect(body[:-1]) == asked._replace(read_only=None)
    assert wire.parse_connect(body[:-1] + b"\0") == asked._replace(read_only=False)
    for size in range(len(body) - 1):
        with pytest.raises(WireError):
            wire.parse_connect(body[:size])


# Answers.


def test_the_answer_to_connect_is_read_by_kazoo() -> None:
    answer = (10_000, -5, b"p" * 16)
    framed = wire.connect_answer(*answer, with_last_byte=True)
    assert struct.unpack_from("!i", framed)[0] == len(framed) - 4 == 37
    assert kazoo.Connect.deserialize(framed, 4)[0] == (0, 0, 10_000, -5, b"p" * 16, False)
    assert wire.connect_answer(*answer, with_last_byte=False)[4:] == framed[4:-1]


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs"]), max_size=300)))
def test_names_of_any_length_are_read_by_kazoo(names: list[str]) -> None:
    body = wire.reply(3, 2**40, ask.GetEphemerals(""), names)[20:]
    assert kazoo.GetChildren.deserialize(body, 0) == names


@pytest.mark.parametrize(
    "last",
    [
        ["abcd"],
        ["abc"],
        ["abcde"],
        ["abc", "abcde"],
        ["äbcd"],
        ["äb"],
        [""],
        ["\0abc"],
        ["a" * 200],
    ],
)
def test_kazoo_reads_long_lists_of_names_of_equal_and_mixed_lengths(last: list[str]) -> None:
    for names in ([*["wxyz"] * 300, *last], [*last, *["wxyz"] * 300]):
        body = wire.reply(3, 2**40, ask.GetEphemerals(""), names)[20:]
        assert kazoo.GetChildren.deserialize(body, 0) == names
        assert len(body) == 4 + sum(4 + len(name.encode()) for name in names)


def test_a_lone_surrogate_is_written_as_a_question_mark() -> None:
    assert wire.reply(3, 4, Create("/a"), "/\ud800x")[20:] == packed("/?x")
    names = ["/\ud800x", "/b"]
    assert wire.reply(3, 4, ask.GetEphemerals(""), names)[20:] == packed(["/?x", "/b"])


def test_envi_is_answered_from_a_deleted_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(FileNotFoundError):
        os.getcwd()
    answer = answer_word(b"envi", cast("Any", None))
    assert answer is not None
    assert b"user.dir=?\n" in answer
