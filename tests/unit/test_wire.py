"""Requests are packed as kazoo packs them, and each kind of answer is understood."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kazoo.exceptions import NoAuthError, NoNodeError
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from zkplan.errors import PayloadTooLarge
from zkplan.protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
)
from zkplan.transport import packets as wire

ACL = wire.pack_acl(OPEN_ACL_UNSAFE)
PATHS = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20).map(
    lambda text: "/" + text.replace("/", "_")
)
VERSIONS = st.integers(-1, 2**31 - 1)
OPS: st.SearchStrategy[Op] = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=50), st.booleans(), st.booleans()),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(SetData, PATHS, st.binary(max_size=50), VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


def as_kazoo(op: Op, prefix: str, acl: list[Any]) -> Any:
    path = prefix + op.path
    if isinstance(op, Create):
        return kazoo.Create(path, op.data, acl, op.ephemeral + 2 * op.sequence)
    if isinstance(op, Delete):
        return kazoo.Delete(path, op.version)
    if isinstance(op, SetData):
        return kazoo.SetData(path, op.data, op.version)
    return kazoo.CheckVersion(path, op.version)


LONG: list[Op] = [Create("/" + "p" * 5000, b"d" * 5000), SetData("/x", b"e" * 4096)]
ACLS = (OPEN_ACL_UNSAFE, [make_digest_acl("é", "secret", all=True), *OPEN_ACL_UNSAFE])


@given(st.lists(OPS, max_size=12), st.sampled_from(["", "/chroot"]), st.sampled_from(ACLS))
@example(LONG, "", ACLS[0])
@example(LONG, "", ACLS[1])
def test_a_transaction_is_packed_as_kazoo_packs_it(
    ops: list[Op], prefix: str, acl: list[Any]
) -> None:
    expected = kazoo.Transaction([as_kazoo(op, prefix, acl) for op in ops])
    packet = wire.MultiPacket(ops, prefix, wire.pack_acl(acl))
    assert packet.type == expected.type
    assert packet.serialize() == bytes(expected.serialize())


def test_a_request_that_is_too_large_is_refused_with_its_size() -> None:
    wire.MultiPacket([Create("/fits", b"x" * 1_040_000)], "", ACL)
    with pytest.raises(PayloadTooLarge, match="/large") as caught:
        wire.MultiPacket([Create("/small"), Create("/large", b"x" * 1_048_576)], "", ACL)
    assert caught.value.size > 1_048_576 > caught.value.limit


def test_a_path_that_cannot_be_packed_raises_at_once() -> None:
    """In kazoo's thread it would end the connection for everybody."""
    with pytest.raises(UnicodeEncodeError):
        wire.MultiPacket([Create("/\ud800")], "", ACL)
    with pytest.raises(struct.error):
        wire.MultiPacket([Delete("/a", 2**31)], "", ACL)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("!i", len(data)) + data


STAT = struct.pack("!qqqqiiiqiiq", 11, 12, 1000, 2000, 7, 9, 0, 0, 4, 3, 55)
ANSWERS = {Create: 1, Delete: 2, SetData: 5, Check: 13}
OPERATIONS: list[Op] = [
    Check("/w"),
    Create("/a/task-", b"", sequence=True),
    SetData("/a/ready", b"2"),
    Delete("/a/dep"),
    Create("/é"),
]


def answer_of(op: Op, prefix: str, created: str) -> bytes:
    head = struct.pack("!i?i", ANSWERS[type(op)], False, 0)
    if isinstance(op, Create):
        return head + text(prefix + created)
    return head + STAT if isinstance(op, SetData) else head


