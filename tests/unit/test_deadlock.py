"""The proof that no task of a plan can run, for each possible answer."""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.errors import ZooKeeperError
from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import Node, ReadMany
from zkplan.protocol.transactions import READS_PER_REQUEST
from zkplan.transport.transport import run_step
from zkplan.views.deadlock import dead_if_deadlocked

PATH = "/z/plan-0000000003"
CLAIM = "0000000003-0000000012.1.7f"
OTHERS_CLAIM = "0000000004-0000000012.1.7f"
DELAYED = "0000000001000-0000000003-5000-0000000012.1.1"
PENDING = b"0000000003 0000000012 1 5000"


def node(data: bytes = b"", version: int = 0, children: int = 0, pzxid: int = 5) -> Node:
    return Node(data, version, children, 0, 0, 0, pzxid)


class Tree:
    """Answers reads; each list of answers is given in order, its last one again and again."""

    def __init__(self, **changed: list[Any]) -> None:
        self.answers: dict[str, list[Any]] = {
            "runnable": [node()],
            "queues": [["gpu"]],
            "gpu": [node()],
            "workers": [["w"]],
            "claims": [[OTHERS_CLAIM]],
            "pending": [node(PENDING)],
            "ready": [node(b"1", 0)],
            "delayed": [[]],
            "gates": [None],
            "dead": [node(children=2)],
            **changed,
        }

    def answer(self, request: Any) -> Any:
        if isinstance(request, ReadMany):
            assert request.strict
            assert len(request.reads) <= READS_PER_REQUEST
            return [self.answer(each) for each in request.reads]
        last = request.path.rpartition("/")[2]
        name = {"claims": "workers", "w": "claims"}.get(last, last.partition("-")[0])
        answers = self.answers[name]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        return found


def proved(**changed: list[Any]) -> int | None:
    step = dead_if_deadlocked(Paths("/z"), PATH)
    return run_step(step, Tree(**changed).answer, lambda answer: answer)


def test_a_proof_of_deadlock_returns_the_number_of_dead_tasks() -> None:
    assert proved() == 2
    assert proved(dead=[None]) == 0


@pytest.mark.parametrize(
    "changed",
    [
        {"runnable": [node(), node(pzxid=6)]},
        {"runnable": [node(children=1)]},
        {"runnable": [None], "queues": [None]},
        {"gpu": [node(), node(pzxid=6)]},
        {"gpu": [node(children=1)]},
        {"queues": [None, ["gpu"]]},
        {"claims": [[CLAIM]]},
        {"delayed": [[DELAYED]]},
        {"gates": [["0000000003-5000-0000000012.0.0"]]},
        {"claims": [["pending-1"]], "ready": [node(b"1", 1)]},
        # What a pending record owed was published as a claim after the first look at the claims
        # nodes.
        {"claims": [["pending-1"], ["pending-1", CLAIM]], "ready": [node(b"1", 2)]},
        {"claims": [["pending-1"], [CLAIM]], "pending": [None]},
    ],
    ids=str,
)
def test_a_plan_with_a_task_that_can_run_is_not_deadlocked(changed: dict[str, list[Any]]) -> None:
    assert proved(**changed) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"claims": [["pending-1"]], "ready": [node(b"1", 2)]},
        {"claims": [["pending-1"]], "ready": [node(b"1", 0)]},
        {"claims": [["pending-1"]], "ready": [None]},
        {"claims": [["pending-1"]], "pending": [node(b"0000000009 0000000012 1 5000")]},
        {"claims": [["pending-1"], []], "pending": [None]},
        {"delayed": [["strange", DELAYED.replace("3-5", "4-5")]]},
    ],
    ids=str,
)
def test_activity_of_others_does_not_disprove_a_deadlock(changed: dict[str, list[Any]]) -> None:
    assert proved(**changed) == 2


@pytest.mark.parametrize(
    "what", ["runnable", "claims", "pending", "ready", "delayed", "gates", "dead"]
)
def test_an_unreadable_znode_prevents_the_proof(what: str) -> None:
    changed: dict[str, list[Any]] = {"claims": [["pending-1"]], "ready": [node(b"1", 2)]}
    changed[what] = [ZooKeeperError("not allowed")]
    with pytest.raises(ZooKeeperError, match="not allowed"):
        proved(**changed)


def test_tasks_named_by_many_pending_records_are_read_in_batches() -> None:
    pending_records = [f"pending-{number}" for number in range(3)]
    named = node((PENDING + b"\n") * READS_PER_REQUEST)
    assert proved(claims=[pending_records], pending=[named]) == 2
