"""Broken variants of the mends: each takes what is not lost, and the simulation must find it."""

from __future__ import annotations

import random
from array import array
from typing import Any

from zkplan.protocol.features import plan_check as check
from zkplan.protocol.features import plan_repair as mend
from zkplan.protocol.features import task_place as places
from zkplan.protocol.features.task_place import place_of
from zkplan.protocol.layout import limit_path, limits_in
from zkplan.protocol.requests import Delete, ReadChildren, ReadData

from .mix import Mix, draw_mix
from .mutant import Mutant


def _mix(rng: random.Random) -> Mix:
    return draw_mix(rng)._replace(hand_back=0.3, more=2, adds=0.3)


def _untouched(path: str, node: Any) -> list[Any]:
    """Whether somebody has claimed the task meanwhile is not asked."""
    return []


def _any_task(paths: Any, plan: str, tasks: array[int]) -> Any:
    """A task that is claimed counts as lost."""
    yield from ()
    return tasks


def _as_listed(mender: Any, prov: str) -> Any:
    """A task that was added after the tasks were listed counts as deleted."""
    node = yield ReadData(prov)
    if node is not None:
        yield from mender.put(prov, "leads nowhere", [Delete(prov)])


def _first_number(task_path: str) -> Any:
    """A task that is put back begins again with the first number of a claim."""
    yield from ()
    return 0


def _all_permits(paths: Any, plan: str, task: str, lane: str) -> Any:
    """The permits of claims that stand count as left behind."""
    at = [limit_path(paths.root, plan, name) for name in limits_in(lane)]
    found = []
    for path in at:
        found += [f"{path}/{name}" for name in (yield ReadChildren(path)) or ()]
    return found


def _no_permits(paths: Any, plan: str, task: str, lane: str) -> Any:
    """What a deleted claim has held stays taken."""
    yield from ()
    return []


def _unguarded(*args: Any) -> Any:
    """A plan may end, or be retried, while it is mended."""
    mender = mend.Mender(*args)
    mender._guard = []
    return mender


def _listed_before(mender: Any, tasks: array[int]) -> Any:
    """A task that was added after the tasks were listed counts as deleted."""
    dead = f"{mender.plan_path}/dead"
    for name in (yield ReadChildren(dead)) or ():
        if place_of(tasks, int(name)) is None:
            yield from mender.put(name, "was deleted", [Delete(f"{dead}/{name}")])


def _by_hand(world: Any) -> bool:
    return bool(world.by_hand)


OF_MENDS = (
    Mutant(
        "mend: a task that is claimed meanwhile",
        patches=((mend, "untouched", _untouched),),
        mix=_mix,
        needs=_by_hand,
    ),
    Mutant(
        "mend: a task that is claimed",
        patches=((mend, "unplaced", _any_task), (check, "unplaced", _any_task)),
    ),
    Mutant("mend: an edge that is alive", patches=((mend, "_mend_nowhere", _as_listed),), mix=_mix),
    Mutant(
        "mend: permits of others",
        patches=((mend, "left_permits", _all_permits), (places, "left_permits", _all_permits)),
        needs=_by_hand,
    ),
    Mutant(
        "mend: permits that nobody frees",
        patches=((mend, "left_permits", _no_permits), (places, "left_permits", _no_permits)),
        needs=_by_hand,
    ),
    Mutant("mend: a plan that ends", patches=((check, "Mender", _unguarded),), needs=_by_hand),
    Mutant(
        "mend: a dead letter that is needed",
        patches=((check, "mend_left", _listed_before),),
        mix=_mix,
    ),
    Mutant("mend: a number that was", patches=((mend, "lost_n", _first_number),), needs=_by_hand),
)
