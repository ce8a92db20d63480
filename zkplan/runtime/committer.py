"""Commit results in groups, make dependents runnable, and end plans without tasks left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ..basics.text import count
from ..errors import ServerFull, ZkplanError
from ..protocol.core import plan_life
from ..protocol.core.commit import Committed, commit
from ..protocol.core.commit_part import Part, first_group
from ..protocol.core.publish import Published, publish
from ..protocol.core.wide_delivery import WorkerGone, deliver_wide
from ..protocol.transactions import (
    NO_ALLOWANCE,
    Allowance,
    Dependent,
    Registration,
    or_error,
)
from ..transport.server_clock import Clock
from .ahead import Prefetch
from .attempt_end import Settler
from .attempts import sealed
from .claimer import Claimer, Loader
from .claims import Claims
from .membership import Membership
from .statistics import Counters
from .steps import Steps

#: The most commits under way at once. More commits would only be smaller.
COMMITS_MAX = 2
#: While a commit is under way and tasks are about to end, another commit needs this many parts.
GROUP_WORTH = 8


@dataclass(eq=False)
class Committer:
    """Commits the parts of one worker; only the loop's thread calls it."""

    steps: Steps
    membership: Membership
    claims: Claims
    claimer: Claimer
    loader: Loader
    prefetch: Prefetch
    settler: Settler
    publisher: Publisher
    _committing: int = 0
    #: Pending records to delete with the next commit, and the registration they belong to.
    _old_pending: list[str] = field(default_factory=list)
    _registration: Registration | None = None

    def advance(self) -> None:
        """Start the commits that may start now."""
        parts, me = self.claims.uncommitted, self.membership.me
        if me is not None and me is not self._registration:
            # A new claims node: whoever clears the old one settles its pending records.
            self._registration, self._old_pending = me, []
        while parts and self._committing < COMMITS_MAX and me is not None:
            if self._committing and len(parts) < GROUP_WORTH and self.claims.held:
                return  # more tasks are about to end, and may share the transaction
            self._committing += 1
            fits = parts[0].fits
            if not fits:
                parts[0].cut()  # a wide delivery commits only its own task, no run of pure tasks
                fits = parts[0].fits
            if fits:
                self._commit(me, [parts.popleft() for _ in range(first_group(parts))])
            else:
                self._deliver_wide(me, parts.popleft())

    def _commit(self, me: Registration, parts: list[Part]) -> None:
        old_pending, self._old_pending = self._old_pending, []
        single = sum(edge.k == 1 for part in parts for _, edge in part.last.edges)
        allowance = self.claimer.allow(parts, single, len(parts))
        committed = partial(self._committed, me, allowance)
        self.steps.start(commit(me, parts, old_pending, allowance), committed)
        self.prefetch.committing(parts)

    def _committed(self, me: Registration, allowance: Allowance, report: Committed) -> None:
        claims = self.claims
        self._committing -= 1
        self.claimer.used(allowance)
        if report.worker_gone:
            self.membership.lost(me)
        if me is self._registration:
            self._old_pending += report.old_pending
            if report.pending and not report.complete:
                self._old_pending.append(report.pending)
        ready, unread, on_the_way = self.prefetch.take(report, self.loader.prefetched)
        claims.loading += on_the_way
        self.settler.committed(report)
        if report.complete:
            ending = len(report.done) - len(report.inherited)
            # Long tasks that the commit has claimed take slots: the publication must not claim for
            # these slots. Short tasks are claimed ahead anyway: counting them made `map-reduce`
            # 4 % slower.
            taken = len(ready) + len(unread) if claims.capacity.are_long else 0
            allowance = self.claimer.allow(report.done, len(report.complete), ending, taken)
            self.publisher.publish(report.complete, report.pending, allowance)
        # Fenced parts, too: of a commit that is sent twice, the first copy may have ended the last
        # task, which fences the second copy.
        ended = (*report.done, *report.fenced)
        for plan_path in {part.loaded.claim.plan_path for part in ended if part.may_end_plan}:
            self.publisher.finish(plan_path)
        self.loader.take_on(unread)
        # Last, because the slots' threads run these jobs only when this thread waits again.
        self.loader.start(ready)

    def _deliver_wide(self, me: Registration, part: Part) -> None:
        def delivered(ended: bool | ZkplanError) -> None:
            self._committing -= 1
            report = Committed()
            if isinstance(ended, ServerFull):
                report.no_room.append((part, ended))
            elif isinstance(ended, WorkerGone):
                # The claim belongs to an earlier registration whose claims are not cleared yet.
                self.membership.lost(me)
                report.stale.append(part)
            elif isinstance(ended, ZkplanError):
                report.poison.append((part, ended))
            else:
                (report.done if ended else report.fenced).append(part)
                # Even if fenced: perhaps by its own last transaction, whose answer was lost.
                self.publisher.finish(part.loaded.claim.plan_path)
            self.settler.committed(report)

        most = len(part.edges)
        step = deliver_wide(
            *(me, part, lambda: self.claimer.allowance([part], most, 0)),
            *(self.loader.take_on, partial(self.publisher.publish_later, me)),
            partial(
                sealed,
                self.claims.job_of(part.loaded),
                self.settler.codec,
                clock=self.settler.clock,
            ),
        )
        # An error, such as an edge to a missing task, concerns only this part.
        self.steps.start(or_error(step), delivered)


# ---- Publish: make dependents with all arguments runnable, and end plans without tasks left.


@dataclass(eq=False)
class Publisher:
    """Publishes for one worker; only the loop's thread calls it."""

    steps: Steps
    membership: Membership
    claimer: Claimer
    loader: Loader
    counters: Counters
    clock: Clock
    #: Called with the path of each plan that is done.
    done: Callable[[str], None]
    #: The plans that `finish` looks at now. True: a task has ended meanwhile, so look once more.
    _finishing: dict[str, bool] = field(default_factory=dict)

    def publish(self, full: list[Dependent], pending: str, allowance: Allowance) -> None:
        """Publish `full`, listed in the record `pending`; claim as many as `allowance` permits."""
        me = self.membership.me
        if me is None:
            self.claimer.used(allowance)
            return  # whoever clears the old claims node publishes them, by the pending record

        def published(done: Published | None) -> None:
            self.claimer.used(allowance)
            if done is None:
                self.publish_later(me, full, pending)
                return
            self.counters.refusals += done.refusals
            self.loader.take_on(done.claims, done.read)

        step = publish(me, full, pending, allowance)
        self.steps.start_contained(step, published, _what(full), instead=None)

    def publish_later(self, me: Registration, full: list[Dependent], pending: str) -> None:
        """Try to publish until it works: no other worker publishes for a living one."""

        def published(done: Published) -> None:
            self.counters.refusals += done.refusals

        make = partial(publish, me, full, pending, NO_ALLOWANCE)
        self.steps.until_done(make, published, _what(full))

    def finish(self, plan_path: str) -> None:
        """End the plan if its last task has ended.

        Called when a task is done that has no dependents, or whose dependents may have ended first.
        """
        if plan_path in self._finishing:
            self._finishing[plan_path] = True
            return
        self._finishing[plan_path] = False

        def looked(done: bool) -> None:
            again = self._finishing.pop(plan_path)
            if done:
                self.done(plan_path)
            elif again:
                self.finish(plan_path)

        step = plan_life.finish(plan_path, self.clock.wall())
        self.steps.start_contained(step, looked, f"{plan_path} does not end", instead=False)


def _what(full: list[Dependent]) -> str:
    plans = ", ".join(sorted({target.plan for target in full}))
    return f"publishing {count(len(full), 'task')} of plan {plans}"
