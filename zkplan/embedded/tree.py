"""The znode tree in memory: versions, sequences, ephemerals, watches, multi.

Pure: no I/O, no clock, no threads. The caller passes the time, makes one call at a time and
delivers the events. Answers, errors and Stats are those of a real server (3.8), and an operation
checks its preconditions in the same order; a test compares both servers.

Every write takes one zxid, even a refused write: on a real server a refusal goes through the log,
too. A multi changes the tree in place and keeps an undo log, so its cost does not depend on the
size of the tree.

`who` are the proven identities of the requester. None stands for the server itself and for
simulations, which no access list restricts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import overload

from zkplan.embedded.acl import Who, shown
from zkplan.embedded.limits import Limits
from zkplan.embedded.watches import CHANGED, CHILD, CREATED, DELETED, Watches
from zkplan.embedded.writes import Writes, require
from zkplan.embedded.znodes import Row, Znodes

from .operations import (
    ADMIN,
    READ,
    Acl,
    Answer,
    BadArgumentsError,
    Check,
    Create,
    Delete,
    MultiFailed,
    NoNodeError,
    Op,
    SetAcl,
    SetData,
    SetWatches,
    Stat,
    TreeError,
)
from .znodes import Node, is_session

_LIMITS = Limits()


class Tree:
    """The znodes of one server. With `system_nodes` it starts with /zookeeper, as a new server.

    With `track_changes` it remembers changes for `znodes.take_changes`. Beyond `limits`, writes
    that grow the tree (see `Writes.end`) and reads that arm a watch raise LimitError. `watches` has
    the events. `identities` returns the proven identities of a watcher, because events need READ;
    by default every watcher may read.
    """

    def __init__(
        self,
        limits: Limits = _LIMITS,
        *,
        system_nodes: bool = False,
        track_changes: bool = False,
        identities: Callable[[Hashable], Who] = lambda _: None,
    ) -> None:
        self.zxid = 0
        self.watches = Watches(limits, identities)
        self.znodes = Znodes(system_nodes=system_nodes, track_changes=track_changes)
        self._nodes = self.znodes.by_path
        self._writes = Writes(self.znodes, self.watches, limits)
        self._to_sweep: list[str] = []

    # Writes.

    @overload
    def apply(self, op: Create, *, session: int = 0, now_ms: int = 0, who: Who = None) -> str: ...
    @overload
    def apply(
        self, op: Delete | Check, *, session: int = 0, now_ms: int = 0, who: Who = None
    ) -> bool: ...
    @overload
    def apply(
        self, op: SetData | SetAcl, *, session: int = 0, now_ms: int = 0, who: Who = None
    ) -> Stat: ...
    @overload
    def apply(self, op: Op, *, session: int = 0, now_ms: int = 0, who: Who = None) -> Answer: ...
    def apply(self, op: Op, *, session: int = 0, now_ms: int = 0, who: Who = None) -> Answer:
        """Apply one operation, or raise its TreeError with nothing written.

        Returns the actual path of a Create (or Created if `op.with_stat`), True for Delete and
        Check, the new Stat for SetData and SetAcl. `session` owns an ephemeral node, and must not
        be 0 for one.
        """
        self.zxid += 1
        before = self._writes.size()
        # `execute` checks all preconditions before it writes, but for the limits: `end` does that.
        answer = self._writes.execute(op, self.zxid, session, now_ms, who)
        if (refused := self._writes.end(before, (op,))) is not None:
            raise refused[1]
        return answer

    def multi(
        self, ops: Sequence[Op], *, session: int = 0, now_ms: int = 0, who: Who = None
    ) -> list[Answer]:
        """Apply all operations in order under one zxid, or none. Each sees the earlier ones.

        Raises MultiFailed for the first operation refused. Then no watch has fired, and the tree is
        as before, except for `zxid` and the order of children whose deletion was undone.
        """
        self.zxid = zxid = self.zxid + 1
        execute = self._writes.execute
        before = self._writes.size()
        answers: list[Answer] = []
        try:
            for op in ops:
                # Append one by one: after an error, len(answers) is the index of the refused one.
                answers.append(execute(op, zxid, session, now_ms, who))  # noqa: PERF401
        except BaseException as error:
            self._writes.forget()
            if isinstance(error, TreeError):
                raise MultiFailed(len(answers), error) from error
            raise
        if (refused := self._writes.end(before, ops)) is not None:
            raise MultiFailed(*refused)
        return answers

    def close_session(self, session: int, *, now_ms: int = 0) -> list[str]:
        """Delete the ephemeral nodes of `session` under one zxid. Returns their paths, sorted."""
        self.zxid += 1
        paths = sorted(self.ephemerals(session))
        for path in paths:
            self._writes.execute(Delete(path), self.zxid, session, now_ms, None)
        self._writes.notify()
        return paths

    def sweep(self, now_ms: int, at_most: int | None = None) -> list[str]:
        """Delete empty containers and old TTL nodes, at most `at_most`; return their paths.

        Each takes a zxid of its own. A node that loses its last child now is left for a later call.
        After a call that reached `at_most`, the next one goes on with the nodes found before.
        """
        if at_most is None or not self._to_sweep:
            self._to_sweep = self.znodes.expired(now_ms)[::-1]
        paths: list[str] = []
        while self._to_sweep and len(paths) != at_most:
            path = self._to_sweep.pop()
            if self.znodes.has_expired(path, now_ms):  # check again: it may be some calls later
                self.apply(Delete(path), now_ms=now_ms)
                paths.append(path)
        return paths

    def advance(self) -> int:
        """Take and return a zxid for an event outside of the tree, such as a new session."""
        self.zxid += 1
        return self.zxid

    # Reads.

    def get(self, path: str, watcher: Hashable = None, who: Who = None) -> tuple[bytes, Stat]:
        """Return the data and Stat of a node, and arm a watch for `watcher`.

        Raises NoNodeError and NoAuthError, and then arms nothing.
        """
        node = self._readable(path, who)
        if watcher is not None:
            self.watches.arm_data(path, watcher)
        return node.data, node.stat()

    def exists(self, path: str, watcher: Hashable = None) -> Stat | None:
        """Return the Stat of a node, or None; in both cases arm the same watch as `get` does.

        As on a real server, no access list is checked.
        """
        if "\x00" in path:
            raise BadArgumentsError(path)
        if watcher is not None:
            self.watches.arm_data(path, watcher)
        node = self._nodes.get(path or "/")
        return None if node is None else node.stat()

    def children(
        self, path: str, watcher: Hashable = None, who: Who = None
    ) -> tuple[list[str], Stat]:
        """Return the names of the children in order of creation, and the Stat of the node.

        Arms a watch for `watcher`. Raises NoNodeError and NoAuthError, and then arms nothing.
        """
        node = self._readable(path, who)
        if watcher is not None:
            self.watches.arm_child(path, watcher)
        return list(node.children), node.stat()

    def get_acl(self, path: str, who: Who = None) -> tuple[tuple[Acl, ...], Stat]:
        """Return the access control list and the Stat. Hashes of passwords need the right ADMIN.

        Raises NoNodeError, and NoAuthError without READ or ADMIN.
        """
        node = self._readable(path, who, READ | ADMIN)
        return shown(node.acl, who), node.stat()

    def ephemerals(self, session: int) -> frozenset[str]:
        """Paths of the ephemeral nodes that `session` owns."""
        return frozenset(self.znodes.owned.get(session, ()) if is_session(session) else ())

    def count_descendants(self, path: str, who: Who = None) -> int:
        """Count the nodes below `path`, one by one. Raises NoNodeError, NoAuthError."""
        node = self._readable(path, who)
        if path in ("/", ""):
            return len(self._nodes) - 1
        count = 0
        pending = [(path, node)]
        while pending:
            parent_path, parent = pending.pop()
            count += len(parent.children)
            for name in parent.children:
                child_path = f"{parent_path}/{name}"
                child = self._nodes[child_path]
                if child.children:
                    pending.append((child_path, child))
        return count

    @property
    def node_count(self) -> int:
        """The number of znodes, including the root and the server's own."""
        return len(self._nodes)

    @property
    def ephemeral_count(self) -> int:
        owned = self.znodes.owned.items()
        return sum(len(paths) for owner, paths in owned if is_session(owner))

    def _readable(self, path: str, who: Who, perms: int = READ) -> Node:
        # In reads, a real server takes the empty path for the root, too.
        node = self._nodes.get(path or "/")
        if node is None:
            raise NoNodeError(path)
        if node.acl is not None:
            require(path, node, perms, who)
        return node

    # Watches.

    def set_watches(self, again: SetWatches, watcher: Hashable) -> None:
        """Arm the watches of a reconnected client again; fire those that missed a change.

        Like a real server, this fires them without checking the right to read.
        """
        watches, seen = self.watches, again.relative_zxid

        def changed(node: Node | None) -> str | None:
            return DELETED if node is None else CHANGED if node.mzxid > seen else None

        def created(node: Node | None) -> str | None:
            return None if node is None else CREATED

        def listed(node: Node | None) -> str | None:
            return DELETED if node is None else CHILD if node.pzxid > seen else None

        for paths, missed, arm in (
            (again.data, changed, watches.arm_data),
            (again.exists, created, watches.arm_data),
            (again.child, listed, watches.arm_child),
        ):
            for path in paths:
                if (kind := missed(self._nodes.get(path or "/"))) is None:
                    arm(path, watcher)
                else:
                    watches.notify(watcher, kind, path)
        for path in again.persistent:
            watches.arm_for_good(path, watcher)
        for path in again.recursive:
            watches.arm_for_good(path, watcher, recursive=True)

    # Storage.

    def restore(self, zxid: int, nodes: Iterable[Row]) -> None:
        """Fill this new tree with `nodes` (number, path, node), including the root, at `zxid`.

        Raises ValueError, which names the node, if they cannot be one tree. Then this tree is
        unusable.
        """
        if self.zxid:
            raise ValueError("only a new tree can be restored")
        self.znodes.restore(zxid, nodes)
        self.zxid = zxid
