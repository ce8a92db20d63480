"""All znodes of one server and what is counted of them: each change notes how to take it back.

Nothing is judged here: writes.py decides whether an operation may happen, and then has it happen.
What is asked about many nodes at once (the ephemerals of a session, how many bytes there are, what
was written since the last time) is kept up to date with every change, and never counted anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from zkplan.embedded.acl import READ_ONLY_ACL, AclList, size_of
from zkplan.embedded.nodes import (
    CONTAINER_OWNER,
    INT_MAX,
    NO_CHILDREN,
    TTL_OWNER,
    Node,
    raised,
    ttl_of,
)
from zkplan.embedded.records import OPEN_ACL, Acl

#: One stored znode: its number, its path and the node; None for one that is gone.
Row = tuple[int, str, Node]
Change = tuple[int, str, Node | None]

# Equal lists are one object while they are among so many; beyond, sharing starts anew.
_SHARED_ACLS_MAX = 1024


class Znodes:
    """The nodes by path. `bytes` is about what they hold: data, paths and access control lists."""

    def __init__(self, *, system_nodes: bool, track_changes: bool) -> None:
        self.by_path: dict[str, Node] = {"/": Node()}
        self.bytes = 1
        self.next_number = 1
        #: Paths by owner: a session, CONTAINER_OWNER, or TTL_OWNER for every TTL node.
        self.owned: dict[int, dict[str, None]] = {}
        self._acls: dict[tuple[Acl, ...], tuple[Acl, ...]] = {}
        self._touched: dict[int, str] | None = {0: "/"} if track_changes else None
        # Empty between calls: how to take back the write under way.
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        if system_nodes:
            # Not counted as creates: the first number beside them is 0.
            self._insert_system("/", "zookeeper", None)
            # Its version as on a real server, which sets this one list beyond all rules.
            self._insert_system("/zookeeper", "config", READ_ONLY_ACL).aversion = -1
            self._insert_system("/zookeeper", "quota", None)
            self.keep()

    def _insert_system(self, parent_path: str, name: str, acl: AclList) -> Node:
        parent = self.by_path[parent_path]
        path = f"{parent_path.rstrip('/')}/{name}"
        node = self.insert(path, name, parent_path, parent, b"", 0, acl, 0, 0)
        parent.creates = 0
        return node

    # Changes. The caller has seen to it that they are possible.

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
        """A new node `path`, the child `name` of `parent`."""
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
        """The node `path`, the child `name` of `parent`, is gone."""
        creates = parent.creates
        self._undo.append((self._link, (path, node, name, parent, creates, parent.pzxid)))
        self._unlink(path, node, name, parent, creates, zxid)
        if self._touched is not None:
            self._touched[node.number] = path
            self._touched[parent.number] = parent_path

    def write(self, path: str, node: Node, data: bytes, zxid: int, now_ms: int) -> None:
        """The node has new data."""
        self._undo.append((self._put, (node, node.data, node.mzxid, node.mtime, node.version)))
        self._put(node, data, zxid, now_ms, raised(node.version))
        self._touch(node.number, path)

    def set_acl(self, path: str, node: Node, acl: AclList) -> None:
        """The node has a new access control list."""
        self._undo.append((self._put_acl, (node, node.acl, node.aversion)))
        shared = None if acl is None else self._shared(acl)
        self._put_acl(node, shared, raised(node.aversion))
        self._touch(node.number, path)

    def keep(self) -> None:
        """The changes since the last call stay."""
        self._undo.clear()

    def take_back(self) -> None:
        """The changes since the last `keep` never happened; the last is taken back first.

        What was touched stays so: storing an unchanged node again does no harm.
        """
        for undo, arguments in reversed(self._undo):
            undo(*arguments)
        self._undo.clear()

    # Each of these is the way back of another change, or of itself.

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

    # What is kept beside the nodes.

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
        """Containers whose last child is gone, and TTL nodes without child that are too old."""
        has_expired = self.has_expired
        return [
            path
            for owner in (CONTAINER_OWNER, TTL_OWNER)
            for path in self.owned.get(owner, ())
            if has_expired(path, now_ms)
        ]

    def has_expired(self, path: str, now_ms: int) -> bool:
        """Whether the node of this path, if there is one, is such a container or TTL node."""
        node = self.by_path.get(path)
        if node is None or node.children:
            return False
        if node.owner == CONTAINER_OWNER:
            # One that never had a child is new: its first child may be on the way.
            return node.creates > 0
        ttl_ms = ttl_of(node.owner)
        return ttl_ms > 0 and now_ms - node.mtime > ttl_ms

    # Storage.

    def take_changes(self) -> list[Change]:
        """What was created, changed or deleted since the last call: one entry for each node.

        A node of a path used before comes after the node that had the path. A node here is the live
        one: store it before the next write. Costs what was touched, not what there is.
        """
        changes: list[Change] = []
        if self._touched:
            by_path = self.by_path
            for number, path in self._touched.items():
                node = by_path.get(path)
                # The path may belong to a later node by now, and this one be gone.
                changes.append((number, path, node if node and node.number == number else None))
            self._touched = {}
        return changes

    def restore(self, zxid: int, rows: Iterable[Row]) -> None:
        """Become exactly these nodes, in the order of their numbers; `zxid` is the last write.

        Raises ValueError, naming the node, where they cannot be the nodes of one tree; what is
        here then is unusable.
        """
        self.by_path.clear()
        self.owned.clear()
        self.bytes = 0
        last_number = -1
        # A parent is older than its children, and the order of creation is that of the numbers.
        for number, path, node in rows:
            if number <= last_number:
                raise ValueError(f"the number {number} of the stored znode {path!r} is not its own")
            last_number = node.number = number
            node.children = NO_CHILDREN
            if path in self.by_path:
                raise ValueError(f"the znode {path!r} is stored twice")
            if max(node.czxid, node.mzxid, node.pzxid) > zxid:
                raise ValueError(f"the stored znode {path!r} is from after the last write {zxid}")
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
            raise ValueError(f"the stored znode {path!r} has no parent, or one younger than itself")
        self._link(path, node, name, parent, parent.creates, parent.pzxid)
