"""What any worker of the simulation does besides running tasks: clear, promote, finish, check."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core import end_claims as clearing
from zkplan.protocol.core import plan_indexes as active
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core import plans_and_queues as look
from zkplan.protocol.features import plan_check as checking
from zkplan.protocol.layout import parse_delayed, parse_lease
from zkplan.protocol.requests import ReadChildren, Step

from . import duties, expiry, leases, store

if TYPE_CHECKING:
    from .world import World

Script = Generator[Any, Any, None]


def of_plans(world: World) -> Iterator[tuple[str, Callable[[World, str], Step[Any]], list[str]]]:
    """What is done to single plans: its name, how it is done, and to which plans now."""
    yield "finish", finish, duties.plans_to_finish(world)
    yield "check", check, duties.plans_to_check(world)
    yield "index", index, duties.plans_to_index(world)
    yield expiry.EXPIRES, expiry.expire, expiry.plans_to_expire(world)
    yield "compare", store.check, duties.plans_to_compare(world)


def clear(world: World) -> Script:
    paths = world.paths
    vacant: Sequence[str] = (yield from clearing.orphaned_claims(paths)).vacant
    if world.chance(world.mix.spurious):
        # A lagging server shows a claims node and not yet its worker: the guard must notice.
        vacant = (yield ReadChildren(paths.claims)) or []
    for worker in vacant:
        if parse_lease(worker) is None:
            yield from clearing.clear_claims(paths, worker)
    yield from leases.expire_all(world)


def promote(world: World) -> Script:
    paths = world.paths
    names = (yield ReadChildren(paths.delayed)) or []
    found = [(name, later) for name in names if (later := parse_delayed(name)) is not None]
    due = [item for item in found if item[1].due_ms <= world.now]
    if due:
        yield from look.promote(paths, due)


def finish(world: World, plan: str) -> Script:
    if (yield from control.finish(world.paths.plan(plan), 0.0)) and world.has_store:
        yield from store.sweep(world, plan)


def index(world: World, plan: str) -> Step[Any]:
    return active.find_unindexed(world.paths, [plan])


def check(world: World, plan: str) -> Script:
    report = yield from checking.check(world.paths, plan)
    # What is mended may be all that kept the plan from its end: a worker asks at its next check.
    if not report.done and (report.mended or not report.tasks):
        yield from finish(world, plan)
