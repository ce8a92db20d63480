"""One row for each znode: its fields packed, under a checksum, because SQLite's pages have none."""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from zlib import crc32

from zkplan.embedded.nodes import Node
from zkplan.embedded.records import NO_DATA, OPEN_ACL, Acl

#: Data up to so many bytes lies in the row of its node. Larger data has a row of its own, written
#: only when the data changes: a parent is rewritten with every child it gets, and must stay small.
INLINE_BYTES_MAX = 1024

# number, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, aversion, then the lengths of
# path, access control list (-1: the open one) and data (-1: null)
_FIELDS = struct.Struct(">qqqqqqqiiiiii")
_CONTENT = struct.Struct(">qqi")

#: number, path, inline data, fields, access control list, checksum
NodeRow = tuple[int, str, bytes | None, bytes, str | None, int]
#: number, mzxid, data, checksum
ContentRow = tuple[int, int, bytes, int]


class RowDamaged(ValueError):
    """A row is not as it was written."""


def pack_node(number: int, path: str, node: Node) -> NodeRow:
    """The row of a node; its data is in it only where `is_large` says no."""
    data = node.data
    acl = None if node.acl is None or node.acl == OPEN_ACL else _acl_text(node.acl)
    raw = path.encode()
    fields = _FIELDS.pack(
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
        len(raw),
        -1 if acl is None else len(acl),
        -1 if data is NO_DATA else len(data),
    )
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
    """The row of large data; it belongs to its node by number and mzxid."""
    return number, mzxid, data, crc32(data, crc32(_CONTENT.pack(number, mzxid, len(data))))


def unpack_content(row: ContentRow) -> tuple[int, bytes]:
    """The mzxid and the data; raises RowDamaged."""
    number, mzxid, data, _ = row
    try:
        if pack_content(number, mzxid, data) == row:
            return mzxid, data
    except (TypeError, struct.error):
        pass  # a damaged row may hold values of any type
    raise RowDamaged(f"the data of node {number} does not match its checksum")


class NodeReader:
    """Makes nodes of rows again; equal numbers and lists are one object, to save memory."""

    def __init__(self, contents: dict[int, tuple[int, bytes]]) -> None:
        #: Large data by node number: mzxid and bytes. Taken out as it is used; what is left at the
        #: end belongs to no node.
        self.contents = contents
        self._owners: dict[int, int] = {}
        self._czxid = self._ctime = 0

    def unpack(self, row: NodeRow) -> Node:
        """The node of this row; raises RowDamaged."""
        number, path, data, fields, acl, _ = row
        try:
            values = _FIELDS.unpack(fields)
            if values[12] > INLINE_BYTES_MAX:
                mzxid, large = self.contents.pop(number, (-1, b""))
                data = large if mzxid == values[2] else None
            node = self._node(values, NO_DATA if data is None else data, acl)
            if pack_node(number, path, node) == row:
                return node
        except (TypeError, AttributeError, ValueError, struct.error):
            pass  # a damaged row may hold values of any type
        raise RowDamaged(f"the row of node {number} ({path}) or its data is not as it was written")

    def _node(self, values: tuple[int, ...], data: bytes, acl: str | None) -> Node:
        number, czxid, mzxid, pzxid, ctime, mtime, owner, version, creates, aversion, *_ = values
        # Neighbours were mostly written by one transaction, or within one millisecond.
        if czxid != self._czxid:
            self._czxid = czxid
        if ctime != self._ctime:
            self._ctime = ctime
        shared_acl = None if acl is None else _acl_of(acl)
        owner = self._owners.setdefault(owner, owner)
        node = Node(data, owner, self._czxid, self._ctime, number, shared_acl)
        # Most nodes were never written after their creation: those keep one object for all three.
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
