"""Requests as bytes, one function for each opcode, with nothing of the server's own code."""

from __future__ import annotations

import struct
from collections.abc import Callable

from tests.differential.packing import AUTH_XID, PING_XID, Ask, request

__all__ = ["AUTH_XID", "PING_XID"]

EPHEMERAL, SEQUENCE, CONTAINER, TTL = 1, 2, 4, 5

Acl = tuple[tuple[int, str, str], ...]
OPEN: Acl = ((31, "world", "anyone"),)


def numbered(xid: int, body: bytes) -> bytes:
    """The body of a frame: what the functions below give, with its number in front."""
    return struct.pack(">i", xid) + body


def connect(
    *, session: int = 0, password: bytes = bytes(16), timeout_ms: int = 10_000, zxid: int = 0
) -> bytes:
    """The first frame of a connection; it has no number."""
    head = struct.pack(">iqiqi", 0, zxid, timeout_ms, session, len(password))
    return head + password + b"\0"


def _of(op: str, *values: object) -> bytes:
    return request(Ask(op, values), 0)[4:]


def _creating(op: str) -> Callable[..., bytes]:
    def make(path: str, data: bytes = b"", flags: int = 0, entries: Acl = OPEN) -> bytes:
        return _of(op, path, data, entries, flags)

    return make


def _about(op: str, *last: object) -> Callable[..., bytes]:
    """A request about a path, and what follows it: a version, whether to watch, a kind."""

    def make(path: str, *values: object, **named: object) -> bytes:
        return _of(op, path, *((*values, *named.values()) or last))

    return make


create, create2 = _creating("create"), _creating("create2")
delete, check = _about("delete", -1), _about("check", -1)
exists, get_data = _about("exists", False), _about("get", False)
children, children2 = _about("children", False), _about("children2", False)
get_acl, sync = _about("get_acl"), _about("sync")
get_ephemerals, count_descendants = _about("ephemerals"), _about("count")
add_watch, check_watches = _about("add_watch"), _about("check_watches")
remove_watches = _about("remove_watches")


def create_container(path: str) -> bytes:
    return _of("container", path, b"", OPEN, CONTAINER)


def create_ttl(path: str, ttl_ms: int) -> bytes:
    return _of("ttl", path, b"", OPEN, TTL, ttl_ms)


def set_data(path: str, data: bytes = b"", version: int = -1) -> bytes:
    return _of("set", path, data, version)


def set_acl(path: str, entries: Acl, version: int = -1) -> bytes:
    return _of("set_acl", path, entries, version)


def multi(*operations: bytes) -> bytes:
    """Of creates, deletes, setDatas and checks as made above."""
    parts = (each[:4] + struct.pack(">?i", False, -1) + each[4:] for each in operations)
    return struct.pack(">i", 14) + b"".join(parts) + struct.pack(">i?i", -1, True, -1)


def multi_read(*reads: bytes) -> bytes:
    return struct.pack(">i", 22) + multi(*reads)[4:]


def ping() -> bytes:
    return _of("ping")


def close_session() -> bytes:
    return _of("close")


def who_am_i() -> bytes:
    return _of("who_am_i")


def auth(scheme: str, proof: bytes) -> bytes:
    return _of("auth", 0, scheme, proof)


def set_watches(
    zxid: int, data: tuple[str, ...] = (), exist: tuple[str, ...] = (), child: tuple[str, ...] = ()
) -> bytes:
    return _of("set_watches", zxid, data, exist, child)
