"""The log of commits: one record for each group of changes, with a checksum.

A record holds whole states, no differences. So a log may be read over tables that have some of its
changes already: what the last record says of a node or session holds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from zlib import crc32

from . import integrity
from .integrity import FIELDS, NodeReader, RowDamaged
from .operations import NO_DATA
from .sessions import SavedSession
from .znodes import Node

#: Checksum, zxid before and after, last session; how many nodes with data, nodes whose large data
#: has not changed, deleted nodes, sessions, and ended sessions follow.
_HEAD = struct.Struct(">IqqqIIIII")
_SESSION = struct.Struct(">qqi")


#: A changed or deleted node: number, path, node (None: deleted), and whether its data has changed.
NodeChange = tuple[int, str, Node | None, bool]


def pack(
    before: int,
    zxid: int,
    last_session: int,
    nodes: Iterable[NodeChange],
    sessions: Sequence[tuple[int, SavedSession | None]],
) -> bytes:
    """The record of one group, which follows the group that ended with zxid `before`."""
    full: list[bytes] = []
    kept: list[bytes] = []
    gone: list[int] = []
    count = 0
    for number, path, node, with_data in nodes:
        if node is None:
            gone.append(number)
            continue
        raw, data = path.encode(), node.data
        fields, acl = integrity.pack_fields(number, raw, node)
        if with_data or not integrity.is_large(node):
            count += 1
            full += (fields, raw, acl.encode() if acl else b"", data)
        else:
            kept += (fields, raw, acl.encode() if acl else b"")
    made = [session for _, session in sessions if session is not None]
    ended = [number for number, session in sessions if session is None]
    head = (before, zxid, last_session, count, len(kept) // 3, len(gone), len(made), len(ended))
    body = b"".join(
        (
            _HEAD.pack(0, *head)[4:],
            *full,
            *kept,
            struct.pack(f">{len(gone)}q", *gone),
            *(
                _SESSION.pack(each.id, each.timeout_ms, len(each.password)) + each.password
                for each in made
            ),
            struct.pack(f">{len(ended)}q", *ended),
        )
    )
    return crc32(body).to_bytes(4, "big") + body


class LoggedNode(NamedTuple):
    """A node as a record has it: its path, the values of FIELDS, its access list and data. `data`
    is None if it is the data that the node had before."""

    path: str
    values: tuple[int, ...]
    acl: str | None
    data: bytes | None


class Replay:
    """What the records of a log say, in their order. None stands for what is gone."""

    def __init__(self, zxid: int, last_session: int) -> None:
        """The tables that the log follows have all changes up to `zxid`."""
        self.zxid, self.last_session = zxid, last_session
        self.nodes: dict[int, LoggedNode | None] = {}
        self.sessions: dict[int, SavedSession | None] = {}
        #: What the tables lack, once `over` has been read to its end.
        self.changes: list[NodeChange] = []

    def read(self, record: bytes) -> None:
        """Take the next record. Raises RowDamaged."""
        try:
            self._read(memoryview(record))
        except (TypeError, ValueError, struct.error) as error:
            raise RowDamaged(
                f"the record of its log after zxid {self.zxid:#x} is damaged"
            ) from error

    def _read(self, record: memoryview) -> None:
        crc, before, zxid, last_session, *counts = _HEAD.unpack_from(record)
        if crc32(record[4:]) != crc or before != self.zxid:
            raise ValueError
        full, kept, gone, made, ended = counts
        at = _HEAD.size
        for index in range(full + kept):
            at = self._read_node(record, at, with_data=index < full)
        for number in _numbers(record, at, gone):
            self.nodes[number] = None
        at += 8 * gone
        for _ in range(made):
            number, timeout_ms, length = _SESSION.unpack_from(record, at)
            at += _SESSION.size + length
            password = bytes(record[at - length : at])
            self.sessions[number] = SavedSession(number, password, timeout_ms)
        for number in _numbers(record, at, ended):
            self.sessions[number] = None
        if at + 8 * ended != len(record):
            raise ValueError
        self.zxid, self.last_session = zxid, last_session

    def _read_node(self, record: memoryview, at: int, *, with_data: bool) -> int:
        values = FIELDS.unpack_from(record, at)
        number, (path_bytes, acl_bytes, data_bytes) = values[0], values[-3:]
        at += FIELDS.size
        path = str(record[at : at + path_bytes], "utf-8")
        at += path_bytes
        acl: str | None = None
        if acl_bytes >= 0:
            acl = str(record[at : at + acl_bytes], "ascii")
            at += acl_bytes
        data: bytes | None = NO_DATA
        if not with_data:
            earlier = self.nodes.get(number)
            data = earlier.data if earlier is not None else None
        elif data_bytes >= 0:
            data = bytes(record[at : at + data_bytes])
            at += data_bytes
        self.nodes[number] = LoggedNode(path, values, acl, data)
        return at

    def over(
        self, stored: Iterable[tuple[int, str, Node]], reader: NodeReader
    ) -> Iterator[tuple[int, str, Node]]:
        """The `stored` nodes with the changes of the log, in the order of numbers. Read it once, to
        its end. Raises RowDamaged."""
        changed = self.nodes
        for number, path, node in stored:
            if number not in changed:
                yield number, path, node
                continue
            logged = changed.pop(number)
            if logged is None:
                self.changes.append((number, path, None, False))
                continue
            yield number, path, self._made(number, logged, reader, node.data)
        for number, logged in sorted(changed.items()):
            if logged is not None:
                yield number, logged.path, self._made(number, logged, reader, None)

    def _made(
        self, number: int, logged: LoggedNode, reader: NodeReader, before: bytes | None
    ) -> Node:
        data = before if logged.data is None else logged.data
        if data is None or (-1 if data is NO_DATA else len(data)) != logged.values[-1]:
            raise RowDamaged(f"the data of node {number} ({logged.path}) is missing")
        node = reader.node(logged.values, data, logged.acl)
        self.changes.append((number, logged.path, node, logged.data is not None))
        return node


def _numbers(record: memoryview, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{count}q", record, at)
