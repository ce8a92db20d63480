"""Bytes of ZooKeeper's protocol and the strategies for them that the tests of the wire share."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo

from zkplan.embedded.records import (
    OPEN_ACL,
    Acl,
)

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=300)
PATHS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20).map("/{}".format)
VERSIONS = st.integers(-(2**31), 2**31 - 1)
ACLS = st.one_of(
    st.just(OPEN_ACL),
    st.lists(st.builds(Acl, st.integers(0, 31), TEXTS, TEXTS), max_size=3).map(tuple),
)


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


def kazoo_acl(acl: tuple[Acl, ...]) -> list[Any]:
    return [kazoo.ACL(entry.perms, kazoo.Id(entry.scheme, entry.id)) for entry in acl]


MULTI_END = (-1, True, -1)
OPEN = [(31, "world", "anyone")]
