"""Tidy up the histories that this worker writes: merge many small segments into one znode."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..protocol.compaction import compact
from ..protocol.layout import Paths
from ..protocol.recorder import Recorder
from .membership import Membership
from .steps import Steps

#: Seconds between two looks at what was written.
PERIOD_S = 1.0
#: A history is tidied up after so many segments of this worker, or after so long without one.
SEGMENTS, QUIET_S = 100, 10.0


@dataclass(eq=False)
class Tidying:
    """A maintenance duty. A worker knows how much it has written itself, so it asks nobody.

    Two workers may tidy up one history at a time: the second is refused, and loses a few reads.
    """

    steps: Steps
    paths: Paths
    membership: Membership
    recorder: Recorder
    at: float = field(default_factory=lambda: time.monotonic() + PERIOD_S)
    _is_under_way: bool = False
    #: By number of a plan: the segments that were counted last, and since when they are as many.
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def run(self, now: float) -> None:
        self.at = now + PERIOD_S
        if self._is_under_way or self.membership.me is None:
            return
        written = self.recorder.written
        due = next((plan for plan in list(written) if self._is_due(plan, written[plan], now)), None)
        if due is None:
            return
        self._is_under_way = True
        written.pop(due, None)
        self._seen.pop(due, None)

        def tidied(_: int) -> None:
            self._is_under_way = False
            self.at = 0.0  # there may be more

        path = self.paths.plan(due)
        what = f"the history of {path} cannot be merged"
        self.steps.start_contained(compact(path), tidied, what, instead=0)

    def _is_due(self, plan: str, count: int, now: float) -> bool:
        before, since = self._seen.get(plan, (-1, now))
        if count != before:
            since = now
            self._seen[plan] = count, since
        return count >= SEGMENTS or now - since >= QUIET_S
