"""What the tests of plans and their listings share."""

from __future__ import annotations

from zkplan.protocol.look import PlanLook
from zkplan.runtime.candidates import Candidates
from zkplan.runtime.plan_view import PlanView

ALONE = (0, 1)
FIRST = "0000000001"


def names(*numbers: int, rank: str = "5000") -> list[str]:
    return [f"{rank}-{number:010d}.0.0" for number in numbers]


def running(found: list[str], version: int = 0) -> PlanLook:
    return PlanLook("running", version, found)


def view() -> PlanView:
    return PlanView("0000000001", "/r/plan-0000000001")


def plans(*numbers: str) -> Candidates:
    candidates = Candidates()
    candidates.set_plans(list(numbers), "/r/plan-{}".format)
    return candidates
