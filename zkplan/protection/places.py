"""Which znodes hold data that are sealed, and the place that each is sealed for.

A place is text without null bytes, after the uid of the root:

    plan-NUMBER                                 the record of a plan
    plan-NUMBER@CZXID/…                         what lies in a plan: the path, with these exceptions
    plan-NUMBER@CZXID/task-NUMBER/prov          each `prov-` and each `log-` of a task: their
    plan-NUMBER@CZXID/task-NUMBER/log           numbers are given by the server
    plan-NUMBER@CZXID/history/seg               each segment of its history, likewise
    plan-NUMBER@CZXID/ready@CZXID.VERSION       the state of a plan; see `Place.ordered`
    workers/ID@CZXID.VERSION                    what a worker was told: each version but the first
    …                                           the path, for anything else below the root

CZXID is that of the plan's znode: a plan that somebody makes anew from what he has recorded is
another plan. It is `new` for what the transaction makes that makes the plan.
"""

from __future__ import annotations

from typing import NamedTuple

from ..protocol.layout import HISTORY, PLAN_FIXED, SEGMENT, TASK_KEY, UPDATE

#: Rooms whose names alone count, and whose data no key covers.
_OPEN_ROOMS = frozenset(("claims", "delayed", "active", "limits"))
_OPEN_IN_PLAN = frozenset(("runnable", "add-ids", "queues"))
_OPEN_IN_TASK = frozenset(
    ("ready", "dep", "owner", "incomplete", "delivered", "started", "retry", "cut", "takes")
)
#: Children of a task whose numbers the server gives.
_UNNUMBERED = frozenset(("prov", "log"))
#: Children of a plan that are never empty where they stand.
_RECORDS = frozenset(("ready", "done"))


class Place(NamedTuple):
    """Where a znode's data belong. `plan` is the name of its plan; empty: it is in none.

    `ordered`: the data change, and an older state must not come back. So they are sealed for the
    znode's own CZXID and for the version that the write makes. `needed`: it is never empty.
    `introduces`: in its first version a worker says who it is, to whoever has which keys. That is
    not sealed, and nobody acts on it; later versions are orders.
    """

    plan: str
    rest: str
    ordered: bool = False
    needed: bool = True
    introduces: bool = False


class Places:
    """The places below one root."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self._cut = len(root) + 1

    def of(self, path: str) -> Place | None:
        """The place of a znode; None where no key covers its data."""
        if not path.startswith(self._prefix):
            return None
        inside = path[self._cut :]
        head, _, rest = inside.partition("/")
        if rest[:5] == "task-" and head[:5] == "plan-":
            return _in_task(head, rest)
        parts = rest.split("/", 1) if rest else []
        if head[:5] != "plan-":
            if head in _OPEN_ROOMS:
                return None
            if head == "workers" and parts:
                return Place("", inside, ordered=True, introduces=True)
            return Place("", inside, needed=False)
        if not parts:
            return Place("", head)
        first = parts[0]
        if len(parts) == 1:
            if first in PLAN_FIXED or first in _OPEN_IN_PLAN:
                return None
            return Place(head, first, first == "ready", first in _RECORDS)
        last = parts[1]
        if first == HISTORY and last.startswith(SEGMENT):
            return Place(head, f"{first}/seg")
        if first in _OPEN_IN_PLAN:
            # What names the task of a key, and what an update has done: others have no data.
            is_sealed = last.startswith((TASK_KEY, UPDATE))
            return Place(head, f"{first}/{last}") if is_sealed else None
        return Place(head, f"{first}/{last}", needed=first in ("dead", "results"))


def _in_task(plan: str, path: str) -> Place | None:
    """Most of what is read and written is this: a task, or a child of one."""
    task, _, child = path.partition("/")
    kind = child.partition("-")[0]
    if kind in _OPEN_IN_TASK:
        return None
    return Place(plan, f"{task}/{kind}" if kind in _UNNUMBERED else path)
