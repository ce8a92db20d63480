"""The indexes of active and of failed plans.

A plan is active while it is ready and neither done nor cancelled. The transaction that makes a
plan ready creates its entry, and the transaction that ends the plan deletes the entry (S14). A scan
puts back an entry that somebody deleted by hand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ..layout import Paths, active_entry, failed_entry, parse_number
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from ..transactions import children_watched
from .plans_and_queues import ended_at, readable_record


class EndedPlan(NamedTuple):
    """A plan that has ended: when, in seconds since 1970 of the server, and the retention that its
    author gave it, infinite if its record cannot be read."""

    number: str
    ended: float
    retention: float | None


class Scanned(NamedTuple):
    """The result of a scan: plans that have ended, and why others could not be indexed."""

    ended: list[EndedPlan]
    shut: list[str]


def list_active(paths: Paths, watch: bool = False) -> Step[list[str]]:
    """The numbers of the plans that may have work, oldest first."""
    if watch:
        names = yield from children_watched(paths.active)
    else:
        names = yield ReadChildren(paths.active)
    return sorted(number for name in names or () if (number := parse_number(name)) is not None)


def entering(plan_path: str, ready: Node) -> list[Op]:
    """The operations that put a plan into the index, given its `ready` as it was read.

    They raise the version of `ready`, which refuses a cancel or an end that has read no entry
    (S14). That version, or `done`, refuses a late copy.
    """
    done = f"{plan_path}/done"
    return [
        SetData(f"{plan_path}/ready", ready.data, ready.version),
        Create(done),
        Delete(done),
        Create(active_entry(plan_path)),
    ]


def cleared(plan_path: str, refused: Refused) -> Step[bool]:
    """Whether a transaction was refused because the entry, or the whole index, is gone. Puts
    back the index."""
    if refused.path != active_entry(plan_path) or refused.reason is not Reason.NO_NODE:
        return False
    yield Multi([Create(refused.path.rpartition("/")[0])])
    return True


def find_unindexed(paths: Paths, plans: Sequence[str]) -> Step[Scanned]:
    """Put the active plans among `plans` into the index, if they are missing there."""
    found = Scanned([], [])
    nodes = yield ReadMany([ReadData(f"{paths.plan(plan)}/ready") for plan in plans])
    ready = [(plan, node) for plan, node in zip(plans, nodes, strict=True) if node is not None]
    reads = []
    for plan, _ in ready:
        path = paths.plan(plan)
        reads += [ReadData(f"{path}/done"), ReadData(active_entry(path)), ReadData(path)]
    nodes = (yield ReadMany(reads)) if reads else []
    parts = zip(ready, nodes[::3], nodes[1::3], nodes[2::3], strict=True)
    for (plan, control), done, entry, node in parts:
        state, ended = ended_at(control, done)
        if state or done is not None:
            record = readable_record(node.data) if node is not None else None
            retention = math.inf if record is None or not state else record.retention
            found.ended.append(EndedPlan(plan, ended, retention))
        elif entry is None:
            yield from _index(paths.plan(plan), control, found)
    return found


def _index(plan_path: str, ready: Node, found: Scanned) -> Step[None]:
    answer = yield Multi(entering(plan_path, ready))
    if isinstance(answer, Applied):
        return
    yield from cleared(plan_path, answer)  # the next scan tries again
    if not answer.is_race:
        found.shut.append(f"{plan_path} is ready, but cannot be put into the index: {answer.why}")


# ---- The index of failed plans, which ended with dead tasks, or at their deadline.
#
# Views use it: without it they would read all plans that have ended. The transaction that ends a
# plan makes its entry, and the transaction that reopens it deletes the entry (S25). `ROOT/failed`
# exists from the first failed plan on.


def list_failed(paths: Paths) -> Step[list[str]]:
    """The numbers of the plans that have failed, latest first."""
    names = yield ReadChildren(paths.failed)
    found = (number for name in names or () if (number := parse_number(name)) is not None)
    return sorted(found, reverse=True)


class Entry:
    """The entry of one plan, for a transaction that makes or deletes it."""

    def __init__(self, plan_path: str) -> None:
        self._path = failed_entry(plan_path)
        self._stands = False
        self._is_gone = False

    @property
    def made(self) -> list[Op]:
        """The operation after which the entry exists."""
        return [Check(self._path) if self._stands else Create(self._path)]

    @property
    def deleted(self) -> list[Op]:
        """The operation after which the entry does not exist."""
        return [] if self._is_gone else [Delete(self._path)]

    def cleared(self, refused: Refused) -> Step[bool]:
        """Whether a transaction was refused because of the entry, and can be built again."""
        if refused.path != self._path:
            return False
        if refused.reason is Reason.NODE_EXISTS:
            self._stands = True  # somebody else made it
        elif refused.reason is Reason.NO_NODE:
            self._stands, self._is_gone = False, True
            yield Multi([Create(self._path.rpartition("/")[0])])
        else:
            return False
        return True
