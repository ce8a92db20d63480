"""The answers of the embedded server are read by kazoo, and have the bytes of a real server."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from kazoo.exceptions import BadVersionError, RolledBackError, RuntimeInconsistency
from kazoo.protocol import serialization as kazoo

from zkplan.embedded import wire
from zkplan.embedded.records import (
    NO_DATA,
    Acl,
    Check,
    Create,
    Created,
    Delete,
    Identity,
    NoNodeError,
    SetAcl,
    SetData,
    Stat,
)
from zkplan.embedded.requests import (
    AddAuth,
    AddWatch,
    CloseSession,
    ConnectResponse,
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
    WhoAmI,
)

from .jute_bytes import (
    ACLS,
    MULTI_END,
    PATHS,
    TEXTS,
    VERSIONS,
    kazoo_acl,
    packed,
)

STAT = Stat(1, 2, 3, 4, 5, 6, 7, -(2**63), 9, 10, 2**62)
STAT_BYTES = struct.pack("!4q3iq2iq", *STAT)
STATS = st.builds(
    Stat,
    *[st.integers(-(2**63), 2**63 - 1)] * 4,
    *[VERSIONS] * 3,
    st.integers(-(2**63), 2**63 - 1),
    *[VERSIONS] * 2,
    st.integers(-(2**63), 2**63 - 1),
)


def read(answer: bytes) -> tuple[kazoo.ReplyHeader, bytes]:
    """The header and the rest of an answer, whose length must be as announced."""
    assert struct.unpack_from("!i", answer)[0] == len(answer) - 4
    header, at = kazoo.ReplyHeader.deserialize(answer, 4)
    return header, answer[at:]


def rest(request: Any, answer: Any = None) -> bytes:
    header, body = read(wire.reply(3, 2**40, request, answer))
    assert header == (3, 2**40, 0)
    return body


def test_the_answer_to_connect_is_read_by_kazoo() -> None:
    answer = ConnectResponse(10_000, -5, b"p" * 16)
    framed = wire.connect_answer(answer, with_last_byte=True)
    assert struct.unpack_from("!i", framed)[0] == len(framed) - 4 == 37
    read_back, _ = kazoo.Connect.deserialize(framed, 4)
    assert read_back == (0, 0, 10_000, -5, b"p" * 16, False)
    assert wire.connect_answer(answer, with_last_byte=False)[4:] == framed[4:-1]


@given(PATHS, st.binary(), STATS, ACLS, st.lists(TEXTS))
def test_answers_are_read_by_kazoo(
    path: str, data: bytes, stat: Stat, acl: tuple[Acl, ...], names: list[str]
) -> None:
    assert kazoo.Create.deserialize(rest(Create(path), path), 0) == path
    created = rest(Create(path, with_stat=True), Created(path, stat))
    assert kazoo.Create2.deserialize(created, 0) == (path, stat)
    assert kazoo.SetData.deserialize(rest(SetData(path), stat), 0) == stat
    assert kazoo.SetACL.deserialize(rest(SetAcl(path, acl), stat), 0) == stat
    assert kazoo.GetData.deserialize(rest(GetData(path), (data, stat)), 0) == (data, stat)
    assert kazoo.GetACL.deserialize(rest(GetAcl(path), (acl, stat)), 0) == (kazoo_acl(acl), stat)
    listed = rest(GetChildren(path), (names, stat))
    assert kazoo.GetChildren.deserialize(listed, 0) == names
    listed = rest(GetChildren(path, with_stat=True), (dict.fromkeys(names).keys(), stat))
    assert kazoo.GetChildren2.deserialize(listed, 0) == (list(dict.fromkeys(names)), stat)
    assert kazoo.Sync.deserialize(rest(Sync(path)), 0) == path
    assert kazoo.GetChildren.deserialize(rest(GetEphemerals(path), names), 0) == names


def test_a_node_that_exists_is_described_and_one_that_does_not_is_missing() -> None:
    assert kazoo.Exists.deserialize(rest(Exists("/a"), STAT), 0) == STAT
    assert read(wire.reply(3, 4, Exists("/a"), None)) == ((3, 4, -101), b"")


def test_answers_without_content_are_a_header() -> None:
    requests = [Delete("/a"), Ping(), CloseSession(), SetWatches(1, (), (), ())]
    for request in [*requests, AddAuth("digest", b""), RemoveWatches("/a", 3)]:
        assert rest(request, True) == b""
    assert rest(AddWatch("/a", True)) == bytes(4)
    assert rest(CountDescendants("/a"), 70_000) == struct.pack("!i", 70_000)


def test_an_error_is_a_header_with_its_code() -> None:
    assert read(wire.error_reply(-2, 9, -101)) == ((-2, 9, -101), b"")


def test_a_requester_is_told_its_names_without_the_hashes() -> None:
    told = rest(WhoAmI(), [Identity("ip", "::1"), Identity("digest", "user:hash=")])
    assert told == packed([("ip", "::1"), ("digest", "user")])


@given(st.lists(st.tuples(PATHS, STATS), max_size=5))
def test_the_answer_of_a_multi_is_read_by_kazoo(fields: list[tuple[str, Stat]]) -> None:
    ops: list[Any] = []
    answers: list[Any] = []
    for path, stat in fields:
        ops += [Create(path), SetData(path), Check(path), Delete(path)]
        answers += [path, stat, True, True]
    assert kazoo.Transaction.deserialize(rest(Multi(tuple(ops)), answers), 0) == answers


def test_a_container_made_in_a_multi_is_answered_with_its_stat() -> None:
    request = Multi((Create("/a", container=True, with_stat=True),))
    body = rest(request, [Created("/a", STAT)])
    assert body == packed((15, False, 0, "/a")) + struct.pack("!4q3iq2iq", *STAT) + packed(
        MULTI_END
    )


@given(st.integers(1, 20), st.data())
def test_a_refused_multi_names_its_culprit_to_kazoo(count: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, count - 1))
    header, body = read(wire.multi_error(3, 4, wire.refusal_codes(count, index, -103)))
    assert header == (3, 4, 0)
    results = kazoo.Transaction.deserialize(body, 0)
    expected = [RolledBackError] * index + [BadVersionError]
    assert list(map(type, results)) == expected + [RuntimeInconsistency] * (count - index - 1)


def test_each_read_of_several_has_its_own_answer() -> None:
    request = MultiRead((GetData("/a"), GetChildren("/a"), GetData("/b"), GetChildren("/c")))
    answers = [(b"x", STAT), (["n"], STAT), NoNodeError("/b", "missing"), -102]
    assert rest(request, answers) == (
        packed((4, False, 0, b"x"))
        + STAT_BYTES
        + packed((8, False, 0, ["n"]))
        + packed((-1, False, -101, -101))
        + packed((-1, False, -102, -102))
        + packed(MULTI_END)
    )


def test_an_event_is_read_by_kazoo() -> None:
    for number, kind in enumerate(("created", "deleted", "changed", "child"), 1):
        header, body = read(wire.event(kind, "/ä"))
        assert header == (-1, -1, 0)
        assert kazoo.Watch.deserialize(body, 0)[0] == (number, 3, "/ä")


def test_half_of_a_surrogate_pair_is_written_as_a_question_mark() -> None:
    assert rest(Create("/a"), "/\ud800x") == packed("/?x")
    assert rest(GetEphemerals(""), ["/\ud800x", "/b"]) == packed(["/?x", "/b"])


def test_data_that_was_null_is_written_as_null_again() -> None:
    assert kazoo.GetData.deserialize(rest(GetData("/a"), (NO_DATA, STAT)), 0) == (None, STAT)
    assert kazoo.GetData.deserialize(rest(GetData("/a"), (b"", STAT)), 0) == (b"", STAT)
    assert NO_DATA == b""
