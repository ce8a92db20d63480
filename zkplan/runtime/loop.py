"""Run one worker: a single thread owns all state and starts whatever is due.

Steps of the protocol run in the background. Answers, watches and ended tasks arrive in the loop's
inbox as functions to call. So its state needs no locks, and every decision sees a consistent state.
What other threads share with it, such as the thread pool, locks for itself.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from queue import Empty
from typing import TYPE_CHECKING

from ..backoff import Backoff
from ..basics.log import get_logger
from ..errors import ServerRolledBack, ZkplanError
from ..protocol.core.workers import WorkerState
from ..protocol.history.segments import Recorder
from ..protocol.layout import Paths
from ..protocol.requests import Delete, Multi
from ..protocol.transactions import Registration
from ..transport import Transport
from ..transport.transport import Mailbox
from ..values.plan_values import Values
from ..values.store_maintenance import Sweeper
from .ahead import Prefetch
from .attempt_end import Settler
from .attempts import VanishedWorkers
from .claimer import Claimer, Loader
from .claims import STALLED_S, Claims, KeptResults
from .committer import Committer, Publisher
from .delays_and_deadlines import PlanTimes, Promotion
from .gates import GateWatch
from .isolation import Isolation
from .job import Ended, Job
from .limits import Limits
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
from .membership import Membership
from .output import LiveOutput
from .plan_candidates import Candidates
from .plan_shares import Policy, Shares
from .poller import Poller
from .retention import Collector, RootBounds, Tidying, Written
from .runner import Runner
from .schedules import Schedules
from .shutdown import PATIENT_S, Shutdown, Wear
from .statistics import Counters, Vitals
from .steps import Steps
from .threads import ThreadPool

if TYPE_CHECKING:
    from ..plan import Plan

logger = get_logger("zkplan.worker")


class Loop:
    """The loop of one worker. `run` returns after `stop`, or raises what broke it."""

    #: Told how many seconds each attempt took, where somebody measures.
    observe: Callable[[float], None] | None = None

    def __init__(
        self,
        transport: Transport,
        values: Values,
        paths: Paths,
        threads: int,
        queues: Sequence[str],
        keys: str,
        backoff: Backoff,
        plan_within: Callable[[Job], Plan],
        sweeper: Sweeper,
        isolation: Isolation,
        version: str,
        collector: Collector,
        share: Policy,
        recorder: Recorder,
        max_abandoned: int | None = None,
        kinds: Collection[str] = (),
    ) -> None:
        self._transport, self._paths = transport, paths
        self._inbox, self._ended = Mailbox[Callable[[], None]](), deque[Ended]()
        self._told = self._all_told = False
        self.ready: Callable[[str], None] = lambda worker: None
        self.counters = counters = Counters()
        self.steps = steps = Steps(transport, self._inbox.put, counters)
        self.membership = membership = Membership(
            *(transport, steps, paths, threads, queues, keys, version, isolation.default),
            *(self._registered, self._told_state),
        )
        self.vanished = vanished = VanishedWorkers()
        self.runner = Runner(
            *(transport, values, plan_within, vanished, queues, self._is_busy),
            *(isolation, membership.clock),
        )
        self.pool = pool = ThreadPool(threads, self.runner.run, self._task_ended, self._wake)
        self.candidates = candidates = Candidates(Shares(share, threads, pool.since), kinds)
        kept, prefetch = KeptResults(), Prefetch(steps)
        self.claims = claims = Claims(steps, pool, kept, prefetch, counters, candidates.shares)
        self.limits = limits = Limits(steps, paths, membership)
        # The stages, in the order of a task's way through them.
        self.poller = Poller(
            *(steps, paths, membership, claims, kept, candidates, vanished, counters),
            *(PlanTimes(steps, membership, candidates), queues, limits),
        )
        loader = Loader(steps, claims, pool, candidates, prefetch)
        self.claimer = claimer = Claimer(
            steps, membership, claims, candidates, counters, queues, limits, loader.take_on
        )
        self.settler = settler = Settler(
            steps, membership, paths, values.codec, pool, claims, kept, candidates, counters
        )
        publisher = Publisher(steps, membership, claimer, loader, counters, sweeper.plan_is_done)
        self.committer = Committer(
            steps, membership, claims, claimer, loader, prefetch, settler, publisher
        )
        # Beside them.
        session_s = transport.session_timeout_s
        self.shutdown = Shutdown(steps, membership, claims, pool, settler, session_s)
        self.wear = Wear(pool, self.shutdown, max_abandoned)
        self.clearing = Clearing(steps, paths, membership, claims, vanished, counters)
        self.heartbeat = Heartbeat(steps, membership, claims, session_s / 6)
        self.duties: list[Duty] = [
            self.heartbeat,
            self.clearing,
            PlanCheck(steps, paths, membership, candidates, queues, publisher.finish),
            self.poller.times,
            *self._of_watches(values),
            *self._of_finished_plans(collector, recorder, sweeper),
            IdlePoll(backoff, claims, self.poller.look_again),
        ]

    def _of_watches(self, values: Values) -> tuple[Duty, ...]:
        """Duties that are told by watches."""
        steps, paths, membership = self.steps, self._paths, self.membership
        self.promotion = Promotion(steps, paths, membership)
        self.schedules = Schedules(steps, paths, membership)
        self.gates = GateWatch(steps, paths, membership, values.codec)
        return self.promotion, self.gates, self.schedules

    def _of_finished_plans(
        self, collector: Collector, recorder: Recorder, sweeper: Sweeper
    ) -> tuple[Duty, ...]:
        """What finds them, what removes them, and what tells of them and tidies that up; and what
        reports on running tasks."""
        steps, membership, scan = self.steps, self.membership, PlanScan(self._paths)
        self._collector = collector
        bounds = RootBounds(
            *(steps, self._paths, membership, scan, collector, lambda: self.shutdown.begun)
        )
        recorder.by = membership.worker
        tidying = Tidying(steps, self._paths, membership, Written(recorder), sweeper)
        scanning = IndexScan(steps, membership, self.candidates, scan, bounds.learn)
        return scanning, bounds, tidying, *self._of_running_tasks()

    def _of_running_tasks(self) -> tuple[Duty, ...]:
        """What reports on them."""
        abandoned = AbandonedFunctions(self.steps, self.membership, self.pool)
        return abandoned, LiveOutput(self.steps, self.pool, lambda: self.runner.output_max)

    # ---- the loop

    def stop(self, grace_s: float) -> None:
        """Drain: claim nothing more, give running tasks `grace_s` seconds, then hand them back."""
        self.steps.post(lambda: self.shutdown.begin(grace_s))

    def vitals(self) -> Vitals:
        """What this worker holds now. Any thread may call it."""
        membership, pool = self.membership, self.pool
        return Vitals(
            *(membership.me is not None, membership.answers, self.claims.paused),
            *(pool.slots, len(pool.running), pool.waiting(), pool.abandoned),
            *(len(self.claims.jobs), self.settler.lacks_store, self._collector.failures),
            statistics=self.counters.snapshot(),
        )

    def turns(self, within_s: float) -> bool:
        """Whether the loop turns within so many seconds. Another thread waits for that here."""
        turned = threading.Event()
        self.steps.post(turned.set)
        return turned.wait(within_s)

    def run(self) -> None:
        name = self.membership.worker
        self._transport.listen(self._watch_fired)
        try:
            while not self.shutdown.done():
                self._take_events()
                failure = self.steps.failure or self.pool.broken or self._transport.broken
                if failure is not None:
                    raise failure
                self._advance(time.monotonic())
        except ServerRolledBack as error:
            # The text says everything, so no traceback is logged.
            logger.error("worker %s ends: %s", name, error)
            raise
        except BaseException:
            logger.exception("worker %s ends by an error", name)
            raise
        finally:
            self._sign_off()
            logger.info("worker %s has ended: %s", name, self.counters.snapshot().summary())
            self._transport.unlisten(self._watch_fired)
            self.pool.close()
            self.runner.close()

    def _sign_off(self) -> None:
        """Whatever ended the loop: when the registration is gone, others take over at once."""
        me = self.membership.me
        if me is not None:
            try:
                self._transport.submit(Multi([Delete(me.worker_path)]), lambda *_: None)
            except ZkplanError as error:
                logger.debug("worker %s could not sign off: %s", me.worker, error)

    def _take_events(self) -> None:
        try:
            self._inbox.get(timeout=self._pause_s())()
            while True:
                self._inbox.get_nowait()()
        except Empty:
            pass

    def _pause_s(self) -> float:
        now, draining = time.monotonic(), self.shutdown.begun
        due = min(self.steps.next_due(), *[duty.at for duty in self.duties])
        if self.pool.running:
            due = min(due, self.pool.next_deadline())
        if draining:
            due = min(due, now + 0.05)
        elif self.membership.me is not None:
            due = min(due, self.candidates.next_event(), self.limits.next_event())
        if self.pool.waiting():
            due = min(due, now + STALLED_S)
        return max(0.0005, min(due - now, 5.0))

    def _advance(self, now: float) -> None:
        """One turn of the loop. It only starts steps and queues jobs for the slots."""
        self._settle_ended(now)
        self.committer.advance()
        if self.membership.judge_connection(now):
            self.claims.tell_silence(not self.membership.answers)
        for duty in self.duties:
            if now >= duty.at:
                duty.run(now)
        self.steps.advance(now)
        if self.pool.running:
            self.settler.end_overdue(now)
        self.wear.look(now)
        draining = self.shutdown.begun
        if self.membership.me is None:
            # Also while the worker drains, as long as a task runs: its result needs a registration.
            if not draining or self.claims.jobs:
                self.membership.register()
        elif draining:
            self.shutdown.drain(now)
        else:
            if self.claims.paused:
                self.claims.hand_back(self.pool.take_waiting())
            self.claims.hand_back_stalled(now)
            self.limits.advance(now)
            me = self.claimer.wants()
            self.poller.advance(now, claims_next=me is not None)
            if me is not None:
                self.claimer.claim(now, me)

    def _told_state(self, state: WorkerState) -> None:
        """Somebody has told this worker, from elsewhere, to drain, to pause or to run on."""
        logger.info("worker %s is %s: an operator asked for it", self.membership.worker, state)
        self.claims.paused = state == "paused"
        if state == "draining":
            self.shutdown.begin(PATIENT_S)
        elif state == "running":
            self.poller.look_again()

    # ---- what arrives

    def _watch_fired(self, path: str | None) -> None:
        """Called on a thread of kazoo."""
        if path is None:
            # kazoo reports a lost connection once for each watch; once is enough.
            if self._all_told:
                return
            self._all_told = True
        self.steps.post(lambda: self._touched(path))

    def _touched(self, path: str | None) -> None:
        """A watch fired. None: the connection changed, so any watch may have fired."""
        me = self.membership.me
        if path is None:
            self._all_told = False
        self.gates.touched(path)
        if me is not None and path in (None, me.claims_path):
            self.heartbeat.watch()
        if self.limits.touched(path) or self.poller.touched(path):
            return
        if path is None or path == self._paths.workers:
            self.clearing.at = 0.0
        if path is None or path == self._paths.schedules:
            self.schedules.list_at = 0.0
        if path is None or path == self._paths.delayed:
            self.promotion.list_at = 0.0

    def _registered(self, me: Registration) -> None:
        self._touched(None)
        self.ready(me.worker)

    def _task_ended(self, ended: Ended) -> None:
        """Called on a slot's thread."""
        self._ended.append(ended)
        self._wake()

    def _is_busy(self) -> bool:
        return self.pool.waiting() > 0

    def _wake(self) -> None:
        """Make the loop turn soon. Any thread may call this."""
        # Set before the queue is read, so that an end which finds True here is seen by that read.
        if not self._told:
            self._told = True
            self.steps.post(self._hear)

    def _hear(self) -> None:
        self._told = False

    def _settle_ended(self, now: float) -> None:
        while self._ended:
            ended = self._ended.popleft()
            # A task that cannot run here has not run.
            has_run = not (ended.cannot_run or ended.not_before)
            self.counters.executed += has_run + len(ended.run)
            size = len(ended.outcome) + sum(map(len, ended.job.loaded.arguments))
            self.claims.capacity.ended(ended.seconds, size, now)
            if self.observe is not None and has_run:
                self.observe(ended.seconds)
            if not ended.job.abandoned:
                self.settler.ended(ended)
