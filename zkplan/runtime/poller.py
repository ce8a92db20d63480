"""List the active plans, and the runnable tasks of plans that may have work for this worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from ..protocol.core.plan_indexes import list_active
from ..protocol.core.plans_and_queues import PlanLook, Signs, Swept, look, sweep
from ..protocol.layout import Paths, queue_path
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadData, Step
from ..transport.server_clock import Clock
from .attempts import VanishedWorkers
from .claims import Claims, KeptResults
from .delays_and_deadlines import PlanTimes
from .idle_queue import IdleQueue
from .job import CANCELLED, REMOVED
from .limits import Limits
from .membership import Membership
from .plan_candidates import Candidates
from .plan_view import PlanView
from .statistics import Counters
from .steps import Steps

#: The most listings under way at once.
LOOKS_MAX = 4
#: How many plans one sweep checks for changes that no watch announced. The cost of an idle worker
#: must not grow with the number of plans.
PLANS_PER_SWEEP = 50


class FolderWatcher(Protocol):
    """A duty that relies on a watch of the children of a folder in the root."""

    def touched(self, path: str | None) -> None: ...


@dataclass(eq=False)
class Poller:
    """Keeps the candidates of one worker fresh; only the loop's thread calls it."""

    steps: Steps
    paths: Paths
    membership: Membership
    claims: Claims
    kept: KeptResults
    candidates: Candidates
    vanished: VanishedWorkers
    counters: Counters
    times: PlanTimes
    #: The queues that this worker serves, the preferred queue first.
    queues: Sequence[str]
    limits: Limits
    idle_queue: IdleQueue
    #: Each hears of every folder that has changed since the last sweep.
    folder_watchers: Sequence[FolderWatcher]
    clock: Clock
    chance: Random
    _looking: int = 0
    _listing: bool = False
    _must_list: bool = True
    _sweeping: bool = False
    #: The last change of each folder at the last sweep.
    _folders: dict[str, Signs] = field(default_factory=dict)
    #: The active plans at the last listing.
    _active: set[str] = field(default_factory=set)
    #: The order in which the current listings were sorted.
    _newest_first: bool = False

    def touched(self, path: str | None) -> bool:
        """Note a fired watch (None: the connection changed). True: it concerns only plans."""
        root, active = self.paths.root, self.paths.active
        if path is None or path == active:
            self._must_list = True
        if path is None:
            self.candidates.touched(None, control=True)
            return False
        prefix = root + "/plan-"
        if path.startswith(prefix):
            number = path[len(prefix) : len(prefix) + 10]
            self.candidates.touched(number, path.endswith("/ready"))
            return True
        return path == active

    def look_again(self) -> None:
        """Look for changes that no watch has announced: in the list of plans, in the folders of
        the root, and in some plans.

        Makes one request, so that plans without work for this worker cost none of their own.
        """
        if self._sweeping:
            return
        self._sweeping, views = True, self.candidates.sweep(PLANS_PER_SWEEP)
        paths = self.paths
        folders = (paths.delayed, paths.gates, paths.workers, paths.claims, paths.schedules)

        def read(swept: Swept) -> None:
            self._sweeping = False
            self._must_list = self._must_list or set(swept.active) != self._active
            for folder, changed in zip(folders, swept.folders, strict=True):
                if self._folders.get(folder) != changed:
                    self._folders[folder] = changed
                    for each in self.folder_watchers:
                        each.touched(folder)
            for view, now in zip(views, swept.plans, strict=True):
                # The signs are older than the look that follows, so the look misses nothing.
                if view.signs != now:
                    view.signs = now
                    self.candidates.touched(view.number, control=False)

        self.steps.start(sweep(paths, folders, [v.number for v in views], self.queues), read)

    def advance(self, now: float, *, claims_next: bool) -> None:
        """Start the looks that are needed. `claims_next`: a claim from the listings is next."""
        if self._must_list and not self._listing:
            self._must_list, self._listing = False, True
            self.steps.start(list_active(self.paths, watch=True), self._plans_listed)
        if self._newest_first != self.kept.is_met:
            self._newest_first = self.kept.is_met
            self.candidates.list_anew()
        if claims_next:
            self.candidates.grow_old(now)
        # Ask `want_looks` first: nearly always no plan wants a look, and `free` takes longer.
        hungry = self.candidates.want_looks and self.claims.free() > 0
        for view in self.candidates.to_look(now, LOOKS_MAX - self._looking, hungry=hungry):
            self._look(view)

    def _plans_listed(self, numbers: list[str]) -> None:
        self._listing = False
        self._active = set(numbers)
        # Each worker has an order of its own. Otherwise all workers would look at the same few
        # plans first, and try the same tasks.
        self.chance.shuffle(numbers)
        # A plan that is done is not active: if it is listed, it has been retried, so begin again.
        # A cancelled plan is not active, but keep it while tasks run, which must learn of it.
        self.candidates.begin_anew(numbers)
        held = {job.claim.plan for job in self.claims.jobs.values()}
        numbers += held.intersection(self.candidates.views).difference(numbers)
        for view in self.candidates.set_plans(numbers, self.paths.plan):
            if not view.looking:  # otherwise `_looked` does this, after the look has set watches
                self._unwatch(view)
        self.vanished.keep_only({view.path for view in self.candidates.unfinished()})

    def _look(self, view: PlanView) -> None:
        self._looking += 1
        self.counters.looks += 1

        def looked(found: PlanLook | None) -> None:
            self._looking -= 1
            self._looked(view, found)

        # A plan that this worker may not read, or whose format it does not know, must not end the
        # worker, which runs other plans.
        step = _look(view, view.begin_look(self.clock.monotonic()), self.queues, self.times)
        what = f"{view.path} is left to other workers"
        self.steps.start_contained(step, looked, what, instead=None)

    def _unwatch(self, view: PlanView) -> None:
        """Remove the watches of a plan that is not active: two for each worker would stay."""
        queues = (queue_path(view.path, queue) for queue in self.queues)
        self.steps.unwatch((f"{view.path}/ready", *queues))

    def _looked(self, view: PlanView, found: PlanLook | None) -> None:
        if self.candidates.views.get(view.number) is not view:
            self._unwatch(view)
            if (now := self.candidates.views.get(view.number)) is not None:
                self.candidates.touched(now.number, control=True)  # its watches may be gone, too
        before = view.state
        if found is None:
            view.leave_alone(self.clock.monotonic())
        else:
            entries = sum(len(names or ()) for _, names in found.listed)
            # Idle workers leave a single task to the first.
            is_mine = entries == 1 and self.idle_queue.others_are_idle
            share = (0, 1) if is_mine else self.membership.share
            view.update(
                *(found, share, self.clock.monotonic()),
                spare=self.claims.spare,
                newest_first=self.kept.is_met,
                is_full=partial(self.limits.are_full, view.number),
            )
            self.idle_queue.seen(view.entries)
        self.candidates.file(view)
        if view.state != "running" and before == "running":
            self.claims.withdraw(view.number)
        if view.state == "cancelled" and before != "cancelled":
            self._tell(view, CANCELLED)
        elif found is not None and view.state is None and before is not None:
            self._tell(view, REMOVED)  # removed too soon after its cancel for this worker to see

    def _tell(self, view: PlanView, why: str) -> None:
        """Ask the running tasks of a plan to stop."""
        for job in self.claims.jobs.values():
            if job.claim.plan == view.number:
                job.stop(why, self.clock.monotonic())


def _look(view: PlanView, watch: bool, queues: Sequence[str], times: PlanTimes) -> Step[PlanLook]:
    """List the runnable tasks of a plan. Raises PayloadUndecodable for an unknown format."""
    if view.record is None:
        node = yield ReadData(view.path)
        if node is None:
            return PlanLook(None, -1, None)
        view.record = PlanRecord.from_bytes(node.data)
    if (yield from times.begins_later(view)):
        return PlanLook(None, -1, None)
    return (yield from look(view.path, watch, queues))
