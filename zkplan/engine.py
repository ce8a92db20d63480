"""One worker's loop: a single thread owns all its state and drives look, claim, load, commit, publish.

Steps of the protocol run in the background of this loop; answers, watches and ended tasks arrive in
its inbox as functions to call. So there are no locks, and every decision sees a consistent state.
"""

from __future__ import annotations

import itertools
import logging
import os
import queue
import random
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from . import endings, upkeep
from .backoff import Backoff
from .candidates import Candidates, PlanView
from .codec import Codec
from .execution import Ended, Job, Runner
from .keeper import Keeper
from .layout import Paths
from .protocol import control
from .protocol.claim import Claimed, Loaded, claim, load
from .protocol.commit import Committed, Part, commit
from .protocol.desk import register, unregister
from .protocol.failure import hand_back
from .protocol.look import PlanLook, list_plans, look
from .protocol.publish import Published, publish
from .protocol.shared import GROUP_BYTES_MAX, GROUP_OPS_MAX, Claim, Dependent, Drive, Registration
from .protocol.wide import deliver_wide
from .records import PlanRecord, WorkerRecord
from .requests import ReadData, Step
from .slots import Slots

T = TypeVar("T")
logger = logging.getLogger("zkplan.worker")

#: Claims held by one worker beyond its slots, when its tasks are short: their claiming and loading
#: overlap with running. Far below the 1 000 at which a session's ephemerals endanger the server.
PREFETCH_MAX = 160
#: How much work may wait here, in seconds: what another worker could be doing meanwhile.
PREFETCH_S = 0.05
#: Transactions that commit at once; more only make each of them smaller.
COMMITS_MAX = 2
LOOKS_MAX = 4
#: Claims that wait behind long tasks are handed back after this long, so that others can run them.
STALLED_S = 0.5


@dataclass(slots=True)
class Statistics:
    """What a worker did since it started; counts of tasks unless said otherwise."""

    executed: int = 0
    committed: int = 0
    fenced: int = 0
    failed: int = 0
    handed_back: int = 0
    conflicts: int = 0
    refusals: int = 0
    transactions: int = 0
    looks: int = 0
    released: int = 0


