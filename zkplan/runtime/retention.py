"""Keep a root small: remove plans past their retention, count their room, merge histories.

Any number of workers may do this at once. A worker that dies midway leaves the plan done or
cancelled, so another worker finds the plan and removes the rest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..author.archives import archive_plan
from ..basics.log import get_logger
from ..basics.text import age
from ..errors import UNREACHABLE, PlanNotFound, ZkplanError
from ..protocol import failpoints
from ..protocol.core.plan_indexes import EndedPlan
from ..protocol.core.plans_and_queues import list_plans
from ..protocol.features.bounds import (
    Bounds,
    Over,
    Room,
    Used,
    change_bounds,
    count_plans,
    is_over,
    read_bounds,
    warning_of,
)
from ..protocol.history.compaction import compact
from ..protocol.history.segments import Recorder
from ..protocol.layout import Paths
from ..protocol.requests import Step
from ..transport.server_clock import Clock
from ..values.connection import Connection
from ..values.store_maintenance import Sweeper, remove
from .maintenance import PlanScan
from .membership import Membership
from .steps import Steps

logger = get_logger("zkplan.worker")


class Collector:
    """Removes plans for one worker."""

    def __init__(self, client: Connection) -> None:
        self._client = client
        #: The reasons that were logged, so that an unavailable store is logged once.
        self._told: set[str] = set()
        #: How many tries to archive or remove a plan have failed.
        self.failures = 0

    def start(
        self,
        plans: Sequence[str],
        now: Callable[[], float],
        goes_on: Callable[[], bool],
        ended: Callable[[list[str]], None],
    ) -> None:
        """Remove the `plans` whose retention is over at `now()`, the server's time, as long as
        `goes_on()` is True. Returns at once.

        Reads each plan again first. Calls `ended` with the plans that are left, on another thread.
        """

        def run() -> None:
            left = list[str]()
            for plan in plans:
                if not (goes_on() and self._removed(plan, now)):
                    left.append(plan)
            ended(left)

        threading.Thread(target=run, name="zkplan-retention", daemon=True).start()

    def _removed(self, plan: str, now: Callable[[], float]) -> bool:
        client = self._client
        path = client.paths.plan(plan)
        try:
            found, archives = client.transport.run(_decide(client.paths, plan, now()))
            if found is None:
                return False
            failpoints.reach("retention.before")
            archive = archive_plan(client, path) if archives else ""
            if remove(client.transport, client.values, path, found.end) is None:
                return False  # the plan has been retried
        except PlanNotFound:
            return True  # another worker was faster
        except UNREACHABLE:
            return False
        except Exception as error:
            # For example from a store, or a foreign znode: the error must not end the worker.
            self.failures += 1
            self._tell(path, error)
            return False
        name = found.record.name if found.record is not None else ""
        ago = age(now() - found.ended)
        kept = f", its archive is {archive}" if archive else ""
        logger.info("%s %r is removed: it was %s %s%s", path, name, found.state, ago, kept)
        return True

    def _tell(self, path: str, error: Exception) -> None:
        why = str(error) if isinstance(error, ZkplanError) else repr(error)
        if why not in self._told:
            self._told.add(why)
            logger.warning("the retention of %s is over, but it stays: %s", path, why)


def _decide(paths: Paths, plan: str, now: float) -> Step[tuple[Over | None, bool]]:
    """Whether the plan may be removed (None: not yet), and whether to archive it first."""
    found = yield from is_over(paths, plan, now)
    archives = found is not None and (yield from read_bounds(paths)).archive
    return found, archives


# ---- Keep the bounds of a root: remove plans whose retention is over, count the room of plans.
#
# The scan reports each plan that has ended, so that no plan is read again for this. One request a
# minute reads the bounds of the root. A worker makes none if it knows of no ended plan and is not
# the first of all workers.


#: Seconds from one round to the next, and to the next look while one is under way.
PERIOD_S, LOOK_S = 60.0, 1.0
#: The most plans to remove in one go.
BATCH = 100
#: A plan is removed by the worker in whose share it is, and this many seconds later by any other.
HEAD_START_S = 60.0
#: Seconds until the next try to remove a plan that could not be removed.
REST_S = 300.0
#: The shortest seconds between two counts; counts take at most 1/COUNT_COST of the time.
COUNT_PERIOD_S, COUNT_COST = 300.0, 50.0
_NEVER = float("inf")


@dataclass(eq=False)
class RootBounds:
    """One worker's part in keeping the bounds, a maintenance duty. The server's clock decides."""

    steps: Steps
    paths: Paths
    membership: Membership
    scan: PlanScan
    collector: Collector
    clock: Clock
    is_ending: Callable[[], bool]
    _bounds: Bounds = field(default_factory=Bounds)
    #: Whether this worker has read the bounds and the server's time.
    _was_read: bool = False
    _is_under_way: bool = False
    #: Plans that have ended.
    _ended: dict[str, EndedPlan] = field(default_factory=dict)
    #: Until when to leave alone plans that could not be removed (monotonic).
    _rests: dict[str, float] = field(default_factory=dict)
    _count_at: float = 0.0
    #: The room of each ended plan, which never grows.
    _rooms: dict[str, Room] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.at = self.clock.monotonic() + PERIOD_S

    def learn(self, ended: Sequence[EndedPlan]) -> None:
        """Take plans that have ended, which the scan has found."""
        self._ended.update((plan.number, plan) for plan in ended)
        if ended and not self._was_read:
            # Read first: the root's retention may be shorter than the default, or the local clock
            # wrong.
            self.at = self.clock.monotonic()
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

    def _when(self, plan: EndedPlan) -> float:
        """The monotonic time at which this worker removes the plan."""
        retention = self._bounds.retention if plan.retention is None else plan.retention
        if retention == _NEVER:
            return _NEVER
        place, count = self.membership.share
        late_s = 0.0 if int(plan.number) % count == place else HEAD_START_S
        due = self.membership.server_clock.monotonic_at(plan.ended + retention) + late_s
        return max(due, self._rests.get(plan.number, 0.0))

    def _come_at(self, plans: Sequence[EndedPlan]) -> None:
        self.at = min([self.at, *map(self._when, plans)])

    def _round(self, counts: bool) -> Step[Bounds]:
        yield from self.membership.server_clock.measure()
        found = yield from read_bounds(self.paths)
        return (yield from self._count(found)) if counts else found

    def _read(self, found: Bounds | None) -> None:
        self._is_under_way, self._was_read = False, True
        if found is None:  # damaged or unreadable: remove nothing
            return
        self._bounds = found
        if found.has_budget and found.share >= 1.0:
            root = self.paths.root
            self.steps.complaints.tell(f"the budget of {root} is spent: new plans are refused")
        elif found.has_budget and (warning := warning_of(self.paths, found)):
            self.steps.complaints.tell(warning)
        # Forget plans that anyone has removed.
        for number in self._ended.keys() - self.scan.ended.keys():
            del self._ended[number]
            self._rests.pop(number, None)
        now, clock = self.clock.monotonic(), self.membership.server_clock
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
                self._rests[number] = self.clock.monotonic() + REST_S
            else:
                self._ended.pop(number, None)
                self._rests.pop(number, None)
        if self._bounds.has_budget and len(left) < len(plans):
            self._count_at = 0.0  # there is room again
            self.at = min(self.at, self.clock.monotonic() + LOOK_S)
        self._come_at(list(self._ended.values()))

    def _count(self, found: Bounds) -> Step[Bounds]:
        """Count the room of all plans, if the root has a budget."""
        if not found.has_budget:
            return found
        before = self.clock.monotonic()
        plans = yield from list_plans(self.paths)
        self._rooms = {plan: self._rooms[plan] for plan in self._rooms.keys() & set(plans)}
        room = yield from count_plans(self.paths, plans, self._rooms, self.scan.ended.keys())
        now = self.membership.server_clock.now()
        used = Used(len(plans), round(room.znodes), round(room.bytes), now, room.exact)
        found = yield from change_bounds(self.paths, {"used": used})
        after = self.clock.monotonic()
        self._count_at = after + max(COUNT_PERIOD_S, COUNT_COST * (after - before))
        return found


# ---- Tidy up the histories that this process writes: merge many small segments into one znode.


#: Seconds between two looks for a history to tidy up.
TIDYING_PERIOD_S = 1.0
#: A history is tidied up once this process has written SEGMENTS segments, or none for QUIET_S
#: seconds. With fewer segments, a running plan's history would be read and written too often.
SEGMENTS, QUIET_S = 400, 10.0


class Written:
    """The histories to tidy up, by the number of segments that this process itself has written."""

    def __init__(self, recorder: Recorder) -> None:
        self._written = recorder.written
        #: By number of the plan: the last count of segments, and since when it is the same.
        self._seen: dict[str, tuple[int, float]] = {}

    def __bool__(self) -> bool:
        return bool(self._written)

    def take(self, now: float) -> str | None:
        """The number of a plan whose history is due, or None. Its count starts again at 0."""
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
    """A maintenance duty: tidies up the histories that are due.

    If two workers tidy up one history at a time, the second is refused, and loses a few reads.
    """

    steps: Steps
    paths: Paths
    membership: Membership
    written: Written
    sweeper: Sweeper
    clock: Clock
    _is_under_way: bool = False

    def __post_init__(self) -> None:
        self.at = self.clock.monotonic() + TIDYING_PERIOD_S

    def run(self, now: float) -> None:
        self.at = now + TIDYING_PERIOD_S
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
