"""The vocabulary between the protocol and the transport: what a step may ask, and the answers.

A step of the protocol is a generator: it yields one of these requests and is sent the answer. It
never touches a socket, so the same step runs on ZooKeeper and in the simulation.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
#: A step of the protocol: yields requests, is sent answers, returns T.
Step = Generator["Request", Any, T]


class Create(NamedTuple):
    """Create a znode. Its answer is the path created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class Delete(NamedTuple):
    """Delete a znode without children; `version` -1 means any. Its answer is True."""

    path: str
    version: int = -1


class SetData(NamedTuple):
    """Replace the data. Its answer is the new version, read inside the transaction."""

    path: str
    data: bytes = b""
    version: int = -1


class Check(NamedTuple):
    """Refuse the transaction unless the znode exists (at that version). Its answer is True."""

    path: str
    version: int = -1


Op = Create | Delete | SetData | Check


class Multi(NamedTuple):
    """One transaction: all operations or none. Answer: Applied or Refused."""

    ops: Sequence[Op]


class ReadData(NamedTuple):
    """Data and counters of one znode. Answer: Node, or None where it does not exist."""

    path: str
    watch: bool = False


class ReadChildren(NamedTuple):
    """Names of the children. Answer: list[str], or None where the znode does not exist."""

    path: str
    watch: bool = False


class ReadMany(NamedTuple):
    """Many reads in one round trip, in this order, without watches. Answer: a list of answers.

    None stands for what is missing, and, unless `strict`, also for what may not be read: one znode
    that somebody else shuts must not hide all others. `strict` is for where something is done for
    good because a znode is gone: then the whole request raises ZooKeeperError, as a single read
    does.
    """

    reads: Sequence[ReadData | ReadChildren]
    strict: bool = False


class Send(NamedTuple):
    """Send a request without waiting. Answer: a Ticket, at once.

    What one step sends is executed in the order in which it was sent.
    """

    request: Multi | ReadMany


class Await(NamedTuple):
    """Wait for what was sent. Answer: that of the request."""

    ticket: Ticket


Request = Multi | ReadData | ReadChildren | ReadMany | Send | Await


class Ticket:
    """Stands for a request under way; only the transport that gave it knows what is in it."""

    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:
        self.slot = slot


class Reason(enum.Enum):
    """Why a transaction was refused."""

    NO_NODE = "no such znode"
    NODE_EXISTS = "the znode exists"
    BAD_VERSION = "another version"
    NOT_EMPTY = "the znode has children"
    EPHEMERAL_PARENT = "an ephemeral znode cannot have children"
    NO_AUTH = "not allowed by the access list"
    FULL = "ZooKeeper holds as much as it may"
    OTHER = "refused"


class Applied(NamedTuple):
    """The transaction was applied. `results` has one item per operation.

    `repeated` says that an earlier answer was lost and the identical transaction was sent again.
    """

    results: list[Any]
    repeated: bool = False


class Refused(NamedTuple):
    """Nothing was written by this copy of the transaction; `at` is the operation to blame.

    With `repeated`, an earlier copy may have been applied: read a znode unique to it to decide.
    """

    at: int
    reason: Reason
    path: str
    repeated: bool = False


class Node(NamedTuple):
    """What a znode holds. Times are server milliseconds, for people only, never for decisions."""

    data: bytes
    version: int
    child_count: int
    cversion: int
    created_ms: int
    modified_ms: int
    pzxid: int
