"""Requests as kazoo sends them; their answers are unpacked by zkplan's own code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import EXCEPTIONS, ZookeeperError
from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE

from ..errors import ZooKeeperError
from ..protocol.requests import Multi, Node, ReadChildren, ReadData, ReadMany, Request, Unwatch
from . import wire
from .kazoo_private import forget_watches


class ChildrenPacket(GetChildren):  # type: ignore[misc]
    """A list of children, which may leave a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Sequence[str]:
        return wire.unpack_names(buffer, offset)[0]


class DataPacket(GetData):  # type: ignore[misc]
    """A read of one znode, which may leave a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Node:
        return wire.unpack_node(buffer, offset)[0]


class TransactionPacket(wire.MultiPacket):
    """A transaction. kazoo rewrites its answer item by item, so the answer comes as one item."""

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return [super().deserialize(buffer, offset)]


class NoWatcher(ZookeeperError):  # type: ignore[misc]
    """A watch that was to be taken back has fired, or was never set."""


#: kazoo's thread would end at a code that it does not know.
EXCEPTIONS[-121] = NoWatcher


class Packer:
    """Makes packets for one client. `watch_fired` is called with the event of each watch.

    What a client creates that `logs_in` is its own alone, unless its `default_acl` says otherwise.
    """

    def __init__(
        self, client: KazooClient, watch_fired: Callable[[Any], None], *, logs_in: bool = False
    ) -> None:
        self._client = client
        default = CREATOR_ALL_ACL if logs_in else OPEN_ACL_UNSAFE
        self._acl = wire.pack_acl(client.default_acl or default)
        self._watch_fired = watch_fired

    def pack(self, request: Request) -> Any:
        """Raises PayloadTooLarge, and ZooKeeperError for what only a step may ask."""
        prefix = self._client.chroot
        if type(request) is Multi:
            return TransactionPacket(request.ops, prefix, self._acl)
        if type(request) is ReadMany:
            return wire.ReadManyPacket(request, prefix)
        if type(request) is ReadChildren:
            watch = self._watch_fired if request.watch else None
            return ChildrenPacket(prefix + request.path, watch)
        if type(request) is ReadData:
            return DataPacket(prefix + request.path, self._watch_fired if request.watch else None)
        if type(request) is Unwatch:
            path = prefix + request.path
            return wire.UnwatchPacket(path, partial(forget_watches, self._client, path))
        raise ZooKeeperError(f"{request!r} can only be used inside a step that is run")

    def watch_for_creation(self, packet: DataPacket) -> Exists:
        """What leaves a watch where that read found nothing, and left none."""
        return Exists(packet.path, self._watch_fired)
