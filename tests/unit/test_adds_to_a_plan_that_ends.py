"""An add that misses what it depends on says why: it was not kept, or the plan ended meanwhile."""

from __future__ import annotations

import pytest

from zkplan.errors import PlanCancelled, PlanDrained, PlanNotFound, ResultNotKept
from zkplan.protocol.adding import NewTask, settle_finished
from zkplan.protocol.records import control_to_bytes
from zkplan.protocol.requests import Node, ReadMany

PLAN = "/zkplan/plan-0000000001"


def node(data: bytes = b"") -> Node:
    return Node(data, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize(
    ("plan", "ready", "adds", "error"),
    [
        pytest.param(node(), node(), node(), ResultNotKept, id="it goes on"),
        pytest.param(node(), None, node(), ResultNotKept, id="it is not ready yet"),
        pytest.param(node(), node(control_to_bytes("paused")), node(), ResultNotKept, id="paused"),
        pytest.param(None, None, None, PlanNotFound, id="it was removed"),
        pytest.param(
            node(), node(control_to_bytes("cancelled")), None, PlanCancelled, id="cancelled"
        ),
        pytest.param(node(), node(), None, PlanDrained, id="it is done, and being removed"),
        pytest.param(node(), None, None, PlanDrained, id="nothing else is left of it"),
    ],
)
def test_what_is_gone_is_told_apart(
    plan: Node | None, ready: Node | None, adds: Node | None, error: type[Exception]
) -> None:
    step = settle_finished(PLAN, NewTask("task 'b'", "5000", b"", ["0000000005"]))
    asked = next(step)
    assert isinstance(asked, ReadMany)
    assert [read.path for read in asked.reads] == [
        f"{PLAN}/task-0000000005",
        f"{PLAN}/results/0000000005",
    ]
    # Read only now: what was missed went after this changed.
    asked = step.send([None, None])
    assert isinstance(asked, ReadMany)
    assert [read.path for read in asked.reads] == [PLAN, f"{PLAN}/ready", f"{PLAN}/add-count"]
    with pytest.raises(error):
        step.send([plan, ready, adds])
