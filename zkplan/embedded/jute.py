"""The pieces of ZooKeeper's messages: strings, buffers, lists, ACLs and Stats as bytes.

Every reader takes the bytes and where to start and returns the value and where the next one starts.
It raises WireError, or struct.error where the bytes end too early (wire.py turns that into a
WireError: a check here would cost more than the whole read). A reader never believes a count
or a length: nothing is allocated for what is not in the bytes. Oddities are answered as a real
server (3.8) does: length -1 is null, an invalid UTF-8 sequence becomes U+FFFD.
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

#: Code of a request that cannot be understood (MarshallingError).
MARSHALLING: Final = -5


class WireError(ValueError):
    """These bytes are no request of ZooKeeper's protocol.

    Where `xid` is None there is nothing to answer to: a server closes the connection, and otherwise
    answers with MARSHALLING. Where `takes_zxid` a write was meant, and its refusal takes a zxid
    like any other.
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
    # As `read_buffer`, but without a call, since every request has texts.
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
        # Java takes half of a surrogate pair for one fault, Python for three.
        return _SURROGATE.sub(b"\xef\xbf\xbd", body[at:end]).decode("utf-8", "replace"), end


def read_path(body: bytes, at: int) -> tuple[str, int]:
    """A string that must not be null."""
    # As `read_text`, but without a call, since nearly every request has paths.
    start = at + 4
    end = start + INT.unpack_from(body, at)[0]
    if start <= end <= len(body):
        try:
            return body[start:end].decode(), end
        except UnicodeDecodeError:
            pass  # `read_text` knows what becomes of it
    path, at = read_text(body, at)
    if path is None:
        raise WireError("null where a string is needed")
    return path, at


def read_paths(body: bytes, at: int) -> tuple[tuple[str, ...], int]:
    """A list of strings; neither it nor one of them may be null."""
    count, at = read_int(body, at)
    if count == -1:
        raise WireError("null where a list of strings is needed")
    paths = []
    # A count of 2**31 ends at the end of the bytes: each string takes at least four of them.
    for _ in range(count):
        path, at = read_path(body, at)
        paths.append(path)
    return tuple(paths), at


def read_acl(body: bytes, at: int) -> tuple[tuple[Acl, ...], int]:
    """An access control list; null is an empty one, which the tree refuses as a server does."""
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
    """A string; half of a surrogate pair becomes '?', since UTF-8 has no bytes for it."""
    encoded = text.encode("utf-8", "replace")
    return INT.pack(len(encoded)) + encoded


def pack_buffer(data: bytes | None) -> bytes:
    """Bytes; None and NO_DATA, and only that very object, are null."""
    if data is NO_DATA or data is None:
        return b"\xff\xff\xff\xff"
    return INT.pack(len(data)) + data


_SHORT: Final = tuple(map(INT.pack, range(256)))
#: A list of so many strings is long; an ASCII character is below the other number.
_LONG_LIST, _ASCII_END = 256, 128


def pack_texts(texts: Collection[str]) -> bytes:
    """A list of strings. 100 000 names take about 30 ms, while a server answers nobody else; 8 ms
    where all have one length, as the names of tasks do."""
    if len(texts) >= _LONG_LIST and (packed := _pack_alike(texts)) is not None:
        return INT.pack(len(texts)) + packed
    lengths = _SHORT
    try:
        packed = b"".join([lengths[len(raw)] + raw for raw in map(str.encode, texts)])
    except (IndexError, UnicodeEncodeError):  # a long string, or half of a surrogate pair
        packed = b"".join(map(pack_text, texts))
    return INT.pack(len(texts)) + packed


def _pack_alike(texts: Collection[str]) -> bytes | None:
    """Strings of one length, packed by one join; None where they are not alike.

    A length has three nulls and one byte. If there are no other nulls than those, and some of
    them stand at equal distances, each length stands where it should.
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
