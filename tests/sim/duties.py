"""What there is to do for a worker, as watches, waiters, scans and checks would tell it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkplan.protocol.layout import queue_path
from zkplan.protocol.records import control_from_bytes

from . import by_hand, leases
from .authors import Plan
from .limits import may_run

if TYPE_CHECKING:
    from .world import World

#: How likely somebody asks for a check of the blobs of a plan, each time a worker may do something.
COMPARED = 0.08


def plans_to_look_at(world: World, queues: list[str]) -> list[str]:
    """As a watch on these queues of an active plan would tell; of another one now and then, for
    a worker may have listed it before it was paused or ended."""
    found = []
    active = world.nodes[world.paths.active].children
    for plan in world.plans:
        path = world.paths.plan(plan.number)
        nodes = [world.nodes.get(queue_path(path, queue)) for queue in queues]
        names = [name for node in nodes if node is not None for name in node.children]
        if any(may_run(world, plan.number, name) for name in names):
            ready = world.opened(f"{world.paths.plan(plan.number)}/ready")
            runs = ready is not None and control_from_bytes(ready) == "running"
            if (runs and plan.number in active) or world.chance(0.1):
                found.append(plan.number)
    return found


def plans_to_finish(world: World) -> list[str]:
    """As a waiter would find: no task left that may run, and no `done`."""
    found: list[str] = []
    if not world.awaited:
        return found
    for plan in world.plans:
        node = world.nodes.get(world.paths.plan(plan.number)) if plan.number else None
        if node is None or "ready" not in node.children or "done" in node.children:
            continue
        if plan.removed:
            continue
        tasks = {name[5:] for name in node.children if name.startswith("task-")}
        if plan.on_failure == "cascade":
            tasks -= set(world.nodes[f"{world.paths.plan(plan.number)}/dead"].children)
        if world.chance(0.02) or not tasks:
            found.append(plan.number)
    return found


def plans_to_index(world: World) -> list[str]:
    """As a scan of the root would find: those whose entry was deleted; others are in vain."""
    return [
        plan.number
        for plan in world.plans
        if plan.number
        and (world.auditor.index.may_enter(world.paths.plan(plan.number)) or world.chance(0.002))
    ]


def plans_to_check(world: World) -> list[str]:
    active = world.nodes[world.paths.active].children
    return [
        plan.number
        for plan in world.plans
        if (plan.number and plan.number in active and _misses_a_failure(world, plan))
        or (plan.number and world.by_hand and by_hand.lost_in(world, plan.number))
        or (plan.number and world.chance(0.02 if world.by_hand else 0.002))
    ]


def _misses_a_failure(world: World, plan: Plan) -> bool:
    """Whether a task waits for one that was dead before, where failures cascade: a function has
    added it."""
    if plan.on_failure != "cascade":
        return False
    tasks = [task for each in plan.tasks for task in (each, *each.adds)]
    dead = {task.name for task in tasks if any("/dead/" in place for place in task.places)}
    waiting = [task for task in tasks if task.alive and not task.places]
    return any(
        dep.name in dead and f"{task.path}/dep-{at:010d}" in world.nodes
        for task in waiting
        if f"{task.path}/incomplete" not in world.nodes
        for at, dep in enumerate(task.deps)
    )


def plans_to_compare(world: World) -> list[str]:
    """Somebody asks for a check of their blobs."""
    if not world.has_store:
        return []
    return [plan.number for plan in world.plans if plan.number and world.chance(COMPARED)]


def vacant(world: World) -> bool:
    names = world.nodes[world.paths.claims].children
    living = world.nodes[world.paths.workers].children
    return any(name not in living and leases.is_vacant(world, name) for name in names)


def due(world: World) -> bool:
    return any(int(name[:13]) <= world.now for name in world.nodes[world.paths.delayed].children)
