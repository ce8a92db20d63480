"""Watches: which watchers to notify of a change of a path.

A watcher stands for one connection. As in a real server, there is one table for data (armed by
`get` and `exists`) and one for children. A watcher in both tables gets one event for a deletion. A
persistent watch is in both tables. A recursive watch also gets events for the nodes below its path,
but none for a list of children, since it gets an event for each child.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple

from zkplan.embedded.acl import AclList, Who, permits
from zkplan.embedded.limits import Limits

from .operations import READ, LimitError, NoWatcherError

CREATED = "created"
DELETED = "deleted"
CHANGED = "changed"
CHILD = "child"

# The measured memory of one watch, without its path.
_WATCH_BYTES = 320
# The mode of a watch: fires once; stays; or stays and covers all nodes below, too.
_ONCE, _STAYS, _RECURSIVE = 0, 1, 2

#: The kinds of watches of a RemoveWatches request.
CHILDREN_WATCHES, DATA_WATCHES, ANY_WATCHES = 1, 2, 3


class Event(NamedTuple):
    """One event for one watcher; `kind` is 'created', 'deleted', 'changed' or 'child'."""

    watcher: Hashable
    kind: str
    path: str


# Dicts serve as sets that keep the order of arming: if the order of events depended on hashes, a
# seeded run could not be repeated.
_Watchers = dict[Hashable, int]
_NOBODY: dict[Hashable, None] = {}


class _Table:
    """The watchers of each path, and the paths of each watcher."""

    __slots__ = ("by_path", "by_watcher", "bytes", "bytes_by_watcher", "recursive")

    def __init__(self) -> None:
        self.by_path: dict[str, _Watchers] = {}
        self.by_watcher: dict[Hashable, dict[str, None]] = {}
        self.bytes_by_watcher: dict[Hashable, int] = {}  # of the paths of `by_watcher`
        self.bytes = 0  # of memory, roughly
        # The number of recursive watches. With none, an event need not look at the paths above.
        self.recursive = 0

    def arm(self, path: str, watcher: Hashable, mode: int = _ONCE) -> None:
        """Arm. The last mode counts: as in 3.8.0, a read with a watch ends a persistent watch."""
        watchers = self.by_path.setdefault(path, {})
        self.recursive += (mode == _RECURSIVE) - (watchers.get(watcher) == _RECURSIVE)
        if watcher not in watchers:
            held = self.bytes_by_watcher
            size = _size_of(path)
            held[watcher] = held.get(watcher, 0) + size
            self.bytes += size + _WATCH_BYTES
        watchers[watcher] = mode
        self.by_watcher.setdefault(watcher, {})[path] = None

    def disarm(self, path: str, watcher: Hashable) -> bool:
        """Disarm a watch. Returns whether there was one."""
        watchers = self.by_path.get(path)
        if watchers is None or watcher not in watchers:
            return False
        self.recursive -= watchers.pop(watcher) == _RECURSIVE
        if not watchers:
            del self.by_path[path]
        paths = self.by_watcher[watcher]
        del paths[path]
        size = _size_of(path)
        self.bytes_by_watcher[watcher] -= size
        self.bytes -= size + _WATCH_BYTES
        if not paths:
            del self.by_watcher[watcher], self.bytes_by_watcher[watcher]
        return True

    def drop(self, watcher: Hashable) -> None:
        for path in list(self.by_watcher.get(watcher, ())):
            self.disarm(path, watcher)

    def fire(self, path: str, *, listing: bool = False) -> dict[Hashable, None]:
        """Return the watchers to notify about `path`, and disarm the watches that fire once."""
        watchers = self.by_path.get(path)
        if watchers is None and not self.recursive:
            return _NOBODY
        fired: dict[Hashable, None] = {}
        spent = []
        for watcher, mode in (watchers or {}).items():
            if mode == _ONCE:
                spent.append(watcher)
            if mode != _RECURSIVE or not listing:
                fired[watcher] = None
        if self.recursive and not listing:
            above = path
            while above != "/":
                above = above.rpartition("/")[0] or "/"
                for watcher, mode in self.by_path.get(above, {}).items():
                    if mode == _RECURSIVE:
                        fired[watcher] = None
        for watcher in spent:
            self.disarm(path, watcher)
        return fired


def _size_of(path: str) -> int:
    return len(path) if path.isascii() else 4 * len(path)  # the maximum in memory


class Watches:
    """The armed watches of one tree, and the events not yet taken.

    `identities` returns the proven identities of a watcher. A watcher without READ for the node
    gets no event, but loses its one-time watch. Arming beyond the `limits` raises LimitError.
    """

    def __init__(self, limits: Limits, identities: Callable[[Hashable], Who]) -> None:
        self._data = _Table()
        self._child = _Table()
        self._events: list[Event] = []
        self._identities = identities
        self._limits = limits

    def arm_data(self, path: str, watcher: Hashable) -> None:
        """Notify `watcher` when `path` is next created, changed or deleted."""
        self._judge_room(path, watcher)
        self._data.arm(path, watcher)

    def arm_child(self, path: str, watcher: Hashable) -> None:
        """Notify `watcher` when `path` next gains or loses a child, or is deleted."""
        self._judge_room(path, watcher)
        self._child.arm(path, watcher)

    def arm_for_good(self, path: str, watcher: Hashable, *, recursive: bool = False) -> None:
        """Notify `watcher` of each change of `path`, and with `recursive` of all nodes below."""
        self._judge_room(path, watcher)
        for table in (self._data, self._child):
            table.arm(path, watcher, _RECURSIVE if recursive else _STAYS)

    def remove(self, path: str, watcher: Hashable, kind: int, only_check: bool = False) -> None:
        """Disarm the watches of `watcher` for `path`. `kind`: 1 for children, 2 for data, 3 both.

        Raises NoWatcherError if there is none. With `only_check` nothing is disarmed, and the watch
        of any watcher passes, as in version 3.8.0. No event is sent: clients make one themselves.
        """
        tables = [
            table
            for table, own in ((self._child, CHILDREN_WATCHES), (self._data, DATA_WATCHES))
            if kind in (own, ANY_WATCHES)
        ]
        if only_check:
            found = [path in table.by_path for table in tables]
        else:
            found = [table.disarm(path, watcher) for table in tables]
        if not any(found):
            raise NoWatcherError(path)

    def drop(self, watcher: Hashable) -> None:
        """Disarm every watch of `watcher`. Events for it stay."""
        self._data.drop(watcher)
        self._child.drop(watcher)

    def counts(self) -> tuple[int, int, int]:
        """Count the watchers, the watched paths, and the watches."""
        data, child = self._data, self._child
        return (
            len(data.by_watcher.keys() | child.by_watcher.keys()),
            len(data.by_path.keys() | child.by_path.keys()),
            sum(map(len, data.by_watcher.values())) + sum(map(len, child.by_watcher.values())),
        )

    def __bool__(self) -> bool:
        """Whether any watch is armed."""
        return bool(self._data.by_path or self._child.by_path)

    def take_events(self) -> list[Event]:
        """Return the events since the last call, in their order."""
        events, self._events = self._events, []
        return events

    def notify(self, watcher: Hashable, kind: str, path: str) -> None:
        """Add one event for one watcher, without a check of its rights."""
        self._events.append(Event(watcher, kind, path))

    # Almost no write has a watcher, so the methods below check for one first.

    def created(self, path: str, parent_path: str, acl: AclList, parent_acl: AclList) -> None:
        """Notify the watchers that the node `path` was created."""
        data, child = self._data, self._child
        if data.recursive or path in data.by_path:
            self._notify(data.fire(path), CREATED, path, acl)
        if parent_path in child.by_path:
            self._notify(child.fire(parent_path, listing=True), CHILD, parent_path, parent_acl)

    def deleted(self, path: str, parent_path: str, acl: AclList, parent_acl: AclList) -> None:
        """Notify the watchers that the node `path` was deleted."""
        data, child = self._data, self._child
        if data.recursive or child.recursive or path in data.by_path or path in child.by_path:
            fired = data.fire(path)
            self._notify(fired, DELETED, path, acl)
            rest = [watcher for watcher in child.fire(path) if watcher not in fired]
            self._notify(rest, DELETED, path, acl)
        if parent_path in child.by_path:
            self._notify(child.fire(parent_path, listing=True), CHILD, parent_path, parent_acl)

    def changed(self, path: str, _parent_path: str, acl: AclList, _parent_acl: AclList) -> None:
        """Notify the watchers that the data of the node `path` was set."""
        data = self._data
        if data.recursive or path in data.by_path:
            self._notify(data.fire(path), CHANGED, path, acl)

    def _judge_room(self, path: str, watcher: Hashable) -> None:
        data, child, limits = self._data, self._child, self._limits
        size = _size_of(path)
        count = len(data.by_watcher.get(watcher, ())) + len(child.by_watcher.get(watcher, ()))
        held = data.bytes_by_watcher.get(watcher, 0) + child.bytes_by_watcher.get(watcher, 0)
        if (
            count >= limits.watches
            or held + size > limits.watch_bytes
            or data.bytes + child.bytes + size > limits.watch_total_bytes
        ):
            raise LimitError(path)

    def _notify(self, watchers: Iterable[Hashable], kind: str, path: str, acl: AclList) -> None:
        for watcher in watchers:
            if acl is None or self._may_read(watcher, acl):
                self._events.append(Event(watcher, kind, path))

    def _may_read(self, watcher: Hashable, acl: AclList) -> bool:
        return permits(acl, READ, self._identities(watcher))
