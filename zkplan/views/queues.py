"""Count what waits in each queue, and name the workers that serve it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ..protocol.core.load import read_all
from ..protocol.core.plan_indexes import list_active
from ..protocol.core.plans_and_queues import read_queues
from ..protocol.core.workers import WorkerRecord
from ..protocol.features.task_place import read_places
from ..protocol.layout import DEFAULT_QUEUE, QUEUES, parse_task, queue_in
from ..protocol.records import queue_from_bytes
from ..protocol.requests import ReadChildren, ReadData, Step
from ..protocol.transactions import claim_facts
from ..values.connection import Connection
from .workers import living_workers

#: How many workers a sentence names.
NAMED = 5


class QueueStatus(NamedTuple):
    """One queue of all active plans under the root.

    `waiting` counts the tasks that wait for others, a gate or their next attempt, `runnable` those
    that wait for a worker, `running` the claimed ones. `workers` are those that serve the queue.
    `oldest` is the age of the oldest runnable entry in seconds, by the clock of this machine; None
    without an entry. Dead tasks are not counted.
    """

    name: str
    waiting: int
    runnable: int
    running: int
    workers: tuple[str, ...]
    oldest: float | None


def queue_statuses(client: Connection) -> list[QueueStatus]:
    """See Client.queues."""
    workers = living_workers(client)
    counts = client.transport.run(_count(client))
    served = {queue for worker in workers for queue in worker.queues}
    now = time.time()
    found = []
    for name in sorted({DEFAULT_QUEUE, *served, *counts.names}):
        first = counts.first.get(name)
        found.append(
            QueueStatus(
                name,
                counts.waiting[name],
                counts.runnable[name],
                counts.running[name],
                tuple(worker.id for worker in workers if name in worker.queues),
                None if first is None else max(0.0, now - first / 1000),
            )
        )
    return found


class _Counts(NamedTuple):
    """By queue; `first` is when its oldest runnable entry was made, in milliseconds."""

    waiting: Counter[str]
    runnable: Counter[str]
    running: Counter[str]
    first: dict[str, int]
    names: set[str]


def _count(client: Connection) -> Step[_Counts]:
    counts = _Counts(Counter(), Counter(), Counter(), {}, set())
    paths = client.paths
    plans = yield from list_active(paths)
    places = yield from read_places(paths, plans)
    in_index: dict[str, set[str]] = {plan: set() for plan in plans}
    for (plan, task), place in places.items():
        in_index[plan].add(task)
        if place.state in ("delayed", "gated"):
            counts.waiting[queue_in(place.queue)] += 1
    taken = [place for place in places.values() if place.state in ("runnable", "running")]
    nodes = yield from read_all([ReadData(place.path) for place in taken])
    for place, node in zip(taken, nodes, strict=True):
        if node is None:
            continue  # it has moved on meanwhile
        if place.state == "running":
            counts.running[queue_in(claim_facts(node.data).queue)] += 1
            continue
        queue = queue_in(place.queue)
        counts.runnable[queue] += 1
        counts.first[queue] = min(counts.first.get(queue, node.created_ms), node.created_ms)
    for plan in plans:
        yield from _count_waiting(paths.plan(plan), in_index[plan], counts)
    for each in (counts.waiting, counts.runnable, counts.running):
        counts.names.update(each)
    return counts


def _count_waiting(plan_path: str, in_index: set[str], counts: _Counts) -> Step[None]:
    """Count the tasks that are in no index. Each names its queue in its `ready`."""
    children = (yield ReadChildren(plan_path)) or ()
    tasks = {task for name in children if (task := parse_task(name)) is not None}
    waiting = sorted(tasks - in_index)
    if QUEUES not in children:
        counts.waiting[DEFAULT_QUEUE] += len(waiting)
        return
    counts.names.update((yield from read_queues(plan_path)))
    nodes = yield from read_all([ReadData(f"{plan_path}/task-{each}/ready") for each in waiting])
    counts.waiting.update(
        queue_in(queue_from_bytes(node.data)) for node in nodes if node is not None
    )


def unserved(client: Connection, plan_path: str, workers: Sequence[WorkerRecord]) -> list[str]:
    """The queues of the plan that have runnable tasks, and that no living worker serves."""
    nodes = client.transport.run(read_queues(plan_path))
    served = {queue for worker in workers for queue in worker.queues}
    return sorted(
        queue for queue, node in nodes.items() if node.child_count and queue not in served
    )


def resting(client: Connection, queue: str, workers: Sequence[WorkerRecord]) -> tuple[str, str]:
    """What is wrong with a queue whose `workers` are all paused or draining, and what to do.

    The texts are empty if one of these workers takes tasks, or if no worker serves the queue.
    """
    serving = [each for each in workers if queue in each.queues]
    if not serving or any(each.state == "running" for each in serving):
        return "", ""
    states = " or ".join(sorted({each.state for each in serving}, reverse=True))
    named = ", ".join(each.id for each in serving[:NAMED])
    more = f" and {len(serving) - NAMED} more" if len(serving) > NAMED else ""
    who = "the only worker" if len(serving) == 1 else f"all {len(serving)} workers"
    text = f"{who} of the queue {queue} ({named}{more}) {'is' if len(serving) == 1 else 'are'} "
    paused = next((each.id for each in serving if each.state == "paused"), "")
    start = f"start another one: `{client.command('worker')}`"
    if queue != DEFAULT_QUEUE:
        start = f"start another one: `{client.command(f'worker --queue {queue}')}`"
    resume = f"`{client.command(f'worker resume {paused}')}`, or " if paused else ""
    return f"{text}{states}, so nothing takes its tasks", f"{resume}{start}"


def no_server(client: Connection, queues: Sequence[str]) -> str:
    """A text that names queues which no worker serves, and says what to do."""
    many = len(queues) > 1
    options = " ".join(f"--queue {queue}" for queue in queues)
    return (
        f"no worker serves the queue{'s' if many else ''} {', '.join(queues)}; start one: "
        f"{client.command(f'worker {options}')}"
    )
