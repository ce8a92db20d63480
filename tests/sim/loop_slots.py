"""The slots of a real loop in the simulation: functions run for a drawn time, and end as drawn."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator
from itertools import count
from typing import TYPE_CHECKING, Any

from zkplan.protocol.core.claim import mark_started
from zkplan.protocol.records import Failure
from zkplan.protocol.requests import Fact
from zkplan.protocol.task_options import TaskOptions
from zkplan.runtime.job import Ended, Job
from zkplan.runtime.slots import EndedJobs
from zkplan.transport.server_clock import Clock

from .loads import judge_arguments
from .network import Client
from .story import FAILED, SKIPPED, Meant, Violation, name_in, outcomes_in

if TYPE_CHECKING:
    from .loop_world import LoopWorld

#: How long functions take, in milliseconds; once the faults have stopped, a short time.
SHORT_MS, LONG_MS = (0, 1, 2, 5, 20, 100), (400, 3000, 30_000)
#: How likely a function takes long, has a time-out that it may exceed, or heeds that it was
#: asked to stop.
LONG, TIMED, HEEDS = 0.12, 0.15, 0.7
#: Time-outs, in seconds.
TIMEOUTS_S = (0.01, 0.1, 0.5)


class LoopSlots:
    """Implements `runtime.slots.Slots` for one loop. Milliseconds are those of the world."""

    broken: BaseException | None = None

    def __init__(
        self, *, world: LoopWorld, client: Client, threads: int, clock: Clock, ended: EndedJobs
    ) -> None:
        self._world, self._client, self._clock, self._put_ended = world, client, clock, ended
        self.count, self.abandoned = threads, 0
        self.running: dict[Job, None] = {}
        self._queue: deque[Job] = deque()
        #: When each function ends, and how.
        self._ends: list[tuple[int, int, Job, Callable[[], Ended]]] = []
        self._numbers = count()
        #: Whether the worker may start nothing more.
        self.starts_nothing: Callable[[], bool] = lambda: False
        #: Called when a function ends: its plan, and for how many seconds it had its slot.
        self.measured: Callable[[Job, float], None] = lambda job, seconds: None

    # What the loop asks.

    def waiting(self) -> int:
        return len(self._queue)

    @property
    def slots(self) -> int:
        return min(self.count, max(0, 2 * self.count - self.abandoned))

    def put(self, job: Job) -> None:
        if self.starts_nothing():
            raise Violation(f"P3 {job.claim.path} goes to the slots of a worker that drains")
        self._queue.append(job)
        self._fill()

    def take_waiting(self) -> list[Job]:
        jobs = list(self._queue)
        self._queue.clear()
        return jobs

    def write_off(self, job: Job) -> None:
        job.abandoned = True
        if job in self.running:
            del self.running[job]
            self.abandoned += 1
        job.cancel()
        self._fill()

    def next_deadline(self) -> float:
        times = ((job.deadline, job.held_until, job.given_up_at) for job in self.running)
        return min((min(each) for each in times), default=float("inf"))

    def since(self) -> list[tuple[str, float]]:
        return [(job.claim.plan, job.started) for job in self.running]

    def close(self) -> None:
        self._queue.clear()
        self._ends.clear()

    # What the world does.

    def next_end(self) -> float:
        """When the next function ends, in milliseconds."""
        return self._ends[0][0] if self._ends else float("inf")

    def end_one(self) -> None:
        """The function that is due first ends."""
        _, _, job, end = heapq.heappop(self._ends)
        if job in self.running:
            del self.running[job]
            seconds = self._clock.monotonic() - job.started
            self.measured(job, seconds)
            ended = end()
            ended.seconds = seconds
            ended.fact = Fact(ran_ms=round(1000 * seconds), ended=self._clock.monotonic())
            self._put_ended.put(ended)
        else:
            self.abandoned -= 1
            self._put_ended.wake()
        self._fill()

    # One job.

    def _fill(self) -> None:
        while self._queue and len(self.running) < self.slots:
            job = self._queue.popleft()
            self.running[job] = None
            self._begin(job)

    def _begin(self, job: Job) -> None:
        world, item = self._world, job.loaded
        task = world.names[name_in(item.record)]
        job.started = self._clock.monotonic()
        delay_s = world.rng.choice((0.0, 0.02))
        job.options = TaskOptions(
            name=task.name, attempts=task.attempts, keep=task.keep, retry_delay=delay_s
        )
        job.traceparent = task.name  # by which `LoopCodec` finds the failure that the oracle knows
        if item.claim.path in world.nodes and item.result is None:
            if item.damage:
                raise Violation(f"S3 {task.name} was loaded with damage: {item.damage}")
            judge_arguments(world, item)
        early = self._before(job, task)
        if early is not None:
            self._end_in(0, job, early)
        elif item.claim.n > item.claim.a:
            self._world.network.start(self._client, "started", self._mark(job, task), {})
        else:
            self._run(job, task)

    def _mark(self, job: Job, task: Meant) -> Generator[Any, Any, None]:
        """An earlier claim ended without an outcome: say first that the function starts."""
        if (yield from mark_started(job.claim)):
            job.loaded.others.append(f"started-{job.claim.n}")
            self._run(job, task)
        else:
            self._end_in(0, job, lambda: Ended(job, fenced=True))

    def _before(self, job: Job, task: Meant) -> Callable[[], Ended] | None:
        """How the attempt ends before the function is called; None if that is called."""
        item = job.loaded
        if item.result is not None:
            if item.result.startswith(FAILED):
                return lambda: Ended(job, failure=_failure(job), final=True)
            result = item.result
            return lambda: Ended(job, outcome=result, skipped=result.startswith(SKIPPED))
        outcome = task.outcome(outcomes_in(item))
        if job.claim.a >= task.attempts or outcome.startswith(FAILED):
            return lambda: Ended(job, failure=_failure(job), final=True)
        if outcome.startswith(SKIPPED):
            return lambda: Ended(job, outcome=outcome, skipped=True)
        return None

    def _run(self, job: Job, task: Meant) -> None:
        world, rng = self._world, self._world.rng
        ms = world.takes_ms(task)
        if world.chance(LONG):
            ms = rng.choice(LONG_MS)
        if world.chance(TIMED):
            timeout = rng.choice(TIMEOUTS_S)
            job.deadline = self._clock.monotonic() + timeout
        if world.cannot_run(self._client.name, task):
            self._end_in(0, job, lambda: Ended(job, cannot_run="it lacks a module"))
        else:
            self._end_in(ms, job, lambda: self._outcome(job, task))

    def _outcome(self, job: Job, task: Meant) -> Ended:
        world = self._world
        if job.is_unwanted() and world.rng.random() < HEEDS:
            return Ended(job, stopped=True)
        if world.chance(world.mix.failing):
            return Ended(job, failure=_failure(job))
        if task.adds:
            job.adds = world.new_tasks(task.adds)
        return Ended(job, outcome=task.outcome(outcomes_in(job.loaded)))

    def _end_in(self, ms: int, job: Job, end: Callable[[], Ended]) -> None:
        entry = self._world.now + ms, next(self._numbers), job, end
        heapq.heappush(self._ends, entry)


def _failure(job: Job) -> Failure:
    return Failure("Failed", "", "", job.worker, job.claim.n, 0.0, traceparent=job.traceparent)


class LoopCodec:
    """Seals failures as the oracle of the simulation knows them."""

    def seal(self, kind: bytes, body: bytes) -> bytes:
        name = Failure.from_bytes(body).traceparent
        return FAILED + name.encode() if name else b"log"

    def dump_exception(self, error: BaseException, is_json: bool) -> bytes:
        return b""
