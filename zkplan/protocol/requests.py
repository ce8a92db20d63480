"""The requests that a step may yield, and their answers.

A step is a generator that yields requests and is sent the answers. It does no I/O, so the same step
runs on ZooKeeper and in the simulation.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
#: A step of the protocol: yields requests, is sent answers, returns T.
Step = Generator["Request", Any, T]


class Create(NamedTuple):
    """Create a znode. Its answer is the path created.

    `becomes` is the predicted path of a sequential znode, and its data is sealed for that path.
    Another operation of the same transaction proves that the prediction is right.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    becomes: str = ""


class Delete(NamedTuple):
    """Delete a znode without children; `version` -1 means any. Its answer is True."""

    path: str
    version: int = -1


class SetData(NamedTuple):
    """Replace the data of a znode. Its answer is the new version, read inside the transaction."""

    path: str
    data: bytes = b""
    version: int = -1


class Check(NamedTuple):
    """Refuse the transaction unless the znode exists (at `version`). Its answer is True."""

    path: str
    version: int = -1


Op = Create | Delete | SetData | Check


class Printed(NamedTuple):
    """A part of an attempt's output: `text`, which follows the first `at` bytes of UTF-8."""

    at: int
    text: str

    @property
    def end(self) -> int:
        return self.at + len(self.text.encode())


class Fact(NamedTuple):
    """What the history records about an operation, besides the operation itself.

    `name` is the name of an added task. About an attempt: `ran_ms` is how long it ran, `ended` its
    worker's monotonic clock at its end, `error` the type of its failure, and `printed` the last
    part of its output. `skips` marks a task as skipped.
    """

    name: str = ""
    ran_ms: int = -1
    ended: float = 0.0
    error: str = ""
    skips: bool = False
    printed: Printed | None = None


NO_FACT = Fact()
NO_FACTS: Mapping[str, Fact] = MappingProxyType({})


class Multi(NamedTuple):
    """One transaction: all operations or none. Answer: Applied or Refused. `facts` maps paths of
    operations to facts."""

    ops: Sequence[Op]
    facts: Mapping[str, Fact] = NO_FACTS


class ReadData(NamedTuple):
    """Data and counters of one znode. Answer: Node, or None if it does not exist."""

    path: str
    watch: bool = False


class ReadChildren(NamedTuple):
    """Names of the children. Answer: list[str], or None if the znode does not exist."""

    path: str
    watch: bool = False


class ReadMany(NamedTuple):
    """Many reads in one round trip, in this order, without watches. Answer: a list of answers.

    The answer for a missing znode is None. If an access list forbids to read a znode, the request
    raises AccessDenied with `strict` True, and with `strict` False answers None for that znode
    alone. A step that does something final because a znode is gone needs `strict` True. `strict`
    None means False in the loop of a worker, and True for authors and commands.
    """

    reads: Sequence[ReadData | ReadChildren]
    strict: bool | None = None


class Send(NamedTuple):
    """Send a request without waiting. Answer: a Ticket, at once. The server executes the requests
    of one step in order."""

    request: Multi | ReadMany


class Await(NamedTuple):
    """Wait for a request that was sent. Answer: the answer to that request."""

    ticket: Ticket


class Unwatch(NamedTuple):
    """Remove the watches of this client on a znode. Answer: None, even if the server cannot."""

    path: str


Request = Multi | ReadData | ReadChildren | ReadMany | Send | Await | Unwatch


class Ticket:
    """A request under way. Only the transport that made it uses its `slot`."""

    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:
        self.slot = slot


class Reason(enum.Enum):
    """Why a transaction was refused."""

    NO_NODE = "no such znode"
    NODE_EXISTS = "the znode exists"
    BAD_VERSION = "its version has changed"
    NOT_EMPTY = "the znode has children"
    EPHEMERAL_PARENT = "an ephemeral znode cannot have children"
    NO_AUTH = "not allowed by the access list"
    INVALID_ACL = "the server does not accept the access list of a new znode"
    FULL = "ZooKeeper has no more room"
    OTHER = "refused"


class Applied(NamedTuple):
    """The transaction was applied. `results` has one item per operation.

    `repeated`: an earlier answer was lost, and the identical transaction was sent again. `untold`:
    a history had no room for the events.
    """

    results: list[Any]
    repeated: bool = False
    untold: bool = False


class Refused(NamedTuple):
    """This copy of the transaction wrote nothing: its operation number `at` was refused.

    With `repeated`, an earlier copy may have been applied: a znode that only this transaction makes
    shows whether it was.
    """

    at: int
    reason: Reason
    path: str
    repeated: bool = False
    #: The right that the access list lacks, if the reason is NO_AUTH and the right is known.
    right: str = ""

    @property
    def place(self) -> str:
        """The znode whose access list lacks the right."""
        is_above = self.right in ("create", "delete")
        return (self.path.rpartition("/")[0] or "/") if is_above else self.path

    @property
    def is_race(self) -> bool:
        """Whether a change by somebody else explains the refusal: then the step reads again. Any
        other refusal would repeat forever."""
        return self.reason in (Reason.NO_NODE, Reason.NODE_EXISTS, Reason.BAD_VERSION)

    @property
    def why(self) -> str:
        """The znode that was refused, and the reason."""
        lack = f": the right `{self.right}` is missing on {self.place}" if self.right else ""
        return f"{self.path}: {self.reason.value}{lack}"


class Node(NamedTuple):
    """What a znode holds. Times are in milliseconds of the server."""

    data: bytes
    version: int
    child_count: int
    cversion: int
    created_ms: int
    modified_ms: int
    pzxid: int
    #: The ID of the transaction that made the znode. No two znodes of one path have the same ID.
    czxid: int = 0
