"""Requests and answers as the bytes of ZooKeeper.

kazoo needs only `type`, `serialize` and `deserialize` of a request. The packets here pack a whole
multi in one pass in the caller's thread, several times faster than kazoo. There, a value that
cannot be packed raises its error without ending kazoo's thread.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, overload

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ZookeeperError
from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ..errors import PayloadTooLarge, ZooKeeperError
from ..protocol.requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Request,
    SetData,
    Unwatch,
)
from .kazoo_private import forget_watches

#: jute.maxbuffer less the header. For a larger request, the server closes the connection.
REQUEST_BYTES_MAX = 1_048_000

#: A list with at least this many children stays packed.
LONG_LIST = 2000
#: The names of a long list are decoded in blocks of this size, if every name has fewer than 128
#: bytes: then the length before each is one ASCII character after three nulls.
_BLOCK_BYTES, _PLAIN_BYTES = 65_536, 128
_NULLS = b"\0\0\0"

_int = struct.Struct("!i")
_head = struct.Struct("!iBi")
_stat = struct.Struct("!qqqqiiiqiiq")
_LENGTHS = [_int.pack(length) for length in range(4096)]

_CREATE, _DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN = 1, 2, 4, 5, 8
_CHECK, _MULTI, _REMOVE_WATCHES, _MULTI_READ, _ERROR = 13, 14, 18, 22, -1
_ANY_WATCH = 3
_PACKED = (_CREATE, _DELETE, _GET_DATA, _SET_DATA, _GET_CHILDREN, _CHECK)
_HEADS = {code: _head.pack(code, 0, -1) for code in _PACKED}
_END = _head.pack(-1, 1, -1)
_ANY = _int.pack(-1)  # any version
_NO_WATCH = b"\0"

_REASONS = {
    -101: Reason.NO_NODE,
    -102: Reason.NO_AUTH,
    -114: Reason.INVALID_ACL,
    -103: Reason.BAD_VERSION,
    -108: Reason.EPHEMERAL_PARENT,
    -110: Reason.NODE_EXISTS,
    -111: Reason.NOT_EMPTY,
    -125: Reason.FULL,
}
#: The right that each operation needs, as access lists name it.
_RIGHTS: dict[type[Op], str] = {
    Create: "create",
    Delete: "delete",
    SetData: "write",
    Check: "read",
}
_ROLLED_BACK, _NO_NODE = 0, -101


def pack_acl(acls: Sequence[Any]) -> bytes:
    """Pack an access list of objects with `perms`, `id.scheme` and `id.id`, as kazoo's have."""
    parts = [_int.pack(len(acls))]
    for acl in acls:
        scheme, name = acl.id.scheme.encode(), acl.id.id.encode()
        parts += (_int.pack(acl.perms), _length(scheme), scheme, _length(name), name)
    return b"".join(parts)


def _length(data: bytes) -> bytes:
    size = len(data)
    return _LENGTHS[size] if size < 4096 else _int.pack(size)


class UnwatchPacket:
    """Removes all watches of this session on one znode. kazoo's thread calls `forget` when it sends
    the packet."""

    type = _REMOVE_WATCHES

    def __init__(self, path: str, forget: Callable[[], None]) -> None:
        self.path, self._forget = path, forget

    def serialize(self) -> bytes:
        self._forget()
        path = self.path.encode()
        return _length(path) + path + _int.pack(_ANY_WATCH)

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> None:
        """The answer is empty."""


