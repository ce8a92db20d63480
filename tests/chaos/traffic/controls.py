"""Queues, limits, keys, shares, gates and a schedule in the workloads of a run, by its seeds."""

from __future__ import annotations

import random
import sys
import uuid
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import Any

import zkplan
from zkplan.protocol.requests import Create, Delete, Multi, ReadData
from zkplan.testing.stress_tasks import Recorder, recorder_here

from .workloads import Item, Workload

SIDE, DEFAULT = "side", "default"
LIMIT, LIMIT_SIZE = "few", 3
GATE = "/chaos-gate"
#: Due so often; its plans are removed as soon as they are done.
TICK, TICK_CRON = "tick", "*/2 * * * * *"
#: Tasks that take longer are not limited, so that a plan takes hardly longer than without.
_BRIEF_S = 0.05


def queues_of(number: int, workers: int) -> list[str]:
    """The options of that worker: the first of several serves one queue, the others both."""
    served = [DEFAULT] if number == 0 and workers > 1 else [DEFAULT, SIDE]
    return [word for queue in served[:: 1 if number % 2 else -1] for word in ("--queue", queue)]


def served_here() -> list[str]:
    """The queues that the worker of this process serves, by its command line."""
    return [value for option, value in pairwise(sys.argv) if option == "--queue"] or [DEFAULT]


def controlled(workload: Workload) -> Workload:
    """The same plan, in which some tasks are of another queue, and some are limited."""
    chance = random.Random(f"controls {workload.seed}")
    rarely = chance.choice([0.0, 0.3])

    def changed(item: Item) -> Item:
        queue = SIDE if chance.random() < rarely else DEFAULT
        limited = item.seconds <= _BRIEF_S and chance.random() < 0.15
        adds = tuple(changed(each) for each in item.adds)
        return item._replace(queue=queue, limited=limited, adds=adds)

    return replace(workload, batches=[[changed(item) for item in b] for b in workload.batches])


def options_of(workload: Workload) -> dict[str, Any]:
    """Options of that plan: every other one has a key, and they have different weights."""
    chance = random.Random(f"options {workload.seed}")
    key = workload.name if chance.random() < 0.5 else None
    return {"key": key, "weight": chance.choice([1, 1, 3, 10])}


def tick(folder: str) -> None:
    """The task of each plan of the schedule: it records which plan is for which time."""
    plan = zkplan.current().plan
    recorder_here(folder).write("ticked", due=str(plan.due), path=plan.path)
    plan.add_task(passed, [folder, zkplan.when(GATE)])


def passed(folder: str, value: bytes) -> None:
    """A task behind the gate: it records the value of the znode."""
    recorder_here(folder).write("passed", value=value.decode())


def swing(client: zkplan.Client, journal: Recorder) -> None:
    """Make the znode that the gates wait for, with another value each time, or delete it."""
    if client.transport.ask(ReadData(GATE)) is not None:
        client.transport.ask(Multi([Delete(GATE)]))
        return
    value = uuid.uuid4().hex
    journal.write("gate opens", value=value)
    client.transport.ask(Multi([Create(GATE, value.encode())]))


def end_schedule(client: zkplan.Client) -> None:
    """Remove it, and its plans that are not gone."""
    client.find_schedule(TICK).remove()
    for plan in client.plans():
        with suppress(zkplan.PlanNotFound):
            if plan.record.schedule == TICK:
                plan.remove()


def prepare(client: zkplan.Client, folder: str) -> None:
    """Make the limit and the schedule."""
    client.set_limit(LIMIT, LIMIT_SIZE)
    client.schedule(TICK, TICK_CRON, tick, [folder], overlap="allow", retention=0)
