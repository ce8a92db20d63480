"""Schedules in the simulation: several workers fire one, and each due time has one plan at most.

S16 is judged with every plan that is created. The plans are removed now and then: then only the
comparison of the next time stands between a due time and its second plan.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zkplan.embedded import operations as server
from zkplan.protocol.features import schedules
from zkplan.protocol.features.schedules import Definition, Firing, Schedule, Upcoming
from zkplan.protocol.layout import DEFAULT_QUEUE
from zkplan.protocol.records import PlanRecord
from zkplan.protocol.requests import Create

from . import authors
from .auditor import REMOVES
from .story import Meant, Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with a schedule, how many due times it has, and how often a plan is removed.
SHARE, TIMES, REMOVED = 0.25, 4, 0.3
NAME = "tick"
Script = Generator[Any, Any, None]


def set_up(world: World) -> None:
    """In some runs, a schedule that several workers fire."""
    rng = random.Random(f"scheduled {world.seed}")
    if rng.random() >= SHARE:
        return
    record = PlanRecord(NAME, "", 0.0)
    times = ("* * * * * *", "UTC", "allow", "all", 0.0)
    definition = Definition(NAME, "u", *times, record, b"", "5000", NAME)  # type: ignore[arg-type]
    path = f"{world.paths.schedules}/{NAME}"
    for each, data in (
        (world.paths.schedules, b""),
        (path, definition.to_bytes()),
        (f"{path}/next-u", Upcoming(0).to_bytes()),
    ):
        op = Create(each, data)
        if world.network.sealing is not None:
            op = world.network.sealing.sealed(op)
        world.network.tree.apply(server.Create(op.path, op.data))
    for due in range(TIMES):
        plan = authors.Plan(f"{NAME}{due}", "hold")
        task = Meant(f"{NAME}{due}.0", [])
        plan.tasks = [task]
        world.expect(task)
        task.stored = False  # a store has folders for plans that exist
        task.queue, task.limits = DEFAULT_QUEUE, []
        world.plans.append(plan)
    for index in range(rng.randint(2, 4)):
        world.start(f"firing{index}", "fire", _fire_all(world, index, rng))


def created(world: World, number: str, data: bytes) -> None:
    """A plan was created: S16, if it is that of a due time."""
    record = PlanRecord.from_bytes(data)
    if record.schedule != NAME:
        return
    plan = next(each for each in world.plans if each.name == record.name)
    if plan.number:
        raise Violation(f"S16 {record.key} has the plans {plan.number} and {number}")
    plan.tasks[0].acknowledged = True
    world.created(plan, number)


def _fire_all(world: World, index: int, rng: random.Random) -> Script:
    """As a worker does that knows the schedule, and may know it as it was a while ago."""
    schedule = yield from schedules.read_schedule(world.paths, NAME)
    known: Schedule | None = schedule
    while known is not None and known.next.due_ms < TIMES:
        due = known.next.due_ms
        record = replace(
            known.definition.plan,
            name=f"{NAME}{due}",
            uid=f"{index}-{rng.getrandbits(32):x}",
            key=f"{NAME}@{due}",
            schedule=NAME,
        )
        task = f"{NAME}{due}.0".encode()
        mine = known._replace(definition=replace(known.definition, task=task))
        firing = Firing(due, "", str(index), world.now, "fired")
        fired = yield from schedules.fire(world.paths, mine, record, firing, due + 1)
        if fired is not None and rng.random() < REMOVED:
            _remove(world, due)
        if fired is None or rng.random() < 0.5:
            fired = yield from schedules.reread(schedule)
        known = fired


def _remove(world: World, due: int) -> None:
    plan = next(each for each in world.plans if each.name == f"{NAME}{due}")
    if plan.number and not plan.removed:
        plan.removed = True
        world.start("operator", REMOVES, authors.remove(world, plan))
