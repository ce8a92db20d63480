"""Plans that ended with failed tasks, or at their deadline, and wait for a person."""

from __future__ import annotations

from typing import NamedTuple

from ..basics.text import count
from ..errors import ZkplanError
from ..protocol.control import PlanStatus, status
from ..protocol.failed import list_failed
from ..protocol.layout import Paths
from ..protocol.requests import Step
from .late import Late
from .together import together

#: Of so many plans, the latest ones, one look reads how they ended.
SHOWN_MAX = 50


class FailedPlans(NamedTuple):
    """All of them by their numbers, latest first, and the status of the first SHOWN_MAX of them, as
    far as they may be read here."""

    numbers: list[str]
    shown: list[PlanStatus]


def failed_plans(paths: Paths) -> Step[FailedPlans]:
    numbers = yield from list_failed(paths)
    found = yield from together([status(paths.plan(number)) for number in numbers[:SHOWN_MAX]])
    return FailedPlans(numbers, [each for each in found if not isinstance(each, ZkplanError)])


def late_plans(now: float, found: FailedPlans) -> list[Late]:
    """What needs attention, in words; `by` is how long ago each has ended."""
    late = []
    for each in found.shown:
        number = int(each.path.rpartition("-")[2])
        label = f"plan {number}" + (f" ({each.name})" if each.name else "")
        by = None if each.ended is None else now - each.ended
        if each.state == "cancelled":
            told = f"{label} was cancelled: {each.reason or 'its deadline has passed'}"
            late.append(Late("deadline", told))
        else:
            told = f"{label} has failed: {count(each.dead, 'task')} of {each.added:,}"
            late.append(Late("failed", f"{told} (`zkplan plan why {number}`)", by))
    more = len(found.numbers) - SHOWN_MAX
    if more > 0:
        late.append(Late("failed", f"{count(more, 'earlier plan')} failed as well"))
    return late
