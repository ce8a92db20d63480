"""All znodes of a server, with counts, and an undo log for the write under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .acl import READ_ONLY_ACL, AclList, size_of
from .operations import OPEN_ACL, Acl, Stat

# A version wraps around after this. The counter of a parent stops here, so each later sequential
# create gets the last name again and is refused.
INT_MAX = 2**31 - 1

# The owner of a container, and the first owner of TTL nodes: 0xff in the top byte of a signed
# 64-bit number, and the milliseconds below. Any other owner, except 0, is a session.
CONTAINER_OWNER = -(2**63)
TTL_OWNER = -(2**56)
TTL_MS_MAX = 2**40 - 1

#: The children of every node without children, so that a leaf needs no dict. Never write to it.
NO_CHILDREN: dict[str, None] = {}


def ttl_of(owner: int) -> int:
    """The time to live of a TTL node, in milliseconds; 0 for any other owner."""
    return owner - TTL_OWNER if TTL_OWNER <= owner < 0 else 0


def is_session(owner: int) -> bool:
    """Whether `owner` is a session, which makes its node ephemeral."""
    return owner > 0 or (owner < TTL_OWNER and owner != CONTAINER_OWNER)


class Node:
    """A mutable znode. `creates` counts the children ever created, and numbers the next one.

    `number` is unique in the tree and grows with every node created. `acl` is None if everyone has
    all rights. `children` keeps the order of creation; change it only through the methods.
    """

    __slots__ = (
        "acl",
        "aversion",
        "children",
        "creates",
        "ctime",
        "czxid",
        "data",
        "mtime",
        "mzxid",
        "number",
        "owner",
        "pzxid",
        "version",
    )

    def __init__(
        self,
        data: bytes = b"",
        owner: int = 0,
        zxid: int = 0,
        now_ms: int = 0,
        number: int = 0,
        acl: tuple[Acl, ...] | None = None,
    ) -> None:
        self.data = data
        self.owner = owner
        self.acl = acl
        self.number = number
        self.version = self.creates = self.aversion = 0
        self.czxid = self.mzxid = self.pzxid = zxid
        self.ctime = self.mtime = now_ms
        self.children = NO_CHILDREN

    def list_child(self, name: str) -> None:
        """Add a child."""
        if self.children:
            self.children[name] = None
        else:
            self.children = {name: None}

    def unlist_child(self, name: str) -> None:
        """Remove a child."""
        del self.children[name]
        if not self.children:
            # An emptied dict would keep its memory.
            self.children = NO_CHILDREN

    def stat(self) -> Stat:
        """Return the Stat as a real server reports it, with an owner only if that is a session."""
        count = len(self.children)
        cversion = 2 * self.creates - count
        owner = self.owner
        return Stat(
            self.czxid,
            self.mzxid,
            self.ctime,
            self.mtime,
            self.version,
            cversion if cversion <= INT_MAX else cversion - 2**32,
            self.aversion,
            owner if owner >= 0 or is_session(owner) else 0,
            len(self.data),
            count,
            self.pzxid,
        )


def raised(version: int) -> int:
    """The version after `version`, in 32 bits."""
    return version + 1 if version < INT_MAX else -INT_MAX - 1


# ---- All znodes of one server.
#
# Nothing is checked here: writes.py decides whether an operation may happen. Every change updates
# the counts and indexes: the ephemerals of a session, the bytes, the nodes changed since a call.


#: A stored znode, and a changed one: number, path and node. The node is None if it was deleted.
Row = tuple[int, str, Node]
Change = tuple[int, str, Node | None]

# The maximum of access lists to remember for sharing between nodes. A full table starts afresh.
_SHARED_ACLS_MAX = 1024


class Znodes:
    """The nodes by path. `bytes` is roughly the size of their data, paths and access lists."""

    def __init__(self, *, system_nodes: bool, track_changes: bool) -> None:
        self.by_path: dict[str, Node] = {"/": Node()}
        self.bytes = 1
        self.next_number = 1
        #: Paths by owner: a session, CONTAINER_OWNER, or TTL_OWNER for every TTL node.
        self.owned: dict[int, dict[str, None]] = {}
        self._acls: dict[tuple[Acl, ...], tuple[Acl, ...]] = {}
        self._touched: dict[int, str] | None = {0: "/"} if track_changes else None
        # The calls that undo the write under way, oldest first. Empty between calls.
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        if system_nodes:
            # These do not count as creates: the first sequence number beside them is 0.
            self._insert_system("/", "zookeeper", None)
            # A real server sets this list without a write, which results in aversion -1.
            self._insert_system("/zookeeper", "config", READ_ONLY_ACL).aversion = -1
            self._insert_system("/zookeeper", "quota", None)
            self.keep()

    def _insert_system(self, parent_path: str, name: str, acl: AclList) -> Node:
        parent = self.by_path[parent_path]
        path = f"{parent_path.rstrip('/')}/{name}"
        node = self.insert(path, name, parent_path, parent, b"", 0, acl, 0, 0)
        parent.creates = 0
        return node

    # Changes. The caller has to check that they are possible.

    def insert(
        self,
        path: str,
        name: str,
        parent_path: str,
        parent: Node,
        data: bytes,
        owner: int,
        acl: AclList,
        zxid: int,
        now_ms: int,
    ) -> Node:
        """Insert a new node `path`, the child `name` of `parent`."""
        number = self.next_number
        self.next_number = number + 1
        shared = None if acl is None else self._shared(acl)
        node = Node(data, owner, zxid, now_ms, number, shared)
        creates, pzxid = parent.creates, parent.pzxid
        self._undo.append((self._unlink, (path, node, name, parent, creates, pzxid)))
        if creates < INT_MAX:
            creates, pzxid = creates + 1, zxid
        self._link(path, node, name, parent, creates, pzxid)
        if self._touched is not None:
            self._touched[number] = path
            self._touched[parent.number] = parent_path
        return node

    def remove(
        self, path: str, node: Node, name: str, parent_path: str, parent: Node, zxid: int
    ) -> None:
        """Remove the node `path`, the child `name` of `parent`."""
        creates = parent.creates
        self._undo.append((self._link, (path, node, name, parent, creates, parent.pzxid)))
        self._unlink(path, node, name, parent, creates, zxid)
        if self._touched is not None:
            self._touched[node.number] = path
            self._touched[parent.number] = parent_path

    def write(self, path: str, node: Node, data: bytes, zxid: int, now_ms: int) -> None:
        """Replace the data of a node."""
        self._undo.append((self._put, (node, node.data, node.mzxid, node.mtime, node.version)))
        self._put(node, data, zxid, now_ms, raised(node.version))
        self._touch(node.number, path)

    def set_acl(self, path: str, node: Node, acl: AclList) -> None:
        """Replace the access control list of a node."""
        self._undo.append((self._put_acl, (node, node.acl, node.aversion)))
        shared = None if acl is None else self._shared(acl)
        self._put_acl(node, shared, raised(node.aversion))
        self._touch(node.number, path)

    def keep(self) -> None:
        """Keep the changes since the last `keep` or `take_back`: they can no longer be undone."""
        self._undo.clear()

    def take_back(self) -> None:
        """Undo the changes since the last `keep`, the newest first.

        The nodes still count as touched, because storing an unchanged node again does no harm.
        """
        for undo, arguments in reversed(self._undo):
            undo(*arguments)
        self._undo.clear()

    # The following methods undo each other (link and unlink) or themselves (put).

    def _link(
        self, path: str, node: Node, name: str, parent: Node, creates: int, pzxid: int
    ) -> None:
        self.by_path[path] = node
        parent.creates = creates
        parent.pzxid = pzxid
        parent.list_child(name)
        self.bytes += len(path) + len(node.data)
        if node.acl is not None:
            self.bytes += size_of(node.acl)
        if node.owner:
            self._own(node.owner, path)

    def _unlink(
        self, path: str, node: Node, name: str, parent: Node, creates: int, pzxid: int
    ) -> None:
        del self.by_path[path]
        parent.creates = creates
        parent.pzxid = pzxid
        parent.unlist_child(name)
        self.bytes -= len(path) + len(node.data)
        if node.acl is not None:
            self.bytes -= size_of(node.acl)
        if node.owner:
            self._disown(node.owner, path)

    def _put(self, node: Node, data: bytes, mzxid: int, mtime: int, version: int) -> None:
        self.bytes += len(data) - len(node.data)
        node.data = data
        node.mzxid = mzxid
        node.mtime = mtime
        node.version = version

    def _put_acl(self, node: Node, acl: AclList, aversion: int) -> None:
        self.bytes += size_of(acl) - size_of(node.acl)
        node.acl = acl
        node.aversion = aversion

    # Counts and indexes.

    def _own(self, owner: int, path: str) -> None:
        self.owned.setdefault(TTL_OWNER if ttl_of(owner) else owner, {})[path] = None

    def _disown(self, owner: int, path: str) -> None:
        if ttl_of(owner):
            owner = TTL_OWNER
        paths = self.owned[owner]
        del paths[path]
        if not paths:
            del self.owned[owner]

    def _shared(self, acl: tuple[Acl, ...]) -> tuple[Acl, ...]:
        if len(self._acls) >= _SHARED_ACLS_MAX:
            self._acls.clear()
        return self._acls.setdefault(acl, acl)

    def _touch(self, number: int, path: str) -> None:
        if self._touched is not None:
            self._touched[number] = path

    def expired(self, now_ms: int) -> list[str]:
        """Return the paths of empty containers, and of TTL nodes that are too old and childless."""
        has_expired = self.has_expired
        return [
            path
            for owner in (CONTAINER_OWNER, TTL_OWNER)
            for path in self.owned.get(owner, ())
            if has_expired(path, now_ms)
        ]

    def has_expired(self, path: str, now_ms: int) -> bool:
        """Whether `path` is an empty container, or a TTL node that is too old and childless."""
        node = self.by_path.get(path)
        if node is None or node.children:
            return False
        if node.owner == CONTAINER_OWNER:
            # A container that never had a child is new: its first child may be on the way.
            return node.creates > 0
        ttl_ms = ttl_of(node.owner)
        return ttl_ms > 0 and now_ms - node.mtime > ttl_ms

    # Storage.

    def take_changes(self) -> list[Change]:
        """Return the nodes created, changed or deleted since the last call, each once.

        If a path was used twice, its later node comes later. The nodes are live: store them before
        the next write. The cost depends only on the number of touched nodes.
        """
        changes: list[Change] = []
        if self._touched:
            by_path = self.by_path
            for number, path in self._touched.items():
                node = by_path.get(path)
                # The node of this number may be deleted, and the path belong to a later node.
                changes.append((number, path, node if node and node.number == number else None))
            self._touched = {}
        return changes

    def restore(self, zxid: int, rows: Iterable[Row]) -> None:
        """Replace all nodes by `rows`, in the order of numbers. `zxid` is that of the last write.

        Raises ValueError, which names the node, if the rows cannot be one tree. Then this object is
        unusable.
        """
        self.by_path.clear()
        self.owned.clear()
        self.bytes = 0
        last_number = -1
        # A parent is older than its children, and the order of creation is that of the numbers.
        for number, path, node in rows:
            if number <= last_number:
                raise ValueError(f"the stored znode {path!r} has number {number} out of order")
            last_number = node.number = number
            node.children = NO_CHILDREN
            if path in self.by_path:
                raise ValueError(f"the znode {path!r} is stored twice")
            if max(node.czxid, node.mzxid, node.pzxid) > zxid:
                raise ValueError(f"the stored znode {path!r} is newer than the last write {zxid}")
            node.acl = None if node.acl is None or node.acl == OPEN_ACL else self._shared(node.acl)
            self._restore(path, node)
        if "/" not in self.by_path:
            raise ValueError("the root '/' is not among the stored znodes")
        self.next_number = last_number + 1
        if self._touched is not None:
            self._touched = {}

    def _restore(self, path: str, node: Node) -> None:
        if path == "/":
            self.by_path[path] = node
            self.bytes += 1 + len(node.data) + size_of(node.acl)
            return
        parent_path, slash, name = path.rpartition("/")
        parent = self.by_path.get(parent_path or "/")
        if not slash or not name or parent is None:
            raise ValueError(f"the stored znode {path!r} has no parent, or a younger parent")
        self._link(path, node, name, parent, parent.creates, parent.pzxid)
