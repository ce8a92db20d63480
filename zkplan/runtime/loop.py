"""The loop of one worker: a single thread owns all state and starts whatever is due.

Steps of the protocol run in the background. Answers, watches and ended tasks arrive in the loop's
inbox as functions to call. So its state needs no locks, and every decision sees a consistent state.
Objects that other threads share, such as the slots, have locks of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty
from typing import Protocol

from ..basics.log import get_logger
from ..errors import ServerRolledBack, ZkplanError
from ..protocol.core.workers import WorkerState
from ..protocol.requests import Delete, Multi
from ..protocol.transactions import Registration
from ..transport import Transport
from ..transport.server_clock import Clock
from .attempt_end import Settler
from .attempts import VanishedWorkers
from .claimer import Claimer
from .claims import STALLED_S, Claims
from .committer import Committer
from .delays_and_deadlines import Promotion
from .gates import GateWatch
from .idle_queue import IdleQueue
from .limits import Limits
from .lost_claims import Clearing
from .maintenance import Duty, Heartbeat
from .membership import Membership
from .plan_candidates import Candidates
from .poller import Poller
from .retention import Collector
from .schedules import Schedules
from .shutdown import PATIENT_S, Shutdown, Wear
from .slots import EndedJobs, Slots
from .statistics import Counters, Vitals
from .steps import Steps

logger = get_logger("zkplan.worker")


class Inbox(Protocol):
    """The functions that the loop must call, in order; see `Mailbox` for the guarantees."""

    def put(self, item: Callable[[], None]) -> None: ...
    def get(self, timeout: float) -> Callable[[], None]: ...
    def get_nowait(self) -> Callable[[], None]: ...


@dataclass(eq=False, kw_only=True)
class Loop:
    """The loop of one worker. `run` returns after `stop`, or raises the error that broke the loop.

    `assembly.make_loop` makes it. A simulation calls `begin`, `turn` and `end` itself.
    """

    transport: Transport
    clock: Clock
    inbox: Inbox
    pool: Slots
    ended: EndedJobs
    counters: Counters
    steps: Steps
    membership: Membership
    vanished: VanishedWorkers
    candidates: Candidates
    claims: Claims
    limits: Limits
    poller: Poller
    idle_queue: IdleQueue
    claimer: Claimer
    settler: Settler
    committer: Committer
    shutdown: Shutdown
    wear: Wear
    clearing: Clearing
    heartbeat: Heartbeat
    promotion: Promotion
    schedules: Schedules
    gates: GateWatch
    collector: Collector
    duties: Sequence[Duty]

    def __post_init__(self) -> None:
        #: Called with the ID of each new registration.
        self.ready: Callable[[str], None] = lambda worker: None
        #: If set, called with the seconds that each attempt took.
        self.observe: Callable[[float], None] | None = None
        #: Whether a change of the connection waits in the inbox.
        self._is_change_posted = False
        #: When the first duty is due, as of the end of the last turn.
        self._duties_due = float("-inf")
        self.membership.registered = self._registered
        self.membership.ordered = self._ordered

    # ---- the loop

    def stop(self, grace_s: float) -> None:
        """Drain: claim nothing more, give running tasks `grace_s` seconds, then hand them back."""
        self.steps.post(lambda: self.shutdown.begin(grace_s))

    def vitals(self) -> Vitals:
        """What this worker holds now. Any thread may call this."""
        membership, pool = self.membership, self.pool
        return Vitals(
            is_registered=membership.me is not None,
            answers=membership.answers,
            is_paused=self.claims.paused,
            slots=pool.slots,
            busy=len(pool.running),
            waiting=pool.waiting(),
            abandoned=pool.abandoned,
            claims=len(self.claims.jobs),
            lacks_store=self.settler.lacks_store,
            unremoved=self.collector.failures,
            statistics=self.counters.snapshot(),
        )

    def turns(self, within_s: float) -> bool:
        """Whether the loop turns within `within_s` seconds. Waits, so call it on another thread."""
        turned = threading.Event()
        self.steps.post(turned.set)
        return turned.wait(within_s)

    def run(self) -> None:
        """Turn until the worker has stopped. Raises the error that broke the loop."""
        name = self.membership.worker
        self.begin()
        try:
            while not self.shutdown.done():
                self.turn(self.pause_s())
        except ServerRolledBack as error:
            # The text says everything, so no traceback is logged.
            logger.error("worker %s ends: %s", name, error)
            raise
        except BaseException:
            logger.exception("worker %s ends by an error", name)
            raise
        finally:
            self.end()

    def begin(self) -> None:
        """Listen for watches."""
        self.transport.listen(self._watch_fired)

    def turn(self, wait_s: float) -> None:
        """Call the functions in the inbox, or wait up to `wait_s` seconds for one. Then start
        everything that is due.

        Raises an error that breaks the worker.
        """
        try:
            self.inbox.get(timeout=wait_s)()
            while True:
                self.inbox.get_nowait()()
        except Empty:
            pass
        failure = self.steps.failure or self.pool.broken or self.transport.broken
        if failure is not None:
            raise failure
        self._advance(self.clock.monotonic())

    def end(self) -> None:
        """Sign off, whatever ended the loop: without a registration, others take over at once."""
        me = self.membership.me
        # Not in one transaction: each may be gone. The session may live on.
        for path in (me.worker_path if me is not None else "", self.idle_queue.last_place()):
            if path:
                self._delete_at_once(path)
        summary = self.counters.snapshot().summary()
        logger.info("worker %s has ended: %s", self.membership.worker, summary)
        self.transport.unlisten(self._watch_fired)
        self.pool.close()

    def _delete_at_once(self, path: str) -> None:
        try:
            self.transport.submit(Multi([Delete(path)]), lambda *_: None)
        except ZkplanError as error:
            logger.debug("worker %s could not sign off: %s", self.membership.worker, error)

    def pause_s(self) -> float:
        """Seconds until something is due, if nothing arrives before."""
        now, draining = self.clock.monotonic(), self.shutdown.begun
        self._duties_due = min([duty.at for duty in self.duties])
        due = min(self.steps.next_due(), self._duties_due)
        if self.pool.running:
            due = min(due, self.pool.next_deadline())
        if draining:
            due = min(due, now + 0.05)
        elif self.membership.me is not None:
            due = min(due, self.limits.next_event(), self.idle_queue.next_event(now))
            if self.idle_queue.may_look(now):
                due = min(due, self.candidates.next_event())
        if self.pool.waiting():
            due = min(due, now + STALLED_S)
        return max(0.0005, min(due - now, 5.0))

    def _advance(self, now: float) -> None:
        """One turn of the loop. It only starts steps and queues jobs for the slots."""
        self._settle_ended(now)
        self.committer.advance()
        if self.membership.judge_connection(now):
            self.claims.note_silence(not self.membership.answers)
        # What has come since the last turn may make a duty due: the next turn runs it, at once.
        if now >= self._duties_due:
            for duty in self.duties:
                if now >= duty.at:
                    duty.run(now)
        self.steps.advance(now)
        if self.pool.running:
            self.settler.end_overdue(now)
        self.wear.look(now)
        draining = self.shutdown.begun
        self.idle_queue.advance(now)
        if self.membership.me is None:
            # Even while draining, as long as the worker has claims: results need a registration.
            if not draining or self.claims.jobs:
                self.membership.register()
        elif draining:
            self.shutdown.drain(now)
        else:
            if self.claims.paused:
                self.claims.hand_back(self.pool.take_waiting())
            self.claims.hand_back_stalled(now)
            self.limits.advance(now)
            if not self.idle_queue.may_look(now):
                return
            me = self.claimer.wants()
            self.poller.advance(now, claims_next=me is not None)
            if me is not None:
                self.claimer.claim(now, me)

    def _ordered(self, state: WorkerState) -> None:
        """Follow an operator's order to drain, to pause or to run on."""
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
            # kazoo reports a lost connection once for each watch: post only the first report.
            if self._is_change_posted:
                return
            self._is_change_posted = True
        self.steps.post(lambda: self._touched(path))

    def _touched(self, path: str | None) -> None:
        """Handle a watch that fired. None: the connection changed, so any watch may have fired."""
        if path is None:
            self._is_change_posted = False
        self.gates.touched(path)
        if self.limits.touched(path) or self.poller.touched(path):
            return
        for part in (
            *(self.heartbeat, self.clearing, self.schedules, self.promotion),
            self.idle_queue,
        ):
            part.touched(path)

    def _registered(self, me: Registration) -> None:
        self._touched(None)
        self.ready(me.worker)

    def _settle_ended(self, now: float) -> None:
        for ended in self.ended.take_all():
            # A task that cannot run here has not run.
            has_run = not (ended.cannot_run or ended.not_before)
            self.counters.executed += has_run + len(ended.run)
            size = len(ended.outcome) + sum(map(len, ended.job.loaded.arguments))
            self.claims.capacity.ended(ended.seconds, size, now)
            if self.observe is not None and has_run:
                self.observe(ended.seconds)
            if not ended.job.abandoned:
                self.settler.ended(ended)
