"""What broken variants of keys do: the simulation must find each (`mutants.py`)."""

from __future__ import annotations

from typing import Any

from zkplan.protocol.features import keys
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.features.author import create_plan
from zkplan.protocol.requests import Create, Delete, Multi, Node, Op, SetData

from .broken_runs import Answers
from .mutant import Mutant, without
from .network import Fiber
from .world import ROOT, World

_KEYS = f"{ROOT}/keys/"
_real_remove = removal.delete_all
_real_lapse = keys._has_lapsed


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


def _lapsed(paths: Any, mark: Node, adds: Any) -> Answers:
    """An author with a session counts as gone while he lives."""
    return (not mark.data) or (yield from _real_lapse(paths, mark, adds))


def _any_add(world: World, fiber: Fiber, op: Op) -> Op:
    is_of_author = type(op) is Delete and fiber.kind.startswith("author")
    return Delete(op.path) if is_of_author and op.path.endswith("/add-count") else op


#: What a plan that is taken over loses, besides its key.
OF_AUTHORS = (
    Mutant("key of a living author taken over", patches=((keys, "_has_lapsed", _lapsed),)),
    Mutant("key taken over after another add", _any_add),
    Mutant(
        "key taken over and its plan left to its author",
        without(lambda fiber, op: type(op) is Create and b"author was gone" in op.data),
    ),
)
