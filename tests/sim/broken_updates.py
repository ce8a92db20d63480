"""Broken variants of updates: the simulation must find each of them."""

from __future__ import annotations

from typing import Any

from zkplan.protocol.features import update as updating
from zkplan.protocol.requests import Applied, Check, Delete, Multi

from .auditor import DECIDES
from .broken_runs import Answers
from .mutant import Mutant, only, without
from .mutants import answered

_real_apply: Any = updating.Update.apply


def _in_two(update: Any) -> Answers:
    """What does not fit with the rest comes behind it."""
    step, answer = _real_apply(update), None
    while True:
        try:
            request = step.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield request
        is_whole = type(request) is Multi and "/add-ids/update-" in request.ops[0].path
        if is_whole and type(answer) is not Applied and answer.at > 1:
            first = yield Multi(request.ops[: answer.at])
            if type(first) is Applied:
                rest = yield Multi(request.ops[answer.at :])
                more = rest.results if type(rest) is Applied else ()
                results = [*first.results, *more]
                answer = Applied([*results, *[0] * (len(request.ops) - len(results))])


def _takes_its_word(update: Any) -> Answers:
    """After a lost answer the mark is not looked for: what is refused then was not applied."""

    def no_mark(request: Any, answer: Any) -> Any:
        is_mark = "/add-ids/update-" in getattr(request, "path", "")
        return None if is_mark else answer

    return answered(_real_apply(update), no_mark)


#: Found by the simulation alone: real programs seldom update a task at that moment.
OF_UPDATES = only(
    lambda world: world.leases is not None,
    Mutant("update in two transactions", patches=((updating.Update, "apply", _in_two),)),
    Mutant("update without its mark", without(lambda fiber, op: "/add-ids/update-" in op.path)),
    Mutant("mark of an update not read", patches=((updating.Update, "apply", _takes_its_word),)),
    Mutant(
        "update that does not check its demands",
        without(lambda fiber, op: fiber.kind == DECIDES and type(op) is Check),
    ),
    Mutant(
        "update not fenced against its claims",
        without(
            lambda fiber, op: (
                fiber.kind == DECIDES and type(op) is Delete and op.path.count("/claims/lease-") > 0
            )
        ),
    ),
)
