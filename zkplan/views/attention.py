"""Find what needs a person: late schedules and plans, failed plans, and plans that nobody
attends to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

from ..basics.text import count, duration
from ..errors import ZkplanError
from ..protocol.core.load import read_all
from ..protocol.core.plan_indexes import list_failed
from ..protocol.core.plan_life import PlanStatus, status
from ..protocol.core.plans_and_queues import read_entries, readable_record
from ..protocol.features.schedules import Schedule
from ..protocol.layout import Paths, author_mark
from ..protocol.records import PlanRecord
from ..protocol.requests import Node, ReadData, Step
from ..values.connection import Connection, together
from .deadlock import LOOKED_AT, refusal
from .workers import LEFT, Held

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


class LatePlan(Protocol):
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
    plans: Sequence[LatePlan],
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


def _late_plan(now: float, plan: LatePlan, delayed: Mapping[str, Sequence[float]]) -> list[Late]:
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


# ---- Plans that ended with failed tasks, or at their deadline, and wait for a person.


#: Of so many plans, the latest ones, one look reads how they ended.
SHOWN_MAX = 50


class FailedPlans(NamedTuple):
    """All of them by their numbers, latest first, and the status of the first SHOWN_MAX of them, as
    far as they may be read here."""

    numbers: list[str]
    shown: list[PlanStatus]


def failed_plans(paths: Paths) -> Step[FailedPlans]:
    numbers = yield from list_failed(paths)
    found = yield from together([status(paths.plan(number)) for number in numbers[:SHOWN_MAX]])
    return FailedPlans(numbers, [each for each in found if not isinstance(each, ZkplanError)])


def late_plans(now: float, found: FailedPlans) -> list[Late]:
    """What needs attention, in words; `by` is how long ago each has ended."""
    late = []
    for each in found.shown:
        number = int(each.path.rpartition("-")[2])
        label = f"plan {number}" + (f" ({each.name})" if each.name else "")
        by = None if each.ended is None else now - each.ended
        if each.state == "cancelled":
            told = f"{label} was cancelled: {each.reason or 'its deadline has passed'}"
            late.append(Late("deadline", told))
        else:
            told = f"{label} has failed: {count(each.dead, 'task')} of {each.added:,}"
            late.append(Late("failed", f"{told} (`zkplan plan why {number}`)", by))
    more = len(found.numbers) - SHOWN_MAX
    if more > 0:
        late.append(Late("failed", f"{count(more, 'earlier plan')} failed as well"))
    return late


# ---- Plans that stand still because nobody attends to them: their author is gone, or no worker
# can decode their tasks.


#: The codes of what is told here.
UNATTENDED = ("left", "not_decoded")
#: Seconds without an add after which a plan without a key counts as left by its author: nobody
#: knows whether he lives.
IDLE_S = 3600.0
#: Of so many plans, the newest ones, one look reads whether they are marked ready.
LOOKED_MAX = 2000
#: Of so many plans one look asks why nobody takes their tasks.
ASKED_MAX = 20


class IdlePlan(Protocol):
    """What this module needs of an active plan."""

    @property
    def status(self) -> PlanStatus: ...
    @property
    def number(self) -> str: ...
    @property
    def running(self) -> int: ...
    @property
    def ahead(self) -> int: ...


class _Half(NamedTuple):
    """A plan that is not marked ready; `mark` is that of its author, if it stands."""

    number: str
    record: PlanRecord
    adds: Node
    mark: Node | None


def left_by_authors(
    client: Connection, now: float, plans: Sequence[str], known: set[str]
) -> list[Late]:
    """Those of `plans`, by their numbers, that are not marked ready and whose author is gone.

    `known` gets the others, which are not asked for again. `now` is as for `late_things`.
    """
    new = [number for number in plans if number not in known][-LOOKED_MAX:]
    halves = client.transport.run(_halves(client.paths, new, known))
    return [late for half in halves if (late := _left(half, now)) is not None]


def _halves(paths: Paths, plans: Sequence[str], known: set[str]) -> Step[list[_Half]]:
    ready = yield from read_all(
        [ReadData(f"{paths.plan(each)}/ready") for each in plans], strict=False
    )
    known.update(number for number, node in zip(plans, ready, strict=True) if node is not None)
    open_ones = [number for number in plans if number not in known]
    reads = [ReadData(paths.plan(n) + part) for n in open_ones for part in ("", "/add-count")]
    nodes = yield from read_all(reads, strict=False)
    found: list[_Half] = []
    for number, plan, adds in zip(open_ones, nodes[::2], nodes[1::2], strict=True):
        record = readable_record(plan.data) if plan is not None else None
        if record is not None and adds is not None:
            found.append(_Half(number, record, adds, None))
    marks = yield from read_all(
        [ReadData(author_mark(paths.plan(half.number), half.record.uid)) for half in found],
        strict=False,
    )
    return [half._replace(mark=mark) for half, mark in zip(found, marks, strict=True)]


def _left(half: _Half, now: float) -> Late | None:
    by, mark = now - half.adds.modified_ms / 1000, half.mark
    label = f"plan {int(half.number)} ({half.record.name}) is not marked ready, and"
    if not half.record.key:
        told = f"{label} got no task for {duration(by)}"
        return Late("left", told, by) if by > IDLE_S else None
    lives_s = GRACE_S
    if mark is not None:
        if not mark.data.isdigit():
            return None
        lives_s += int(mark.data) / 1000
    return Late("left", f"{label} its author is gone", by) if by > lives_s else None


def not_decoded(client: Connection, plans: Sequence[IdlePlan]) -> list[Late]:
    """Those of `plans` of which nothing runs, because no worker can decode their first tasks."""
    still = (
        plan
        for plan in plans
        if plan.status.state == "running" and plan.status.runnable and not plan.running + plan.ahead
    )
    found = []
    for plan in islice(still, ASKED_MAX):
        with suppress(ZkplanError):  # removed meanwhile, or hidden
            path = plan.status.path
            # A task that cannot be decoded was handed back: it has had claims, and no attempt more.
            entries = client.transport.run(read_entries(path))
            handed = sorted(entry.task for _, entry in entries if entry.n > entry.a)
            told = (refusal(client, f"{path}/task-{task}") for task in handed[:LOOKED_AT])
            if why := next(filter(None, told), ""):
                label = f"plan {int(plan.number)} ({plan.status.name})"
                found.append(Late("not_decoded", f"{label}: {why}"))
    return found
