"""Tidy up the histories that this process writes: merge many small segments into one znode."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..protocol.compaction import compact
from ..protocol.layout import Paths
from ..protocol.recorder import Recorder
from ..store.end import Sweeper
from .membership import Membership
from .steps import Steps

#: Seconds between two looks at what was written.
PERIOD_S = 1.0
#: A history is tidied up after so much of this process, in segments, or after so long without one.
#: So many are merged at once: fewer at a time would be read and written while the plan still runs.
SEGMENTS, QUIET_S = 400, 10.0


class Written:
    """Which histories are to be tidied up: a process knows how much it has written itself, so it
    asks nobody."""

    def __init__(self, recorder: Recorder) -> None:
        self._written = recorder.written
        #: By number of a plan: the segments that were counted last, and since when they are as
        #: many.
        self._seen: dict[str, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._written)

    def take(self, now: float) -> str | None:
        """The number of a plan whose history is due; it counts from none on."""
        for plan, count in list(self._written.items()):
            if self._is_due(plan, count, now):
                self._written.pop(plan, None)
                self._seen.pop(plan, None)
                return plan
        return None

    def _is_due(self, plan: str, count: int, now: float) -> bool:
        before, since = self._seen.get(plan, (-1, now))
        if count != before:
            since = now
            self._seen[plan] = count, since
        return count >= SEGMENTS or now - since >= QUIET_S


@dataclass(eq=False)
class Tidying:
    """A maintenance duty.

    Two workers may tidy up one history at a time: the second is refused, and loses a few reads.
    """

    steps: Steps
    paths: Paths
    membership: Membership
    written: Written
    sweeper: Sweeper
    at: float = field(default_factory=lambda: time.monotonic() + PERIOD_S)
    _is_under_way: bool = False

    def run(self, now: float) -> None:
        self.at = now + PERIOD_S
        if self._is_under_way or self.membership.me is None:
            return
        due = self.written.take(now)
        if due is None:
            return
        self._is_under_way = True

        path = self.paths.plan(due)

        def tidied(_: int) -> None:
            self._is_under_way = False
            self.at = 0.0  # there may be more
            self.sweeper.history_is_merged(path)

        merging = compact(path, has_store=self.sweeper.has_store)
        what = f"the history of {path} cannot be merged"
        self.steps.start_contained(merging, tidied, what, instead=0)
