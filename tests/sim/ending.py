"""The end of a run: everything that was acknowledged has run once, and nothing is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkplan.protocol.layout import HISTORY, PLAN_FIXED, QUEUES, queue_path
from zkplan.protocol.transactions import pending_dependents

from . import gates, reopening
from .authors import Plan
from .queues import NAMES
from .story import SKIPPED, STORED, Meant, Violation

if TYPE_CHECKING:
    from .world import World


def judge(world: World) -> None:
    """L3, and S4 for every acknowledged add; raises Violation."""
    held = _held_for_ever(world)
    for plan in world.plans:
        if plan.number and not plan.removed:
            held |= reopening.judge_end(world, plan, held)
    for plan in world.plans:
        if not plan.number:
            continue
        if plan.removed:
            if world.paths.plan(plan.number) in world.nodes:
                raise Violation(f"L3 plan {plan.number} was removed and is still there")
            continue
        _judge_plan(world, plan, held)
        for task in plan.tasks:
            _judge_task(task, held)
    _judge_what_is_left(world)


def _held_for_ever(world: World) -> set[str]:
    """Joins whose author died while it defined them, and whatever waits for them."""
    held: set[str] = set()
    for task in world.names.values():
        waits = any(dep.name in held for dep in task.deps)
        if task.alive and (waits or f"{task.path}/incomplete" in world.nodes):
            held.add(task.name)
    return held


def _judge_plan(world: World, plan: Plan, held: set[str]) -> None:
    children = set(world.nodes[world.paths.plan(plan.number)].children)
    tasks = {name for name in children if name.startswith("task-")}
    running = [task for task in world.names.values() if task.alive and task.name not in held]
    if running:
        raise Violation(f"L3 {[task.name for task in running]} never finished")
    if not tasks and children - {QUEUES, HISTORY} != {*PLAN_FIXED, "ready", "done"} - {"add-count"}:
        raise Violation(f"L3 plan {plan.number} has no task, and these children: {children}")
    path = world.paths.plan(plan.number)
    nodes = [world.nodes.get(queue_path(path, queue)) for queue in NAMES]
    if any(node is not None and node.children for node in nodes):
        raise Violation(f"L3 plan {plan.number} has runnable entries left")


def _judge_task(task: Meant, held: set[str]) -> None:
    expected = 1 if task.acknowledged and task.name not in held else None
    if expected is not None and task.commits != expected:
        raise Violation(f"S4 {task.name} was acknowledged and committed {task.commits} times")
    for inner in task.adds:
        # A failure that travels commits its task without what the function would have added.
        added = (
            task.commits == 1
            and task.fixed is not None
            and task.fixed.startswith((b"v", STORED))
            and not task.fixed.startswith(SKIPPED)
        )
        if added and not {task.name, inner.name} & held and inner.commits != 1:
            raise Violation(f"S4 {inner.name}, added by {task.name}, ran {inner.commits} times")


def _judge_what_is_left(world: World) -> None:
    world.auditor.permits.judge_end()
    world.auditor.history.judge_end()
    paths = world.paths
    if world.nodes[paths.delayed].children:
        raise Violation("L3 delayed entries are left")
    gates.judge_end(world)
    for claims_node in sorted(world.nodes[paths.claims].children):
        if paths.worker(claims_node) not in world.nodes:
            raise Violation(f"L3 the claims node of {claims_node}, which is gone, is left")
        for name in sorted(world.nodes[paths.claims_of(claims_node)].children):
            if not name.startswith("pending-"):
                raise Violation(f"L3 the claim {name} is left on the claims node of {claims_node}")
            for target in pending_dependents(
                world.nodes[f"{paths.claims_of(claims_node)}/{name}"].data
            ):
                ready = world.nodes.get(f"{paths.task(target.plan, target.task)}/ready")
                if ready is not None and ready.version == target.k:
                    raise Violation(f"L3 {target} is complete and was never published")
