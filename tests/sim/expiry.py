"""Retention in the simulation: any worker removes plans that have ended for good.

S22 is judged here, with every transaction of such a removal. That a retention is over is always so
here: times are judged on servers.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkplan.errors import PlanError, PlanNotFound
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.features import bounds
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.records import control_from_bytes

from . import authors
from .story import Violation

if TYPE_CHECKING:
    from .world import World

#: The share of runs with removals, and how often a plan that has ended is due, or one that has not.
SHARE, DUE, IN_VAIN = 0.25, 0.03, 0.004
#: The kind of fibers that remove plans on nobody's order.
EXPIRES = "expire"
LATE = 1e11


def set_up(world: World) -> None:
    """In some runs, workers remove finished plans; in some of those, one is cancelled before."""
    rng = random.Random(f"retention {world.seed}")
    world.expires = rng.random() < SHARE
    if world.expires and rng.random() < 0.4:
        world.pending.append(lambda: _cancel(world, rng))


def _cancel(world: World, rng: random.Random) -> None:
    plans = [plan for plan in world.plans if plan.number and not plan.removed]
    if plans:
        plan = rng.choice(plans)
        plan.removed = True  # as it will be, since it has ended
        world.start("operator", "cancel", _cancelled(world, plan))


def _cancelled(world: World, plan: authors.Plan) -> authors.Script:
    try:
        yield from control.change_state(world.paths.plan(plan.number), "cancelled")
    except PlanError:
        pass  # it is done, or removed


def plans_to_expire(world: World) -> list[str]:
    """As the scan and the retention would say; now and then one that has not ended."""
    if not world.expires:
        return []
    found = []
    for plan in world.plans:
        path = world.paths.plan(plan.number)
        if not plan.number or path not in world.nodes:
            continue
        if has_ended(world.nodes, world.auditor.opened, path):
            if plan.removed or world.chance(DUE):
                found.append(plan.number)
        elif world.chance(IN_VAIN):
            found.append(plan.number)
    return found


def expire(world: World, number: str) -> authors.Script:
    found = yield from bounds.is_over(world.paths, number, LATE)
    if found is None:
        return
    plan = next(plan for plan in world.plans if plan.number == number)
    plan.removed = True
    try:
        yield from removal.remove(found.path, found.end)
    except PlanNotFound:
        pass  # another worker was faster
    else:
        if found.path in world.nodes and not has_ended(
            world.nodes, world.auditor.opened, found.path
        ):
            plan.removed = False  # somebody has retried it meanwhile


def has_ended(nodes: Any, opened: Callable[[str], bytes], path: str) -> bool:
    """`opened` gives the data of a znode without the seal."""
    ready = f"{path}/ready"
    if ready not in nodes:
        return False
    return f"{path}/done" in nodes or control_from_bytes(opened(ready)) == "cancelled"


def judge(nodes: Any, root: str, plan_path: str, had_ended: bool) -> None:
    """S22: a transaction of such a removal has changed this plan."""
    if not had_ended:
        raise Violation(f"S22 {plan_path} is removed, and has not ended for good")
    for claims_node in nodes[f"{root}/claims"].children:
        for name in nodes[f"{root}/claims/{claims_node}"].children:
            if name.startswith(f"{plan_path[-10:]}-"):
                raise Violation(f"S22 {plan_path} is removed, and {name} runs")
