"""The index of active plans: it lists every plan that may have work, and only those.

A plan is active while it is ready and neither done nor cancelled. The transaction that makes it
ready creates its entry, and the transaction that ends it deletes the entry (S14). A plan that
another client built by plain creates has no entry until a scan finds it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .foreign import delete_below
from .layout import Paths, active_entry, parse_number
from .look import ended_at, readable_record
from .requests import (
    Applied,
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


class Ended(NamedTuple):
    """A plan that has ended for good: when, in seconds since 1970 of the server, and the retention
    that its author gave it. It is infinite where the plan's record cannot be read."""

    number: str
    ended: float
    retention: float | None


class Scanned(NamedTuple):
    """The result of a scan: plans that have ended for good, and why others could not be indexed."""

    ended: list[Ended]
    shut: list[str]


def list_active(paths: Paths, watch: bool = False) -> Step[list[str]]:
    """The numbers of the plans that may have work, oldest first."""
    names = yield ReadChildren(paths.active, watch)
    return sorted(number for name in names or () if (number := parse_number(name)) is not None)


def entering(plan_path: str, ready: Node) -> list[Op]:
    """The operations that put a ready plan into the index, given its `ready` as it was read.

    They raise the version of `ready`, so a client that cancels or ends the plan without having seen
    the entry is refused (S14). A late copy is refused by that version, or because the plan is done.
    """
    done = f"{plan_path}/done"
    return [
        SetData(f"{plan_path}/ready", ready.data, ready.version),
        Create(done),
        Delete(done),
        Create(active_entry(plan_path)),
    ]


def cleared(plan_path: str, refused: Refused) -> Step[bool]:
    """Whether the entry was to blame for a reason that may pass: somebody else has made znodes
    below it, or deleted the whole index."""
    if refused.path != active_entry(plan_path):
        return False
    if refused.reason is Reason.NO_NODE:
        yield Multi([Create(refused.path.rpartition("/")[0])])
    elif refused.reason is Reason.NOT_EMPTY:
        yield from delete_below(refused.path)
    return refused.reason in (Reason.NO_NODE, Reason.NOT_EMPTY)


def find_unindexed(paths: Paths, plans: Sequence[str]) -> Step[Scanned]:
    """Put those of `plans` into the index that are ready, neither done nor cancelled, and missing
    there."""
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
            found.ended.append(Ended(plan, ended, retention))
        elif entry is None:
            yield from _index(paths.plan(plan), control, found)
    return found


def _index(plan_path: str, ready: Node, found: Scanned) -> Step[None]:
    answer = yield Multi(entering(plan_path, ready))
    if isinstance(answer, Applied):
        return
    yield from cleared(plan_path, answer)  # the next scan tries again
    if answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS, Reason.BAD_VERSION):
        found.shut.append(f"{plan_path} is ready, but cannot be put into the index: {answer.told}")
