"""The pieces of ZooKeeper's messages: strings, buffers, lists, ACLs and Stats as bytes.

Every reader gets the bytes and a start, and returns the value and the start of the next value. It
raises WireError, or struct.error if the bytes end too early (wire.py turns that into a WireError: a
check here would cost more than the whole read). A reader trusts no count and no length: it
allocates memory only for bytes that have arrived. Odd values mean the same as to a real server
(3.8): length -1 is null, an invalid UTF-8 sequence becomes U+FFFD.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection
from typing import Final

from .operations import NO_DATA, OPEN_ACL, Acl, Stat

INT: Final = struct.Struct("!i")
LONG: Final = struct.Struct("!q")
STAT: Final = struct.Struct("!qqqqiiiqiiq")
_BOOL: Final = struct.Struct("!?")
_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

#: The code that refuses a malformed request (MarshallingError).
MARSHALLING: Final = -5


class WireError(ValueError):
    """These bytes are not a request of ZooKeeper's protocol.

    The server answers with MARSHALLING, or closes the connection if `xid` is None. With
    `takes_zxid` the request was a write, so the refusal takes a zxid like any refused write.
    """

    def __init__(self, message: str, *, xid: int | None = None, takes_zxid: bool = False) -> None:
        super().__init__(message)
        self.xid = xid
        self.takes_zxid = takes_zxid


def read_int(body: bytes, at: int) -> tuple[int, int]:
    """A signed number of 32 bits."""
    number: int = INT.unpack_from(body, at)[0]
    return number, at + 4


def read_long(body: bytes, at: int) -> tuple[int, int]:
    """A signed number of 64 bits."""
    number: int = LONG.unpack_from(body, at)[0]
    return number, at + 8


def read_bool(body: bytes, at: int) -> tuple[bool, int]:
    """One byte, true unless 0."""
    value: bool = _BOOL.unpack_from(body, at)[0]
    return value, at + 1


def read_buffer(body: bytes, at: int) -> tuple[bytes, int]:
    """Bytes, or NO_DATA for null."""
    size: int = INT.unpack_from(body, at)[0]
    at += 4
    if size < 0:
        if size == -1:
            return NO_DATA, at
        raise WireError(f"a length of {size}: it cannot be negative")
    end = at + size
    if end > len(body):
        raise WireError(f"{size} bytes announced, {len(body) - at} there")
    return body[at:end], end


def read_text(body: bytes, at: int) -> tuple[str | None, int]:
    """A string, or None for null."""
    # A copy of `read_buffer`, to save a call: every request has texts.
    size: int = INT.unpack_from(body, at)[0]
    at += 4
    if size < 0:
        if size == -1:
            return None, at
        raise WireError(f"a length of {size}: it cannot be negative")
    end = at + size
    if end > len(body):
        raise WireError(f"{size} bytes announced, {len(body) - at} there")
    try:
        return body[at:end].decode(), end
    except UnicodeDecodeError:
        # Half of a surrogate pair becomes one U+FFFD in Java, but three in Python.
        return _SURROGATE.sub(b"\xef\xbf\xbd", body[at:end]).decode("utf-8", "replace"), end


def read_path(body: bytes, at: int) -> tuple[str, int]:
    """A string that must not be null."""
    # Like `read_text`, but without a call, because nearly every request has paths.
    start = at + 4
    end = start + INT.unpack_from(body, at)[0]
    if start <= end <= len(body):
        try:
            return body[start:end].decode(), end
        except UnicodeDecodeError:
            pass  # `read_text` replaces what is invalid
    path, at = read_text(body, at)
    if path is None:
        raise WireError("null where a string is needed")
    return path, at


def read_paths(body: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """A list of strings. Neither the list nor a string may be null."""
    count, at = read_int(body, at)
    if count == -1:
        raise WireError("null where a list of strings is needed")
    paths = []
    # A count of 2**31 does no harm: each string takes at least four bytes, and the bytes end.
    for _ in range(count):
        path, at = read_path(body, at)
        paths.append(path)
    return tuple(paths), at


def read_acl(body: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    """An access control list. Null becomes an empty list, which the tree refuses."""
    if body.startswith(OPEN_ACL_BYTES, at):  # nearly every list is this one
        return OPEN_ACL, at + len(OPEN_ACL_BYTES)
    count, at = read_int(body, at)
    entries = []
    for _ in range(count):
        perms, at = read_int(body, at)
        scheme, at = read_text(body, at)
        name, at = read_text(body, at)
        entries.append(Acl(perms, scheme or "", name or ""))
    return tuple(entries), at


def pack_text(text: str) -> bytes:
    """A string. Half of a surrogate pair becomes '?', because UTF-8 cannot encode it."""
    encoded = text.encode("utf-8", "replace")
    return INT.pack(len(encoded)) + encoded


def pack_buffer(data: bytes | None) -> bytes:
    """Bytes. None and the object NO_DATA become null."""
    if data is NO_DATA or data is None:
        return b"\xff\xff\xff\xff"
    return INT.pack(len(data)) + data


_SHORT: Final = tuple(map(INT.pack, range(256)))
#: Lists of at least _LONG_LIST strings first try `_pack_alike`.
_LONG_LIST, _ASCII_END = 256, 128


def pack_texts(texts: Collection[str]) -> bytes:
    """A list of strings. 100 000 names take about 30 ms, during which the server answers no other
    request; or 8 ms if all names have the same length, as the names of tasks do."""
    if len(texts) >= _LONG_LIST and (packed := _pack_alike(texts)) is not None:
        return INT.pack(len(texts)) + packed
    lengths = _SHORT
    try:
        packed = b"".join([lengths[len(raw)] + raw for raw in map(str.encode, texts)])
    except (IndexError, UnicodeEncodeError):  # a long string, or half of a surrogate pair
        packed = b"".join(map(pack_text, texts))
    return INT.pack(len(texts)) + packed


def _pack_alike(texts: Collection[str]) -> bytes | None:
    """Pack strings of one length with one join; return None if their lengths differ.

    A length is three nulls and one byte. So if the join has no other nulls, and has nulls at equal
    distances, every length is at its place.
    """
    count, size = len(texts), len(next(iter(texts)))
    if not 0 < size < _ASCII_END:
        return None
    before = f"\0\0\0{chr(size)}"
    try:
        packed = (before + before.join(texts)).encode("ascii")
    except UnicodeEncodeError:
        return None
    step = INT.size + size
    if len(packed) != count * step or packed.count(0) != 3 * count:
        return None
    return packed if packed[::step] == packed[2::step] == bytes(count) else None


def pack_acl(acl: Collection[Acl]) -> bytes:
    """An access control list."""
    entries = [INT.pack(perms) + pack_text(scheme) + pack_text(name) for perms, scheme, name in acl]
    return INT.pack(len(acl)) + b"".join(entries)


def pack_stat(stat: Stat) -> bytes:
    """The 68 bytes of a Stat."""
    return STAT.pack(*stat)


OPEN_ACL_BYTES: Final = pack_acl(OPEN_ACL)
