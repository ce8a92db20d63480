"""The znode tree of a ZooKeeper server in memory: versions, sequences, ephemerals, watches, multi.

Pure: no I/O, no clock, no threads. Whoever calls passes the time in, serialises the calls and
delivers the events. Answers, errors and Stats are those of a real server (3.8), down to the order
in which the preconditions of an operation are judged; a test compares the two.

Every write takes exactly one zxid, a refused one too, as on a server, where a refusal also goes
through the log. A multi works in place and keeps an undo log, so its cost is that of its operations
and not that of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, overload

from zkplan.embedded.nodes import Node
from zkplan.embedded.paths import UNDELETABLE, name_fault, path_fault
from zkplan.embedded.records import (
    Answer,
    BadArgumentsError,
    BadVersionError,
    Check,
    Create,
    Delete,
    MultiFailed,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    SetData,
    Stat,
    TreeError,
)
from zkplan.embedded.watches import Event, Watches

__all__ = [
    "BadArgumentsError",
    "BadVersionError",
    "Check",
    "Create",
    "Delete",
    "Event",
    "MultiFailed",
    "NoChildrenForEphemeralsError",
    "NoNodeError",
    "NodeExistsError",
    "NotEmptyError",
    "SetData",
    "Stat",
    "Tree",
    "TreeError",
]


class Tree:
    """One server's znodes. With `system_nodes` it starts with /zookeeper, as a new server does."""

    def __init__(self, *, system_nodes: bool = False) -> None:
        self.zxid = 0
        self._nodes: dict[str, Node] = {"/": Node()}
        self._ephemerals: dict[int, set[str]] = {}
        self._watches = Watches()
        # Both are empty between calls: how to take back, and whom to tell of, the write under way.
        self._undo: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._changes: list[tuple[Callable[[str, str], None], str, str]] = []
        if system_nodes:
            # Not counted as creates: the first sequential node beside them has number 0.
            self._nodes["/"].children.add("zookeeper")
            self._nodes["/zookeeper"] = system = Node()
            for name in ("config", "quota"):
                system.children.add(name)
                self._nodes[f"/zookeeper/{name}"] = Node()

    # Writes.

    @overload
    def apply(self, op: Create, *, session: int = 0, now_ms: int = 0) -> str: ...
    @overload
    def apply(self, op: Delete | Check, *, session: int = 0, now_ms: int = 0) -> bool: ...
    @overload
    def apply(self, op: SetData, *, session: int = 0, now_ms: int = 0) -> Stat: ...
    @overload
    def apply(self, op: Op, *, session: int = 0, now_ms: int = 0) -> Answer: ...
    def apply(self, op: Op, *, session: int = 0, now_ms: int = 0) -> Answer:
        """Apply one operation, or raise its TreeError with nothing written.

        Answers: the actual path of a Create, True for Delete and Check, the new Stat for SetData.
        `session` owns what a Create makes ephemeral, and is then not 0.
        """
        self.zxid += 1
        # An operation judges all its preconditions before it writes: nothing to take back here.
        answer = self._execute(op, session, now_ms)
        self._settle()
        return answer

    def multi(self, ops: Iterable[Op], *, session: int = 0, now_ms: int = 0) -> list[Answer]:
        """Apply all operations in order under one zxid, each seeing the earlier ones, or none.

        Raises MultiFailed for the first one refused; then the tree is as before but for `zxid`,
        and no watch has fired.
        """
        self.zxid += 1
        answers: list[Answer] = []
        try:
            for op in ops:
                # One by one: how many answers there are names the culprit.
                answers.append(self._execute(op, session, now_ms))  # noqa: PERF401
        except BaseException as error:
            self._take_back()
            if isinstance(error, TreeError):
                raise MultiFailed(len(answers), error) from error
            raise
        self._settle()
        return answers

    def close_session(self, session: int, *, now_ms: int = 0) -> list[str]:
        """Delete the ephemeral nodes of `session` under one zxid; their paths, sorted."""
        self.zxid += 1
        paths = sorted(self._ephemerals.get(session, ()))
        for path in paths:
            self._delete(Delete(path))
        self._settle()
        return paths

    # Reads.

    def get(self, path: str, watcher: Hashable = None) -> tuple[bytes, Stat]:
        """Data and Stat of a node; a watcher is armed only where the node exists.

        Raises NoNodeError.
        """
        node = self._existing(path)
        if watcher is not None:
            self._watches.arm_data(path, watcher)
        return node.data, node.stat()

    def exists(self, path: str, watcher: Hashable = None) -> Stat | None:
        """Stat of a node or None; a watcher is armed in both cases, in the same set as by `get`."""
        if "\x00" in path:
            raise BadArgumentsError(path, f"the path {path!r} contains a NUL character")
        if watcher is not None:
            self._watches.arm_data(path, watcher)
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str, watcher: Hashable = None) -> tuple[list[str], Stat]:
        """Names of the children, sorted (a server promises no order), and the Stat of the node.

        Raises NoNodeError, and then arms nothing.
        """
        node = self._existing(path)
        if watcher is not None:
            self._watches.arm_child(path, watcher)
        return sorted(node.children), node.stat()

    def ephemerals(self, session: int) -> frozenset[str]:
        """Paths of the ephemeral nodes that `session` owns."""
        return frozenset(self._ephemerals.get(session, ()))

    def walk(self, path: str = "/") -> Iterator[str]:
        """Every path below `path`, without itself, parents first and siblings sorted.

        Raises NoNodeError at the first step. The tree must not change during the walk.
        """
        for name in sorted(self._existing(path).children):
            child_path = f"/{name}" if path == "/" else f"{path}/{name}"
            yield child_path
            yield from self.walk(child_path)

    # Watches.

    def take_events(self) -> list[Event]:
        """The events fired since the last call, in order."""
        return self._watches.take_events()

    def drop_watches(self, watcher: Hashable) -> None:
        """Disarm what `watcher` armed; its events that fired already are still among the events."""
        self._watches.drop(watcher)

    # One write: judge every precondition, in the server's order, then change, noting how to undo.

    def _execute(self, op: Op, session: int, now_ms: int) -> Answer:
        if isinstance(op, Create):
            return self._create(op, session, now_ms)
        if isinstance(op, SetData):
            return self._set_data(op, now_ms)
        if isinstance(op, Delete):
            return self._delete(op)
        self._at_version(op.path, op.version)
        return True

    def _create(self, op: Create, session: int, now_ms: int) -> str:
        parent_path, slash, name = op.path.rpartition("/")
        if not slash or "\x00" in op.path:
            raise BadArgumentsError(op.path, f"{op.path!r} is not an absolute path")
        if not parent_path:
            parent_path = "/"
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(op.path, f"cannot create {op.path!r}: its parent does not exist")
        path = op.path
        if op.sequence:
            number = f"{parent.creates:010d}"
            path += number
            name += number
        # The parent exists, so only the last component can be at fault. The root is its own name.
        if path != "/" and (fault := name_fault(name)):
            raise BadArgumentsError(path, f"the path {path!r} has {fault}")
        if path in self._nodes:
            raise NodeExistsError(path, f"the node {path!r} exists already")
        if parent.owner:
            raise NoChildrenForEphemeralsError(
                path, f"cannot create {path!r}: its parent is ephemeral"
            )
        if op.ephemeral and not session:
            raise BadArgumentsError(path, f"cannot create {path!r} as ephemeral without a session")
        self._undo.append((self._uncreate, (path, parent, name, parent.creates, parent.pzxid)))
        owner = session if op.ephemeral else 0
        self._nodes[path] = Node(op.data, owner, self.zxid, now_ms)
        parent.add_child(name, self.zxid)
        if owner:
            self._ephemerals.setdefault(owner, set()).add(path)
        self._changes.append((self._watches.created, path, parent_path))
        return path

    def _delete(self, op: Delete) -> bool:
        path = op.path
        parent_path, slash, name = path.rpartition("/")
        if not slash or "\x00" in path or path in UNDELETABLE:
            raise BadArgumentsError(path, f"the path {path!r} can never be deleted")
        node = self._existing(path)
        self._judge_version(path, node, op.version)
        if node.children:
            raise NotEmptyError(
                path, f"cannot delete {path!r}: it has {len(node.children)} children"
            )
        if not parent_path:
            parent_path = "/"
        parent = self._nodes[parent_path]
        self._undo.append((self._undelete, (path, node, parent, name, parent.pzxid)))
        del self._nodes[path]
        parent.children.remove(name)
        parent.pzxid = self.zxid
        if node.owner:
            self._disown(node.owner, path)
        self._changes.append((self._watches.deleted, path, parent_path))
        return True

    def _set_data(self, op: SetData, now_ms: int) -> Stat:
        node = self._at_version(op.path, op.version)
        self._undo.append((self._unset, (node, node.data, node.mzxid, node.mtime, node.version)))
        node.write(op.data, self.zxid, now_ms)
        self._changes.append((self._watches.changed, op.path, ""))
        return node.stat()

    def _existing(self, path: str) -> Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path, f"the node {path!r} does not exist")
        return node

    def _at_version(self, path: str, version: int) -> Node:
        node = self._nodes.get(path)
        if node is None:
            # Only a missing node's path needs judging: what is in the tree has passed already.
            if fault := path_fault(path):
                raise BadArgumentsError(path, f"the path {path!r} has {fault}")
            raise NoNodeError(path, f"the node {path!r} does not exist")
        self._judge_version(path, node, version)
        return node

    @staticmethod
    def _judge_version(path: str, node: Node, version: int) -> None:
        if version != -1 and version != node.version:
            raise BadVersionError(
                path, f"the node {path!r} has version {node.version}, not {version}"
            )

    # The end of a write: tell the watchers, or take everything back, last change first.

    def _settle(self) -> None:
        self._undo.clear()
        for tell, path, parent_path in self._changes:
            tell(path, parent_path)
        self._changes.clear()

    def _take_back(self) -> None:
        for undo, arguments in reversed(self._undo):
            undo(*arguments)
        self._undo.clear()
        self._changes.clear()

    def _uncreate(self, path: str, parent: Node, name: str, creates: int, pzxid: int) -> None:
        node = self._nodes.pop(path)
        parent.children.remove(name)
        parent.creates = creates
        parent.pzxid = pzxid
        if node.owner:
            self._disown(node.owner, path)

    def _undelete(self, path: str, node: Node, parent: Node, name: str, pzxid: int) -> None:
        self._nodes[path] = node
        parent.children.add(name)
        parent.pzxid = pzxid
        if node.owner:
            self._ephemerals.setdefault(node.owner, set()).add(path)

    @staticmethod
    def _unset(node: Node, data: bytes, mzxid: int, mtime: int, version: int) -> None:
        node.data = data
        node.mzxid = mzxid
        node.mtime = mtime
        node.version = version

    def _disown(self, session: int, path: str) -> None:
        owned = self._ephemerals[session]
        owned.remove(path)
        if not owned:
            del self._ephemerals[session]
