"""Which plan of a name is meant, and how what lies in it is sealed and opened."""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.sources import HEAD_BYTES
from ..protocol.unproven import require_proven
from .places import Place, place_of_argument
from .ring import Ring


class Life(NamedTuple):
    """Which plan of a name is meant: the CZXID of its znode, and what the places of all that lies
    in it begin with."""

    czxid: int
    prefix: bytes

    @classmethod
    def of(cls, plan: str, czxid: int) -> Life:
        return cls(czxid, f"{plan}@{czxid:x}/".encode())


#: Of what lies in no plan.
NO_PLAN = Life(0, b"")


def with_plan(plan: str) -> bytes:
    """How the place of what is made in the transaction that makes its plan begins: nobody knows the
    CZXID of that yet. It counts only where both have the same one."""
    return f"{plan}@new/".encode()


def seal_at(ring: Ring, begins: bytes, place: Place, data: bytes) -> bytes:
    """`begins`: how places in this life of the plan begin. Raises as `require_proven`."""
    require_proven(data)
    _, rest, kind = place
    if kind.argument:
        return seal_argument(ring, begins, rest, data)
    return ring.seal(begins + rest.encode(), data)


def seal_argument(ring: Ring, begins: bytes, rest: str, data: bytes) -> bytes:
    """What it says of its source stands before what is sealed."""
    head = data[:HEAD_BYTES]
    return head + ring.seal(begins + place_of_argument(rest, head), data[HEAD_BYTES:])


def open_at(ring: Ring, begins: bytes, place: Place, data: bytes) -> bytes:
    """The reverse of `seal_at`. Raises as `Ring.open`."""
    _, rest, kind = place
    if kind.argument:
        return open_argument(ring, begins, rest, data)
    return ring.open(begins + rest.encode(), data)


def open_argument(ring: Ring, begins: bytes, rest: str, data: bytes) -> bytes:
    """The reverse of `seal_argument`. Raises as `Ring.open`."""
    head = data[:HEAD_BYTES]
    return head + ring.open(begins + place_of_argument(rest, head), data[HEAD_BYTES:])
