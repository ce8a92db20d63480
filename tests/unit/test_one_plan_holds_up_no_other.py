"""A plan that cannot be published to keeps no dependent of another plan waiting."""

from __future__ import annotations

import pytest

from zkplan.errors import TransactionRejected
from zkplan.protocol.layout import Paths
from zkplan.protocol.publish import publish
from zkplan.protocol.requests import Applied, Create, Delete, Multi, Reason, Refused
from zkplan.protocol.shared import NO_ALLOWANCE, Dependent, Registration

RECORD = "/z/claims/w/pending-0"
SHUT, OPEN = "0000000001", "0000000002"


def test_a_plan_that_is_shut_keeps_no_other_plan_waiting() -> None:
    me = Registration(Paths("/z"), "w", iter(()))
    complete = [Dependent(plan, "0000000007", 2, "5000") for plan in (SHUT, OPEN)]
    step = publish(me, complete, RECORD, NO_ALLOWANCE)
    both = next(step)
    assert isinstance(both, Multi)
    assert both.ops[-1] == Delete(RECORD)
    entry = f"/z/plan-{SHUT}/runnable/5000-0000000007.0.0"
    rest = step.send(Refused(1, Reason.NO_AUTH, entry))
    assert isinstance(rest, Multi)
    made = [op.path for op in rest.ops if isinstance(op, Create)]
    assert made == [f"/z/plan-{OPEN}/runnable/5000-0000000007.0.0"]
    assert Delete(RECORD) not in rest.ops, "it still names what is not published"
    with pytest.raises(TransactionRejected, match=f"task-0000000007 of /z/plan-{SHUT}"):
        step.send(Applied([None] * len(rest.ops)))
