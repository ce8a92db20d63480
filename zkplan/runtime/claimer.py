"""Claim runnable tasks, read them, and queue them for the slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ..basics.log import get_logger
from ..protocol.core.claim import NO_PERMITS, Claimed, claim
from ..protocol.core.commit_part import Part
from ..protocol.core.load import FirstReads, Loaded, load
from ..protocol.layout import limit_path, queue_path
from ..protocol.transactions import Allowance, Claim, Registration
from ..transport.server_clock import Clock
from .ahead import Prefetch
from .claims import UNSTARTED, Claims
from .job import Job
from .limits import Limits
from .membership import Membership
from .plan_candidates import Candidates
from .plan_view import PlanView
from .slots import Slots
from .statistics import Counters
from .steps import Steps

#: The shortest time, in seconds, between two warnings that claims wait for room.
TELL_ROOM_S = 60.0

logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class Claimer:
    """Makes the claims of one worker; only the loop's thread calls it.

    `take_on` takes the new claims, and the reads made with them.
    """

    steps: Steps
    membership: Membership
    claims: Claims
    candidates: Candidates
    counters: Counters
    #: The queues that this worker serves.
    queues: Sequence[str]
    limits: Limits
    clock: Clock
    take_on: Callable[[list[Claim], FirstReads | None], None]
    #: The plans whose last claim found no room.
    _without_room: set[str] = field(default_factory=set, init=False)
    #: Whether a warning was logged for them, and when the next one may be (monotonic).
    _is_told: bool = field(default=False, init=False)
    _tell_room_at: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.candidates.may_try, self.limits.waited = self.may_try, self.waited
        self.claims.given_back = self.limits.given_back

    def wants(self) -> Registration | None:
        """The registration that this worker claims with now, or None while it may not claim."""
        claims = self.claims
        if claims.claiming or claims.paused or not self.membership.answers:
            return None
        free = claims.free()
        if free <= 0:
            return None
        held = claims.held
        if held > claims.capacity.threads and free < held:
            return None  # small claims cost as much as large ones: wait until half is free
        return self.membership.me

    def claim(self, now: float, me: Registration) -> None:
        """Start a claim from the next plan, if there is one."""
        if self.claims.capacity.are_long and self.candidates.awaits_a_first_look(now):
            return  # a claim holds a slot for long, and it may be that plan's turn
        view = self.candidates.choose(now)
        if view is None:
            return
        known = len(view.strange)
        # Claim a task with limits only for an idle slot: while it waited, it would hold permits.
        idle = self.claims.capacity.threads - self.claims.held
        free = self.claims.free(plenty=self._is_plenty(view))
        taken = view.take(free, idle, partial(self._permit, view, now))
        for _, limits in view.waiting:
            self.limits.want(view.number, limits.split("~"))
        if not known and view.strange:
            self.steps.complaints.tell(
                f"{queue_path(view.path, view.queue)} holds names that are not entries and are "
                "ignored: "
                f"{min(view.strange)!r:.100}"
            )
        self.candidates.file(view)
        if not taken.names:
            return
        self.claims.claiming, queue = len(taken.names), taken.queue
        permits = self.limits.permits(taken.permits) if taken.permits else NO_PERMITS

        def claimed(made: Claimed | None) -> None:
            self.claims.claiming = 0
            self.limits.ended(permits, made is not None and not made.blocked)
            if made is None:
                view.leave_alone(self.clock.monotonic())
                self.candidates.file(view)
            else:
                self._claimed(me, view, queue, made)

        step = claim(me, view.number, view.version, taken.names, queue, permits)
        what = f"{view.path} is left to other workers"
        self.steps.start_contained(step, claimed, what, instead=None)

    def _claimed(self, me: Registration, view: PlanView, queue: str, made: Claimed) -> None:
        self.counters.conflicts += made.conflicts
        view.put_back(queue, made.blocked)
        self.counters.conflicts += len(made.blocked)
        for name in made.barred:
            view.bar(name)
            self.steps.complaints.tell(
                f"{queue_path(view.path, queue)}/{name} is never claimed: there are znodes below "
                "it or below the mark of its task, where zkplan makes none; delete them"
            )
        self._note_room(view, made)
        if made.worker_gone:
            self.membership.lost(me)
        if made.plan_changed or made.worker_gone:
            view.drop_listing()
        self.candidates.file(view)
        self.take_on(made.claims, made.read)

    def _note_room(self, view: PlanView, made: Claimed) -> None:
        """Log when claims begin to wait for room, and when all of them have found room.

        Each refusal names another znode, so Complaints would log every one.
        """
        now = self.clock.monotonic()
        if made.no_room is not None:
            # If there is room for some claims only, this begins often.
            if not self._without_room and now >= self._tell_room_at:
                self._tell_room_at, self._is_told = now + TELL_ROOM_S, True
                logger.warning("claims wait until there is room for them: %s", made.no_room)
            self._without_room.add(view.number)
            view.rest(now)
        elif made.claims and self._without_room:
            self._without_room.discard(view.number)
            self._without_room &= self.candidates.views.keys()  # other plans may be removed
            if self._is_told and not self._without_room:
                self._is_told = False
                logger.warning("there is room for claims again")

    def _permit(self, view: PlanView, now: float, name: str) -> tuple[str, ...] | None:
        names = name.split("~")[1:]
        self.limits.want(view.number, names)
        return self.limits.take(view.number, names, now)

    def waited(self) -> set[str]:
        """The paths of the limits that entries of any plan wait for."""
        root = self.limits.root
        return {
            limit_path(root, view.number, name)
            for view in self.candidates.views.values()
            for _, limits in view.waiting
            for name in limits.split("~")
        }

    def may_try(self, view: PlanView, now: float) -> bool:
        """Whether this worker may try to claim an entry of the plan that waits for permits."""
        if self.claims.capacity.threads <= self.claims.held:
            return False
        return any(
            self.limits.has_room(view.number, limits.split("~"), now) for _, limits in view.waiting
        )

    # ---- claims that commits and publications make

    def allow(self, parts: Sequence[Part], most: int, ending: int, taken: int = 0) -> Allowance:
        """How many tasks, at most `most`, the commit or publication of `parts` may claim.

        They count as held until `used`. `ending` claims end with the commit. If more tasks are
        runnable than all workers take, as many new claims may replace these, however far the
        commits are behind: dependents go before other tasks, or results would pile up in ZooKeeper.
        Claims that are not counted yet take `taken` slots.
        """
        allowance = self.allowance(parts, most, ending, taken)
        self.claims.allowed += allowance.claims
        return allowance

    def used(self, allowance: Allowance) -> None:
        """End an allowance. Its claims were made, or never will be."""
        self.claims.allowed -= allowance.claims

    def allowance(self, parts: Sequence[Part], most: int, ending: int, taken: int = 0) -> Allowance:
        """As `allow`, but without counting the claims as held."""
        claims = self.claims
        versions = {}
        plenty = True
        plans = {part.loaded.claim.plan for part in parts}
        for plan in plans:
            view = self.candidates.views.get(plan)
            if view is not None and view.running:
                versions[view.path] = view.version
                plenty = plenty and self._is_plenty(view)
        if self.membership.me is None or claims.starts_nothing or not self.membership.answers:
            return Allowance(0, versions)  # commits of runs of pure tasks need the versions
        must_yield = most and not claims.must_make_room
        if must_yield and self.candidates.must_yield(plans, self.clock.monotonic()):
            return Allowance(0, versions)  # the dependents are published, and wait for their turn
        free = claims.free(plenty=plenty) - taken
        most = min(most, max(0, free, ending if plenty else 0))
        return Allowance(most, versions, self.queues)

    def _is_plenty(self, view: PlanView) -> bool:
        """Whether claiming ahead from the plan leaves no other worker idle."""
        alone = self.membership.share[1] < 2
        return alone or (not view.stolen and len(view.own) > 2 * self.claims.capacity.threads)


# ---- Load: read the tasks that this worker has claimed, and queue them for the slots.


@dataclass(eq=False)
class Loader:
    """Loads claimed tasks, and queues them for the slots. Only the loop's thread calls it."""

    steps: Steps
    claims: Claims
    pool: Slots
    candidates: Candidates
    prefetch: Prefetch
    clock: Clock

    def take_on(self, claims: list[Claim], read: FirstReads | None = None) -> None:
        """Load and run the tasks of `claims`; `read` has the reads that were made with them."""
        if claims:
            self.claims.loading += len(claims)
            for each in claims:
                self.claims.shares.opened(each.path, each.plan)
            self.steps.start_contained(
                load(claims, read),
                lambda loaded: self._loaded(claims, loaded),
                _unread(claims[0]),
                instead=None,
            )

    def _loaded(self, claims: list[Claim], loaded: list[Loaded] | None) -> None:
        self.claims.loading -= len(claims)
        if loaded is not None:
            self._take_up(claims, loaded)
            return
        # One task cannot be read, and stays claimed here. Load each task alone, so that the others
        # run. A task that is not read takes no slot, so more of its plan may run.
        for each in claims:
            self.claims.shares.closed(each.path)
            self.steps.until_done(
                partial(load, [each]), partial(self._take_up, [each]), _unread(each)
            )

    def _take_up(self, claims: list[Claim], loaded: list[Loaded]) -> None:
        if len(loaded) < len(claims):
            standing = {item.claim.path for item in loaded}
            for each in claims:
                if each.path not in standing:
                    self.claims.lost(each, UNSTARTED)
        self.start(loaded)

    def prefetched(self, loaded: Loaded | None, claim: Claim) -> None:
        """Start a task whose prefetch was answered after the commit that claimed the task; if
        `loaded` is None, read the task again."""
        self.claims.loading -= 1
        if loaded is not None:
            self.start([loaded])
        else:
            self.take_on([claim])

    def start(self, loaded: list[Loaded]) -> None:
        """Put tasks into the queue of the slots; hand them back if nothing new may start."""
        if self.claims.starts_nothing:
            # A commit sent before the order to stop or pause may still have claimed tasks.
            self.claims.hand_back([Job(item) for item in loaded])
            return
        self.claims.capacity.last_end = self.clock.monotonic()
        jobs = []
        for job in [Job(item) for item in loaded]:
            view = self.candidates.views.get(job.claim.plan)
            if view is not None:
                job.plan, job.version = view.record, view.version
            if view is None or not view.running:
                self.claims.hand_back([job])  # the plan was paused, cancelled or removed since
            else:
                jobs.append(job)
        # Prefetch before a slot has the job. Otherwise a short task could end first, and its commit
        # would be sent together with the read: then the server answers the read only after the
        # commit, and the next hop of a chain waits for the read.
        for job in jobs:
            if job.loaded.edges:
                self.prefetch.begin(job.loaded, lambda: self.claims.free() - len(jobs))
        for job in jobs:
            self.claims.jobs[job.claim.path] = job
            self.claims.shares.opened(job.claim.path, job.claim.plan)
            self.pool.put(job)


def _unread(claim: Claim) -> str:
    return f"{claim.task_path} cannot be read"
