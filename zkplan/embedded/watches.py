"""One-shot watches: who is told once, about which path, and the events that came of it.

A watcher stands for one connection to a server. Like the server, this keeps a set of watchers per
path for data (armed by `get` and `exists`) and another for children, and a deletion tells a
watcher that is in both sets only once.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import NamedTuple

CREATED = "created"
DELETED = "deleted"
CHANGED = "changed"
CHILD = "child"


class Event(NamedTuple):
    """What one watcher is told: `kind` is 'created', 'deleted', 'changed' or 'child'."""

    watcher: Hashable
    kind: str
    path: str


# Dicts serve as sets that remember the order of arming: the order of events must not depend on
# hashes, or a seeded run could not be repeated.
_Armed = dict[str, dict[Hashable, None]]
_NOBODY: dict[Hashable, None] = {}


class Watches:
    """The armed watches of one tree and the events not yet taken."""

    __slots__ = ("_child", "_data", "_events")

    def __init__(self) -> None:
        self._data: _Armed = {}
        self._child: _Armed = {}
        self._events: list[Event] = []

    def arm_data(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when `path` is next created, changed or deleted."""
        self._data.setdefault(path, {})[watcher] = None

    def arm_child(self, path: str, watcher: Hashable) -> None:
        """Tell `watcher` when `path` next gains or loses a child, or is deleted."""
        self._child.setdefault(path, {})[watcher] = None

    def drop(self, watcher: Hashable) -> None:
        """Disarm every watch of `watcher`; what it was told already stays among the events."""
        for armed in (self._data, self._child):
            for path in [path for path, watchers in armed.items() if watcher in watchers]:
                del armed[path][watcher]
                if not armed[path]:
                    del armed[path]

    def take_events(self) -> list[Event]:
        """The events since the last call, in the order in which they happened."""
        events, self._events = self._events, []
        return events

    def created(self, path: str, parent_path: str) -> None:
        """The node `path` now exists."""
        self._tell(self._data.pop(path, _NOBODY), CREATED, path)
        self._tell(self._child.pop(parent_path, _NOBODY), CHILD, parent_path)

    def deleted(self, path: str, parent_path: str) -> None:
        """The node `path` is gone."""
        told = self._data.pop(path, _NOBODY)
        self._tell(told, DELETED, path)
        listing = self._child.pop(path, _NOBODY)
        self._tell([watcher for watcher in listing if watcher not in told], DELETED, path)
        self._tell(self._child.pop(parent_path, _NOBODY), CHILD, parent_path)

    def changed(self, path: str, _parent_path: str) -> None:
        """The node `path` has new data."""
        self._tell(self._data.pop(path, _NOBODY), CHANGED, path)

    def _tell(self, watchers: Iterable[Hashable], kind: str, path: str) -> None:
        self._events.extend(Event(watcher, kind, path) for watcher in watchers)
