"""An operator of the simulation decides about single tasks: skip, cancel, another priority."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from zkplan.errors import PayloadUndecodable, PlanError, TaskError
from zkplan.protocol.features import decisions as deciding
from zkplan.protocol.features import decisions as priority
from zkplan.protocol.features import retry as retrying
from zkplan.protocol.features import task_place as places
from zkplan.protocol.requests import Refused, Step

from .authors import Plan
from .story import FAILED, SKIPPED, Meant, Violation

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, None]


def decide(world: World, plan: Plan, task: Meant) -> Script:
    """Skip or cancel `task`, and hold the answer against what the tree has accepted."""
    skips = world.rng.random() < 0.6
    call = f"{world.rng.getrandbits(32):08x}".encode()
    sealed = (SKIPPED if skips else FAILED + b"by ") + call
    task.decisions.append(sealed)
    step = deciding.decide(world.paths, plan.number, task.number, sealed, skips=skips)
    repeated = [False]
    try:
        stood = yield from _noting_repeats(step, repeated)
    except (PlanError, TaskError, PayloadUndecodable):
        stood = ""  # cancelled, removed, or still being defined
    if not stood and repeated[-1] and task.removed and task.verdict == sealed:
        return  # its answer was lost, and a removal took the task, as decided, before the next read
    if bool(stood) != (sealed in task.accepted):
        raise Violation(f"S18 {task.name}: {sealed!r} is answered with {stood!r}, and is not so")


def _noting_repeats(step: Step[str], repeated: list[bool]) -> Generator[Any, Any, str]:
    """The step; `repeated` gets whether the last transaction that was refused had been repeated."""
    answer: Any = None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return str(stop.value)
        answer = yield request
        if type(answer) is Refused:
            repeated.append(answer.repeated)


def move(world: World, plan: Plan, task: Meant) -> Script:
    """Set another priority, or let a delayed task run now."""
    rng, paths = world.rng, world.paths
    try:
        if rng.random() < 0.7:
            yield from priority.set_priority(paths, plan.number, task.number, rng.randint(-3, 3))
            return
        place = yield from places.find_place(paths, plan.number, task.number)
        if place is not None and place.state == "delayed":
            yield from retrying.run_now(paths.plan(plan.number), place)
    except (PlanError, TaskError, PayloadUndecodable):
        return
