"""Watches: whom a change of a path is reported to.

A watcher stands for one connection to a server. Like the server, this keeps one table for data
(armed by `get` and `exists`) and another for children, and a deletion tells a watcher that is in
both tables only once. A watch that stays is in both; one that is recursive is told of the nodes
below its path too, and then never of a list of children, since it hears of each child.
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

# What the tables take for one watch besides its path, as measured.
_WATCH_BYTES = 320
# How a watch is armed: fires once, stays, stays and hears of everything below.
_ONCE, _STAYS, _RECURSIVE = 0, 1, 2

#: The kinds of watches of a RemoveWatches request.
CHILDREN_WATCHES, DATA_WATCHES, ANY_WATCHES = 1, 2, 3


class Event(NamedTuple):
    """What one watcher is told: `kind` is 'created', 'deleted', 'changed' or 'child'."""

    watcher: Hashable
    kind: str
    path: str


# Dicts serve as sets that remember the order of arming: the order of events must not depend on
# hashes, or a seeded run could not be repeated.
_Watchers = dict[Hashable, int]
_NOBODY: dict[Hashable, None] = {}


class _Table:
    """Who is told of what at each path, and the same by watcher."""

    __slots__ = ("by_path", "by_watcher", "bytes", "bytes_by_watcher", "recursive")

    def __init__(self) -> None:
        self.by_path: dict[str, _Watchers] = {}
        self.by_watcher: dict[Hashable, dict[str, None]] = {}
        self.bytes_by_watcher: dict[Hashable, int] = {}  # of the paths of `by_watcher`
        self.bytes = 0  # of memory, about, for all that is armed
        # While nobody listens recursively, no event looks at the paths above.
        self.recursive = 0

    def arm(self, path: str, watcher: Hashable, mode: int = _ONCE) -> None:
        """Arm; the last mode counts: a read with a watch ends a watch that stays, as in 3.8.0."""
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
        """Whether there was such a watch."""
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
        """Who is to be told about `path`; those armed for once are disarmed."""
        watchers = self.by_path.get(path)
        if watchers is None and not self.recursive:
            return _NOBODY
        told: dict[Hashable, None] = {}
        spent = []
        for watcher, mode in (watchers or {}).items():
            if mode == _ONCE:
                spent.append(watcher)
            if mode != _RECURSIVE or not listing:
                told[watcher] = None
        if self.recursive and not listing:
            self._add_recursive(path, told)
        for watcher in spent:
            self.disarm(path, watcher)
        return told

    def _add_recursive(self, path: str, told: dict[Hashable, None]) -> None:
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            for watcher, mode in self.by_path.get(path, {}).items():
                if mode == _RECURSIVE:
                    told[watcher] = None


def _size_of(path: str) -> int:
    return len(path) if path.isascii() else 4 * len(path)  # at most, in memory


class Watches:
    """The armed watches of one tree and the events not yet taken.

    `identities` tells who a watcher has proven to be; without READ for the node it is told nothing,
    and a watch for once is spent all the same. Beyond the `limits` of watches a watcher gets no
    more: LimitError.
    """

    def __init__(self, limits: Limits, identities: Callable[[Hashable], Who]) -> None:
        self._data = _Table()
        self._child = _Table()
        self._events: list[Event] = []
        self._identities = identities
        self._limits = limits

    def arm_data(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when `path` is next created, changed or deleted."""
        self._judge_room(path, watcher)
        self._data.arm(path, watcher)

    def arm_child(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when `path` next gains or loses a child, or is deleted."""
        self._judge_room(path, watcher)
        self._child.arm(path, watcher)

    def arm_for_good(self, path: str, watcher: Hashable, *, recursive: bool = False) -> None:
        """Tell `watcher` of every change of `path` from now on, `recursive`: of all below too."""
        self._judge_room(path, watcher)
        for table in (self._data, self._child):
            table.arm(path, watcher, _RECURSIVE if recursive else _STAYS)

    def remove(self, path: str, watcher: Hashable, kind: int, only_check: bool = False) -> None:
        """Disarm the watches of `watcher` for `path`: 1 those of children, 2 of data, 3 both.

        Raises NoWatcherError where there is none. `only_check` disarms nothing, and like version
        3.8.0 is content with anybody's watch. No event is sent: clients make theirs up.
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
        """Disarm every watch of `watcher`; what it was told already stays among the events."""
        self._data.drop(watcher)
        self._child.drop(watcher)

    def counts(self) -> tuple[int, int, int]:
        """How many watchers there are, how many watched paths, and how many watches."""
        data, child = self._data, self._child
        return (
            len(data.by_watcher.keys() | child.by_watcher.keys()),
            len(data.by_path.keys() | child.by_path.keys()),
            sum(map(len, data.by_watcher.values())) + sum(map(len, child.by_watcher.values())),
        )

    def __bool__(self) -> bool:
        """Whether anything is armed."""
        return bool(self._data.by_path or self._child.by_path)

    def take_events(self) -> list[Event]:
        """The events since the last call, in the order in which they happened."""
        events, self._events = self._events, []
        return events

    def tell(self, watcher: Hashable, kind: str, path: str) -> None:
        """One event for one watcher, whatever it may read."""
        self._events.append(Event(watcher, kind, path))

    # Nearly all that is written is watched by nobody: these ask for that first.

    def created(self, path: str, parent_path: str, acl: AclList, parent_acl: AclList) -> None:
        """The node `path` now exists."""
        data, child = self._data, self._child
        if data.recursive or path in data.by_path:
            self._tell(data.fire(path), CREATED, path, acl)
        if parent_path in child.by_path:
            self._tell(child.fire(parent_path, listing=True), CHILD, parent_path, parent_acl)

    def deleted(self, path: str, parent_path: str, acl: AclList, parent_acl: AclList) -> None:
        """The node `path` is gone."""
        data, child = self._data, self._child
        if data.recursive or child.recursive or path in data.by_path or path in child.by_path:
            told = data.fire(path)
            self._tell(told, DELETED, path, acl)
            listing = child.fire(path)
            self._tell([watcher for watcher in listing if watcher not in told], DELETED, path, acl)
        if parent_path in child.by_path:
            self._tell(child.fire(parent_path, listing=True), CHILD, parent_path, parent_acl)

    def changed(self, path: str, _parent_path: str, acl: AclList, _parent_acl: AclList) -> None:
        """The node `path` has new data."""
        data = self._data
        if data.recursive or path in data.by_path:
            self._tell(data.fire(path), CHANGED, path, acl)

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

    def _tell(self, watchers: Iterable[Hashable], kind: str, path: str, acl: AclList) -> None:
        for watcher in watchers:
            if acl is None or self._may_read(watcher, acl):
                self._events.append(Event(watcher, kind, path))

    def _may_read(self, watcher: Hashable, acl: AclList) -> bool:
        return permits(acl, READ, self._identities(watcher))
