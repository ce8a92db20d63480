"""What is late under a root: schedules, delayed tasks, plans past their time, work nobody takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..basics.text import count
from ..protocol.control import PlanStatus
from ..protocol.schedules import Schedule
from .held import LEFT, Held

#: Seconds that workers may take for what is due: they look about once a second.
GRACE_S = 5.0


class Late(NamedTuple):
    """Something that should have happened. `code` is one word for programs, `text` one sentence.

    `by` is how many seconds ago it was due; negative where it will be late if the rate stays; None
    where that is unknown.
    """

    code: str
    text: str
    by: float | None = None


class PlanSeen(Protocol):
    """What this module needs of an active plan."""

    @property
    def status(self) -> PlanStatus: ...
    @property
    def number(self) -> str: ...
    @property
    def left(self) -> float | None: ...


class QueueSeen(Protocol):
    """What this module needs of a queue."""

    @property
    def name(self) -> str: ...
    @property
    def runnable(self) -> int: ...
    @property
    def workers(self) -> int: ...


def late_things(
    now: float,
    plans: Sequence[PlanSeen],
    queues: Sequence[QueueSeen],
    claims: Sequence[Held],
    delayed: Mapping[str, Sequence[float]] | None,
    schedules: Sequence[Schedule],
    unreadable: int = 0,
) -> list[Late]:
    """What is late at `now`, by the clock here; times in the tree are those of the server.

    Of `unreadable` plans nobody can say here what is late.
    """
    found = [
        *_late_schedules(now, schedules),
        *(late for plan in plans for late in _late_plan(now, plan, (delayed or {}))),
        *_unserved(queues),
    ]
    left = [held for held in claims if held.state == LEFT]
    if left:
        told = f"{count(len(left), 'task')} left behind by workers that are gone"
        found.append(Late("left_behind", f"{told}, first {left[0].worker}"))
    if unreadable:
        found.append(Late("hidden", f"{count(unreadable, 'active plan')} may not be read here"))
    return found


def _late_schedules(now: float, schedules: Sequence[Schedule]) -> list[Late]:
    found = []
    for each in schedules:
        by = now - each.next.due_ms / 1000 - each.definition.jitter
        if by > GRACE_S and not each.next.paused:
            found.append(Late("schedule", f"schedule {each.definition.name} has not fired", by))
    return found


def _late_plan(now: float, plan: PlanSeen, delayed: Mapping[str, Sequence[float]]) -> list[Late]:
    seen, label = plan.status, f"plan {int(plan.number)} ({plan.status.name})"
    if seen.state == "paused":
        return []  # somebody wants it to wait
    found = []
    if seen.deadline is not None:
        by = now - seen.deadline
        if by > GRACE_S:
            found.append(Late("deadline", f"{label} goes on after its deadline", by))
        elif plan.left is not None and by + plan.left > 0:
            told = f"{label} will miss its deadline if its rate stays"
            found.append(Late("forecast", told, -plan.left))
    due = [now - each for each in delayed.get(plan.number, ()) if now - each > GRACE_S]
    if due:
        told = f"{count(len(due), 'delayed task')} of {label}: due, and not runnable yet"
        found.append(Late("delayed", told, max(due)))
    if seen.dead:
        found.append(Late("dead", f"{count(seen.dead, 'dead task')} in {label}"))
    return found


def _unserved(queues: Sequence[QueueSeen]) -> list[Late]:
    return [
        Late("unserved", f"{count(queue.runnable, 'task')} in queue {queue.name}: no worker")
        for queue in queues
        if queue.runnable and not queue.workers
    ]
