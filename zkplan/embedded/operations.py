"""The operations on the tree and the other requests of clients, with their answers and errors."""

from __future__ import annotations

from typing import ClassVar, Final, NamedTuple


class _NoData(bytes):
    """The type of NO_DATA alone."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NO_DATA"


#: A null buffer, compared by identity: it equals empty bytes, but is sent as null. So the reader of
#: a node that was created without data gets null, not empty data.
NO_DATA: Final[bytes] = _NoData()


class Stat(NamedTuple):
    """The facts that ZooKeeper reports of a node: times in milliseconds, `data_length` in bytes.

    `cversion` is 2 * creates - children, as a real server reports it, not the sequence counter.
    `ephemeral_owner` is a session or 0; it is 0 for containers and TTL nodes, too.
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
    """A proven identity of a requester: ('ip', '127.0.0.1') or ('digest', 'user:hash')."""

    scheme: str
    id: str


READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL_PERMS = READ | WRITE | CREATE | DELETE | ADMIN
OPEN_ACL = (Acl(ALL_PERMS, "world", "anyone"),)


class Create(NamedTuple):
    """Create a node. With `sequence` the server appends the counter of the parent to the path.

    The server deletes a container some time after its last child, and a node with `ttl_ms` > 0 (at
    most znodes.TTL_MS_MAX) after that time without a change, once it has no child. With `with_stat`
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
    """Replace the access control list of a node. `version` is that of the list (aversion)."""

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
    """An operation was refused, and nothing was written. The argument is the path.

    A client gets only `code`, ZooKeeper's number of the error.
    """

    code: ClassVar[int] = -1


class NoNodeError(TreeError):
    """The node, or the parent of the node to create or delete, does not exist."""

    code = -101


class BadVersionError(TreeError):
    """The node has another version than the operation names: another client wrote the node."""

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
    """No server accepts the operation: such as an impossible path, or deleting a system node."""

    code = -8


class NoAuthError(TreeError):
    """The access control list does not let the requester do this."""

    code = -102


class InvalidAclError(TreeError):
    """The access control list is empty, or an entry of it is malformed."""

    code = -114


class NoWatcherError(TreeError):
    """The watch to remove does not exist."""

    code = -121


class LimitError(TreeError):
    """The operation, or its answer, would exceed a limit of the server. Deletes never do."""

    code = -125  # QuotaExceeded: the nearest that clients know by name


class MultiFailed(Exception):
    """A multi was refused, and none of its operations was written.

    `index`, from 0, is the operation that was refused, and `error` tells why.
    """

    def __init__(self, index: int, error: TreeError) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error


# ---- Other requests of clients: reads, watches, sessions.
#
# wire.py makes them from bytes, service.py answers them.


class ConnectRequest(NamedTuple):
    """The first frame of a connection. `session` 0 asks for a new session.

    `read_only` tells whether the client accepts a read-only server. It is None if the client did
    not send that byte, and so expects none in the answer.
    """

    last_zxid_seen: int
    timeout_ms: int
    session: int
    password: bytes
    read_only: bool | None


class GetData(NamedTuple):
    """Read the data and Stat of a node."""

    path: str
    watch: bool = False


class Exists(NamedTuple):
    """Read the Stat of a node, if the node exists."""

    path: str
    watch: bool = False


class GetChildren(NamedTuple):
    """Read the names of the children. With `with_stat` it is the opcode getChildren2."""

    path: str
    watch: bool = False
    with_stat: bool = False


class GetAcl(NamedTuple):
    """Read the access control list and Stat of a node."""

    path: str


class Sync(NamedTuple):
    """Wait until all earlier writes are applied. A single server answers at once.

    `path` has no meaning. The answer repeats it, even null (None).
    """

    path: str | None


class Multi(NamedTuple):
    """Apply all operations or none: Create, Delete, SetData and Check."""

    ops: tuple[Op, ...]


class MultiRead(NamedTuple):
    """Do several reads. Each has an answer or an error of its own."""

    reads: tuple[GetData | GetChildren, ...]


class AddAuth(NamedTuple):
    """Prove an identity; 'digest' sends b'user:password'."""

    scheme: str
    auth: bytes


class SetWatches(NamedTuple):
    """After a reconnect, arm watches again, and fire those with a change after `relative_zxid`."""

    relative_zxid: int
    data: tuple[str, ...]
    exists: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...] = ()
    recursive: tuple[str, ...] = ()


class AddWatch(NamedTuple):
    """Arm a watch that stays: for a node (persistent), or for all nodes below, too (recursive)."""

    path: str
    recursive: bool


class RemoveWatches(NamedTuple):
    """Disarm watches of this connection. `kind`: 1 for children, 2 for data, 3 for both."""

    path: str
    kind: int
    only_check: bool = False


class GetEphemerals(NamedTuple):
    """Read the paths of the requester's ephemeral nodes that start with `prefix`."""

    prefix: str


class CountDescendants(NamedTuple):
    """Count the nodes below `path` (opcode getAllChildrenNumber)."""

    path: str


class WhoAmI(NamedTuple):
    """Read the identities of the requester."""


class Ping(NamedTuple):
    """Keep the session alive."""


class CloseSession(NamedTuple):
    """End the session, and delete its ephemeral nodes."""


class Unsupported(NamedTuple):
    """A request of another kind. The answer is Unimplemented, never silence."""

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
