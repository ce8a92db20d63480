"""Broken variants of the mends: each takes what is not lost, and the simulation must find it."""

from __future__ import annotations

import random
from array import array
from typing import Any

from zkplan.protocol import check, mend
from zkplan.protocol.requests import Delete, ReadData

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
    Mutant("mend: a number that was", patches=((mend, "lost_n", _first_number),), needs=_by_hand),
)
