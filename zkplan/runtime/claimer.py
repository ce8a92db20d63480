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

#: It is told at most so often, in seconds, that claims begin to wait for room.
TELL_ROOM_S = 60.0

logger = get_logger("zkplan.worker")


@dataclass(eq=False)
class Claimer:
    """Makes the claims of one worker; only the loop's thread calls it.

    `take_on` gets what was claimed, and what was read with it.
    """

    steps: Steps
    membership: Membership
    claims: Claims
    candidates: Candidates
    counters: Counters
    #: What this worker serves.
    queues: Sequence[str]
    limits: Limits
    clock: Clock
    take_on: Callable[[list[Claim], FirstReads | None], None]
    #: The plans whose last claim found no room; whether that was told, and when to tell it again.
    _without_room: set[str] = field(default_factory=set, init=False)
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
            return  # a slot is taken for long, and it may be the turn of that plan
        view = self.candidates.choose(now)
        if view is None:
            return
        known = len(view.strange)
        # A task with limits is claimed for a free slot only: it would hold its permits in vain.
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
        """Say when claims begin to wait for room, and when the last of them has found it.

        The refusals differ in the znode that they name, so Complaints would tell each of them.
        """
        now = self.clock.monotonic()
        if made.no_room is not None:
            # Where there is room for some claims and not for the next ones, this begins often.
            if not self._without_room and now >= self._tell_room_at:
                self._tell_room_at, self._is_told = now + TELL_ROOM_S, True
                logger.warning("claims wait until there is room for them: %s", made.no_room)
            self._without_room.add(view.number)
            view.rest(now)
        elif made.claims and self._without_room:
            self._without_room.discard(view.number)
            self._without_room &= self.candidates.views.keys()  # others may be gone
            if self._is_told and not self._without_room:
                self._is_told = False
                logger.warning("there is room for claims again")

    def _permit(self, view: PlanView, now: float, name: str) -> tuple[str, ...] | None:
        names = name.split("~")[1:]
        self.limits.want(view.number, names)
        return self.limits.take(view.number, names, now)

    def waited(self) -> set[str]:
        """The paths of the limits for which entries of any plan wait."""
        root = self.limits.root
        return {
            limit_path(root, view.number, name)
            for view in self.candidates.views.values()
            for _, limits in view.waiting
            for name in limits.split("~")
        }

    def may_try(self, view: PlanView, now: float) -> bool:
        """Whether an entry of that plan which waits for permits may be tried."""
        if self.claims.capacity.threads <= self.claims.held:
            return False
        return any(
            self.limits.has_room(view.number, limits.split("~"), now) for _, limits in view.waiting
        )

    # ---- by commits and publications

    def allow(self, parts: Sequence[Part], most: int, ending: int, taken: int = 0) -> Allowance:
        """What this worker may claim by itself while it commits `parts`: at most `most` tasks.

        Counted as held until `used`. `ending` claims end by that commit. Where more is runnable
        than all workers take, as many may follow them, however far the commits are behind: their
        dependents go before further tasks, or results would pile up in ZooKeeper. `taken` slots
        are taken by claims that are not counted yet.
        """
        allowance = self.allowance(parts, most, ending, taken)
        self.claims.allowed += allowance.claims
        return allowance

    def used(self, allowance: Allowance) -> None:
        """End an allowance: its claims were made, or never will be."""
        self.claims.allowed -= allowance.claims

    def allowance(self, parts: Sequence[Part], most: int, ending: int, taken: int = 0) -> Allowance:
        """As `allow`, but not counted."""
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
            return Allowance(0, versions)  # the versions are for runs of pure tasks
        must_yield = most and not claims.must_make_room
        if must_yield and self.candidates.must_yield(plans, self.clock.monotonic()):
            return Allowance(0, versions)  # they are published, and wait for their turn
        free = claims.free(plenty=plenty) - taken
        most = min(most, max(0, free, ending if plenty else 0))
        return Allowance(most, versions, self.queues)

    def _is_plenty(self, view: PlanView) -> bool:
        """Whether claiming ahead from that plan leaves no other worker idle."""
        alone = self.membership.share[1] < 2
        return alone or (not view.stolen and len(view.own) > 2 * self.claims.capacity.threads)


# ---- Load: read the tasks that this worker has claimed, and queue them for the slots.


@dataclass(eq=False)
class Loader:
    """Takes tasks from their claim to the queue of the slots. Only the loop's thread calls it."""

    steps: Steps
    claims: Claims
    pool: Slots
    candidates: Candidates
    prefetch: Prefetch
    clock: Clock

    def take_on(self, claims: list[Claim], read: FirstReads | None = None) -> None:
        """Load and run tasks that this worker has claimed; `read` are reads made with the claim."""
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
        # One of them cannot be read and stays claimed here. The others must still run, and more of
        # their plan: what is not read takes no slot.
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
        """The answer of a prefetch came after the commit that claimed the task."""
        self.claims.loading -= 1
        if loaded is not None:
            self.start([loaded])
        else:
            self.take_on([claim])

    def start(self, loaded: list[Loaded]) -> None:
        """Put tasks into the queue of the slots; hand them back if nothing new may start."""
        if self.claims.starts_nothing:
            # Also what a commit has claimed that was sent before the order to stop or to pause.
            self.claims.hand_back([Job(item) for item in loaded])
            return
        self.claims.capacity.last_end = self.clock.monotonic()
        jobs = []
        for job in [Job(item) for item in loaded]:
            view = self.candidates.views.get(job.claim.plan)
            if view is not None:
                job.plan, job.version = view.record, view.version
            if view is None or not view.running:
                self.claims.hand_back([job])  # paused, cancelled or removed since it was claimed
            else:
                jobs.append(job)
        # Before a slot has the job: a short task would end, and its commit would leave together
        # with the read. The server answers the read only after the commit then, and the next hop
        # of a chain waits for it.
        for job in jobs:
            if job.loaded.edges:
                self.prefetch.begin(job.loaded, lambda: self.claims.free() - len(jobs))
        for job in jobs:
            self.claims.jobs[job.claim.path] = job
            self.claims.shares.opened(job.claim.path, job.claim.plan)
            self.pool.put(job)


def _unread(claim: Claim) -> str:
    return f"{claim.task_path} cannot be read"
