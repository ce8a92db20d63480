"""When plans begin and end: they wait for their `not_before`, and are cancelled at their
`deadline`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..errors import PlanError
from ..log import get_logger
from ..protocol.control import DEADLINE_PASSED, change_state
from ..protocol.requests import Step
from .candidates import Candidates
from .membership import Membership
from .plan_view import PlanView
from .steps import Steps

#: A plan past its deadline is cancelled by the worker whose share it is, and after so many seconds
#: by any other.
HEAD_START_S = 0.5
#: Seconds after which a cancel that was stopped is tried again.
AGAIN_S = 1.0
_NEVER = float("inf")
logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class PlanTimes:
    """One worker's part in it, a maintenance duty. The server's clock decides."""

    steps: Steps
    membership: Membership
    candidates: Candidates
    #: By the number of the plan: the monotonic time at which it is cancelled here.
    _ends: dict[str, float] = field(default_factory=dict)
    at: float = _NEVER

    def begins_later(self, view: PlanView) -> Step[bool]:
        """Whether no task of a plan may be claimed yet. Called with each look; free for a plan
        without such times."""
        record = view.record
        if record is None or (record.not_before is None and record.deadline is None):
            return False
        clock = self.membership.clock
        yield from clock.measure()
        if record.deadline is not None:
            end = self._end_of(view, record.deadline)
            self._note(view, self._ends.get(view.number, end))
        if record.not_before is None or clock.now() >= record.not_before:
            return False
        view.must_look = True
        view.avoid_until = max(view.avoid_until, clock.monotonic_at(record.not_before))
        return True

    def _end_of(self, view: PlanView, deadline: float) -> float:
        place, count = self.membership.share
        is_mine = int(view.number) % count == place
        return self.membership.clock.monotonic_at(deadline) + (0.0 if is_mine else HEAD_START_S)

    def _note(self, view: PlanView, end: float) -> None:
        self._ends[view.number] = end
        self.at = min(self.at, end)

    def run(self, now: float) -> None:
        for number, end in list(self._ends.items()):
            if now < end:
                continue
            del self._ends[number]
            view = self.candidates.views.get(number)
            if view is not None and not view.finished:
                self._cancel(view)
        self.at = min(self._ends.values(), default=_NEVER)

    def _cancel(self, view: PlanView) -> None:
        def cancelled(is_over: bool) -> None:
            if not is_over:
                self._note(view, time.monotonic() + AGAIN_S)

        what = f"{view.path} is past its deadline, and cannot be cancelled"
        self.steps.start_contained(_cancel(view.path), cancelled, what, instead=False)


def _cancel(plan_path: str) -> Step[bool]:
    try:
        yield from change_state(plan_path, "cancelled", DEADLINE_PASSED)
    except PlanError:
        return True  # it has ended, or was removed
    logger.info("%s is cancelled: %s", plan_path, DEADLINE_PASSED)
    return True
