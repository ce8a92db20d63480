"""A step whose answers were lost finds what a late copy of its transactions has written."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from zkplan.errors import TransactionRejected
from zkplan.protocol.core.claim import Permits, claim
from zkplan.protocol.core.publish import publish
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import (
    Applied,
    Create,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    Step,
)
from zkplan.protocol.transactions import Allowance, Dependent, Registration
from zkplan.transport.transport import run_step

PLAN, FIRST, SECOND = "0000000003", "0000000011", "0000000012"
PATHS = Paths("/zkplan")
PLAN_PATH = PATHS.plan(PLAN)
#: Which operation of a transaction is refused.
Which = Callable[[Op], bool]


class Answers:
    """A server that refuses each transaction in turn, as told, and applies what comes after.

    Each turn names the refused operation, why, whether the transaction was repeated, and which
    transaction a late copy has applied by then, if one has.
    """

    def __init__(self, *turns: tuple[Which, Reason, bool, int | None]) -> None:
        self.me = Registration(PATHS, "w", (f"{number:x}" for number in count()))
        self._turns, self.sent = list(turns), list[Multi]()
        self._standing: list[str] = []

    def run(self, step: Step[Any]) -> Any:
        return run_step(step, self._answer, lambda answer: answer)

    def _answer(self, request: Any) -> Any:
        if type(request) is Multi:
            return self._refuse(request) if self._turns else Applied([1] * len(request.ops))
        if type(request) is ReadMany:
            return [self._answer(read) for read in request.reads]
        if type(request) is ReadChildren:
            return self._standing if request.path == self.me.claims_path else []
        assert type(request) is ReadData
        return Node(b"", 2, 0, 0, 0, 0, 0)

    def _refuse(self, multi: Multi) -> Refused:
        is_refused, reason, repeated, late = self._turns.pop(0)
        self.sent.append(multi)
        if late is not None:
            self._standing = [
                op.path.rpartition("/")[2]
                for op in self.sent[late].ops
                if type(op) is Create and op.path.startswith(f"{self.me.claims_path}/")
            ]
        at = next(index for index, op in enumerate(multi.ops) if is_refused(op))
        return Refused(at, reason, multi.ops[at].path, repeated)


def at(end: str) -> Which:
    return lambda op: op.path.endswith(end)


def entry(task: str) -> str:
    return f"5000-{task}.0.0"


def test_a_late_copy_of_the_second_try_claims_only_the_tasks_of_that_try() -> None:
    permit, name = f"{PATHS.root}/limits/api/permit-0", f"{entry(FIRST)}~api"
    server = Answers(
        (at(permit), Reason.NODE_EXISTS, True, None),
        (at(entry(SECOND)), Reason.NO_NODE, True, 1),
    )
    permits = Permits({f"{PATHS.root}/limits/api": 4}, {name: (permit,)})
    step = claim(server.me, PLAN, 1, [name, entry(SECOND)], permits=permits)
    found = server.run(step)
    assert [each.task for each in found.claims] == [SECOND]
    assert found.blocked == (f"5000-{FIRST}.1.0~api",)


def test_claims_of_a_publication_applied_late_are_recognised() -> None:
    server = Answers(
        (lambda op: True, Reason.FULL, True, None),
        (at(f"{SECOND}/ready"), Reason.BAD_VERSION, False, 0),
    )
    allowance = Allowance(1, {PLAN_PATH: 1})
    pending = f"{server.me.claims_path}/pending-1"
    target = Dependent(PLAN, SECOND, 2, "5000")
    found = server.run(publish(server.me, [target], pending, allowance))
    assert [each.task for each in found.claims] == [SECOND]
    assert found.read is None


def test_a_publication_that_cannot_succeed_claims_nothing() -> None:
    pending = f"{PATHS.claims_of('w')}/pending-1"
    server = Answers((at(pending), Reason.NOT_EMPTY, False, None))
    sent: list[Multi] = []

    def answer(request: Any) -> Any:
        if type(request) is Multi:
            sent.append(request)
        return server._answer(request)

    target = Dependent(PLAN, SECOND, 2, "5000")
    step = publish(server.me, [target], pending, Allowance(1, {PLAN_PATH: 1}))
    with pytest.raises(TransactionRejected, match="the znode has children"):
        run_step(step, answer, lambda given: given)
    made = [op.path for multi in sent[1:] for op in multi.ops if type(op) is Create]
    assert made == [f"{PLAN_PATH}/runnable/{entry(SECOND)}"]
