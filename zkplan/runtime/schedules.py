"""Fire schedules: for each due time one worker creates the plan; the server's clock decides."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from ..basics.cron import Cron
from ..basics.log import get_logger
from ..errors import PayloadUndecodable, PlanError, ZkplanError
from ..protocol.core.plan_life import change_state
from ..protocol.features.schedules import (
    Firing,
    Schedule,
    fire,
    goes_on,
    jitter_s,
    pass_over,
    read_schedule,
    record_of,
    reread,
    turn,
)
from ..protocol.layout import Paths
from ..protocol.requests import ReadChildren, ReadData, Step
from ..protocol.transactions import or_error
from ..transport.server_clock import Clock
from .membership import Membership
from .steps import Steps

#: Seconds by which each worker acts later than the one before it, and the most for any worker.
HEAD_START_S, HEAD_START_MAX_S = 0.5, 5.0
#: Seconds until the next look at a schedule that waits for its previous plan.
WAIT_S = 0.25
#: Seconds until the next try to fire a schedule that could not be fired: the first time, doubled
#: each time, and the longest.
REST_S, REST_MAX_S = 1.0, 60.0
_NEVER = float("inf")
logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class Known:
    """A schedule that this worker knows. `at`: when to look at the schedule next (monotonic)."""

    schedule: Schedule
    cron: Cron
    at: float = _NEVER
    rest_s: float = 0.0


@dataclass(eq=False)
class Schedules:
    """One worker's part in the schedules, one of its maintenance duties.

    One watch announces all changes except firings. Without schedules, this watch is the only cost.
    """

    steps: Steps
    paths: Paths
    membership: Membership
    clock: Clock
    _list_at: float = 0.0
    _known: dict[str, Known] = field(default_factory=dict)
    _is_listing: bool = False
    _must_list: bool = False
    #: The earliest `at` of all schedules.
    _soonest: float = _NEVER

    @property
    def at(self) -> float:
        if self.membership.me is None:
            return _NEVER
        return self._soonest if self._is_listing else min(self._list_at, self._soonest)

    def touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        if path is None or path == self.paths.schedules:
            self._list_at = 0.0

    def run(self, now: float) -> None:
        if self.membership.me is None:
            return
        if now >= self._list_at and not self._is_listing:
            self._list_at, self._is_listing = _NEVER, True
            what = "the schedules cannot be read"
            self.steps.start_contained(self._read_all(), self._listed, what, instead=None)
        if now >= self._soonest:
            for known in [each for each in self._known.values() if now >= each.at]:
                self._take_up(known)
            self._note()

    # ---- list the schedules

    def _read_all(self) -> Step[list[Schedule]]:
        node = yield ReadData(self.paths.schedules, watch=True)
        found: list[Schedule] = []
        if node is None:
            return found
        names = (yield ReadChildren(self.paths.schedules)) or ()
        if names:
            yield from self.membership.server_clock.measure()
        for name in sorted(names):
            read = yield from or_error(read_schedule(self.paths, name))
            if isinstance(read, ZkplanError):
                self.steps.complaints.tell(f"{self.paths.schedules}/{name} is left alone: {read}")
            else:
                found.append(read)
        return found

    def _listed(self, found: list[Schedule] | None) -> None:
        self._is_listing = False
        if found is None:
            self._list_at = self.clock.monotonic() + REST_S
            return
        old, self._known = self._known, {}
        for schedule in found:
            definition = schedule.definition
            before = old.get(definition.name)
            try:
                cron = Cron(definition.cron, definition.timezone)
            except ValueError as error:
                self.steps.complaints.tell(f"{schedule.path} is left to other workers: {error}")
                continue
            known = self._known[definition.name] = Known(schedule, cron)
            if before is not None and _is_newer(before.schedule, schedule):
                known.schedule = before.schedule  # this worker has fired it meanwhile
            self._plan(known)
        self._note()

    def _plan(self, known: Known, after_s: float = 0.0) -> None:
        """Decide when to look at the schedule next: at least `after_s` seconds from now."""
        upcoming = known.schedule.next
        if upcoming.paused:
            known.at = _NEVER
            return
        due_s = upcoming.due_ms / 1000 + jitter_s(known.schedule.definition, upcoming.due_ms)
        at = max(self.membership.server_clock.monotonic_at(due_s), self.clock.monotonic() + after_s)
        known.at = at + self._distance(known) * HEAD_START_S

    def _distance(self, known: Known) -> float:
        """How many workers look at the schedule before this one."""
        place, count = self.membership.share
        first = zlib.crc32(known.schedule.definition.name.encode()) % count
        return min((place - first) % count, HEAD_START_MAX_S / HEAD_START_S)

    def _note(self) -> None:
        self._soonest = min((each.at for each in self._known.values()), default=_NEVER)

    # ---- firing

    def _take_up(self, known: Known) -> None:
        known.at = _NEVER  # until `ended`
        wait = self._distance(known) > 0
        step = self._turn(known, wait)
        what = f"{known.schedule.path} cannot be fired"
        failed = ZkplanError()

        def ended(found: Schedule | ZkplanError | None) -> None:
            if self._known.get(known.schedule.definition.name) is not known:
                return  # changed or removed meanwhile
            if found is None:
                self._list_at = 0.0
                return
            if isinstance(found, ZkplanError):
                known.rest_s = min(REST_MAX_S, max(REST_S, 2 * known.rest_s))
                known.at = self.clock.monotonic() + known.rest_s
            else:
                is_same = found.version == known.schedule.version
                known.schedule, known.rest_s = found, 0.0
                self._plan(known, WAIT_S if is_same else 0.0)
            self._note()

        self.steps.start_contained(step, ended, what, instead=failed)

    def _turn(self, known: Known, asks_first: bool) -> Step[Schedule | None]:
        """Fire the schedule if it is due. Returns its new state; None if others have changed it."""
        schedule, clock = known.schedule, self.membership.server_clock
        if asks_first:  # most likely another worker has fired it
            fresh = yield from reread(schedule)
            if fresh is None or fresh.version != schedule.version:
                return fresh
        yield from clock.measure()
        if not clock.is_known:
            return schedule  # never fire by the local clock
        definition, due_ms = schedule.definition, schedule.next.due_ms
        now_ms = int(1000 * clock.now())
        late_ms = int(1000 * jitter_s(definition, due_ms))
        if now_ms < due_ms + late_ms:
            return schedule  # not due, by the clock that was measured again
        found = turn(known.cron, definition, due_ms, now_ms - late_ms)
        me = self.membership.me
        worker = me.worker if me is not None else self.membership.worker
        if found.fire_ms is None:
            missed = Firing(due_ms, "", worker, now_ms, "skipped: no worker was there in time")
            return (yield from pass_over(schedule, missed, found.next_ms))
        previous = yield from self._in_the_way(schedule)
        if previous and definition.overlap == "queue":
            return schedule
        if previous and definition.overlap == "skip":
            why = f"skipped: plan {int(previous)} goes on"
            firing = Firing(found.fire_ms, "", worker, now_ms, why)
            return (yield from pass_over(schedule, firing, found.next_ms))
        if previous:
            yield from _cancel(self.paths.plan(previous))
        how = "fired" if found.missed_ms is None else "fired: the latest of those missed"
        firing = Firing(found.fire_ms, "", worker, now_ms, how)
        record = record_of(definition, known.cron, found.fire_ms, now_ms / 1000)
        before = self.clock.monotonic()
        fired = yield from fire(self.paths, schedule, record, firing, found.next_ms)
        if fired is None:
            return (yield from reread(schedule))
        after = self.clock.monotonic()
        fresh = yield from reread(schedule)
        if fresh is not None and fresh.version == fired.version:
            clock.learn(fresh.modified_ms, before, after)
        return fresh

    def _in_the_way(self, schedule: Schedule) -> Step[str]:
        """The number of the previous plan, if it goes on and the schedule forbids overlap."""
        previous = next((each.plan for each in reversed(schedule.next.fired) if each.plan), "")
        if not previous or schedule.definition.overlap == "allow":
            return ""
        return previous if (yield from goes_on(self.paths, previous)) else ""


def _is_newer(mine: Schedule, read: Schedule) -> bool:
    return mine.next_path == read.next_path and mine.version > read.version


def _cancel(plan_path: str) -> Step[None]:
    try:
        yield from change_state(plan_path, "cancelled", "its schedule is due again")
    except PlanError:
        pass  # it has ended meanwhile
    except PayloadUndecodable as error:  # its key has been removed since
        logger.warning(
            "%s goes on beside the next plan, as this worker cannot cancel it: %s", plan_path, error
        )
