"""The scan for plans without an index entry: which it reads, and which it never reads again."""

from __future__ import annotations

from typing import Any

from zkplan.protocol.layout import Paths
from zkplan.protocol.requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Node,
    ReadChildren,
    ReadData,
    Reason,
    Refused,
    SetData,
)
from zkplan.runtime.maintenance import SLICE, PlanScan
from zkplan.transport.transport import run_step

ALONE = (0, 1)


class Root:
    """A root with plans, as a server shows it; `ready` and `done` are paths."""

    def __init__(self, *numbers: int) -> None:
        self.scan = PlanScan(Paths("/r"))
        self.cversion = 0
        self.numbers = [f"{number:010d}" for number in numbers]
        self.there = dict[str, bytes]()
        self.asked: list[str] = []
        self.made: list[Multi] = []
        self.listed = 0
        self.refused: Refused | None = None

    def run(self, share: tuple[int, int] = ALONE, active: tuple[str, ...] = ()) -> list[str]:
        """One slice; gives the plans asked for, by their numbers."""
        self.asked.clear()
        step = self.scan.next_slice(share, active)
        self.found = run_step(step, self._answer, lambda answer: answer)
        self.scan.learn(self.found)
        return self.asked

    def _answer(self, request: Any) -> Any:
        if type(request) is ReadData:
            return Node(b"", 0, 0, self.cversion, 0, 0, 0)
        if type(request) is ReadChildren:
            self.listed += 1
            return ["workers", *(f"plan-{number}" for number in self.numbers)]
        if type(request) is Multi:
            self.made.append(request)
            return self.refused or Applied([])
        self.asked += [read.path[8:18] for read in request.reads if read.path.endswith("/ready")]
        found = [self.there.get(read.path) for read in request.reads]
        return [None if data is None else Node(data, 3, 0, 0, 0, 0, 0) for data in found]

    def put(self, number: int, name: str, data: bytes = b"") -> None:
        self.there[f"/r/plan-{number:010d}/{name}"] = data


def test_plans_of_the_share_are_read_in_slices_newest_first() -> None:
    root = Root(*range(2 * SLICE + 10))
    asked = root.run((1, 2))
    assert len(asked) == SLICE
    assert asked[:2] == [f"{2 * SLICE + 9:010d}", f"{2 * SLICE + 7:010d}"]
    assert [int(number) for number in root.run((1, 2))] == [9, 7, 5, 3, 1]
    assert root.listed == 1, "nothing has changed"
    assert len(root.run((1, 2))) == SLICE, "the next round: each may have been made ready"


def test_ended_and_active_plans_are_not_read_again() -> None:
    root = Root(4, 5, 6, 7, 8)
    for number in (5, 6, 7):
        root.put(number, "ready")
    root.put(5, "done")
    root.put(6, "ready", b'{"state":"cancelled"}')
    active = ("0000000008",)
    assert root.run(active=active) == [f"{number:010d}" for number in (7, 6, 5, 4)]
    assert [plan.number for plan in root.found.ended] == ["0000000006", "0000000005"]
    assert root.run(active=active) == ["0000000007", "0000000004"]


def test_a_new_plan_comes_before_the_rest_of_the_round() -> None:
    root = Root(*range(3 * SLICE))
    root.run()
    root.numbers.append(f"{9 * SLICE:010d}")
    root.cversion += 1
    assert root.run()[:2] == [f"{9 * SLICE:010d}", f"{2 * SLICE - 1:010d}"]
    assert root.listed == 2


def test_a_ready_plan_is_indexed_only_if_it_is_unchanged_since_it_was_read() -> None:
    root = Root(4)
    root.put(4, "ready", b"")
    root.run()
    plan = "/r/plan-0000000004"
    (multi,) = root.made
    assert multi.ops == [
        SetData(f"{plan}/ready", b"", 3),
        Create(f"{plan}/done"),
        Delete(f"{plan}/done"),
        Create("/r/active/0000000004"),
    ]
    assert root.found == ([], [])


def test_a_scan_that_may_not_index_a_plan_reports_it() -> None:
    root = Root(4)
    root.put(4, "ready", b"")
    root.refused = Refused(3, Reason.NO_AUTH, "/r/active/0000000004")
    root.run()
    (why,) = root.found.shut
    assert "plan-0000000004" in why
    assert "/r/active/0000000004: not allowed by the access list" in why


def test_a_plan_indexed_or_ended_during_the_scan_is_not_reported() -> None:
    root = Root(4)
    root.put(4, "ready", b"")
    root.refused = Refused(0, Reason.BAD_VERSION, "/r/plan-0000000004/ready")
    root.run()
    assert root.found == ([], [])


def test_a_deleted_index_is_created_again() -> None:
    root = Root(4)
    root.put(4, "ready", b"")
    root.refused = Refused(3, Reason.NO_NODE, "/r/active/0000000004")
    root.run()
    assert root.made[1].ops == [Create("/r/active")]
