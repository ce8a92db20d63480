"""Find what needs a person: late schedules and plans, failed plans, and plans that nobody
attends to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from ..basics.text import count, duration
from ..errors import ZkplanError
from ..protocol.core.load import read_all
from ..protocol.core.plan_life import PlanStatus
from ..protocol.core.plans_and_queues import read_entries, readable_record
from ..protocol.features.schedules import Schedule
from ..protocol.layout import Paths, author_mark, number_of
from ..protocol.records import PlanRecord
from ..protocol.requests import Node, ReadData, Step
from ..values.connection import Connection
from .deadlock import LOOKED_AT, refusal
from .root_look import FAILED_MAX, PlanNow, QueueNow
from .workers import LEFT, Held

#: Seconds that workers may take for what is due: they look about once a second.
GRACE_S = 5.0


class Late(NamedTuple):
    """Something that should have happened. `code` is one word for programs, `text` one sentence.

    `by` is how many seconds ago it was due: negative if it will be late at the present rate, None
    if the time is unknown.
    """

    code: str
    text: str
    by: float | None = None


def late_things(
    now: float,
    plans: Sequence[PlanNow],
    queues: Sequence[QueueNow],
    claims: Sequence[Held],
    delayed: Mapping[str, Sequence[float]] | None,
    schedules: Sequence[Schedule],
    unreadable: int = 0,
) -> list[Late]:
    """What is late at `now`, by the clock of this machine; times in the tree are of the server.

    `unreadable` is how many active plans this client may not read.
    """
    found = [
        *_late_schedules(now, schedules),
        *(late for plan in plans for late in _late_plan(now, plan, (delayed or {}))),
        *_unserved(queues),
    ]
    left = [held for held in claims if held.state == LEFT]
    if left:
        text = f"{count(len(left), 'task')} left behind by workers that are gone"
        found.append(Late("left_behind", f"{text}, first {left[0].worker}"))
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


def _late_plan(now: float, plan: PlanNow, delayed: Mapping[str, Sequence[float]]) -> list[Late]:
    seen, label = plan.status, f"plan {int(plan.number)} ({plan.status.name})"
    if seen.state == "paused":
        return []  # somebody wants it to wait
    found = []
    if seen.deadline is not None:
        by = now - seen.deadline
        if by > GRACE_S:
            found.append(Late("deadline", f"{label} goes on after its deadline", by))
        elif plan.left is not None and by + plan.left > 0:
            text = f"{label} will miss its deadline if its rate stays"
            found.append(Late("forecast", text, -plan.left))
    due = [now - each for each in delayed.get(plan.number, ()) if now - each > GRACE_S]
    if due:
        text = f"{count(len(due), 'delayed task')} of {label}: due, and not runnable yet"
        found.append(Late("delayed", text, max(due)))
    if seen.dead:
        found.append(Late("dead", f"{count(seen.dead, 'dead task')} in {label}"))
    return found


def _unserved(queues: Sequence[QueueNow]) -> list[Late]:
    return [
        Late("unserved", f"{count(queue.runnable, 'task')} in queue {queue.name}: no worker")
        for queue in queues
        if queue.runnable and not queue.workers
    ]


# ---- Plans that ended with failed tasks, or at their deadline, and wait for a person.


def failed_plans(now: float, numbers: Sequence[str], shown: Sequence[PlanStatus]) -> list[Late]:
    """How each of the `shown` plans ended; `by` is how long ago. `numbers` are all failed plans."""
    late = []
    for each in shown:
        number = int(number_of(each.path))
        label = f"plan {number}" + (f" ({each.name})" if each.name else "")
        by = None if each.ended is None else now - each.ended
        if each.state == "cancelled":
            text = f"{label} was cancelled: {each.reason or 'its deadline has passed'}"
            late.append(Late("deadline", text))
        else:
            text = f"{label} has failed: {count(each.dead, 'task')} of {each.added:,}"
            late.append(Late("failed", f"{text} (`zkplan plan why {number}`)", by))
    more = len(numbers) - FAILED_MAX
    if more > 0:
        late.append(Late("failed", f"{count(more, 'earlier plan')} failed as well"))
    return late


# ---- Plans that nobody attends to: their author is gone, or no worker can decode their tasks.


#: The `Late.code` of these plans.
UNATTENDED = ("left", "not_decoded")
#: Seconds without an add after which a plan without a key counts as left by its author. Such a plan
#: has no mark of its author.
IDLE_S = 3600.0
#: The most plans that one look checks for the ready mark, the newest ones.
LOOKED_MAX = 2000
#: The most plans for which one look finds out why no worker takes their tasks.
ASKED_MAX = 20


class _Half(NamedTuple):
    """A plan that is not marked ready; `mark` is the mark of its author, if it exists."""

    number: str
    record: PlanRecord
    adds: Node
    mark: Node | None


def left_by_authors(
    client: Connection, now: float, plans: Sequence[str], known: set[str]
) -> list[Late]:
    """The `plans`, given by number, that are not marked ready and whose author is gone.

    Plans marked ready are added to `known`, and not read again. `now` is as for `late_things`.
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
        text = f"{label} got no task for {duration(by)}"
        return Late("left", text, by) if by > IDLE_S else None
    lives_s = GRACE_S
    if mark is not None:
        if not mark.data.isdigit():
            return None
        lives_s += int(mark.data) / 1000
    return Late("left", f"{label} its author is gone", by) if by > lives_s else None


def not_decoded(client: Connection, plans: Sequence[PlanNow]) -> list[Late]:
    """The `plans` that make no progress because no worker can decode their first tasks."""
    still = (
        plan
        for plan in plans
        if plan.status.state == "running" and plan.status.runnable and not plan.running + plan.ahead
    )
    found = []
    for plan in islice(still, ASKED_MAX):
        with suppress(ZkplanError):  # removed meanwhile, or hidden
            path = plan.status.path
            # A task that cannot be decoded was handed back: it has had more claims than attempts.
            entries = client.transport.run(read_entries(path))
            handed = sorted(entry.task for _, entry in entries if entry.n > entry.a)
            text = (refusal(client, f"{path}/task-{task}") for task in handed[:LOOKED_AT])
            if why := next(filter(None, text), ""):
                label = f"plan {int(plan.number)} ({plan.status.name})"
                found.append(Late("not_decoded", f"{label}: {why}"))
    return found
