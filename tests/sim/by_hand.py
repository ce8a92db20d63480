"""Somebody deletes by hand what says where tasks stand, in some runs: the check puts that back.

Such a task is in no place until then, which S1 allows it alone. Everything else is judged as ever:
that it is never in two places, never claimed twice with one N, and ends once.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from zkplan.protocol.requests import Delete, Multi, Step

from .story import Meant

if TYPE_CHECKING:
    from .world import World

#: The share of runs in which somebody does, and how often in one of them.
SHARE, DELETIONS = 0.06, 4
#: The kind of the fibers that delete.
BY_HAND = "by hand"


def drawn(seed: int) -> bool:
    return random.Random(f"by hand {seed}").random() < SHARE


def set_up(world: World) -> None:
    """Plan the deletions of a run that has some. What they leave contradicts the history."""
    if world.by_hand:
        world.auditor.history.judges = False
        at = [world.rng.randrange(len(world.pending) + 1) for _ in range(DELETIONS)]
        for index in sorted(at, reverse=True):
            world.pending.insert(index, lambda: delete(world))


def delete(world: World) -> None:
    """Delete the entry, the claim or the dead letter of a task."""
    tasks = [task for task in _tasks(world) if len(task.places) == 1]
    if tasks:
        world.start("person", BY_HAND, _delete(world.rng.choice(tasks).places[0]))


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
    return [
        task
        for task in world.names.values()
        if task.alive and task.gate is None and not task.foreign
    ]
