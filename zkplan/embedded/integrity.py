"""Find damage in stored data, with checksums of rows, a check of the log, and a note of answers."""

from __future__ import annotations

import errno
import json
import os
import re
import struct
import sys
from array import array
from functools import lru_cache
from pathlib import Path
from zlib import crc32

from ..basics.private import PRIVATE_FILE, read_own
from .operations import NO_DATA, OPEN_ACL, Acl
from .sessions import SavedSession
from .znodes import Node

#: The maximum of data in the row of its node. Larger data has a row of its own, which is written
#: only when the data changes. The row of a node is rewritten with every new child, so it must stay
#: small.
INLINE_BYTES_MAX = 1024

# number, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, aversion, then the lengths of
# path, access control list (-1: the open one) and data (-1: null)
FIELDS = struct.Struct(">qqqqqqqiiiiii")
_CONTENT = struct.Struct(">qqi")
_SESSION = struct.Struct(">qq")

#: number, path, inline data, fields, access control list, checksum
NodeRow = tuple[int, str, bytes | None, bytes, str | None, int]
#: number, mzxid, data, checksum
ContentRow = tuple[int, int, bytes, int]
#: ID, password, time-out, checksum
SessionRow = tuple[int, bytes, int, int]


class RowDamaged(ValueError):
    """A row differs from the row that was written."""


def pack_fields(number: int, path: bytes, node: Node) -> tuple[bytes, str | None]:
    """Return the numbers of a node, and its access list as text."""
    data = node.data
    acl = None if node.acl is None or node.acl == OPEN_ACL else _acl_text(node.acl)
    fields = FIELDS.pack(
        number,
        node.czxid,
        node.mzxid,
        node.pzxid,
        node.ctime,
        node.mtime,
        node.owner,
        node.version,
        node.creates,
        node.aversion,
        len(path),
        -1 if acl is None else len(acl),
        -1 if data is NO_DATA else len(data),
    )
    return fields, acl


def pack_node(number: int, path: str, node: Node) -> NodeRow:
    """Return the row of a node, with its data unless `is_large`."""
    data, raw = node.data, path.encode()
    fields, acl = pack_fields(number, raw, node)
    crc = crc32(raw, crc32(fields))
    if acl is not None:
        crc = crc32(acl.encode(), crc)
    if data is NO_DATA or len(data) > INLINE_BYTES_MAX:
        return number, path, None, fields, acl, crc
    return number, path, data, fields, acl, crc32(data, crc) if data else crc


def is_large(node: Node) -> bool:
    """Whether the node's data has a row of its own."""
    return len(node.data) > INLINE_BYTES_MAX


def pack_content(number: int, mzxid: int, data: bytes) -> ContentRow:
    """Return the row of large data. Its number and mzxid tell which node it belongs to."""
    return number, mzxid, data, crc32(data, crc32(_CONTENT.pack(number, mzxid, len(data))))


def unpack_content(row: ContentRow) -> tuple[int, bytes]:
    """Return the mzxid and the data. Raises RowDamaged."""
    number, mzxid, data, _ = row
    try:
        if pack_content(number, mzxid, data) == row:
            return mzxid, data
    except (TypeError, struct.error):
        pass  # a damaged row may hold values of any type
    raise RowDamaged(f"the data of node {number} does not match its checksum")


def pack_session(session: SavedSession) -> SessionRow:
    """Return the row of a session."""
    crc = crc32(session.password, crc32(_SESSION.pack(session.id, session.timeout_ms)))
    return session.id, session.password, session.timeout_ms, crc


def unpack_session(row: SessionRow) -> SavedSession:
    """Return the session of `row`. Raises RowDamaged."""
    number, password, timeout_ms, _ = row
    try:
        if pack_session(session := SavedSession(number, password, timeout_ms)) == row:
            return session
    except (TypeError, struct.error):
        pass  # a damaged row may hold values of any type
    raise RowDamaged(f"the row of session {number:#x} does not match its checksum")


class NodeReader:
    """Makes nodes from rows. To save memory, equal numbers and equal lists are one object."""

    def __init__(self, contents: dict[int, tuple[int, bytes]]) -> None:
        #: Large data by node number: mzxid and bytes. `unpack` removes each that it uses, so those
        #: left at the end belong to no node.
        self.contents = contents
        self._owners: dict[int, int] = {}
        self._czxid = self._ctime = 0

    def unpack(self, row: NodeRow) -> Node:
        """Return the node of `row`. Raises RowDamaged."""
        number, path, data, fields, acl, _ = row
        try:
            values = FIELDS.unpack(fields)
            if values[12] > INLINE_BYTES_MAX:
                mzxid, large = self.contents.pop(number, (-1, b""))
                data = large if mzxid == values[2] else None
            node = self.node(values, NO_DATA if data is None else data, acl)
            if pack_node(number, path, node) == row:
                return node
        except (TypeError, AttributeError, ValueError, struct.error):
            pass  # a damaged row may hold values of any type
        raise RowDamaged(f"the row or data of node {number} ({path}) does not match its checksum")

    def node(self, values: tuple[int, ...], data: bytes, acl: str | None) -> Node:
        """Return the node with these FIELDS, data and access list."""
        number, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, aversion, *_ = values
        # Most neighbours come from one transaction, or from the same millisecond.
        if czxid != self._czxid:
            self._czxid = czxid
        if ctime != self._ctime:
            self._ctime = ctime
        shared_acl = None if acl is None else _acl_of(acl)
        owner = self._owners.setdefault(owner, owner)
        node = Node(data, owner, self._czxid, self._ctime, number, shared_acl)
        # Most nodes were not written after their creation: they share one object for all three.
        if mzxid != czxid:
            node.mzxid = mzxid
        if pzxid != czxid:
            node.pzxid = pzxid
        if mtime != ctime:
            node.mtime = mtime
        node.version = version
        node.creates = creates
        node.aversion = aversion
        return node


