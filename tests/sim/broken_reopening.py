"""Broken variants of the retry of a plan after its end: the simulation must find each of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from zkplan.errors import PlanDrained
from zkplan.protocol.core import plan_life as control
from zkplan.protocol.core.edges import Edge
from zkplan.protocol.features import decisions as decide
from zkplan.protocol.features import remove_plan as removal
from zkplan.protocol.features import retry as reopen
from zkplan.protocol.requests import Check, Create, Multi, Op, SetData
from zkplan.protocol.transactions import Dependent

from . import mixes
from .broken_runs import NOTHING, Answers
from .mutant import Mutant

_real_choose, _real_finish = reopen._choose, control.finish
_real_tell, _real_part = decide.send_failure, reopen._send_part
_EDGE: Any = Edge


def _sent(step: Any, change: Callable[[list[Op]], list[Op]]) -> Answers:
    """The step, with other operations in its transactions."""
    answer = None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return stop.value
        if type(request) is Multi:
            request = Multi(change(list(request.ops)), request.facts)
        answer = yield request


def _roots_alone(standing: Any) -> Any:
    """What has failed by another task is forgotten."""
    again = _real_choose(standing)
    return [task for task in again if task.letter is None or not task.waits]


def _finish_unguarded(*arguments: Any) -> Answers:
    """A late copy of an end may come when the plan runs again."""

    def change(ops: list[Op]) -> list[Op]:
        return [NOTHING if type(op) is Check and op.path.endswith("/ready") else op for op in ops]

    return _sent(_real_finish(*arguments), change)


def _tell_unguarded(*arguments: Any) -> Answers:
    """A plan may end while the failure of a dead task goes to one that was added."""

    def change(ops: list[Op]) -> list[Op]:
        return [NOTHING if op.path.endswith("/add-count") else op for op in ops]

    return _sent(_real_tell(*arguments), change)


def _tell_from_nothing(*arguments: Any) -> Answers:
    """A failure that is delivered once more gives all attempts back."""

    def change(ops: list[Op]) -> list[Op]:
        return [*ops[:-1], Create(re.sub(r"(-\d+\.\d+)\.\d+", r"\1.0", ops[-1].path))]

    return _sent(_real_tell(*arguments), change)


def _part_unguarded(*arguments: Any) -> Answers:
    """Two retries put the same plan back, one of them when it runs already."""

    def change(ops: list[Op]) -> list[Op]:
        return [NOTHING if type(op) is Check else op for op in ops]

    return _sent(_real_part(*arguments), change)


def _removed_as_read(plan_path: str, _end: Any) -> Answers:
    """What was done when it was read is removed, though somebody has retried it since."""
    try:
        yield from control.change_state(plan_path, "cancelled")
    except PlanDrained:
        pass
    return True


def _first_number(edge: Edge, plan: str) -> Dependent:
    """A task that waits again is published under the number of its first claim."""
    return Dependent(plan, edge.task, edge.k, edge.rank, edge.queue)


def _same_k(plan_path: str, task: Any) -> Any:
    """A task that waits again counts the arrivals of before as new ones."""
    for piece in _real_pieces(plan_path, task):
        yield [
            SetData(op.path, b"%d" % task.version, op.version)
            if type(op) is SetData and op.path.endswith("/ready")
            else op
            for op in piece
        ]


_real_pieces = reopen._pieces


def _lost_edge(plan_path: str, task: Any) -> Any:
    """Only one end of each edge is made anew."""
    for piece in _real_pieces(plan_path, task):
        yield [op for op in piece if not (type(op) is Create and op.path.endswith("/prov-"))]


def _mutant(name: str, *patches: Any, mix: Any = mixes.reopened) -> Mutant:
    return Mutant(f"retry of a plan: {name}", patches=patches, mix=mix)


OF_REOPENING = (
    _mutant("dependents stay failed", (reopen, "_choose", _roots_alone)),
    _mutant(
        "late copy of its end", (control, "finish", _finish_unguarded), mix=mixes.reopened_late
    ),
    _mutant("ends while a failure goes on", (decide, "send_failure", _tell_unguarded)),
    _mutant("attempts given back", (decide, "send_failure", _tell_from_nothing)),
    _mutant("parts not fenced", (reopen, "_send_part", _part_unguarded)),
    _mutant("removed all the same", (removal, "_end_for_good", _removed_as_read)),
    _mutant("N starts again", (_EDGE, "dependent", _first_number)),
    _mutant("K stays", (reopen, "_pieces", _same_k)),
    _mutant("one end of an edge", (reopen, "_pieces", _lost_edge)),
    Mutant(
        "end of a plan whose state has not followed",
        patches=((control, "_as_read", lambda path, ready: Check(path, ready.version)),),
        needs=lambda world: world.network.sealing is not None,
    ),
)
