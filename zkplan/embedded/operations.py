"""Operations on the tree, other requests of a client, their answers and errors."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple


class _NoData(bytes):
    """The type of NO_DATA alone."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_DATA"


#: A null buffer, compared by identity: it equals empty bytes, but is sent as null. So a client that
#: created a node without data reads null, not empty data.
NO_DATA: Final[bytes] = _NoData()


class Stat(NamedTuple):
    """What ZooKeeper reports of a node; times in milliseconds, `data_length` in bytes.

    `cversion` is 2 * creates - children, as a server reports it, not the sequence counter.
    `ephemeral_owner` is a session or 0, also for containers and TTL nodes.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Acl(NamedTuple):
    """One entry of an access control list: `perms` is a sum of READ, WRITE, CREATE, ..."""

    perms: int
    scheme: str
    id: str


class Identity(NamedTuple):
    """Who a requester has proven to be, such as ('ip', '127.0.0.1') or ('digest', 'user:hash')."""

    scheme: str
    id: str


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL_PERMS = READ | WRITE | CREATE | DELETE | ADMIN
OPEN_ACL = (Acl(ALL_PERMS, "world", "anyone"),)


class Create(NamedTuple):
    """Create a node; with `sequence` its parent's counter is appended to the path.

    The server deletes a container some time after its last child, and a node with `ttl_ms` > 0 (at
    most znodes.TTL_MS_MAX) when that time has passed without a change or a child. With `with_stat`
    the answer is Created.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False
    acl: tuple[Acl, ...] = OPEN_ACL
    container: bool = False
    ttl_ms: int = 0
    with_stat: bool = False


class Delete(NamedTuple):
    """Delete a node without children; version -1 matches any version."""

    path: str
    version: int = -1


class SetData(NamedTuple):
    """Replace the data of a node and raise its version by one; version -1 matches any version."""

    path: str
    data: bytes = b""
    version: int = -1


class Check(NamedTuple):
    """Refuse unless the node exists at this version; version -1 matches any version."""

    path: str
    version: int = -1


class SetAcl(NamedTuple):
    """Replace the access control list of a node; `version` is that of the list (aversion)."""

    path: str
    acl: tuple[Acl, ...]
    version: int = -1


class Created(NamedTuple):
    """The answer of a Create `with_stat`: the actual path and the new node's Stat."""

    path: str
    stat: Stat


Op = Create | Delete | SetData | Check | SetAcl
Answer = str | bool | Stat | Created


class TreeError(Exception):
    """An operation on a path, the argument, was refused and nothing was written.

    A client gets only `code`, ZooKeeper's number.
    """

    code: ClassVar[int] = -1


class NoNodeError(TreeError):
    """The node, or the parent of the node to create or delete, does not exist."""

    code = -101


class BadVersionError(TreeError):
    """The node has another version than the operation named: someone else wrote it."""

    code = -103


class NoChildrenForEphemeralsError(TreeError):
    """The parent of the node to create is ephemeral."""

    code = -108


class NodeExistsError(TreeError):
    """The node to create exists already."""

    code = -110


class NotEmptyError(TreeError):
    """The node to delete has children."""

    code = -111


class BadArgumentsError(TreeError):
    """No server would ever accept this: an impossible path, or the deletion of a system node."""

    code = -8


class NoAuthError(TreeError):
    """The requester may not do this to the node."""

    code = -102


class InvalidAclError(TreeError):
    """The access control list is empty, or an entry of it is malformed."""

    code = -114


class NoWatcherError(TreeError):
    """There is no such watch of this watcher to remove."""

    code = -121


class LimitError(TreeError):
    """The server holds as many znodes or bytes as it may: deletes are accepted, growth is not."""

    code = -125  # QuotaExceeded: the nearest that clients know by name


class MultiFailed(Exception):
    """A multi was refused and nothing of it was written.

    `index` counts from 0 and names the first operation that was refused; `error` says why.
    """

    def __init__(self, index: int, error: TreeError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


# ---- Other requests of clients: reads, watches, sessions.
#
# wire.py makes them from bytes, service.py answers them.


class ConnectRequest(NamedTuple):
    """The first frame of a connection. `session` 0 asks for a new one; times in milliseconds.

    `read_only` says that the client accepts a read-only server. It is None if the client did not
    send that byte: then it expects none in the answer.
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
    """Answered when everything before it is applied: on one server, at once.

    `path` has no meaning and is sent back unchanged, also if it is null (None).
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
