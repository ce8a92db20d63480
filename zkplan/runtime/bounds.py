"""Keep the bounds of a root: remove plans whose retention is over, count what plans take.

The scan tells of each plan that has ended, so that no plan is read again for this. One request a
minute asks for what holds under the root; a worker that knows of no such plan, and is not the first
of all workers, makes none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..protocol.active import Ended
from ..protocol.bounds import Bounds, Used, change_bounds, read_bounds, warning_of
from ..protocol.layout import Paths
from ..protocol.look import list_plans
from ..protocol.requests import Step
from ..protocol.spending import Room, count_plans
from ..retention.collector import Collector
from .membership import Membership
from .plan_scan import PlanScan
from .steps import Steps

#: Seconds from one round to the next, and to the next look while one is under way.
PERIOD_S, LOOK_S = 60.0, 1.0
#: Plans that are removed in one go.
BATCH = 100
#: A plan is removed by the worker whose share it is, and after so many seconds by any other.
HEAD_START_S = 60.0
#: Seconds until a plan that could not be removed is tried again.
REST_S = 300.0
#: Plans are counted so often, and at most for one part in so many of the time.
COUNT_PERIOD_S, COUNT_COST = 300.0, 50.0
_NEVER = float("inf")


@dataclass(eq=False)
class RootBounds:
    """One worker's part in it, a maintenance duty. The server's clock decides."""

    steps: Steps
    paths: Paths
    membership: Membership
    scan: PlanScan
    collector: Collector
    is_ending: Callable[[], bool]
    at: float = field(default_factory=lambda: time.monotonic() + PERIOD_S)
    _bounds: Bounds = field(default_factory=Bounds)
    #: Whether they were asked for, with the server's time, since this worker began.
    _was_read: bool = False
    _is_under_way: bool = False
    #: Plans that have ended, and until when those are left alone that could not be removed.
    _ended: dict[str, Ended] = field(default_factory=dict)
    _rests: dict[str, float] = field(default_factory=dict)
    _count_at: float = 0.0
    #: What plans that have ended take: they never grow.
    _rooms: dict[str, Room] = field(default_factory=dict)

    def learn(self, ended: Sequence[Ended]) -> None:
        """The scan has found plans that have ended."""
        self._ended.update((plan.number, plan) for plan in ended)
        if ended and not self._was_read:
            # The first round: the root may say less than by default, and the clock here be wrong.
            self.at = time.monotonic()
        self._come_at(ended)

    def run(self, now: float) -> None:
        self.at = now + PERIOD_S
        if self._is_under_way:
            self.at = now + LOOK_S
        elif self.membership.me is not None and not self.is_ending():
            counts = self.membership.share[0] == 0 and now >= self._count_at
            if self._ended or counts:
                self._is_under_way = True
                what = "finished plans are not removed, and no budget is counted"
                self.steps.start_contained(self._round(counts), self._read, what, instead=None)

    def _when(self, plan: Ended) -> float:
        """The monotonic time at which this worker removes the plan."""
        retention = self._bounds.retention if plan.retention is None else plan.retention
        if retention == _NEVER:
            return _NEVER
        place, count = self.membership.share
        late_s = 0.0 if int(plan.number) % count == place else HEAD_START_S
        due = self.membership.clock.monotonic_at(plan.ended + retention) + late_s
        return max(due, self._rests.get(plan.number, 0.0))

    def _come_at(self, plans: Sequence[Ended]) -> None:
        self.at = min([self.at, *map(self._when, plans)])

    def _round(self, counts: bool) -> Step[Bounds]:
        yield from self.membership.clock.measure()
        found = yield from read_bounds(self.paths)
        return (yield from self._count(found)) if counts else found

    def _read(self, found: Bounds | None) -> None:
        self._is_under_way, self._was_read = False, True
        if found is None:  # damaged, or not to be read: nothing is removed
            return
        self._bounds = found
        if found.has_budget and found.share >= 1.0:
            root = self.paths.root
            self.steps.complaints.tell(f"the budget of {root} is spent: new plans are refused")
        elif found.has_budget and (warning := warning_of(self.paths, found)):
            self.steps.complaints.tell(warning)
        # Those that are gone, whoever has removed them.
        for number in self._ended.keys() - self.scan.ended.keys():
            del self._ended[number]
            self._rests.pop(number, None)
        now, clock = time.monotonic(), self.membership.clock
        due = sorted(number for number, plan in self._ended.items() if self._when(plan) <= now)
        if not (due and clock.is_known):
            self._come_at(list(self._ended.values()) if clock.is_known else ())
            return
        self._is_under_way = True
        batch = due[:BATCH]

        def ended(left: list[str]) -> None:
            self.steps.post(lambda: self._removed(batch, left))

        self.collector.start(batch, clock.now, lambda: not self.is_ending(), ended)

    def _removed(self, plans: list[str], left: list[str]) -> None:
        self._is_under_way = False
        for number in plans:
            if number in left:
                self._rests[number] = time.monotonic() + REST_S
            else:
                self._ended.pop(number, None)
                self._rests.pop(number, None)
        if self._bounds.has_budget and len(left) < len(plans):
            self._count_at = 0.0  # there is room again
            self.at = min(self.at, time.monotonic() + LOOK_S)
        self._come_at(list(self._ended.values()))

    def _count(self, found: Bounds) -> Step[Bounds]:
        """Count what the plans take, where there is a budget."""
        if not found.has_budget:
            return found
        before = time.monotonic()
        plans = yield from list_plans(self.paths)
        self._rooms = {plan: self._rooms[plan] for plan in self._rooms.keys() & set(plans)}
        room = yield from count_plans(self.paths, plans, self._rooms, self.scan.ended.keys())
        now = self.membership.clock.now()
        used = Used(len(plans), round(room.znodes), round(room.bytes), now, room.exact)
        found = yield from change_bounds(self.paths, {"used": used})
        after = time.monotonic()
        self._count_at = after + max(COUNT_PERIOD_S, COUNT_COST * (after - before))
        return found
