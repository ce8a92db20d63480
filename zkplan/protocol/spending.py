"""How much room plans take: counted exactly where they are small, by a sample where they are large.

A server that is asked for it would look at every znode that it has, and not every one can be asked.
So a client counts, and reads what it counts.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from typing import NamedTuple

from ..backoff import CHANCE
from .layout import Paths, parse_task
from .load import read_all
from .requests import ReadChildren, ReadData, Step

#: Of more znodes of one kind only so many are read; they stand for the others.
SAMPLE = 1000


class Room(NamedTuple):
    """What a plan takes: znodes, itself included, and bytes of data. `exact`: all were read."""

    znodes: float
    bytes: float
    exact: bool = True

    def plus(self, other: Room) -> Room:
        return Room(
            self.znodes + other.znodes, self.bytes + other.bytes, self.exact and other.exact
        )


NONE = Room(0, 0)


def room_of(plan_path: str, chance: random.Random = CHANCE) -> Step[Room]:
    """How much room a plan takes; none where it does not exist.

    Reads some thousands of znodes at most, however large the plan is. What changes meanwhile may be
    counted or not.
    """
    names = yield ReadChildren(plan_path)
    node = yield ReadData(plan_path)
    if names is None or node is None:
        return NONE
    total = Room(1, len(node.data))
    fixed = [f"{plan_path}/{name}" for name in names if parse_task(name) is None]
    tasks = [f"{plan_path}/{name}" for name in names if parse_task(name) is not None]
    for kind in (*([each] for each in fixed), tasks):
        found = yield from _kind(kind, chance)
        total = total.plus(found)
    return total


def _kind(paths: Sequence[str], chance: random.Random) -> Step[Room]:
    """These znodes of one kind and all that is below them."""
    total, weight, exact = NONE, 1.0, True
    while paths:
        chosen = paths
        if len(paths) > SAMPLE:
            chosen, exact = chance.sample(paths, SAMPLE), False
        weight *= len(paths) / len(chosen)
        nodes = yield from read_all([ReadData(path) for path in chosen], strict=False)
        there = [(path, node) for path, node in zip(chosen, nodes, strict=True) if node is not None]
        data = sum(len(node.data) for _, node in there)
        total = total.plus(Room(weight * len(there), weight * data, exact))
        above = [path for path, node in there if node.child_count]
        lists = yield from read_all([ReadChildren(path) for path in above], strict=False)
        paths = [
            f"{path}/{name}"
            for path, names in zip(above, lists, strict=True)
            for name in names or ()
        ]
    return total


def count_plans(
    paths: Paths, plans: Sequence[str], known: dict[str, Room], ended: Container[str]
) -> Step[Room]:
    """What these plans take together. `known` holds those that have ended, which never grow; more
    are added to it."""
    total = NONE
    for plan in plans:
        found = known.get(plan)
        if found is None:
            found = yield from room_of(paths.plan(plan))
            if plan in ended:
                known[plan] = found
        total = total.plus(found)
    return total
