"""Read once what an overview shows: the active plans, the queues, the workers and the schedules."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from ..errors import ZkplanError
from ..protocol.core.plan_indexes import list_failed
from ..protocol.core.plan_life import PlanStatus, status
from ..protocol.core.plans_and_queues import read_queues
from ..protocol.core.workers import WorkerRecord
from ..protocol.features.schedules import Schedule, list_schedules, read_schedule
from ..protocol.layout import DEFAULT_QUEUE, parse_delayed, parse_gate, parse_plan
from ..protocol.requests import Node, ReadChildren, ReadData, ReadMany, Step
from ..values.connection import Connection, together
from .workers import AHEAD, LEFT, RUNNING, Held, HeldTasks, Known, held_tasks

#: If an index has more entries than this, only their number is read, so that a look stays cheap.
LISTED_MAX = 2000
#: The most failed plans whose end one look reads, the latest first.
FAILED_MAX = 50


class PlanNow(NamedTuple):
    """An active plan. `delayed` and `gated` are None if there are too many to list.

    `rate` is in finished tasks a second, and `left` the seconds until its end at this rate. Both
    are None in the first look, `left` also if the plan cannot end at this rate.
    """

    status: PlanStatus
    number: str
    running: int = 0
    ahead: int = 0
    delayed: int | None = 0
    gated: int | None = 0
    rate: float | None = None
    left: float | None = None


class QueueNow(NamedTuple):
    """A queue of active plans: `running` and `ahead` count its claims, `workers` the workers that
    serve it."""

    name: str
    runnable: int
    running: int
    ahead: int
    workers: int


class WorkerNow(NamedTuple):
    """A living worker. `since` is when it claimed the task that it holds longest."""

    record: WorkerRecord
    running: int
    ahead: int
    since: float | None


class Seen(NamedTuple):
    """What one look has read.

    `statuses` has the status of each active plan that this client may read, by number;
    `unreadable` counts the other active plans. By plan, `delayed` has the times at which its
    delayed tasks are due, and `gated` the number of its gates that wait; each is None if it has too
    many entries. `others` are the numbers of the plans that are not active, `failed_numbers` those
    of all failed plans, latest first. `failed` has the statuses of the first FAILED_MAX of these,
    without plans that this client may not read.
    """

    statuses: dict[str, PlanStatus]
    queues: Counter[str]
    held: HeldTasks
    delayed: dict[str, list[float]] | None
    gated: Counter[str] | None
    schedules: list[Schedule]
    others: list[str]
    unreadable: int
    failed_numbers: list[str]
    failed: list[PlanStatus]


def see(client: Connection, known: Known) -> Step[Seen]:
    paths = client.paths
    reads = [ReadChildren(paths.root), ReadChildren(paths.active)]
    sizes = [ReadData(paths.delayed), ReadData(paths.gates)]
    names, active, delayed, gates = yield ReadMany([*reads, *sizes])
    numbers = sorted(set(active or ()) & {parse_plan(name) for name in names or ()} - {None})
    statuses = yield from together([status(paths.plan(number)) for number in numbers])
    queues = yield from together([read_queues(paths.plan(number)) for number in numbers])
    found, runnable = {}, Counter[str]()
    for number, seen, theirs in zip(numbers, statuses, queues, strict=True):
        if not isinstance(seen, ZkplanError):
            found[number] = seen
        if not isinstance(theirs, ZkplanError):
            runnable.update({queue: node.child_count for queue, node in theirs.items()})
    later = yield from _listed(paths.delayed, delayed)
    gated = yield from _listed(paths.gates, gates)
    held = yield from held_tasks(paths, known)
    schedules = yield from _schedules(client)
    failed_numbers = yield from list_failed(paths)
    ended = [status(paths.plan(number)) for number in failed_numbers[:FAILED_MAX]]
    failed = yield from together(ended)
    return Seen(
        statuses=found,
        queues=runnable,
        held=held,
        delayed=None if later is None else _due(later),
        gated=None if gated is None else Counter(g.plan for g in map(parse_gate, gated) if g),
        schedules=schedules,
        others=sorted({n for name in names or () if (n := parse_plan(name))} - {*numbers}),
        unreadable=sum(isinstance(each, ZkplanError) for each in statuses),
        failed_numbers=failed_numbers,
        failed=[each for each in failed if not isinstance(each, ZkplanError)],
    )


def _listed(path: str, node: Node | None) -> Step[list[str] | None]:
    """The names of the children of `path`; None if there are too many."""
    if node is None or not node.child_count:
        return []
    return ((yield ReadChildren(path)) or []) if node.child_count <= LISTED_MAX else None


def _due(names: list[str]) -> dict[str, list[float]]:
    """When the delayed tasks of each plan are due, in wall-clock seconds."""
    due: dict[str, list[float]] = {}
    for delayed in map(parse_delayed, names):
        if delayed is not None:
            due.setdefault(delayed.plan, []).append(delayed.due_ms / 1000)
    return due


def _schedules(client: Connection) -> Step[list[Schedule]]:
    names = yield from list_schedules(client.paths)
    found = yield from together([read_schedule(client.paths, name) for name in names])
    return [each for each in found if not isinstance(each, ZkplanError)]


def plans_now(seen: Seen, rates: dict[str, float] | None) -> list[PlanNow]:
    states = Counter((held.plan, held.state) for held in seen.held.claims)
    found = []
    for number, each in seen.statuses.items():
        rate = rates.get(number) if rates is not None else None
        left = each.tasks / rate if rate and each.tasks and not each.dead else None
        found.append(
            PlanNow(
                each,
                number,
                states[number, RUNNING],
                states[number, AHEAD] + states[number, LEFT],
                None if seen.delayed is None else len(seen.delayed.get(number, ())),
                None if seen.gated is None else seen.gated[number],
                rate,
                left,
            )
        )
    return found


def queues_now(seen: Seen) -> list[QueueNow]:
    states = Counter((held.queue, held.state == RUNNING) for held in seen.held.claims)
    served = Counter(queue for worker in seen.held.workers for queue in worker.queues)
    names = {DEFAULT_QUEUE, *served, *seen.queues, *(queue for queue, _ in states)}
    return [
        QueueNow(name, seen.queues[name], states[name, True], states[name, False], served[name])
        for name in sorted(names)
    ]


def worker_now(record: WorkerRecord, claims: list[Held]) -> WorkerNow:
    mine = [held for held in claims if held.worker == record.id]
    running = sum(held.state == RUNNING for held in mine)
    return WorkerNow(record, running, len(mine) - running, mine[0].since if mine else None)