class MultiPacket:
    """One transaction on the wire; `deserialize` returns Applied or Refused."""

    type = _MULTI
    __slots__ = ("body", "ops", "prefix", "repeated")

    def __init__(self, ops: Sequence[Op], prefix: str, acl: bytes) -> None:
        self.ops = ops
        self.prefix = len(prefix.encode())
        self.repeated = False
        parts: list[bytes] = []
        lengths, heads, pack = _LENGTHS, _HEADS, _int.pack
        flags = [acl + lengths[flag] for flag in range(4)]
        for op in ops:
            path = (prefix + op.path).encode()
            kind = type(op)
            size = len(path)
            length = lengths[size] if size < 4096 else pack(size)
            if kind is Create:
                data = op.data  # type: ignore[union-attr]
                flag = flags[op.ephemeral + 2 * op.sequence]  # type: ignore[union-attr]
                parts += (heads[_CREATE], length, path, _length(data), data, flag)
            elif kind is Delete:
                version = op.version  # type: ignore[union-attr]
                parts += (heads[_DELETE], length, path, _ANY if version == -1 else pack(version))
            elif kind is SetData:
                data = op.data  # type: ignore[union-attr]
                version = op.version  # type: ignore[union-attr]
                parts += (heads[_SET_DATA], length, path, _length(data), data)
                parts.append(_ANY if version == -1 else pack(version))
            else:
                parts += (heads[_CHECK], length, path, pack(op.version))  # type: ignore[union-attr]
        parts.append(_END)
        self.body = b"".join(parts)
        if len(self.body) > REQUEST_BYTES_MAX:
            largest = max(ops, key=lambda op: len(getattr(op, "data", b"")))
            raise PayloadTooLarge(
                f"the transaction around {largest.path}", len(self.body), REQUEST_BYTES_MAX
            )

    def serialize(self) -> bytes:
        return self.body

    def deserialize(self, buffer: bytes, offset: int) -> Applied | Refused:
        results: list[Any] = []
        culprit: tuple[int, int] | None = None
        for index, op in enumerate(self.ops):
            code = _int.unpack_from(buffer, offset)[0]
            offset += 9
            if code == _ERROR:
                error = _int.unpack_from(buffer, offset)[0]
                offset += 4
                # Operations before the refused one are rolled back (error 0), later ones have -2.
                if culprit is None and error != _ROLLED_BACK:
                    culprit = index, error
            elif type(op) is Create:
                size = _int.unpack_from(buffer, offset)[0]
                offset += 4 + size
                # Only a sequential create has another path than the request names.
                results.append(
                    buffer[offset - size + self.prefix : offset].decode()
                    if op.sequence
                    else op.path
                )
            elif type(op) is SetData:
                results.append(_int.unpack_from(buffer, offset + 32)[0])
                offset += 68
            else:
                results.append(True)
        if len(results) == len(self.ops):
            return Applied(results, self.repeated)
        index, error = culprit if culprit is not None else (0, 0)
        reason = _REASONS.get(error, Reason.OTHER)
        op = self.ops[index]
        right = _RIGHTS[type(op)] if reason is Reason.NO_AUTH else ""
        return Refused(index, reason, op.path, self.repeated, right)


def refusal(buffer: bytes, offset: int) -> int:
    """The error of the refused operation in the answer to a transaction; 0 if it was applied.

    Operations before the refused one are rolled back: their error is 0.
    """
    size = _head.size + _int.size
    while offset + size <= len(buffer) and _int.unpack_from(buffer, offset)[0] == _ERROR:
        error = int(_int.unpack_from(buffer, offset + _head.size)[0])
        if error != _ROLLED_BACK:
            return error
        offset += size
    return _ROLLED_BACK


class ReadRefused(NamedTuple):
    """The error that a strict batch failed with, and its path. A missing znode is not an error."""

    path: str
    error: int


class ReadManyPacket:
    """Many reads in one request, for ZooKeeper 3.6 or later."""

    type = _MULTI_READ
    __slots__ = ("body", "reads", "strict")

    def __init__(self, request: ReadMany, prefix: str) -> None:
        self.reads, self.strict = request
        parts: list[bytes] = []
        for read in self.reads:
            path = (prefix + read.path).encode()
            code = _GET_DATA if type(read) is ReadData else _GET_CHILDREN
            parts += (_HEADS[code], _length(path), path, _NO_WATCH)
        parts.append(_END)
        self.body = b"".join(parts)

    def serialize(self) -> bytes:
        return self.body

    def deserialize(self, buffer: bytes, offset: int) -> list[Any] | ReadRefused:
        answers: list[Any] = []
        for read in self.reads:
            code = _int.unpack_from(buffer, offset)[0]
            offset += 9
            if code == _GET_DATA:
                node, offset = unpack_node(buffer, offset)
                answers.append(node)
            elif code == _GET_CHILDREN:
                names, offset = unpack_names(buffer, offset)
                answers.append(names)
            else:
                error = _int.unpack_from(buffer, offset)[0]
                if self.strict and error != _NO_NODE:
                    return ReadRefused(read.path, error)
                answers.append(None)
                offset += 4
        return answers


def unpack_node(buffer: bytes, offset: int) -> tuple[Node, int]:
    size = _int.unpack_from(buffer, offset)[0]
    offset += 4
    data = b""
    if size > 0:
        data = buffer[offset : offset + size]
        offset += size
    stat = _stat.unpack_from(buffer, offset)
    node = Node(data, stat[4], stat[9], stat[5], stat[2], stat[3], stat[10], stat[0])
    return node, offset + 68