class Engine:
    """The loop of one worker. `run` returns after `stop`, or raises what broke it."""

    def __init__(
        self,
        keeper: Keeper,
        codec: Codec,
        paths: Paths,
        threads: int,
        backoff: Backoff,
        plan_within: Callable[[Job], Any],
    ) -> None:
        self.keeper, self.codec, self.paths, self.backoff = keeper, codec, paths, backoff
        self.statistics = Statistics()
        self.worker = (
            f"{socket.gethostname().split('.')[0][:20]}-{os.getpid()}-{os.urandom(4).hex()}"
        )
        self.me: Registration | None = None
        self.lives = 0
        self.living: list[str] = []
        self.candidates = Candidates()
        self.runner = Runner(keeper, codec, plan_within)
        self.slots = Slots(threads, self.runner, self.worker, self._task_ended)
        self.threads = threads
        self.inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.upkeep = upkeep.Upkeep(self)
        self.ready: Callable[[str], None] = lambda worker: None
        self._ended: deque[Ended] = deque()
        self._parts: deque[Part] = deque()
        self.jobs: dict[str, Job] = {}
        self._old_wakes: list[str] = []
        self._flying = 0
        self._claiming = self._registering = self._listing = False
        self._claimed = self._loading = self._committing = self._looking = 0
        self._finishing: set[str] = set()
        self._task_s = 1.0
        self._last_end = 0.0
        self._list_plans = True
        self._stop_at: float | None = None
        self._failure: BaseException | None = None
        self.trusted = True

    # ---- the loop

    def post(self, event: Callable[[], None]) -> None:
        """Have `event` called on the loop's thread."""
        self.inbox.put(event)

    def stop(self, grace_s: float) -> None:
        """Drain: claim nothing more, give running tasks `grace_s` seconds, then hand them back."""
        self.post(lambda: self._begin_stop(grace_s))

    def run(self) -> None:
        self.keeper.listen(self._watch_fired)
        try:
            while not self._left():
                try:
                    event = self.inbox.get(timeout=self._pause())
                    event()
                    while True:
                        self.inbox.get_nowait()()
                except queue.Empty:
                    pass
                if self._failure is not None:
                    raise self._failure
                self._advance(time.monotonic())
        finally:
            self.keeper.unlisten(self._watch_fired)
            self.slots.close()
            self.runner.close()

    def go(self, step: Step[T], done: Callable[[T], None]) -> None:
        """Run a step in the background; an error in it ends the worker, whose claims others take over."""
        self._flying += 1

        def ended(result: T | None, error: BaseException | None) -> None:
            self._flying -= 1
            if error is not None:
                self._failure = error
            else:
                done(result)  # type: ignore[arg-type]

        self.statistics.transactions += 1
        self.keeper.start(step, self.post, ended)

    def _watch_fired(self, path: str | None) -> None:
        self.post(lambda: self._touched(path))

    def _touched(self, path: str | None) -> None:
        if path is None or path == self.paths.root:
            self._list_plans = True
        if path is None or not path.startswith(self.paths.root + "/plan-"):
            self.upkeep.touched(path)
        self.candidates.touched(path)

    def _pause(self) -> float:
        now = time.monotonic()
        due = min(self.upkeep.next_due(), self.candidates.next_event())
        for job in self.slots.running:
            due = min(due, job.deadline)
        if self._stop_at is not None:
            due = min(due, self._stop_at, now + 0.05)
        if self.slots.waiting:
            due = min(due, now + STALLED_S)
        return max(0.0005, min(due - now, 5.0))

    def _advance(self, now: float) -> None:
        self._sort_ended(now)
        self._commit_some()
        self.trusted = now - self.keeper.last_answer < self.keeper.session_timeout_s * 2 / 3
        self.upkeep.advance(now)
        self._end_overdue(now)
        if self.me is None:
            self._register()
            return
        if self._stop_at is not None:
            self._drain(now)
            return
        if self.slots.waiting and now - self._last_end > STALLED_S:
            self._give_back_waiting(now)
        self._look_around(now)
        self._claim_some(now)

    # ---- registering, looking

    def _register(self) -> None:
        if self._registering or self._stop_at is not None:
            return
        self._registering = True
        self.lives += 1
        worker = self.worker if self.lives == 1 else f"{self.worker}-{self.lives}"
        facts = WorkerRecord(worker, socket.gethostname(), os.getpid(), self.threads, time.time())
        uids = (f"{count:x}" for count in itertools.count())
        self.go(register(self.paths, worker, facts.to_bytes(), uids), self._registered)

    def _registered(self, me: Registration | None) -> None:
        self._registering = False
        self.me = me
        if me is not None:
            self._list_plans = True
            self.upkeep.touched(None)
            self.ready(me.worker)

    def lost_registration(self) -> None:
        """The session expired: a new life under a new ID; claims of the old one stand until released."""
        if self.me is not None:
            logger.warning("worker %s: its session expired; registering anew", self.me.worker)
        self.me = None
        self._old_wakes.clear()

    @property
    def share(self) -> tuple[int, int]:
        """This worker's place among the living ones, and their number."""
        if self.me is None or self.me.worker not in self.living:
            return 0, 1
        return self.living.index(self.me.worker), len(self.living)

    def _look_around(self, now: float) -> None:
        if self._list_plans and not self._listing:
            self._list_plans, self._listing = False, True
            self.go(list_plans(self.paths, watch=True), self._plans_listed)
        if self.free <= 0 or self._looking >= LOOKS_MAX:
            return
        for view in self.candidates.to_look(now, LOOKS_MAX - self._looking):
            self._looking += 1
            self.statistics.looks += 1
            watch = view.begin_look()
            self.go(_look(view, watch), lambda found, view=view: self._looked(view, found))  # type: ignore[misc]

    def _plans_listed(self, numbers: list[str]) -> None:
        self._listing = False
        self.candidates.set_plans(numbers, {number: self.paths.plan(number) for number in numbers})

    def _looked(self, view: PlanView, found: PlanLook) -> None:
        self._looking -= 1
        before = view.state
        view.update(found, self.share, time.monotonic())
        if view.state == "cancelled" and before != "cancelled":
            for job in self.jobs.values():
                if job.claim.plan == view.number:
                    job.stop_reason = "its plan was cancelled"

    # ---- claiming, loading

    @property
    def held(self) -> int:
        """Claims that still need a slot: being made, being loaded, waiting, running."""
        return self._claimed + self._loading + self.slots.waiting + len(self.slots.running)

    @property
    def free(self) -> int:
        """How many more tasks to claim. Short tasks are claimed ahead, long ones are not."""
        ahead = min(PREFETCH_MAX, int(PREFETCH_S * self.threads / max(self._task_s, 1e-6)))
        return self.threads + ahead - self.held

    def drive(self, parts: list[Part]) -> Drive:
        """What this worker may claim by itself while it commits `parts`."""
        if self.me is None or self._stop_at is not None or not self.trusted:
            return Drive(0, {})
        versions = {}
        for part in parts:
            view = self.candidates.views.get(part.loaded.claim.plan)
            if view is not None and view.running:
                versions[view.path] = view.version
        return Drive(max(0, self.free), versions)

    def _claim_some(self, now: float) -> None:
        free = self.free
        # Small claims cost as much as large ones: wait until half of what may be held is free.
        if (
            self._claiming
            or not self.trusted
            or free <= 0
            or (self.held > self.threads and free < self.held)
        ):
            return
        view = self.candidates.choose(now)
        if view is None or self.me is None:
            return
        names = view.take(free)
        self._claiming = True
        self._claimed += len(names)
        step = claim(self.me, view.number, view.version, names)
        self.go(step, lambda made: self._claims_made(view, len(names), made))

    def _claims_made(self, view: PlanView, asked: int, made: Claimed) -> None:
        self._claiming = False
        self._claimed -= asked
        self.statistics.conflicts += made.conflicts
        if made.worker_gone:
            self.lost_registration()
        if made.plan_changed or made.worker_gone:
            view.own.clear()
            view.must_look = True
        self.take_on(made.claims)

    def take_on(self, claims: list[Claim]) -> None:
        """Load and run tasks that this worker has claimed."""
        if claims and self.me is not None:
            self._loading += len(claims)
            self.go(load(self.me, claims), lambda loaded: self._loaded(len(claims), loaded))

    def _loaded(self, asked: int, loaded: list[Loaded]) -> None:
        self._loading -= asked
        self.statistics.fenced += asked - len(loaded)
        self._last_end = time.monotonic()
        for item in loaded:
            job = Job(item)
            self.jobs[item.claim.path] = job
            self.slots.put(job)

    def _give_back_waiting(self, now: float) -> None:
        """Long tasks hold all slots: what was claimed ahead goes back, so that others may run it."""
        jobs = self.slots.take_waiting()
        self._last_end = now
        self._task_s = max(self._task_s, STALLED_S)
        self.give_back(jobs)

    def give_back(self, jobs: list[Job], log: bytes = b"") -> None:
        """Hand claims back without using up an attempt."""
        claims = [job.claim for job in jobs]
        for job in jobs:
            self.jobs.pop(job.claim.path, None)
        if claims:
            self.statistics.handed_back += len(claims)
            self.go(hand_back(claims, log), lambda count: None)

    # ---- ending, committing, publishing

    def _task_ended(self, ended: Ended) -> None:
        """Called on a slot's thread."""
        self._ended.append(ended)
        if len(self._ended) == 1:
            self.post(lambda: None)

    def _sort_ended(self, now: float) -> None:
        while self._ended:
            ended = self._ended.popleft()
            self._last_end = now
            self.statistics.executed += 1
            self._task_s += 0.1 * (ended.seconds - self._task_s)
            if ended.job.abandoned:
                continue
            part = endings.settle(self, ended)
            if part is not None:
                self._parts.append(part)

    def _end_overdue(self, now: float) -> None:
        for job in [job for job in self.slots.running if now > job.deadline]:
            job.stop_reason = "its time is over"
            self.slots.write_off(job)
            endings.timed_out(self, job)

    def _commit_some(self) -> None:
        while self._parts and self._committing < COMMITS_MAX and self.me is not None:
            if self._committing and len(self._parts) < 8 and self.held:
                return  # more is about to end: let it share the transaction
            if not self._parts[0].fits:
                self._deliver_wide(self._parts.popleft())
                continue
            parts: list[Part] = []
            ops = size = 0
            while self._parts and self._parts[0].fits:
                part = self._parts[0]
                if parts and (
                    ops + part.op_count > GROUP_OPS_MAX or size + part.size > GROUP_BYTES_MAX
                ):
                    break
                ops, size = ops + part.op_count, size + part.size
                parts.append(self._parts.popleft())
            self._committing += 1
            wakes, self._old_wakes = self._old_wakes, []
            step = commit(self.me, parts, wakes, self.drive(parts))
            self.go(step, self._committed)

    def _committed(self, report: Committed) -> None:
        self._committing -= 1
        if report.worker_gone:
            self.lost_registration()
        self._note(report)
        self.take_on(report.inherited)
        if report.full:
            self._publish(report.full, report.wake, self.drive(report.done))
        elif report.wake:
            self._old_wakes.append(report.wake)
        for plan_path in {
            part.loaded.claim.plan_path for part in report.done if not part.loaded.edges
        }:
            self.finish(plan_path)

    def _note(self, report: Committed) -> None:
        statistics = self.statistics
        statistics.committed += len(report.done)
        statistics.fenced += len(report.fenced)
        statistics.refusals += report.refusals
        for part in (*report.done, *report.fenced):
            self.jobs.pop(part.loaded.claim.path, None)
        for part in report.stale:
            endings.reload(self, part)
        for part, error in report.poison:
            endings.poisoned(self, part, error)

    def _publish(self, full: list[Dependent], wake: str, drive: Drive) -> None:
        if self.me is not None:
            self.go(publish(self.me, full, wake, drive), self._published)

    def _published(self, published: Published) -> None:
        self.statistics.refusals += published.refusals
        self.take_on(published.claims)

    def _deliver_wide(self, part: Part) -> None:
        assert self.me is not None
        self._committing += 1
        step = deliver_wide(self.me, part, lambda: self.drive([part]), self.take_on)

        def done(committed: bool) -> None:
            self._committing -= 1
            report = Committed(done=[part]) if committed else Committed(fenced=[part])
            self._note(report)
            if committed and part.kept:
                self.finish(part.loaded.claim.plan_path)

        self.go(step, done)

    def retry_part(self, part: Part) -> None:
        self._parts.append(part)

    def finish(self, plan_path: str) -> None:
        """A task without dependents is done: the plan may be."""
        if plan_path in self._finishing:
            return
        self._finishing.add(plan_path)

        def done(_: bool) -> None:
            self._finishing.discard(plan_path)

        self.go(control.finish(plan_path, time.time()), done)

    def random(self) -> float:
        return random.random()

    # ---- leaving

    def _begin_stop(self, grace_s: float) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic() + grace_s
            self._give_up_at = self._stop_at + max(5.0, self.keeper.session_timeout_s)

    def _drain(self, now: float) -> None:
        self.give_back(self.slots.take_waiting())
        if self._stop_at is not None and now >= self._stop_at:
            for job in list(self.slots.running):
                job.stop_reason = "the worker stops"
                self.slots.write_off(job)
                self.give_back([job])
        if not self.held and not self._parts and not self._flying and self.me is not None:
            me, self.me = self.me, None
            self.go(unregister(me), lambda gone: None)

    def _left(self) -> bool:
        if self._stop_at is None:
            return False
        if time.monotonic() > self._give_up_at:
            return True  # no answer from ZooKeeper: what is left here is taken over by others
        return self.me is None and not self._flying and not self.held


def _look(view: PlanView, watch: bool) -> Step[PlanLook]:
    if view.record is None:
        node = yield ReadData(view.path)
        view.record = (
            PlanRecord.from_bytes(node.data) if node is not None else PlanRecord("", "", 0.0)
        )
    return (yield from look(view.path, watch))
