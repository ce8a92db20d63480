"""The threads that run tasks: a queue in front, a fixed number of slots behind."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from .execution import Ended, Job, Runner
from .threads import DaemonThread


class ThreadPool:
    """Runs jobs on at most `count` threads; `ended` is called on the slot's thread.

    A function cannot be stopped from outside. When a job is abandoned (timed out), its thread is
    written off and a new one takes its place, so that the worker keeps its number of slots.
    """

    def __init__(self, count: int, runner: Runner, ended: Callable[[Ended], None]) -> None:
        self.count = count
        self._runner = runner
        self._ended = ended
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads = 0
        #: Why a thread ended that should have gone on: the task that it had would never end.
        self.broken: BaseException | None = None
        #: Jobs put and neither ended, written off nor taken back. Counted here and not from what
        #: waits and what runs: a job that a thread is just taking is in neither of them.
        self._unended = 0
        #: Held while a job changes between put, running, ended and written off.
        self._change = threading.Lock()
        #: Jobs that a thread has begun and not ended, in order of beginning.
        self.running: dict[Job, None] = {}

    def put(self, job: Job) -> None:
        with self._change:
            self._unended += 1
            short = self._threads < min(self.count, self._unended)
        if short:
            self._spawn()
        self._queue.put(job)

    @property
    def waiting(self) -> int:
        """Jobs that no thread has begun."""
        return self._queue.qsize()

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
        """The thread of `job` counts no more; it ends when the function returns."""
        with self._change:
            job.abandoned = True
            if job not in self.running:
                return  # it has just ended; its thread takes the next job
            del self.running[job]
            self._unended -= 1
            self._threads -= 1
        if self.waiting:
            self._spawn()

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)

    def _spawn(self) -> None:
        self._threads += 1
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
            ended = self._runner.run(job)
            with self._change:
                if job.abandoned:
                    return
                del self.running[job]
                self._unended -= 1
            self._ended(ended)
