"""Count the plans, tasks, queues, workers and schedules under a root, in batches of reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from ..errors import PayloadUndecodable
from ..protocol.core.load import read_all
from ..protocol.core.plan_indexes import list_active, list_failed
from ..protocol.core.plans_and_queues import list_plans, names_on_claims_nodes
from ..protocol.core.workers import WorkerRecord
from ..protocol.features.bounds import Bounds, read_bounds
from ..protocol.features.schedules import Definition, Upcoming, jitter_s, list_schedules
from ..protocol.layout import (
    DEFAULT_QUEUE,
    HISTORY,
    QUEUES,
    SERVICE,
    Entry,
    Paths,
    parse_claim,
    parse_delayed,
    parse_entry,
    parse_gate,
    parse_lease,
    parse_queue,
    queue_in,
    queue_path,
)
from ..protocol.records import control_from_bytes
from ..protocol.requests import ReadChildren, ReadData, ReadMany, Request, Step
from ..protocol.transactions import claim_facts, or_error

T = TypeVar("T")
#: The children of every active plan that are neither tasks nor read here.
_OTHER_FIXED = 3  # add-count, add-ids, results
#: The most plans outside the index that one count reads. The others are `unread` until the next
#: count.
PLANS_ASKED_MAX = 20_000
#: The most runnable names that one count lists, and the most entries whose ages it reads.
NAMES_MAX, AGES_MAX = 50_000, 5_000


@dataclass
class RootCounts:
    """The result of one count. Its reads were not made at one moment.

    `plans` counts plans by state: `running` and `paused` plans are active; `unread` plans are
    beyond the bound of one count. `tasks` counts by state, and `by_queue` by queue and state. The
    queues of `waiting` tasks are not read. `oldest_ms` is when the oldest runnable entry of each
    queue was made, and `running_ms` when its oldest claim was made, by the server's clock; the ages
    of `ages_unread` entries were not read. `budget` is the used share of the budget.
    """

    plans: Counter[str] = field(default_factory=Counter)
    with_dead: int = 0
    #: Plans that have ended with failed tasks, or at their deadline.
    failed: int = 0
    tasks: Counter[str] = field(default_factory=Counter)
    by_queue: Counter[tuple[str, str]] = field(default_factory=Counter)
    oldest_ms: dict[str, int] = field(default_factory=dict)
    running_ms: dict[str, int] = field(default_factory=dict)
    ages_unread: int = 0
    budget: float = 0.0
    workers: list[WorkerRecord] = field(default_factory=list)
    #: Claims nodes of vanished workers whose tasks no worker has taken over yet.
    left_behind: int = 0

    def add(self, state: str, queue: str, count: int = 1) -> None:
        self.tasks[state] += count
        self.by_queue[queue, state] += count


class Tally:
    """Counts the requests of a step, and the reads in them."""

    def __init__(self) -> None:
        self.requests = self.reads = 0

    def of(self, step: Step[T]) -> Step[T]:
        """The same step, with its requests counted."""
        answer: Any = None
        failure: BaseException | None = None
        while True:
            try:
                request: Request = step.send(answer) if failure is None else step.throw(failure)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]
            self.requests += 1
            self.reads += len(request.reads) if type(request) is ReadMany else 1
            answer = failure = None
            try:
                answer = yield request
            except Exception as error:
                failure = error


class _Plan(NamedTuple):
    """An active plan, and the number of entries in each of its queues."""

    number: str
    path: str
    unfinished: int
    entries: dict[str, int]
    has_queues: bool


def count_root(paths: Paths, ended: dict[str, str]) -> Step[RootCounts]:
    """Count the plans, tasks and workers under the root.

    `ended` has the states of plans that have ended for good, by number. The count adds to `ended`,
    so that each such plan is read once.
    """
    counts = RootCounts()
    active = yield from list_active(paths)
    yield from _count_ended(paths, set(active), ended, counts)
    plans = yield from _read_active(paths, active, counts)
    placed = yield from _count_indexes(paths, plans, counts)
    counts.tasks["waiting"] = max(0, sum(plan.unfinished for plan in plans) - placed)
    yield from _find_oldest(plans, counts)
    yield from _read_workers(paths, counts)
    bounds = yield from or_error(read_bounds(paths))
    counts.budget = bounds.share if isinstance(bounds, Bounds) else 0.0
    return counts


def _count_ended(
    paths: Paths, active: set[str], ended: dict[str, str], counts: RootCounts
) -> Step[None]:
    """Count the plans outside the index: they are done, cancelled, or not marked ready yet."""
    listed = set((yield from list_plans(paths))) - active
    for removed in ended.keys() - listed:
        del ended[removed]
    asked = list(islice((each for each in sorted(listed) if each not in ended), PLANS_ASKED_MAX))
    reads = [ReadData(f"{paths.plan(plan)}/{name}") for plan in asked for name in ("ready", "done")]
    nodes = yield from read_all(reads)
    for plan, ready, done in zip(asked, nodes[::2], nodes[1::2], strict=True):
        if done is not None:
            ended[plan] = "done"
        elif ready is not None and control_from_bytes(ready.data) == "cancelled":
            ended[plan] = "cancelled"
        else:  # not ready yet, or its index entry was deleted by hand
            counts.plans["defining"] += 1
    # Failed plans may be retried, so their list is read each time.
    failed = set((yield from list_failed(paths)))
    counts.failed = len(failed)
    counts.plans.update(
        "failed" if state == "done" and plan in failed else state for plan, state in ended.items()
    )
    counts.plans["unread"] += len(listed) - len(ended) - counts.plans["defining"]


def _read_active(paths: Paths, active: Sequence[str], counts: RootCounts) -> Step[list[_Plan]]:
    names = ("ready", "runnable", "dead", QUEUES, HISTORY)
    reads: list[ReadData] = []
    for number in active:
        path = paths.plan(number)
        reads += [ReadData(path), *(ReadData(f"{path}/{name}") for name in names)]
    nodes = yield from read_all(reads)
    plans = []
    for at, number in enumerate(active):
        plan, ready, runnable, dead, queues, history = nodes[6 * at : 6 * at + 6]
        if plan is None:
            continue  # removed meanwhile
        state = "defining" if ready is None else control_from_bytes(ready.data)
        counts.plans[state] += 1
        read = (ready, runnable, dead, queues, history)
        fixed = _OTHER_FIXED + sum(each is not None for each in read)
        if dead is not None and dead.child_count:
            counts.with_dead += 1
            counts.tasks["dead"] += dead.child_count
        entries = {DEFAULT_QUEUE: runnable.child_count} if runnable is not None else {}
        unfinished = max(0, plan.child_count - fixed)
        has_queues = queues is not None
        plans.append(_Plan(number, paths.plan(number), unfinished, entries, has_queues))
    yield from _read_queues([plan for plan in plans if plan.has_queues])
    for plan in plans:
        for queue, count in plan.entries.items():
            counts.add("runnable", queue, count)
    return plans


def _read_queues(plans: Sequence[_Plan]) -> Step[None]:
    names = yield from read_all([ReadChildren(f"{plan.path}/{QUEUES}") for plan in plans])
    found = [
        (plan, queue)
        for plan, queues in zip(plans, names, strict=True)
        for queue in queues or ()
        if parse_queue(queue) is not None
    ]
    nodes = yield from read_all([ReadData(queue_path(plan.path, queue)) for plan, queue in found])
    for (plan, queue), node in zip(found, nodes, strict=True):
        if node is not None:
            plan.entries[queue] = node.child_count


def _count_indexes(paths: Paths, plans: Sequence[_Plan], counts: RootCounts) -> Step[int]:
    """Count the entries of the root's indexes. Returns the number of tasks in all indexes."""
    later, gates = yield ReadMany([ReadChildren(paths.delayed), ReadChildren(paths.gates)])
    known = {plan.number: plan for plan in plans}
    for delayed in map(parse_delayed, later or ()):
        if delayed is not None and delayed.plan in known:
            counts.add("delayed", queue_in(delayed.queue))
    for gate in map(parse_gate, gates or ()):
        if gate is not None and gate.plan in known:
            counts.add("gated", queue_in(gate.queue))
    read: list[ReadData] = []
    for worker, name in (yield from names_on_claims_nodes(paths, strict=True)):
        claim = parse_claim(name)
        if claim is None or claim.plan not in known:
            continue
        if known[claim.plan].has_queues or len(read) < AGES_MAX:
            read.append(ReadData(f"{paths.claims_of(worker)}/{name}"))
        else:
            counts.add("running", DEFAULT_QUEUE)
            counts.ages_unread += 1
    for node in (yield from read_all(read)):
        if node is not None:
            queue = queue_in(claim_facts(node.data).queue)
            counts.add("running", queue)
            first = counts.running_ms.get(queue, node.created_ms)
            counts.running_ms[queue] = min(first, node.created_ms)
    return counts.tasks.total()