@lru_cache(maxsize=1024)
def _acl_text(acl: tuple[Acl, ...]) -> str:
    return json.dumps(acl)  # ASCII: its length in characters is its length in bytes


@lru_cache(maxsize=1024)
def _acl_of(text: str) -> tuple[Acl, ...]:
    return tuple(Acl(*entry) for entry in json.loads(text))


# ---- A note beside the database: the zxid up to which clients were answered.
#
# SQLite takes the first gap in its log for the end. So a log that was cut or removed, or a database
# restored from an older copy, looks like a sound older state. The note shows that writes are
# missing. It is written after each commit, before the answers leave, and is not flushed: after a
# power cut it may be some seconds old. Then it misses some damage, but never blames a sound folder.


NOTE = "answered"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FORM = re.compile(r"(\d{20}) (\S+)\n", re.ASCII)


class Answered:
    """The note of one data folder: call `begin`, `note` after each commit, and `close`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boot = _boot_id()
        self._file = -1

    def missing_after(self, zxid: int, *, flushed: bool) -> str | None:
        """Return what is wrong with a database that ends with `zxid`, or None.

        Without `flushed` (the server did not wait for the disk), the note proves nothing after a
        restart of the machine: a power cut may have lost the last commits.
        """
        try:
            text = read_own(self._folder / NOTE)
        except FileNotFoundError:
            return None
        found = _FORM.fullmatch(text)
        if found is None:
            return f"its note {NOTE} was not written by a server"
        noted = int(found[1])
        if noted <= zxid or not (flushed or found[2] == self._boot):
            return None
        return (
            f"clients were answered up to zxid {noted:#x}, but it has only the writes up to"
            f" {zxid:#x}. Its log was cut or removed, or it is an older copy. To go on without the"
            f" missing writes, delete {self._folder / NOTE}"
        )

    def begin(self, zxid: int) -> None:
        """Write a new note, durably. Raises OSError."""
        new = self._folder / f"{NOTE}.new"
        new.unlink(missing_ok=True)
        self._file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        self.note(zxid)
        os.fsync(self._file)
        os.replace(new, self._folder / NOTE)

    def note(self, zxid: int) -> None:
        """Note that everything up to `zxid` is stored and may be answered. Raises OSError."""
        text = f"{zxid:020d} {self._boot}\n".encode()
        if os.pwrite(self._file, text, 0) != len(text):
            raise OSError(errno.EIO, f"only part of the note {NOTE} was written")

    def close(self) -> None:
        """Close the note. May be called again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except OSError:
        return f"unknown-{os.getpid()}"  # not Linux: a text of this process only


# ---- Damage in the middle of SQLite's write-ahead log, which SQLite takes for the log's end.
#
# SQLite reads a log up to the first frame with a wrong checksum and ignores the rest, because a
# crash may leave the last group half written. But the log is flushed at the end of each group, so
# frames after a damaged group prove that the group was flushed, and its requests answered. Without
# the group, acknowledged writes would be lost, so the server refuses to start.


# The format: https://www.sqlite.org/fileformat2.html#walformat
_HEADER = struct.Struct(">8I")  # magic, version, page size, sequence, 2 salts, 2 checksums
# Page, pages of the database where a group ends, 2 salts, 2 checksums.
_FRAME = struct.Struct(">6I")
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_WORD = 0xFFFFFFFF


def damage_in(log: Path) -> str | None:
    """Return what is wrong with the log of a server that flushed every group, or None.

    Changes nothing. Only damage in the last group goes unnoticed: a crash may leave the same.
    """
    try:
        content = memoryview(log.read_bytes())
    except FileNotFoundError:
        return None  # a server that stops cleanly leaves no log
    if len(content) <= _HEADER.size:
        return None  # the header is flushed before the first frame is written
    magic, _, page_bytes, *salts, first, second = _HEADER.unpack_from(content)
    big = magic == _MAGIC_BIG
    sums = _checksum(content[: _HEADER.size - 8], big, (0, 0))
    if magic not in (_MAGIC_LITTLE, _MAGIC_BIG) or sums != (first, second):
        return "the header of its log does not match its checksum"
    salts = salts[1:]
    size = _FRAME.size + page_bytes
    frames = [
        (start, *_FRAME.unpack_from(content, start))
        for start in range(_HEADER.size, len(content) - size + 1, size)
    ]
    sound = 0  # frames up to the end of the last sound group
    for index, (start, _, ends, *stored_salts, first, second) in enumerate(frames):
        frame = content[start : start + size]
        sums = _checksum(frame[_FRAME.size :], big, _checksum(frame[:8], big, sums))
        if stored_salts != salts or sums != (first, second):
            break
        if ends:
            sound = index + 1
    # Frames with other salts are from an older log, whose groups are in the database.
    rest = [frame for frame in frames[sound:] if list(frame[3:5]) == salts]
    ends_at = next((at for at, frame in enumerate(rest) if frame[2]), len(rest))
    if rest[ends_at + 1 :]:
        return f"frame {sound + 1} or a later one of its log is damaged, and more groups follow it"
    return None


def _checksum(part: memoryview, big: bool, sums: tuple[int, int]) -> tuple[int, int]:
    words = array("I", part.tobytes())
    if big != (sys.byteorder == "big"):
        words.byteswap()
    first, second = sums
    pairs = iter(words)
    for one, two in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _WORD
        second = (second + two + first) & _WORD
    return first, second
