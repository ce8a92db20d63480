"""In some runs somebody deletes the entries of tasks and of plans by hand: checks and scans put
them back.

Until then the task is in no place, which S1 allows it alone, and the plan in no index (S14).
Everything else is judged as ever: no task is in two places, is claimed twice with one N, or ends
twice.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING, Any

from zkplan.protocol.layout import active_entry
from zkplan.protocol.requests import Delete, Multi, Step

from .authors import Plan
from .story import Meant

if TYPE_CHECKING:
    from .world import World

#: The share of runs in which somebody deletes entries of tasks, and how many in such a run.
SHARE, DELETIONS = 0.06, 4
#: The share of plans whose entries are deleted, and how often.
LOSES_ENTRY, ENTRIES = 0.05, 3
#: The kind of the fibers that delete.
BY_HAND = "by hand"


def drawn(seed: int) -> bool:
    return random.Random(f"by hand {seed}").random() < SHARE


def set_up(world: World) -> None:
    """Plan the deletions of a run. Without entries of tasks the history says too much."""
    if world.by_hand:
        world.auditor.history.judges = False
        at = [world.rng.randrange(len(world.pending) + 1) for _ in range(DELETIONS)]
        for index in sorted(at, reverse=True):
            world.pending.insert(index, lambda: delete(world))
    for plan in [plan for plan in world.plans if plan.loses_entry] * ENTRIES:
        index = world.rng.randrange(len(world.pending) + 1)
        world.pending.insert(index, partial(delete_entry, world, plan))


def delete(world: World) -> None:
    """Delete the entry, the claim or the dead letter of a task."""
    tasks = [task for task in _tasks(world) if len(task.places) == 1]
    if tasks:
        world.start("person", BY_HAND, _delete(world.rng.choice(tasks).places[0]))


def delete_entry(world: World, plan: Plan) -> None:
    """Delete the entry of a plan in the index of active plans."""
    path = active_entry(world.paths.plan(plan.number)) if plan.number else ""
    if path in world.nodes:
        world.start("person", BY_HAND, _delete(path))


def _delete(path: str) -> Step[Any]:
    yield Multi([Delete(path)])


def lost_in(world: World, number: str) -> bool:
    """Whether a plan has a task that is in no place."""
    path = world.paths.plan(number)
    return any(
        task.is_lost and task.alive and not task.places and task.path.startswith(f"{path}/")
        for task in world.names.values()
    )


def _tasks(world: World) -> list[Meant]:
    return [task for task in world.names.values() if task.alive and task.gate is None]
