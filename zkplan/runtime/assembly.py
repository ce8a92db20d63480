"""Make the loop of a worker, and connect its parts with each other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from ..backoff import Backoff
from ..protocol.core.idle_queue import group_of
from ..protocol.history.segments import Recorder
from ..protocol.layout import Paths
from ..transport import Transport
from ..transport.server_clock import Clock, ServerClock
from ..values.codec import Codec
from ..values.store_maintenance import Sweeper
from .ahead import Prefetch
from .attempt_end import Settler
from .attempts import VanishedWorkers
from .claimer import Claimer, Loader
from .claims import Claims, KeptResults
from .committer import Committer, Publisher
from .delays_and_deadlines import PlanTimes, Promotion
from .gates import GateWatch
from .idle_queue import IdleQueue
from .limits import Limits
from .loop import Inbox, Loop
from .lost_claims import Clearing
from .maintenance import (
    AbandonedFunctions,
    Duty,
    Heartbeat,
    IdlePoll,
    IndexScan,
    PlanCheck,
    PlanScan,
)
from .membership import Identity, Membership
from .output import LiveOutput
from .plan_candidates import Candidates
from .plan_shares import Policy, Shares
from .poller import Poller
from .retention import Collector, RootBounds, Tidying, Written
from .schedules import Schedules
from .shutdown import Shutdown, Wear
from .slots import EndedJobs, Slots
from .statistics import Counters
from .steps import Steps


@dataclass(eq=False, kw_only=True)
class Assembly:
    """Makes each part of one worker when another part first needs it; `loop` needs all parts.

    `make_pool` makes the slots, which put each Ended into `ended`.
    """

    transport: Transport
    paths: Paths
    codec: Codec
    clock: Clock
    chance: Random
    inbox: Inbox
    make_pool: Callable[[Assembly], Slots]
    identity: Identity
    queues: Sequence[str]
    kinds: Collection[str]
    keys: str
    version: str
    isolation: str
    backoff: Backoff
    share: Policy
    max_abandoned: int | None
    output_max: int
    sweeper: Sweeper
    collector: Collector
    recorder: Recorder

    @cached_property
    def loop(self) -> Loop:
        """The loop of the worker."""
        self.recorder.by = self.membership.worker
        return Loop(
            transport=self.transport,
            clock=self.clock,
            inbox=self.inbox,
            pool=self.pool,
            ended=self.ended,
            counters=self.counters,
            steps=self.steps,
            membership=self.membership,
            vanished=self.vanished,
            candidates=self.candidates,
            claims=self.claims,
            limits=self.limits,
            poller=self.poller,
            idle_queue=self.idle_queue,
            claimer=self.claimer,
            settler=self.settler,
            committer=self.committer,
            shutdown=self.shutdown,
            wear=Wear(pool=self.pool, shutdown=self.shutdown, most=self.max_abandoned),
            clearing=self.clearing,
            heartbeat=self.heartbeat,
            promotion=self.promotion,
            schedules=self.schedules,
            gates=self.gates,
            collector=self.collector,
            duties=self._duties(),
        )

    # ---- what all parts share

    @cached_property
    def pool(self) -> Slots:
        return self.make_pool(self)

    @cached_property
    def ended(self) -> EndedJobs:
        return EndedJobs(self.inbox.put)

    @cached_property
    def server_clock(self) -> ServerClock:
        return ServerClock(self.clock)

    @cached_property
    def vanished(self) -> VanishedWorkers:
        return VanishedWorkers()

    @cached_property
    def counters(self) -> Counters:
        return Counters()

    @cached_property
    def steps(self) -> Steps:
        return Steps(
            transport=self.transport,
            put=self.inbox.put,
            counters=self.counters,
            clock=self.clock,
        )

    @cached_property
    def membership(self) -> Membership:
        return Membership(
            transport=self.transport,
            steps=self.steps,
            paths=self.paths,
            identity=self.identity,
            threads=self.pool.count,
            queues=self.queues,
            keys=self.keys,
            version=self.version,
            isolation=self.isolation,
            clock=self.clock,
            server_clock=self.server_clock,
        )

    @cached_property
    def candidates(self) -> Candidates:
        shares = Shares(policy=self.share, slots=self.pool.count, running=self.pool.since)
        return Candidates(shares, self.kinds)

    @cached_property
    def kept(self) -> KeptResults:
        return KeptResults()

    @cached_property
    def prefetch(self) -> Prefetch:
        return Prefetch(self.steps)

    @cached_property
    def claims(self) -> Claims:
        return Claims(
            steps=self.steps,
            pool=self.pool,
            kept=self.kept,
            prefetch=self.prefetch,
            counters=self.counters,
            shares=self.candidates.shares,
        )

    @cached_property
    def limits(self) -> Limits:
        return Limits(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            clock=self.clock,
            chance=self.chance,
        )

    # ---- the stages, in the order of a task's way through them

    @cached_property
    def plan_times(self) -> PlanTimes:
        return PlanTimes(
            steps=self.steps,
            membership=self.membership,
            candidates=self.candidates,
            clock=self.clock,
        )

    @cached_property
    def poller(self) -> Poller:
        return Poller(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            claims=self.claims,
            kept=self.kept,
            candidates=self.candidates,
            vanished=self.vanished,
            counters=self.counters,
            times=self.plan_times,
            queues=self.queues,
            limits=self.limits,
            idle_queue=self.idle_queue,
            folder_watchers=(self.clearing, self.promotion, self.gates, self.schedules),
            clock=self.clock,
            chance=self.chance,
        )

    @cached_property
    def idle_queue(self) -> IdleQueue:
        return IdleQueue(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            claims=self.claims,
            candidates=self.candidates,
            clock=self.clock,
            group=group_of(self.queues, sorted(self.kinds), self.keys),
        )

    @cached_property
    def claimer(self) -> Claimer:
        return Claimer(
            steps=self.steps,
            membership=self.membership,
            claims=self.claims,
            candidates=self.candidates,
            counters=self.counters,
            queues=self.queues,
            limits=self.limits,
            clock=self.clock,
            take_on=self.loader.take_on,
        )

    @cached_property
    def loader(self) -> Loader:
        return Loader(
            steps=self.steps,
            claims=self.claims,
            pool=self.pool,
            candidates=self.candidates,
            prefetch=self.prefetch,
            clock=self.clock,
        )

    @cached_property
    def settler(self) -> Settler:
        return Settler(
            steps=self.steps,
            membership=self.membership,
            paths=self.paths,
            codec=self.codec,
            pool=self.pool,
            claims=self.claims,
            kept=self.kept,
            candidates=self.candidates,
            counters=self.counters,
            clock=self.clock,
            chance=self.chance,
        )

    @cached_property
    def committer(self) -> Committer:
        return Committer(
            steps=self.steps,
            membership=self.membership,
            claims=self.claims,
            claimer=self.claimer,
            loader=self.loader,
            prefetch=self.prefetch,
            settler=self.settler,
            publisher=self.publisher,
        )

    @cached_property
    def publisher(self) -> Publisher:
        return Publisher(
            steps=self.steps,
            membership=self.membership,
            claimer=self.claimer,
            loader=self.loader,
            counters=self.counters,
            clock=self.clock,
            done=self.sweeper.plan_is_done,
        )

    @cached_property
    def shutdown(self) -> Shutdown:
        return Shutdown(
            steps=self.steps,
            membership=self.membership,
            claims=self.claims,
            pool=self.pool,
            settler=self.settler,
            clock=self.clock,
            session_timeout_s=self.transport.session_timeout_s,
        )

    # ---- the duties

    def _duties(self) -> list[Duty]:
        check = PlanCheck(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            candidates=self.candidates,
            idle_queue=self.idle_queue,
            queues=self.queues,
            clock=self.clock,
            finish=self.publisher.finish,
        )
        abandoned = AbandonedFunctions(steps=self.steps, membership=self.membership, pool=self.pool)
        output = LiveOutput(steps=self.steps, pool=self.pool, output_max=self.output_max)
        poll = IdlePoll(
            backoff=self.backoff,
            claims=self.claims,
            idle_queue=self.idle_queue,
            look_again=self.poller.look_again,
            chance=self.chance,
        )
        return [
            self.heartbeat,
            self.clearing,
            check,
            self.plan_times,
            self.promotion,
            self.gates,
            self.schedules,
            *self._of_finished_plans(),
            abandoned,
            output,
            poll,
        ]

    @cached_property
    def heartbeat(self) -> Heartbeat:
        return Heartbeat(
            steps=self.steps,
            membership=self.membership,
            claims=self.claims,
            clock=self.clock,
            period_s=self.transport.session_timeout_s / 6,
        )

    @cached_property
    def clearing(self) -> Clearing:
        return Clearing(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            claims=self.claims,
            vanished=self.vanished,
            counters=self.counters,
            clock=self.clock,
        )

    @cached_property
    def promotion(self) -> Promotion:
        return Promotion(
            steps=self.steps, paths=self.paths, membership=self.membership, clock=self.clock
        )

    @cached_property
    def schedules(self) -> Schedules:
        return Schedules(
            steps=self.steps, paths=self.paths, membership=self.membership, clock=self.clock
        )

    @cached_property
    def gates(self) -> GateWatch:
        return GateWatch(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            codec=self.codec,
            clock=self.clock,
        )

    def _of_finished_plans(self) -> tuple[Duty, Duty, Duty]:
        """The duties that find finished plans, remove them, and merge histories."""
        scan = PlanScan(self.paths)
        bounds = RootBounds(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            scan=scan,
            collector=self.collector,
            clock=self.clock,
            is_ending=lambda: self.shutdown.begun,
        )
        finding = IndexScan(
            steps=self.steps,
            membership=self.membership,
            candidates=self.candidates,
            scan=scan,
            clock=self.clock,
            ended=bounds.learn,
        )
        tidying = Tidying(
            steps=self.steps,
            paths=self.paths,
            membership=self.membership,
            written=Written(self.recorder),
            sweeper=self.sweeper,
            clock=self.clock,
        )
        return finding, bounds, tidying
