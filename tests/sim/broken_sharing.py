"""Broken variants of what tasks of a plan share: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from zkplan.protocol.core import plan_life, shared
from zkplan.protocol.requests import ReadChildren

from . import mixes, sharing
from .broken_runs import Answers
from .mutant import Mutant
from .world import World


def _after_the_add(write: Answers, add: Answers) -> Answers:
    added = yield from add
    yield from write
    return added


_finish = plan_life.finish


def _dropped_with_failures(plan_path: str, when: float) -> Answers:
    is_done = yield from _finish(plan_path, when)
    if is_done:
        yield from shared.drop(plan_path, (yield ReadChildren(f"{plan_path}/add-ids")))
    return is_done


def _shares(world: World) -> bool:
    return sharing.shares(world.seed)


OF_SHARING = (
    Mutant(
        "tasks added before what they share",
        patches=((sharing, "before_the_add", _after_the_add),),
        needs=_shares,
    ),
    Mutant(
        "what tasks share dropped while a retry needs it",
        patches=((plan_life, "finish", _dropped_with_failures),),
        needs=_shares,
        mix=mixes.reopened,
    ),
)
