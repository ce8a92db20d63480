"""Where a task stands is found by several reads, between which it may move."""

from __future__ import annotations

from zkplan.protocol.features.task_place import Place, find_place
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Dead, control_to_bytes, ready_to_bytes
from zkplan.protocol.requests import Node, ReadMany

PATHS = Paths("/z")
PLAN = PATHS.plan("0000000004")
TASK = f"{PLAN}/task-0000000005"


def node(data: bytes = b"", version: int = 0) -> Node:
    return Node(data, version, 0, 0, 0, 0, 0)


RUNNING = {
    PLAN: node(),
    f"{PLAN}/ready": node(control_to_bytes("running")),
    f"{PLAN}/dead": node(),
    TASK: node(),
    f"{TASK}/ready": node(ready_to_bytes(0, "default"), version=1),
    f"{TASK}/owner": node(),
}
#: One transaction makes both: the dead letter, and the outcome that is kept.
DEAD = RUNNING | {
    f"{PLAN}/dead/0000000005": node(Dead("5000", 0, 1, "f", "E: died", "w").to_bytes()),
    f"{PLAN}/results/0000000005": node(b"kept"),
}


def test_a_task_that_dies_between_two_reads_never_looks_as_if_it_had_no_outcome() -> None:
    found = []
    for early in range(12):
        step = find_place(PATHS, "0000000004", "0000000005")
        request = next(step)
        assert isinstance(request, ReadMany)
        stands = [RUNNING if at < early else DEAD for at in range(len(request.reads))]
        answers = [tree.get(read.path) for tree, read in zip(stands, request.reads, strict=True)]
        try:
            step.send(answers)
        except StopIteration as stop:
            found.append(stop.value)
        step.close()
    assert all(isinstance(each, Place) and each.state == "dead" for each in found)
    assert len(found) > 5
    assert all(each.has_outcome for each in found)
