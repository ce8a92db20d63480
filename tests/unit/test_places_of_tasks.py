"""The state of a task is found by several reads, between which it may change."""

from __future__ import annotations

from typing import Any

import pytest

from zkplan.protocol.features.task_place import (
    NOWHERE,
    STATES,
    Place,
    find_place,
    read_places,
    state_of,
)
from zkplan.protocol.layout import Paths
from zkplan.protocol.records import Dead, control_to_bytes, ready_to_bytes
from zkplan.protocol.requests import Node, ReadChildren, ReadMany

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


def test_a_task_that_dies_between_two_reads_is_never_shown_without_an_outcome() -> None:
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


@pytest.mark.parametrize(
    ("place", "children", "state"),
    [
        (NOWHERE, [], "being defined"),
        (NOWHERE, ["ready", "incomplete", "dep-0000000000"], "being defined"),
        (NOWHERE, ["ready", "dep-0000000000"], "waiting"),
        (NOWHERE, ["ready", "owner"], "running"),
        (NOWHERE, ["ready", "arg-0000000000"], "runnable"),
        (NOWHERE, ["ready", "result"], "decided"),
        (Place("runnable"), ["ready"], "runnable"),
        (Place("runnable"), ["ready", "result"], "decided"),
        (Place("running"), ["ready", "result"], "running"),
        (Place("delayed"), ["ready"], "delayed"),
        (Place("gated"), ["ready", "gate"], "gated"),
        (Place("dead"), ["ready"], "dead"),
    ],
)
def test_the_state_of_a_task_follows_from_its_place_and_its_children(
    place: Place, children: list[str], state: str
) -> None:
    assert state_of(place, children) == state
    assert state in STATES


def test_the_places_of_several_plans_are_read_in_five_requests() -> None:
    plans = ["0000000004", "0000000005"]
    lists = {
        PATHS.delayed: ["0000000001000-0000000004-5000-0000000006.1.1"],
        PATHS.gates: ["0000000005-5000-0000000007.0.0", "0000000009-5000-0000000007.0.0"],
        f"{PLAN}/dead": ["0000000008", "x"],
        f"{PLAN}/runnable": ["5000-0000000009.0.0", "5000-0000000010.0.0"],
        f"{PATHS.plan(plans[1])}/queues": ["gpu"],
        f"{PATHS.plan(plans[1])}/queues/gpu": ["5000-0000000011.2.1"],
        PATHS.claims: ["w"],
        PATHS.claims_of("w"): ["0000000004-0000000010.0.7f", "pending-8a"],
    }
    step, requests = read_places(PATHS, plans), 0
    answer: Any = None
    try:
        while True:
            request = step.send(answer)
            requests += 1
            if isinstance(request, ReadMany):
                answer = [lists.get(read.path) for read in request.reads]
            else:
                assert isinstance(request, ReadChildren)
                answer = lists.get(request.path)
    except StopIteration as stop:
        found = stop.value
    assert requests == 5
    assert {key: (place.state, place.queue) for key, place in found.items()} == {
        ("0000000004", "0000000006"): ("delayed", "default"),
        ("0000000005", "0000000007"): ("gated", "default"),
        ("0000000004", "0000000008"): ("dead", "default"),
        ("0000000004", "0000000009"): ("runnable", "default"),
        ("0000000004", "0000000010"): ("running", "default"),
        ("0000000005", "0000000011"): ("runnable", "gpu"),
    }
    assert found["0000000004", "0000000006"].due == 1.0
    assert found["0000000004", "0000000010"].worker == "w"
