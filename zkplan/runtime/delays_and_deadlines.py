"""Act when a time has come: promote delayed tasks, begin plans, and cancel those past their
deadline."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ..basics.log import get_logger
from ..errors import PlanError
from ..protocol.core.plan_life import DEADLINE_PASSED, change_state
from ..protocol.core.plans_and_queues import promote
from ..protocol.layout import Delayed, Paths, parse_delayed
from ..protocol.requests import ReadData, ReadMany, Step
from ..protocol.transactions import children_watched
from ..transport.server_clock import Clock, ServerClock
from .lost_claims import HEAD_START_S
from .membership import Membership
from .plan_candidates import Candidates
from .plan_view import PlanView
from .steps import SAFETY_LOOK_S, Steps

#: If an entry is due within this time by the wall clock here, its delay is not read.
NEAR_S = 5.0
#: How many delays are read after one listing. The rest follow after later listings.
READ_MAX = 500
#: An entry that an access list keeps from being moved is left alone this long, doubled each time.
#: Otherwise many such entries would always be tried first, and later ones never.
REST_S, REST_MAX_S = 1.0, 60.0
#: Entries made runnable in one transaction.
PROMOTED_PER_MULTI = 50
#: The listing of delayed entries is repeated this often while some are left alone, or have an
#: unknown delay, and once after entries were moved: another worker may have stopped midway.
DELAYED_PERIOD_S = 5.0
_NEVER = float("inf")


class Delays:
    """The delayed entries as one worker sees them.

    The name of an entry contains its due time. For a `not_before`, this is a time of the server's
    clock. After a failure, it is a time of the wall clock of the worker whose attempt failed, which
    may be wrong by hours. If that clock is behind, the entry is due too early by as much, which
    nothing here can notice. If it is ahead, the entry seems far away. So an entry is due at the
    latest when this worker has seen it for its whole delay, which is in its data. This is never too
    early, and no change of a clock makes an entry wait much longer.
    """

    def __init__(self) -> None:
        #: By name; the first is due first.
        self._entries: dict[str, Delayed] = {}
        #: One of the names that are not entries and are ignored; empty if there is none.
        self.strange = ""
        #: By name, in monotonic time: when it was first seen, and when its delay is over then.
        self._seen: dict[str, float] = {}
        self._over: dict[str, float] = {}
        #: The first of `_over`, cached because each turn of the worker needs it; None if not known.
        self._soonest: tuple[float, str] | None = None
        #: By name, in monotonic time: until when it is left alone, and for how long it was.
        self._resting: dict[str, tuple[float, float]] = {}

    def look(self, paths: Paths, clock: Clock, server_clock: ServerClock) -> Step[None]:
        """List the entries, and read the delays of those that seem far away."""
        entries = (yield from children_watched(paths.delayed)) or ()
        if entries:
            yield from server_clock.measure()
        self.listed(entries, clock.monotonic())
        names = self.unknown(server_clock.now())
        if names:
            nodes = yield ReadMany([ReadData(f"{paths.delayed}/{name}") for name in names])
            for name, node in zip(names, nodes, strict=True):
                self.told(name, node.data if node is not None else b"")

    def listed(self, names: Sequence[str], now: float) -> None:
        parsed = [(name, parse_delayed(name)) for name in sorted(names)]
        standing = {name: later for name, later in parsed if later is not None}
        self._resting = {name: rest for name, rest in self._resting.items() if name in standing}
        resting = {name for name, (until, _) in self._resting.items() if until > now}
        self._entries = {name: later for name, later in standing.items() if name not in resting}
        self.strange = next((name for name, later in parsed if later is None), "")
        self._seen = {name: self._seen.get(name, now) for name in standing}
        self._over = {name: at for name, at in self._over.items() if name in self._entries}
        self._soonest = None

    def rest(self, names: Iterable[str], now: float) -> None:
        """Leave these alone for a while, though they are due."""
        for name in names:
            _, rested = self._resting.get(name, (0.0, 0.0))
            pause = min(REST_MAX_S, max(REST_S, 2 * rested))
            self._resting[name] = now + pause, pause
            # A listing may have come since they were taken.
            self._entries.pop(name, None)
            self._over.pop(name, None)
            self._soonest = None

    def unknown(self, wall_s: float) -> list[str]:
        """The entries that seem far away and whose delay was not read yet."""
        far_ms = (wall_s + NEAR_S) * 1000
        far = (name for name, later in self._entries.items() if later.due_ms > far_ms)
        return list(islice((name for name in far if name not in self._over), READ_MAX))

    def told(self, name: str, data: bytes) -> None:
        # Without a delay (from an older version, or imported) only its due time counts.
        is_delay = data.isdigit() and len(data) <= 13
        # An entry that was taken meanwhile does not exist any more.
        if name in self._entries:
            self._over[name] = self._seen[name] + int(data) / 1000 if is_delay else _NEVER
            self._soonest = None

    @property
    def any(self) -> bool:
        return bool(self._entries)

    def must_list_again(self, wall_s: float) -> bool:
        """Whether no watch announces what this worker needs to know next."""
        return bool(self._resting or self.unknown(wall_s))

    def next(self, now: float, wall_s: float) -> tuple[str, float] | None:
        """The name of the next entry and its monotonic time, or None."""
        if not self._entries:
            return None
        name, first = next(iter(self._entries.items()))
        found = now + first.due_ms / 1000 - wall_s, name
        if self._over:
            if self._soonest is None:
                self._soonest = min((at, other) for other, at in self._over.items())
            found = min(found, self._soonest)
        return found[1], found[0]

    def take(self, now: float, wall_s: float, most: int) -> list[tuple[str, Delayed]]:
        """Remove and return up to `most` entries that are due."""
        due = (
            (name, later)
            for name, later in self._entries.items()
            if later.due_ms <= wall_s * 1000 or self._over.get(name, _NEVER) <= now
        )
        taken = list(islice(due, most))
        for name, _ in taken:
            del self._entries[name]
            self._over.pop(name, None)
            self._soonest = None
        return taken


@dataclass(eq=False)
class Promotion:
    """One worker's part in promoting delayed entries, one of its maintenance duties."""

    steps: Steps
    paths: Paths
    membership: Membership
    clock: Clock
    #: When the entries are listed next: monotonic.
    _list_at: float = 0.0
    _delays: Delays = field(default_factory=Delays)
    _is_listing: bool = False
    _is_promoting: bool = False

    @property
    def at(self) -> float:
        listing = _NEVER if self._is_listing else self._list_at
        # The loop asks at each turn: where nothing is delayed, it asks no clock.
        return min(listing, self._promote_at()) if self._delays.any else listing

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        if path is None or path == self.paths.delayed:
            self._list_at = 0.0

    def run(self, now: float) -> None:
        if now >= self._list_at and not self._is_listing:
            self._list()
        if now >= self._promote_at():
            self._promote()

    def _list_within(self, seconds: float) -> None:
        self._list_at = min(self._list_at, self.clock.monotonic() + seconds)

    def _list(self) -> None:
        self._list_at, self._is_listing, known = _NEVER, True, self._delays.strange

        def listed(_: None) -> None:
            self._is_listing = False
            again = self._delays.must_list_again(self.membership.server_clock.now())
            self._list_within(DELAYED_PERIOD_S if again else SAFETY_LOOK_S)
            if self._delays.strange and not known:
                self.steps.complaints.tell(
                    f"{self.paths.delayed} holds names that are not entries and are ignored: "
                    f"{self._delays.strange!r:.100}"
                )

        step = self._delays.look(self.paths, self.clock, self.membership.server_clock)
        self.steps.start(step, listed)

    def _promote_at(self) -> float:
        """Monotonic time at which the first delayed entry is due here."""
        found = (
            None
            if self._is_promoting
            else self._delays.next(self.clock.monotonic(), self.membership.server_clock.now())
        )
        if found is None:
            return float("inf")
        name, at = found
        place, count = self.membership.share
        return at + (0.0 if zlib.crc32(name.encode()) % count == place else HEAD_START_S)

    def _promote(self) -> None:
        wall_s = self.membership.server_clock.now()
        due = self._delays.take(self.clock.monotonic(), wall_s, PROMOTED_PER_MULTI)
        if not due:
            return
        self._is_promoting = True

        def promoted(shut: dict[str, str]) -> None:
            self._is_promoting = False
            self._list_within(DELAYED_PERIOD_S)
            self._delays.rest(shut, self.clock.monotonic())
            for name, why in shut.items():
                self.steps.complaints.tell(
                    f"{self.paths.delayed}/{name} cannot be made runnable: {why}"
                )

        step = promote(self.paths, due)
        what = "delayed entries cannot be promoted"
        self.steps.start_contained(step, promoted, what, instead={})