@pytest.mark.parametrize("prefix", ["", "/chroot"])
def test_an_applied_transaction_has_a_result_for_each_operation(prefix: str) -> None:
    created = {1: "/a/task-0000000012", 4: "/é"}
    body = b"".join(
        answer_of(op, prefix, created.get(index, "")) for index, op in enumerate(OPERATIONS)
    )
    packet = wire.MultiPacket(OPERATIONS, prefix, ACL)
    whole = b"head" + body + struct.pack("!i?i", -1, True, -1)
    assert wire.refusal(whole, 4) == 0
    answer = packet.deserialize(whole, 4)
    assert answer == Applied([True, "/a/task-0000000012", 7, True, "/é"], False)
    packet.repeated = True
    assert packet.deserialize(body + struct.pack("!i?i", -1, True, -1), 0).repeated


@given(
    st.integers(0, len(OPERATIONS) - 1),
    st.sampled_from(
        [
            (-101, Reason.NO_NODE),
            (-103, Reason.BAD_VERSION),
            (-110, Reason.NODE_EXISTS),
            (-111, Reason.NOT_EMPTY),
            (-102, Reason.NO_AUTH),
            (-108, Reason.EPHEMERAL_PARENT),
            (-4242, Reason.OTHER),
        ]
    ),
)
def test_a_refused_transaction_names_the_operation(at: int, error: tuple[int, Reason]) -> None:
    codes = [0] * at + [error[0]] + [-2] * (len(OPERATIONS) - at - 1)
    body = b"".join(struct.pack("!i?ii", -1, False, code, code) for code in codes)
    answer = wire.MultiPacket(OPERATIONS, "", ACL).deserialize(body, 0)
    assert isinstance(answer, Refused)
    assert answer[:4] == (at, error[1], OPERATIONS[at].path, False)
    assert bool(answer.right) is (error[1] is Reason.NO_AUTH)
    assert wire.refusal(b"head" + body, 4) == error[0]
    assert wire.refusal(body[: 13 * at], 0) == 0, "half an answer says nothing of the session"
    assert wire.refusal(struct.pack("!i?i", -1, True, -1), 0) == 0, (
        "nor does that to an empty transaction"
    )


def test_a_batch_of_reads_has_an_answer_for_each_read() -> None:
    reads = (ReadData("/a"), ReadChildren("/b"), ReadData("/none"), ReadData("/empty"))
    packet = wire.ReadManyPacket(ReadMany(reads), "/c")
    assert packet.type == 22
    expected = b""
    for code, path in ((4, "/c/a"), (8, "/c/b"), (4, "/c/none"), (4, "/c/empty")):
        expected += struct.pack("!i?i", code, False, -1) + text(path) + b"\0"
    assert packet.serialize() == expected + struct.pack("!i?i", -1, True, -1)
    body = struct.pack("!i?i", 4, False, 0) + text("data") + STAT
    body += struct.pack("!i?i", 8, False, 0) + struct.pack("!i", 2) + text("x") + text("é")
    body += struct.pack("!i?ii", -1, False, NoNodeError.code, NoNodeError.code)
    body += struct.pack("!i?i", 4, False, 0) + struct.pack("!i", -1) + STAT
    node = Node(
        b"data",
        version=7,
        child_count=3,
        cversion=9,
        created_ms=1000,
        modified_ms=2000,
        pzxid=55,
        czxid=11,
    )
    assert packet.deserialize(body, 0) == [node, ["x", "é"], None, node._replace(data=b"")]


def test_a_strict_batch_distinguishes_a_forbidden_read_from_a_missing_znode() -> None:
    reads = [ReadData("/gone"), ReadData("/shut"), ReadData("/gone-too")]
    body = b"".join(
        struct.pack("!i?ii", -1, False, error.code, error.code)
        for error in (NoNodeError, NoAuthError)
    )
    body += struct.pack("!i?ii", -1, False, NoNodeError.code, NoNodeError.code)
    strict = wire.ReadManyPacket(ReadMany(reads, strict=True), "/c")
    assert strict.deserialize(body, 0) == wire.ReadRefused("/shut", NoAuthError.code)
    assert wire.ReadManyPacket(ReadMany(reads), "/c").deserialize(body, 0) == [None, None, None]
