"""Requests as kazoo takes them, whose answers are unpacked by our own code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo.protocol.serialization import GetChildren, GetData

from ..protocol.requests import Node
from . import wire


class ChildrenPacket(GetChildren):  # type: ignore[misc]
    """A watched list of children, unpacked by our own code."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Sequence[str]:
        return wire.unpack_names(buffer, offset)[0]


class DataPacket(GetData):  # type: ignore[misc]
    """A read that may leave a watch, unpacked by our own code."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Node:
        return wire.unpack_node(buffer, offset)[0]


class TransactionPacket(wire.MultiPacket):
    """kazoo rewrites the answer of a transaction item by item, so the answer comes as one item."""

    def deserialize(self, buffer: bytes, offset: int) -> Any:
        return [super().deserialize(buffer, offset)]
