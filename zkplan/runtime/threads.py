"""Run tasks on a fixed number of threads and in one event loop; a process that a task forks ends
there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, NoReturn

from ..basics.log import get_logger
from ..basics.text import formatted, frames_of
from ..errors import ZkplanError
from .job import Ended, Job

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


# ---- Start threads without waiting for ever if a thread ends before it has begun.


#: A start waits this many times, for this long. It waits in parts, because only one part passes
#: while the process is stopped or a task holds the interpreter.
_PARTS, _PART_S = 30, 1.0


class _Started(threading.Event):
    def wait(self, timeout: float | None = None) -> bool:
        if timeout is not None:
            return super().wait(timeout)
        for _ in range(_PARTS):
            if super().wait(_PART_S):
                return True
        raise MemoryError(
            "a thread was started but never began: most likely there is no memory left"
        )


class DaemonThread(threading.Thread):
    """A thread whose `start` raises MemoryError if the thread never begins.

    Without memory a thread can end before it reports that it began. `Thread.start` waits for that
    report for ever. Then the worker would hang while its session goes on, and nobody would take
    over its tasks.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[object, ...] = ()
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._started = _Started()


# ---- Run the coroutines of a worker's tasks in an event loop on a thread of its own.


#: Seconds that cancelled coroutines have to end when the loop is closed.
_LOOP_END_S = 5.0


#: What a coroutine returned, or the error that it ended with.
Outcome = tuple[Any, BaseException | None]


class EventLoop:
    """The event loop. The first coroutine starts it. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Outcome]:
        """Run the coroutine in the loop. If the loop cannot start, the coroutine is closed.

        Raises why the loop cannot start; the next coroutine tries again. Raises ZkplanError after
        `close`.
        """
        # Scheduled under the lock, so that `close` comes before it, or cancels it. Otherwise the
        # loop could stop right after taking it, and its caller would wait for ever.
        with self._lock:
            try:
                loop = self._running()
                return asyncio.run_coroutine_threadsafe(_EndsForks(_outcome(coroutine)), loop)
            except BaseException:
                coroutine.close()  # else Python complains that nobody awaited it
                raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ZkplanError("the worker has ended: it starts no coroutine any more")
        if self._loop is None or self._loop.is_closed():
            loop = asyncio.new_event_loop()
            try:
                DaemonThread(self._serve, "zkplan-asyncio", (loop,)).start()
            except BaseException:
                loop.close()  # there may be a thread for the next coroutine
                raise
            self._loop = loop
        return self._loop

    def close(self) -> None:
        """Cancel what still runs in the loop, and never start it again. Returns at once."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            if loop is not None:
                with suppress(RuntimeError):  # it has stopped by itself, and seen that it is closed
                    loop.call_soon_threadsafe(loop.stop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until `close`, whatever coroutines do: a stop of one, a SystemExit of one
        (which asyncio raises here as well), an error that asyncio cannot even log, a want of
        memory. All others would wait for ever on a loop that nobody runs."""
        try:
            while not (self._closed or loop.is_closed()):
                with suppress(BaseException):
                    loop.run_forever()
        finally:
            try:
                _cancel_all(loop)
            finally:
                loop.close()


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """Keep the error as it is: a future would replace a CancelledError by one without a message and
    a traceback."""
    try:
        return await coroutine, None
    except GeneratorExit:
        raise  # the loop is gone, and nobody waits
    except BaseException as error:
        return None, error


class _EndsForks(Coroutine[Any, Any, Any]):
    """A coroutine; a process that it forks ends with its step. It cannot await anything: the event
    loop there is a copy, which would run the other coroutines as well."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine, self._pid = coroutine, os.getpid()

    def send(self, value: Any) -> Any:
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Any:
        return self._coroutine.__await__()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        try:
            awaited = step(*args)
        except BaseException as error:
            if os.getpid() != self._pid:
                exit_fork(error.value[1] if type(error) is StopIteration else error)  # see _outcome
            raise
        if os.getpid() != self._pid:
            exit_fork(RuntimeError("a process that a coroutine has forked cannot await anything"))
        return awaited


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    """Let running coroutines clean up, as `asyncio.run` does, but only for a limited time."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=_LOOP_END_S))


# ---- A process that a task forks ends where the task's code ends, as one that a program forks
# does.
#
# Otherwise it would go on in zkplan's code as a copy of its worker, without its other threads and
# with its sockets: it would wait for ever, and so would a task that waits for it.


class EndingForks:
    """Around code of a task: in a process that it has forked, nothing behind the block runs.

    Where each task passes, `leave_fork` is called instead: blocks took a tenth of a worker's time.
    """

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        leave_fork(self._pid, error)


def leave_fork(pid: int, error: BaseException | None = None) -> None:
    """End this process if it is another one than `pid`, in which code of a task began."""
    if os.getpid() != pid:
        exit_fork(error)


def exit_fork(error: BaseException | None) -> NoReturn:
    """End this process as Python ends one, but for `atexit`: those are the worker's."""
    code = 1
    try:
        if error is None:
            code = 0
        elif not issubclass(type(error), SystemExit):
            sys.stderr.write(formatted(error, frames_of(error)))
        else:
            told = error.args[0] if error.args else None
            if told is None or isinstance(told, int):
                code = (told or 0) & 0xFF
            else:
                sys.stderr.write(f"{told}\n")
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(BaseException):  # the task may have closed it
                stream.flush()
        os._exit(code)
