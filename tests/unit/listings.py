"""What the tests of plans and their listings share."""

from __future__ import annotations

from zkplan.protocol.core.plans_and_queues import PlanLook
from zkplan.runtime.plan_candidates import Candidates
from zkplan.runtime.plan_shares import Shares
from zkplan.runtime.plan_view import PlanView

ALONE = (0, 1)
FIRST = "0000000001"


def names(*numbers: int, rank: str = "5000") -> list[str]:
    return [f"{rank}-{number:010d}.0.0" for number in numbers]


def running(found: list[str], version: int = 0) -> PlanLook:
    return PlanLook("running", version, found)


def view() -> PlanView:
    return PlanView("0000000001", "/r/plan-0000000001")


def numbered(count: int) -> list[str]:
    """The numbers of so many plans."""
    return [f"{number:010d}" for number in range(1, count + 1)]


def standing_still(count: int) -> Candidates:
    """So many plans of which nothing can be claimed."""
    candidates = plans(*numbered(count))
    for seen in candidates.views.values():
        seen.update(running([]), ALONE, 0.0)
    return candidates


def plans(*numbers: str) -> Candidates:
    candidates = Candidates(Shares(slots=9))
    candidates.set_plans(list(numbers), "/r/plan-{}".format)
    return candidates
