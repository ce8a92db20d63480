"""Abandoned functions: a worker reports how many still run that it has given up."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocol.orders import report
from ..protocol.shared import Registration
from .membership import Membership
from .steps import Steps
from .thread_pool import ThreadPool

#: Seconds between two looks. One that ends at once is not reported.
PERIOD_S = 1.0


@dataclass(eq=False)
class AbandonedFunctions:
    """A maintenance duty. Claims do not show these functions, so others would take the worker for
    idle. It costs a request only where the number has changed."""

    steps: Steps
    membership: Membership
    pool: ThreadPool
    at: float = 0.0
    _reported: tuple[Registration | None, int] = (None, 0)

    def run(self, now: float) -> None:
        self.at = now + PERIOD_S
        me, said, number = self.membership.me, self.membership.said, self.pool.abandoned
        before = self._reported[1] if self._reported[0] is me else 0
        if me is None or said is None or number == before:
            return
        self._reported = me, number
        says = said._replace(id=me.worker, state=self.membership.state, abandoned=number)
        what = f"worker {me.worker} cannot report its {number} abandoned functions"
        self.steps.start_contained(report(me.paths, says), lambda done: None, what, instead=False)