# ---- When plans begin and end: they wait for their `not_before`, and are cancelled at their
# `deadline`.


#: A plan past its deadline is cancelled by the worker whose share it is, and after so many seconds
#: by any other.
DEADLINE_HEAD_START_S = 0.5
#: Seconds after which a cancel that was stopped is tried again.
CANCEL_AGAIN_S = 1.0
_NO_DEADLINE = float("inf")
logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class PlanTimes:
    """One worker's part in the times of plans, a maintenance duty. The server's clock decides."""

    steps: Steps
    membership: Membership
    candidates: Candidates
    clock: Clock
    #: By the number of the plan: the monotonic time at which it is cancelled here.
    _ends: dict[str, float] = field(default_factory=dict)
    at: float = _NO_DEADLINE

    def begins_later(self, view: PlanView) -> Step[bool]:
        """Whether no task of a plan may be claimed yet. Called with each look; free for a plan
        without such times."""
        record = view.record
        if record is None or (record.not_before is None and record.deadline is None):
            return False
        clock = self.membership.server_clock
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
        return self.membership.server_clock.monotonic_at(deadline) + (
            0.0 if is_mine else DEADLINE_HEAD_START_S
        )

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
        self.at = min(self._ends.values(), default=_NO_DEADLINE)

    def _cancel(self, view: PlanView) -> None:
        def cancelled(is_over: bool) -> None:
            if not is_over:
                self._note(view, self.clock.monotonic() + CANCEL_AGAIN_S)

        what = f"{view.path} is past its deadline, and cannot be cancelled"
        self.steps.start_contained(_cancel_plan(view.path), cancelled, what, instead=False)


def _cancel_plan(plan_path: str) -> Step[bool]:
    try:
        yield from change_state(plan_path, "cancelled", DEADLINE_PASSED)
    except PlanError:
        return True  # it has ended, or was removed
    logger.info("%s is cancelled: %s", plan_path, DEADLINE_PASSED)
    return True
