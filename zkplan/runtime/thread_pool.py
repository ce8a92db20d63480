"""The threads that run tasks: one queue, and a fixed number of slots."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ..log import get_logger
from .job import Ended, Job
from .threads import DaemonThread

logger = get_logger("zkplan.worker")


class ThreadPool:
    """Runs jobs on at most `count` threads; `ended` and `freed` are called on a slot's thread.

    A function cannot be stopped from outside. When a job is abandoned because it timed out, or was
    told to stop and did not, its thread is written off and a new one takes its place, so that the
    number of slots stays the same. At most as many threads are replaced as there are slots. After
    that each abandoned job takes a slot away, until an abandoned function returns: then `freed` is
    called.
    """

    def __init__(
        self,
        count: int,
        run: Callable[[Job], Ended],
        ended: Callable[[Ended], None],
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        self.count = count
        self._run, self._ended, self._freed = run, ended, freed
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        #: Counts the jobs that no thread has begun. The loop asks often.
        self.waiting: Callable[[], int] = self._queue.qsize
        self._threads = 0
        #: Threads whose job was abandoned and whose function has not returned yet.
        self.abandoned = 0
        #: Why a thread ended unexpectedly. Its task would never end, so the worker must.
        self.broken: BaseException | None = None
        #: The number of jobs that have not ended and were not written off or taken back. It is
        #: counted separately, because a job that a thread is just taking is neither in the queue
        #: nor running.
        self._unended = 0
        #: Held while a job changes between put, running, ended and written off.
        self._change = threading.Lock()
        #: Jobs that a thread has started and not ended, in the order of their start.
        self.running: dict[Job, None] = {}

    @property
    def slots(self) -> int:
        """How many jobs run at once: all slots without those that abandoned threads have taken."""
        if self.abandoned <= self.count:  # nearly always, and asked for very often
            return self.count
        return max(0, 2 * self.count - self.abandoned)

    def put(self, job: Job) -> None:
        with self._change:
            self._unended += 1
            short = self._is_short()
        if short:
            self._spawn()
        self._queue.put(job)

    def take_waiting(self) -> list[Job]:
        """Take back the jobs that no thread has begun."""
        jobs: list[Job] = []
        while True:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                with self._change:
                    self._unended -= len(jobs)
                return jobs
            if job is not None:
                jobs.append(job)

    def write_off(self, job: Job) -> None:
        """Write off the thread of `job`. It ends when its function returns."""
        with self._change:
            # First: who starts a coroutine looks for it when it can be cancelled.
            job.abandoned = True
            is_running = job in self.running  # else its thread takes the next job
            if is_running:
                del self.running[job]
                self._unended -= 1
                self._threads -= 1
                self.abandoned += 1
            short = is_running and self._is_short()
        job.cancel()
        if short:
            self._spawn()
        if is_running and self.count - self.slots in (1, self.count):
            logger.warning(
                "%d functions that were given up (timed out, cancelled) have not returned, and "
                "hold as many threads: until some return, this worker %s. Restart it, and give the "
                "calls that hang a time-out of their own",
                self.abandoned,
                "runs fewer tasks at a time" if self.slots else "claims and runs nothing",
            )

    def next_deadline(self) -> float:
        """The monotonic time, in seconds, at which the first running job times out, has had its
        grace, or is not held back any longer."""
        due = float("inf")
        # A copy: the slots' threads add and remove jobs meanwhile.
        for job in list(self.running):
            due = min(due, job.deadline, job.held_until, job.given_up_at)
        return due

    def since(self) -> list[tuple[str, float]]:
        """The plan of each job that runs now, and when that started: monotonic, 0 if just now."""
        return [(job.claim.plan, job.started) for job in list(self.running)]

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)

    def _is_short(self) -> bool:
        """Whether one more thread is needed; it is counted then, and must be started."""
        if self._threads < self._unended and self._threads < self.slots:
            self._threads += 1
            return True
        return False

    def _spawn(self) -> None:
        DaemonThread(self._serve, f"zkplan-slot-{self._threads}").start()

    def _serve(self) -> None:
        try:
            self._serve_jobs()
        except BaseException as error:  # for want of memory, most likely: to set this takes none
            self.broken = error

    def _serve_jobs(self) -> None:
        while True:
            job = self._queue.get()
            if job is None:
                return
            self.running[job] = None
            ended = self._run(job)
            with self._change:
                is_wanted, goes_on = job in self.running, True
                if is_wanted:
                    del self.running[job]
                    self._unended -= 1
                else:
                    self.abandoned -= 1
                    goes_on = self._is_short()
            if is_wanted:
                self._ended(ended)
            else:
                self._freed()
            if not goes_on:
                return
