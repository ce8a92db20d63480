"""What a client can ask of a server besides the writes of records.py: reads, watches, its session.

One class for each kind of request on the wire; wire.py makes them from bytes, service.py answers.
"""

from __future__ import annotations

from typing import NamedTuple

from zkplan.embedded.records import Op


class ConnectRequest(NamedTuple):
    """The first frame of a connection. `session` 0 asks for a new one; times in milliseconds.

    `read_only` says that the client is content with a server that only reads. It is None where the
    client did not send the byte: it then expects none in the answer.
    """

    last_zxid_seen: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool | None


class GetData(NamedTuple):
    """Data and Stat of a node."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Stat of a node."""

    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    """Names of the children; `with_stat` is opcode getChildren2."""

    path: str
    watch: bool = False
    with_stat: bool = False


class GetAcl(NamedTuple):
    """The access control list and Stat of a node."""

    path: str


class Sync(NamedTuple):
    """Answers once everything before it is applied: on one server, at once.

    `path` means nothing and comes back as it was sent, also where it is null (None).
    """

    path: str | None


class Multi(NamedTuple):
    """Writes applied together or not at all: Create, Delete, SetData and Check."""

    ops: tuple[Op, ...]


class MultiRead(NamedTuple):
    """Reads answered together, each with its own error."""

    reads: tuple[GetData | GetChildren, ...]


class AddAuth(NamedTuple):
    """Prove an identity; 'digest' sends b'user:password'."""

    scheme: str
    auth: bytes


class SetWatches(NamedTuple):
    """After a reconnect: arm these again, and fire what changed after `relative_zxid`."""

    relative_zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


class AddWatch(NamedTuple):
    """Arm a watch that stays: of this node (persistent), or of all below it too (recursive)."""

    path: str
    recursive: bool


class RemoveWatches(NamedTuple):
    """Disarm this connection's watches; `kind` is 1 children, 2 data, 3 any (as on the wire)."""

    path: str
    kind: int
    only_check: bool = False


class GetEphemerals(NamedTuple):
    """Paths of the ephemeral nodes of the requester's session that start with `prefix`."""

    prefix: str


class CountDescendants(NamedTuple):
    """How many nodes are below `path` (opcode getAllChildrenNumber)."""

    path: str


class WhoAmI(NamedTuple):
    """The identities of the requester."""


class Ping(NamedTuple):
    """Keeps the session alive."""


class CloseSession(NamedTuple):
    """Ends the session and deletes its ephemeral nodes."""


class Unsupported(NamedTuple):
    """A request of another kind: answered with Unimplemented, never with silence."""

    opcode: int


Request = (
    Op
    | GetData
    | Exists
    | GetChildren
    | GetAcl
    | Sync
    | MultiRead
    | GetEphemerals
    | CountDescendants
    | Multi
    | AddAuth
    | SetWatches
    | AddWatch
    | RemoveWatches
    | WhoAmI
    | Ping
    | CloseSession
    | Unsupported
)
