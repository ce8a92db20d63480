"""Somebody of the simulation retries plans that have ended with failures; S7 and S19 of these."""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from zkplan.errors import PlanError, TransactionRejected
from zkplan.protocol.features import decisions as decide
from zkplan.protocol.features.retry import reopen
from zkplan.protocol.records import control_from_bytes

from .authors import Plan
from .story import FAILED, Meant, Violation

if TYPE_CHECKING:
    from .world import World

#: The kind of the fibers that retry a plan after its end.
REOPENS = "reopen"
#: How often somebody retries a plan after the faults.
TRIES = 3
Script = Generator[Any, Any, None]


def cascades(nodes: Mapping[str, Any], plan_path: str) -> bool:
    return b'"on_failure":"cascade"' in nodes[plan_path].data


def has_failed(world: World, plan: Plan) -> bool:
    """Whether the plan has ended, with failures that stand in it."""
    path = world.paths.plan(plan.number)
    node = world.nodes.get(path)
    return node is not None and "done" in node.children and any(map(is_task, node.children))


def is_task(name: str) -> bool:
    return name.startswith("task-")


def retry(world: World, plan: Plan) -> Script:
    try:
        yield from reopen(world.paths.plan(plan.number), 0.0)
    except PlanError:
        return  # it runs again, is being removed, or somebody else retries it
    except TransactionRejected:
        if not world.network.faults.full:
            raise


def help_on(world: World, plan: Plan) -> bool:
    """After the faults: in half of the runs somebody retries what has failed, a few times."""
    again = random.Random(f"reopen {world.seed}").random() < 0.5
    path = world.paths.plan(plan.number)
    # One that a retry has left half way is always gone on with.
    is_half_way = control_from_bytes(world.opened(f"{path}/ready") or b"") == "paused"
    if not has_failed(world, plan) or not (is_half_way or again) or plan.retries >= TRIES:
        return False
    plan.retries += 1
    world.start("operator", REOPENS, retry(world, plan))
    return True


def tell(world: World, plan: Plan, tasks: list[Meant]) -> Script:
    """As whoever adds tasks does: those that were added to a task that is dead fail by it."""
    if plan.on_failure == "cascade":
        sources = [dep.number for task in tasks for dep in task.deps]
        yield from decide.send_failures(world.paths, plan.number, sources)


def is_put_back(nodes: Mapping[str, Any], task: Meant) -> bool:
    """Whether a retry of its plan takes back, one by one, the failures that have come to it."""
    is_dead = any("/dead/" in place for place in task.places)
    return is_dead and "done" in nodes[task.path[:-16]].children


def judge_done(nodes: Mapping[str, Any], plan_path: str) -> None:
    """S7: what stands in a plan that is done has failed."""
    children = nodes[plan_path].children
    if "done" not in children:
        return
    if "add-count" in children:
        raise Violation(f"S7 {plan_path} is done and open for adds")
    left = {name[5:] for name in children if is_task(name)}
    if left and not cascades(nodes, plan_path):
        raise Violation(f"S7 {plan_path} is done and has tasks")
    if left - set(nodes[f"{plan_path}/dead"].children):
        raise Violation(f"S7 {plan_path} is done and has tasks that have not failed")


def judge_end(world: World, plan: Plan, held: set[str]) -> set[str]:
    """The tasks that stay, since they have failed: of a plan that has ended, or that cannot, since
    some are `held` for ever. None of them has failed by a task that has
    succeeded in a retry, as far as nothing else keeps it from running again."""
    if plan.on_failure != "cascade":
        return set()
    tasks = [task for each in plan.tasks for task in (each, *each.adds) if task.alive]
    dead = [task for task in tasks if any("/dead/" in place for place in task.places)]
    if has_failed(world, plan) and len(dead) < len(tasks):
        raise Violation(f"L3 plan {plan.number} is done, and has tasks that have not failed")
    if not (has_failed(world, plan) or any(task.name in held for task in tasks)):
        return set()
    for task in dead:
        given = {i: dep for i, dep in enumerate(task.deps) if i in task.given}
        failed = [dep for i, dep in given.items() if task.given[i].startswith(FAILED)]
        if task.cut or task.takes_failures or not failed or any(dep.alive for dep in failed):
            continue
        raise Violation(f"S19 {task.name} stays failed, and what it failed by has succeeded")
    return {task.name for task in dead}