def unpack_names(buffer: bytes, offset: int) -> tuple[Sequence[str], int]:
    """Unpack a list of children. A long list stays packed until iteration."""
    count = _int.unpack_from(buffer, offset)[0]
    start = end = offset + 4
    unpack = _int.unpack_from
    if count < LONG_LIST:
        names = []
        for _ in range(count):
            start = end + 4
            end = start + unpack(buffer, end)[0]
            names.append(buffer[start:end].decode())
        return names, end
    size = unpack(buffer, start)[0]
    end = start + count * (4 + size)
    if _are_alike(buffer, start, end, count):
        return LongList(buffer, start, end, count, size), end
    longest, end = 0, start
    for _ in range(count):
        size = unpack(buffer, end)[0]
        if size > longest:  # `max` would be slower, and runs for each name of a huge list
            longest = size
        end += 4 + size
    return LongList(buffer, start, end, count, longest), end


def _are_alike(buffer: bytes, start: int, end: int, count: int) -> bool:
    """Whether all `count` names up to `end` are as long as the first one. Checks that the same
    length stands before each name, without a loop over a huge list."""
    step = (end - start) // count
    return (
        step > 4
        and end <= len(buffer)
        and all(
            buffer[at:end:step] == buffer[at : at + 1] * count for at in range(start, start + 4)
        )
    )


class LongList(Sequence[str]):
    """Thousands of names as they came over the wire, in a fifth of the memory of a list.

    `buffer[start:end]` holds the names, the longest of which has `longest` bytes. The buffer is not
    copied, so the answer is in memory only once.
    """

    def __init__(self, buffer: bytes, start: int, end: int, count: int, longest: int) -> None:
        self._buffer, self._start, self._end = buffer, start, end
        self._count, self._longest = count, longest

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return self._in_blocks() if self._longest < _PLAIN_BYTES else self._one_by_one()

    def _in_blocks(self) -> Iterator[str]:
        """Decode many names at once, which is several times faster.

        A name has no null. The length before it is three nulls and one byte, so three nulls occur
        only before a name.
        """
        buffer, at, end = self._buffer, self._start, self._end
        while at < end:
            cut = buffer.find(_NULLS, at + _BLOCK_BYTES, end)
            cut = cut if cut >= 0 else end
            block = buffer[at:cut].decode()
            at = cut
            for name in block.split("\0\0\0")[1:]:
                yield name[1:]

    def _one_by_one(self) -> Iterator[str]:
        buffer, at, unpack = self._buffer, self._start, _int.unpack_from
        while at < self._end:
            start = at + 4
            at = start + unpack(buffer, at)[0]
            yield buffer[start:at].decode()

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return list(self)[index]


# ---- Requests of kazoo for which zkplan unpacks the answers.


class ChildrenPacket(GetChildren):  # type: ignore[misc]
    """A read of a list of children, which may leave a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Sequence[str]:
        return unpack_names(buffer, offset)[0]


class DataPacket(GetData):  # type: ignore[misc]
    """A read of one znode, which may leave a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Node:
        return unpack_node(buffer, offset)[0]


class TransactionPacket(MultiPacket):
    """A transaction. kazoo rewrites each item of the answer, so the whole answer is one item."""

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return [super().deserialize(buffer, offset)]


class NoWatcher(ZookeeperError):  # type: ignore[misc]
    """The watch to remove has fired, or was never set."""


#: kazoo's thread ends at a code that is not in this table.
EXCEPTIONS[-121] = NoWatcher


class Packer:
    """Makes packets for one client. `watch_fired` is called with the event of each watch.

    With `logs_in`, only the client's login may use new znodes, unless it has a `default_acl`.
    """

    def __init__(
        self, client: KazooClient, watch_fired: Callable[[Any], None], *, logs_in: bool = False
    ) -> None:
        self._client = client
        default = CREATOR_ALL_ACL if logs_in else OPEN_ACL_UNSAFE
        self._acl = pack_acl(client.default_acl or default)
        self._watch_fired = watch_fired

    def pack(self, request: Request) -> Any:
        """Raises PayloadTooLarge, and ZooKeeperError for a request that only a step may yield."""
        prefix = self._client.chroot
        if type(request) is Multi:
            return TransactionPacket(request.ops, prefix, self._acl)
        if type(request) is ReadMany:
            return ReadManyPacket(request, prefix)
        if type(request) is ReadChildren:
            watch = self._watch_fired if request.watch else None
            return ChildrenPacket(prefix + request.path, watch)
        if type(request) is ReadData:
            return DataPacket(prefix + request.path, self._watch_fired if request.watch else None)
        if type(request) is Unwatch:
            path = prefix + request.path
            return UnwatchPacket(path, partial(forget_watches, self._client, path))
        raise ZooKeeperError(f"{request!r} can only be used inside a step that is run")

    def watch_for_creation(self, packet: DataPacket) -> Exists:
        """Return a request that watches for the creation of the znode that `packet` missed."""
        return Exists(packet.path, self._watch_fired)