def _find_oldest(plans: Sequence[_Plan], counts: RootCounts) -> Step[None]:
    """Read when the entries of each queue were made, as many as the bound allows."""
    wanted, names_left = [], NAMES_MAX
    for plan in plans:
        for queue, count in plan.entries.items():
            if not count:
                continue
            if count > names_left:
                counts.ages_unread += count
                continue
            names_left -= count
            wanted.append((plan.path, queue))
    listed = yield from read_all([ReadChildren(queue_path(*each)) for each in wanted])
    each_max = max(1, AGES_MAX // max(1, len(wanted)))
    reads, queues = [], []
    for (path, queue), names in zip(wanted, listed, strict=True):
        parsed = ((parse_entry(name), name) for name in names or ())
        entries = sorted((_by_age(entry), name) for entry, name in parsed if entry is not None)
        counts.ages_unread += max(0, len(entries) - each_max)
        for _, name in entries[:each_max]:
            reads.append(ReadData(f"{queue_path(path, queue)}/{name}"))
            queues.append(queue)
    for queue, node in zip(queues, (yield from read_all(reads)), strict=True):
        if node is not None:
            first = counts.oldest_ms.get(queue, node.created_ms)
            counts.oldest_ms[queue] = min(first, node.created_ms)


def _by_age(entry: Entry) -> tuple[str, int]:
    """The task that was added first usually has the oldest entry."""
    return entry.task, entry.n


def _read_workers(paths: Paths, counts: RootCounts) -> Step[None]:
    registered, claims = yield ReadMany([ReadChildren(paths.workers), ReadChildren(paths.claims)])
    # A service also registers, but runs no tasks.
    ids = [name for name in registered or () if not name.startswith(SERVICE)]
    nodes = yield from read_all([ReadData(paths.worker(each)) for each in ids])
    counts.workers = [
        WorkerRecord.from_bytes(each, node.data, 0)
        for each, node in zip(ids, nodes, strict=True)
        if node is not None
    ]
    vacant = set(claims or ()) - set(registered or ())
    counts.left_behind = sum(parse_lease(name) is None for name in vacant)


class ScheduleTime(NamedTuple):
    """A schedule. `state` is `active`, `paused`, or `unreadable`. `due` is when the schedule is due
    next, and `fired` when it was fired last, in seconds since 1970 by the server's clock.
    """

    name: str
    state: str
    due: float | None = None
    fired: float | None = None


def read_schedules(paths: Paths) -> Step[list[ScheduleTime]]:
    """All schedules under the root, by name."""
    names = yield from list_schedules(paths)
    nodes = yield from read_all([ReadData(f"{paths.schedules}/{name}") for name in names])
    found: list[ScheduleTime] = []
    known: list[tuple[str, Definition]] = []
    for name, node in zip(names, nodes, strict=True):
        if node is None:
            continue  # removed meanwhile
        try:
            known.append((name, Definition.from_bytes(node.data)))
        except PayloadUndecodable:
            found.append(ScheduleTime(name, "unreadable"))
    nexts = [f"{paths.schedules}/{name}/next-{each.uid}" for name, each in known]
    nodes = yield from read_all([ReadData(path) for path in nexts])
    for (name, definition), node in zip(known, nodes, strict=True):
        if node is not None:  # else the schedule was changed or removed meanwhile
            found.append(_time_of(name, definition, node.data))
    return sorted(found)


def _time_of(name: str, definition: Definition, data: bytes) -> ScheduleTime:
    try:
        upcoming = Upcoming.from_bytes(data)
    except PayloadUndecodable:
        return ScheduleTime(name, "unreadable")
    last = next((each for each in reversed(upcoming.fired) if each.plan), None)
    fired = None if last is None else last.when_ms / 1000
    if upcoming.paused:
        return ScheduleTime(name, "paused", None, fired)
    due = upcoming.due_ms / 1000 + jitter_s(definition, upcoming.due_ms)
    return ScheduleTime(name, "active", due, fired)
