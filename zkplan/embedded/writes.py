"""The writes: each checks its preconditions in the order of a real server, then acts.

The order decides which of several errors a requester gets, and so what the requester learns about
nodes that it may not read. A test compares the order with that of ZooKeeper 3.8.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from zkplan.embedded.acl import Who, mended, permits
from zkplan.embedded.limits import Limits
from zkplan.embedded.watches import Watches
from zkplan.embedded.znodes import Znodes

from .operations import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN_ACL,
    READ,
    WRITE,
    Answer,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Created,
    Delete,
    LimitError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetAcl,
    SetData,
    Stat,
)
from .znodes import CONTAINER_OWNER, TTL_OWNER, Node, is_session

# The server's own nodes and the root. Deleting one is a bad argument, even if it does not exist.
_UNDELETABLE = frozenset({"/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"})
# A real server checks UTF-16 units and refuses surrogates, and so every character beyond U+FFFF.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]")

# The share of the limits that is reserved for work under way: see `Writes.end`.
_RESERVE = 0.05
# The size of a tree: znodes, and bytes of data, paths and access lists.
_Size = tuple[int, int]


def require(path: str, node: Node, perms: int, who: Who) -> None:
    """Raise NoAuthError unless the requester has any of `perms` for the node."""
    if node.acl is not None and not permits(node.acl, perms, who):
        raise NoAuthError(path)


class Writes:
    """Executes operations one by one. `end`, `notify` or `forget` ends a group of them."""

    def __init__(self, znodes: Znodes, watches: Watches, limits: Limits) -> None:
        self.znodes = znodes
        self.nodes = znodes.by_path
        self._limits = limits
        self._watches = watches
        # Calls that notify watchers once the group is certain: the method, the paths of the node
        # and of its parent, and the two nodes.
        self._changes: list[tuple[Callable[..., None], str, str, Node, Node]] = []

    def execute(self, op: Op, zxid: int, session: int, now_ms: int, who: Who) -> Answer:
        """Apply one operation, or raise its TreeError with nothing written."""
        if isinstance(op, Create):
            return self._create(op, zxid, session, now_ms, who)
        if isinstance(op, SetData):
            return self._set_data(op, zxid, now_ms, who)
        if isinstance(op, Delete):
            return self._delete(op, zxid, who)
        if isinstance(op, Check):
            node = self._writable(op.path)
            require(op.path, node, READ, who)
            self._judge_version(op.path, node.version, op.version)
            return True
        return self._set_acl(op, who)

    def size(self) -> _Size:
        """Return the size of the tree now."""
        return len(self.nodes), self.znodes.bytes

    def end(self, before: _Size, ops: Sequence[Op]) -> tuple[int, LimitError] | None:
        """Keep `ops`, applied to a tree of size `before`, and notify watchers; or undo all of them.

        If `ops` make the tree too large, undoes them and returns the index of one to blame, and its
        error. `ops` count as a whole: a group that shrinks the tree is never refused. The last part
        of the limits is reserved for work under way: a group that adds several nodes, some of them
        sequential, makes a queue longer, so it is refused earlier than groups that shorten one.
        """
        refused = self._judge_size(before, ops)
        if refused is None:
            self.notify()
        else:
            self.forget()
        return refused

    def _judge_size(self, before: _Size, ops: Sequence[Op]) -> tuple[int, LimitError] | None:
        nodes_now, bytes_now = self.size()
        nodes, size = nodes_now - before[0], bytes_now - before[1]
        if nodes <= 0 and size <= 0:
            return None
        adds = nodes > 1 and any(isinstance(op, Create) and op.sequence for op in ops)
        share = 1.0 - _RESERVE if adds else 1.0
        limits = self._limits
        if nodes > 0 and nodes_now > limits.znodes * share:
            return _blame(ops, by_data=False)
        if size > 0 and bytes_now > limits.tree_bytes * share:
            return _blame(ops, by_data=True)
        return None

    def notify(self) -> None:
        """Keep the operations since the last call, and notify their watchers in order."""
        self.znodes.keep()
        for notify, path, parent_path, node, parent in self._changes:
            notify(path, parent_path, node.acl, parent.acl)
        self._changes.clear()

    def forget(self) -> None:
        """Undo the operations since the last `notify`."""
        self.znodes.take_back()
        self._changes.clear()

    # One operation each.

    def _create(self, op: Create, zxid: int, session: int, now_ms: int, who: Who) -> str | Created:
        path = op.path
        owner = _owner(op, session) if op.ephemeral or op.container or op.ttl_ms else 0
        parent_path, slash, name = path.rpartition("/")
        if not slash or "\x00" in path:
            raise BadArgumentsError(path)
        acl = None if op.acl is OPEN_ACL else mended(path, op.acl, who)
        doubled = parent_path == "/"
        if not parent_path:
            parent_path = "/"
        parent = self.nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(path)
        if parent.acl is not None:
            require(parent_path, parent, CREATE, who)
        if op.sequence:
            number = f"{parent.creates:010d}"
            path += number
            name += number
        # The parent exists, so only two things can be wrong: the last component, or a second slash
        # after that of the root. The root itself has no name to check.
        if path != "/" and (doubled or not _is_name(name)):
            raise BadArgumentsError(path)
        if path in self.nodes:
            raise NodeExistsError(path)
        if parent.owner and is_session(parent.owner):
            raise NoChildrenForEphemeralsError(path)
        node = self.znodes.insert(
            path, name, parent_path, parent, op.data, owner, acl, zxid, now_ms
        )
        if self._watches:
            self._changes.append((self._watches.created, path, parent_path, node, parent))
        return Created(path, node.stat()) if op.with_stat else path

    def _delete(self, op: Delete, zxid: int, who: Who) -> bool:
        path = op.path
        parent_path, slash, name = path.rpartition("/")
        if not slash or "\x00" in path or path in _UNDELETABLE:
            raise BadArgumentsError(path)
        if not parent_path:
            parent_path = "/"
        parent = self.nodes.get(parent_path)
        if parent is not None and parent.acl is not None:
            # Before the look-up: who may not delete here must not learn which nodes exist.
            require(parent_path, parent, DELETE, who)
        node = self.nodes.get(path)
        if node is None or parent is None:
            raise NoNodeError(path)
        if op.version != -1:
            self._judge_version(path, node.version, op.version)
        if node.children:
            raise NotEmptyError(path)
        self.znodes.remove(path, node, name, parent_path, parent, zxid)
        if self._watches:
            self._changes.append((self._watches.deleted, path, parent_path, node, parent))
        return True

    def _set_data(self, op: SetData, zxid: int, now_ms: int, who: Who) -> Stat:
        node = self._writable(op.path)
        if node.acl is not None:
            require(op.path, node, WRITE, who)
        if op.version != -1:
            self._judge_version(op.path, node.version, op.version)
        self.znodes.write(op.path, node, op.data, zxid, now_ms)
        if self._watches:
            self._changes.append((self._watches.changed, op.path, "", node, node))
        return node.stat()

    def _set_acl(self, op: SetAcl, who: Who) -> Stat:
        if op.path not in self.nodes and not _is_path(op.path):
            raise BadArgumentsError(op.path)
        acl = mended(op.path, op.acl, who)
        node = self._writable(op.path)
        require(op.path, node, ADMIN, who)
        self._judge_version(op.path, node.aversion, op.version)
        self.znodes.set_acl(op.path, node, acl)
        return node.stat()

    # Preconditions.

    def _writable(self, path: str) -> Node:
        node = self.nodes.get(path)
        if node is None:
            # Only the path of a missing node needs a check: the paths in the tree have passed it.
            raise NoNodeError(path) if _is_path(path) else BadArgumentsError(path)
        return node

    @staticmethod
    def _judge_version(path: str, version: int, expected: int) -> None:
        if expected != -1 and expected != version:
            raise BadVersionError(path)


def _is_name(name: str) -> bool:
    return name not in {"", ".", ".."} and not _FORBIDDEN.search(name)


def _is_path(path: str) -> bool:
    # Only writes check paths: a read of an impossible path finds no node.
    return path == "/" or (path.startswith("/") and all(map(_is_name, path[1:].split("/"))))


def _blame(ops: Sequence[Op], *, by_data: bool) -> tuple[int, LimitError]:
    """The index and error of the first op that adds a node, or `by_data` of the largest one."""

    def growth(at: int) -> int:
        op = ops[at]
        if by_data:
            return len(op.data) if isinstance(op, (Create, SetData)) else 0
        return int(isinstance(op, Create))

    at = max(range(len(ops)), key=growth)
    return at, LimitError(ops[at].path)


def _owner(op: Create, session: int) -> int:
    if op.ttl_ms:
        return TTL_OWNER + op.ttl_ms
    if op.container:
        return CONTAINER_OWNER
    if not op.ephemeral:
        return 0
    if not session:
        raise BadArgumentsError(op.path)
    return session
