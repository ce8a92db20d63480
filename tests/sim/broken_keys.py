"""What broken variants of keys do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from typing import Any

from zkplan.protocol import removal
from zkplan.protocol.author import create_plan
from zkplan.protocol.requests import Multi, Op, SetData

from .broken_runs import Answers
from .network import Fiber
from .world import ROOT, World

_KEYS = f"{ROOT}/keys/"
_real_remove = removal.delete_all


def not_compared(world: World, fiber: Fiber, op: Op) -> Op:
    of_plan = op.path.startswith(f"{ROOT}/plan-") and op.path.count("/") == 2
    if type(op) is SetData and (of_plan or op.path.startswith(_KEYS)):
        return SetData(op.path, op.data)
    return op


def next_not_compared(world: World, fiber: Fiber, op: Op) -> Op:
    if type(op) is SetData and op.path.startswith(f"{ROOT}/schedules/"):
        return SetData(op.path, op.data)
    return op


def holds_nothing(paths: Any, _held: str = "") -> Answers:
    """A plan that is removed stands for a while without any fixed child."""
    return _real_remove(paths)


def after_the_plan(paths: Any, record: Any, more: Any, **others: Any) -> Answers:
    number = yield from create_plan(paths, record, **others)
    yield Multi(more(number))
    return number
