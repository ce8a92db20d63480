"""One worker's loop: a single thread owns all its state, and moves what is due.

Steps of the protocol run in the background of this loop; answers, watches and ended tasks arrive in
its inbox as functions to call. So there are no locks, and every decision sees a consistent state.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from ..backoff import Backoff
from ..errors import ServerRolledBack, TransactionRejected, ZkplanError, ZooKeeperUnavailable
from ..protocol.layout import Paths
from ..protocol.membership import register
from ..protocol.records import WorkerRecord
from ..protocol.requests import Delete, Multi, Step
from ..protocol.shared import Registration
from ..serialization.codec import Codec
from ..transport import Transport
from ..transport.complaints import why
from ..transport.kazoo_private import thread_has_ended
from ..transport.mailbox import Empty, Mailbox
from . import capacity, maintenance, settlement
from .claims import Claims
from .committer import Committer
from .containment import Complaints, contained
from .execution import Ended, Job, Runner
from .kept_results import KeptResults
from .poller import Poller
from .prefetch import Prefetch
from .retry import Retries
from .shutdown import Shutdown
from .statistics import Statistics
from .thread_pool import ThreadPool

T = TypeVar("T")
D = TypeVar("D")
#: The longest rest before a registration that was refused is tried again, in seconds.
REGISTER_REST_MAX_S = 5.0
SILENCE = "ZooKeeper does not answer: its claim may be lost"
logger = logging.getLogger("zkplan.worker")


class Loop:
    """The loop of one worker. `run` returns after `stop`, or raises what broke it."""

    def __init__(
        self,
        transport: Transport,
        codec: Codec,
        paths: Paths,
        threads: int,
        backoff: Backoff,
        plan_within: Callable[[Job], Any],
    ) -> None:
        self.transport, self.codec, self.paths, self.backoff = transport, codec, paths, backoff
        self.statistics = Statistics()
        self.complaints = Complaints()
        #: Why there is no connection; all of it is told again when it is lost the next time.
        self.reasons = Complaints()
        self.worker = (
            f"{socket.gethostname().split('.')[0][:20]}-{os.getpid()}-{os.urandom(4).hex()}"
        )
        self.me: Registration | None = None
        self.lives = 0
        self.living: list[str] = []
        self.runner = Runner(transport, codec, plan_within)
        self.slots = ThreadPool(threads, self.runner, self._task_ended)
        self.again = Retries(self)
        self.threads = threads
        self.claims = Claims(self)
        self.inbox: Mailbox[Callable[[], None]] = Mailbox()
        self.maintenance = maintenance.Maintenance(self)
        self.poller = Poller(self)
        self.ahead = Prefetch(self)
        self.no_room = KeptResults(self)
        self.delivery = Committer(self)
        self.ready: Callable[[str], None] = lambda worker: None
        self._ended: deque[Ended] = deque()
        self._told = self._all_told = False
        self.flying = 0
        self._registering = False
        #: When a registration that was refused is tried again: monotonic, and after how long.
        self._register_at, self._register_rest_s = 0.0, 0.0
        self.shutdown = Shutdown(self)
        self._failure: BaseException | None = None
        self.trusted = True

    # ---- the loop

    def post(self, event: Callable[[], None]) -> None:
        """Have `event` called on the loop's thread."""
        self.inbox.put(event)

    def stop(self, grace_s: float) -> None:
        """Drain: claim nothing more, give running tasks `grace_s` seconds, then hand them back."""
        self.post(lambda: self.shutdown.begin(grace_s))

    def run(self) -> None:
        self.transport.listen(self._watch_fired)
        try:
            while not self.shutdown.done():
                try:
                    event = self.inbox.get(timeout=self._pause())
                    event()
                    while True:
                        self.inbox.get_nowait()()
                except Empty:
                    pass
                failure = self._failure or self.slots.broken or self.transport.broken
                if failure is not None:
                    raise failure
                self._advance(time.monotonic())
        except ServerRolledBack as error:
            # Its text says all there is to know and to do; the way to it is of no use.
            logger.error("worker %s ends: %s", self.worker, error)
            raise
        except BaseException:
            logger.exception("worker %s ends by an error", self.worker)
            raise
        finally:
            self._sign_off()
            logger.info("worker %s has ended: %s", self.worker, self.statistics.summary())
            self.transport.unlisten(self._watch_fired)
            self.slots.close()
            self.runner.close()

    def _sign_off(self) -> None:
        """Whatever ended the loop: without its registration others take over at once."""
        if self.me is not None:
            try:
                self.transport.submit(Multi([Delete(self.me.worker_path)]), lambda *_: None)
            except ZkplanError as error:
                logger.debug("worker %s could not sign off: %s", self.me.worker, error)

    def go(self, step: Step[T], done: Callable[[T], None]) -> None:
        """Run a step in the background; an error in it ends the worker, and others take over."""
        self.flying += 1

        def ended(result: T | None, error: BaseException | None) -> None:
            self.flying -= 1
            if error is not None:
                self._failure = error
            else:
                done(result)  # type: ignore[arg-type]

        self.statistics.steps += 1
        self.transport.start(step, self.post, ended)

    def go_contained(
        self, step: Step[T], done: Callable[[T | D], None], what: str, *, instead: D
    ) -> None:
        """As `go`, but where somebody else's znodes are in the way, `done` is given `instead`."""
        self.go(contained(step, self.complaints, what, instead), done)

    def _watch_fired(self, path: str | None) -> None:
        if path is None:
            # kazoo tells of a lost connection once for each watch; once is enough.
            if self._all_told:
                return
            self._all_told = True
        self.post(lambda: self._touched(path))

    def _touched(self, path: str | None) -> None:
        if path is None:
            self._all_told = False
        if not self.poller.touched(path):
            self.maintenance.touched(path)

    def _pause(self) -> float:
        now = time.monotonic()
        due = min(self.maintenance.next_due(), self.again.next_due())
        if self.me is None and self._register_at > now:
            due = min(due, self._register_at)
        if self.me is not None and not self.shutdown.begun:
            due = min(due, self.poller.candidates.next_event())
        # A copy: the slots' threads add and remove jobs meanwhile.
        for job in list(self.slots.running):
            due = min(due, job.deadline)
        if self.shutdown.begun:
            due = min(due, now + 0.05)
        if self.slots.waiting:
            due = min(due, now + capacity.STALLED_S)
        return max(0.0005, min(due - now, 5.0))

    def _advance(self, now: float) -> None:
        self._sort_ended(now)
        self.delivery.advance()
        self._judge_connection(now)
        self.maintenance.advance(now)
        self.again.advance(now)
        self._end_overdue(now)
        if self.me is None:
            self._register()
            return
        if self.shutdown.begun:
            self.shutdown.drain(now)
            return
        self.claims.give_back_stalled(now)
        self.poller.advance(now)

    def _judge_connection(self, now: float) -> None:
        """Stop claiming, and tell running tasks, before the session can have expired unseen."""
        trusted = now - self.transport.last_answer < self.transport.session_timeout_s * 2 / 3
        if not trusted and thread_has_ended(self.transport.client):
            raise ZooKeeperUnavailable(
                f"the thread of this process that talks to ZooKeeper at {self.transport.hosts} has "
                "ended, out of memory or of tries (`connection_retry`): start it anew"
            )
        if not trusted and (reason := why(self.transport.client)):
            # Also one that comes later: a server that starts again refuses before it complains.
            self.reasons.tell(f"no connection to ZooKeeper at {self.transport.hosts}{reason}")
        if trusted != self.trusted:
            self.trusted = trusted
            if trusted:
                self.reasons = Complaints()
                logger.warning("ZooKeeper at %s answers again", self.transport.hosts)
            else:
                logger.warning(
                    "no answer from ZooKeeper at %s for %.0f s: nothing is claimed until there is",
                    self.transport.hosts,
                    now - self.transport.last_answer,
                )
            for job in self.claims.jobs.values():
                if not trusted and not job.stop_reason:
                    job.stop_reason = SILENCE
                elif trusted and job.stop_reason == SILENCE:
                    job.stop_reason = ""

    # ---- registering

    def _register(self) -> None:
        # While stopping too, as long as a task runs: its result is committed from a claims node.
        if self._registering or (self.shutdown.begun and not self.claims.jobs):
            return
        if time.monotonic() < self._register_at:
            return
        self._registering = True
        self.lives += 1
        worker = self.worker if self.lives == 1 else f"{self.worker}-{self.lives}"
        facts = WorkerRecord(worker, socket.gethostname(), os.getpid(), self.threads, time.time())
        uids = (f"{count:x}" for count in itertools.count())
        step = _register(register(self.paths, worker, facts.to_bytes(), uids))
        self.go(step, self._registered)

    def _registered(self, me: Registration | TransactionRejected | None) -> None:
        self._registering = False
        if isinstance(me, TransactionRejected):
            self._register_rest_s = min(REGISTER_REST_MAX_S, max(0.5, 2 * self._register_rest_s))
            self._register_at = time.monotonic() + self._register_rest_s
            self.complaints.tell(f"this worker is not registered yet, and runs nothing: {me}")
            self.lives -= 1  # the ID is unused
            return
        self.me = me
        if me is not None:
            self._register_rest_s = 0.0
            self._touched(None)
            self.ready(me.worker)

    def lost_registration(self, me: Registration) -> None:
        """The session expired: a new life under a new ID; the old claims stand until released.

        Several transactions under way may tell of it, the last one when the next life has begun.
        That one must not be given up: its registration would stand as long as this process, and
        nobody could clear its claims node.
        """
        if self.me is not me:
            return
        logger.warning("worker %s: its session expired; registering anew", me.worker)
        self.me = None
        self.delivery.lost_registration()

    @property
    def share(self) -> tuple[int, int]:
        """This worker's place among the living ones, and their number."""
        if self.me is None or self.me.worker not in self.living:
            return 0, 1
        return self.living.index(self.me.worker), len(self.living)

    # ---- ending

    def _task_ended(self, ended: Ended) -> None:
        """Called on a slot's thread."""
        self._ended.append(ended)
        # Told before the queue is looked at: an end that finds True here is seen by that look.
        if not self._told:
            self._told = True
            self.post(self._hear)

    def _hear(self) -> None:
        self._told = False

    def _sort_ended(self, now: float) -> None:
        while self._ended:
            ended = self._ended.popleft()
            # What could not be decoded here never ran.
            self.statistics.executed += not ended.undecodable
            size = len(ended.outcome) + sum(map(len, ended.job.loaded.arguments))
            self.claims.ended(ended.seconds, size, now)
            if ended.job.abandoned:
                continue
            part = settlement.settle(self, ended)
            if part is not None:
                self.delivery.add(part)

    def _end_overdue(self, now: float) -> None:
        for job in [job for job in list(self.slots.running) if now > job.deadline]:
            job.stop_reason = "its time is over"
            self.write_off(job)
            settlement.timed_out(self, job)

    def write_off(self, job: Job) -> None:
        self.statistics.written_off += 1
        # In this order: who starts a coroutine looks for the first when it can be cancelled.
        self.slots.write_off(job)
        job.cancel()


def _register(
    step: Step[Registration | None],
) -> Step[Registration | TransactionRejected | None]:
    """An access list, or a full server, may let this worker in later: no reason for it to end."""
    try:
        return (yield from step)
    except TransactionRejected as refused:
        return refused
