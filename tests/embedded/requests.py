"""Requests as bytes, one function for each opcode, with nothing of the server's own code."""

from __future__ import annotations

import struct

PING_XID, AUTH_XID = -2, -4
EPHEMERAL, SEQUENCE, CONTAINER, TTL = 1, 2, 4, 5

OPEN = ((31, "world", "anyone"),)
Acl = tuple[tuple[int, str, str], ...]


def text(value: str | bytes | None) -> bytes:
    """A string or a buffer; None is null."""
    if value is None:
        return struct.pack(">i", -1)
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">i", len(data)) + data


def texts(values: tuple[str, ...]) -> bytes:
    return struct.pack(">i", len(values)) + b"".join(map(text, values))


def acl(entries: Acl) -> bytes:
    packed = b"".join(struct.pack(">i", p) + text(s) + text(i) for p, s, i in entries)
    return struct.pack(">i", len(entries)) + packed


def numbered(xid: int, request: bytes) -> bytes:
    """The body of a frame: what the functions below give, with its number in front."""
    return struct.pack(">i", xid) + request


def connect(
    *, session: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000, zxid: int = 0
) -> bytes:
    return struct.pack(">iqiq", 0, zxid, timeout_ms, session) + text(password) + b"\0"


def _of(opcode: int, *parts: bytes) -> bytes:
    return struct.pack(">i", opcode) + b"".join(parts)


def _int(value: int) -> bytes:
    return struct.pack(">i", value)


def create(path: str, data: bytes = b"", flags: int = 0, entries: Acl = OPEN) -> bytes:
    return _of(1, text(path), text(data), acl(entries), _int(flags))


def create2(path: str, data: bytes = b"", flags: int = 0, entries: Acl = OPEN) -> bytes:
    return _of(15, text(path), text(data), acl(entries), _int(flags))


def create_container(path: str) -> bytes:
    return _of(19, text(path), text(b""), acl(OPEN), _int(CONTAINER))


def create_ttl(path: str, ttl_ms: int) -> bytes:
    return _of(21, text(path), text(b""), acl(OPEN), _int(TTL), struct.pack(">q", ttl_ms))


def delete(path: str, version: int = -1) -> bytes:
    return _of(2, text(path), _int(version))


def exists(path: str, watch: bool = False) -> bytes:
    return _of(3, text(path), bytes([watch]))


def get_data(path: str, watch: bool = False) -> bytes:
    return _of(4, text(path), bytes([watch]))


def set_data(path: str, data: bytes = b"", version: int = -1) -> bytes:
    return _of(5, text(path), text(data), _int(version))


def get_acl(path: str) -> bytes:
    return _of(6, text(path))


def set_acl(path: str, entries: Acl, version: int = -1) -> bytes:
    return _of(7, text(path), acl(entries), _int(version))


def children(path: str, watch: bool = False) -> bytes:
    return _of(8, text(path), bytes([watch]))


def children2(path: str, watch: bool = False) -> bytes:
    return _of(12, text(path), bytes([watch]))


def sync(path: str) -> bytes:
    return _of(9, text(path))


def ping() -> bytes:
    return _of(11)


def check(path: str, version: int = -1) -> bytes:
    return _of(13, text(path), _int(version))


def multi(*operations: bytes) -> bytes:
    """Of creates, deletes, setDatas and checks as made above."""
    parts = (
        operation[:4] + struct.pack(">?i", False, -1) + operation[4:] for operation in operations
    )
    return _of(14, *parts, struct.pack(">i?i", -1, True, -1))


def multi_read(*reads: bytes) -> bytes:
    return _of(22, multi(*reads)[4:])


def close_session() -> bytes:
    return _of(-11)


def auth(scheme: str, proof: bytes) -> bytes:
    return _of(100, _int(0), text(scheme), text(proof))


def set_watches(
    zxid: int,
    data: tuple[str, ...] = (),
    exist: tuple[str, ...] = (),
    child: tuple[str, ...] = (),
) -> bytes:
    return _of(101, struct.pack(">q", zxid), texts(data), texts(exist), texts(child))


def set_watches2(zxid: int, *lists: tuple[str, ...]) -> bytes:
    return _of(105, struct.pack(">q", zxid), *map(texts, lists))


def get_ephemerals(prefix: str) -> bytes:
    return _of(103, text(prefix))


def count_descendants(path: str) -> bytes:
    return _of(104, text(path))


def add_watch(path: str, mode: int) -> bytes:
    return _of(106, text(path), _int(mode))


def who_am_i() -> bytes:
    return _of(107)


def check_watches(path: str, kind: int) -> bytes:
    return _of(17, text(path), _int(kind))


def remove_watches(path: str, kind: int) -> bytes:
    return _of(18, text(path), _int(kind))


def answered_xids(stream: bytes) -> list[int]:
    """The xids of the answers in all that a server sent, without the handshake and the events."""
    xids = []
    at, is_first = 0, True
    while at + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, at)
        at += 4
        if at + size > len(stream):
            break  # cut off in the middle of a frame
        if not is_first:
            xid, zxid = struct.unpack_from(">iq", stream, at)
            if (xid, zxid) != (-1, -1):
                xids.append(xid)
        is_first = False
        at += size
    return xids
