"""Run tasks on a fixed number of threads and in one event loop; end processes that a task forks."""

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
    """Runs at most `count` jobs at once; calls `ended` and `freed` on a slot's thread.

    A function cannot be stopped from outside. When a job is abandoned because it timed out, or was
    told to stop and did not, its thread is written off, and a new thread takes its place, to keep
    the number of slots. At most as many threads are replaced as there are slots; after that, each
    abandoned job takes a slot away. `freed` is called when an abandoned function returns.
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
        #: Returns how many jobs no thread has begun. Not a method, because the loop asks often.
        self.waiting: Callable[[], int] = self._queue.qsize
        #: The number of threads that are not written off.
        self._threads = 0
        #: See Slots.
        self.abandoned = 0
        #: See Slots.
        self.broken: BaseException | None = None
        #: The number of jobs that have not ended, and were not written off or taken back. It is
        #: counted separately, because a job that a thread is just taking is neither in the queue
        #: nor running.
        self._unended = 0
        #: Held while a job changes between put, running, ended and written off.
        self._change = threading.Lock()
        #: See Slots.
        self.running: dict[Job, None] = {}

    @property
    def slots(self) -> int:
        """See Slots."""
        if self.abandoned <= self.count:  # a short cut: nearly always True, and asked very often
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
            # Before `cancel`: a slot that starts a coroutine looks at `abandoned` once the
            # coroutine can be cancelled.
            job.abandoned = True
            is_running = job in self.running  # otherwise its thread takes the next job by itself
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
        """See Slots."""
        due = float("inf")
        # A copy: the slots' threads add and remove jobs meanwhile.
        for job in list(self.running):
            due = min(due, job.deadline, job.held_until, job.given_up_at)
        return due

    def since(self) -> list[tuple[str, float]]:
        """See Slots."""
        return [(job.claim.plan, job.started) for job in list(self.running)]

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)

    def _is_short(self) -> bool:
        """Whether one more thread is needed. If so, counts it already: the caller must start it."""
        if self._threads < self._unended and self._threads < self.slots:
            self._threads += 1
            return True
        return False

    def _spawn(self) -> None:
        DaemonThread(self._serve, f"zkplan-slot-{self._threads}").start()

    def _serve(self) -> None:
        try:
            self._serve_jobs()
        except BaseException as error:  # most likely no memory is left; an assignment needs none
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


#: A start waits this many times, for this many seconds. While the process is stopped, or a task
#: holds the interpreter, at most one of these parts passes.
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

    Without memory, a thread can end before it reports that it has begun, and `Thread.start` waits
    for this report for ever. Then the worker would hang while its session goes on, so no other
    worker would take over its tasks.
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
    """An event loop, which the first coroutine starts. Thread-safe."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._lock = threading.Lock()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Future[Outcome]:
        """Run the coroutine in the loop.

        If the loop cannot start, closes the coroutine and raises the error; the next coroutine
        tries again. Raises ZkplanError after `close`.
        """
        # Schedule under the lock, so that `close` comes before, or cancels the coroutine. Otherwise
        # the loop could stop right after taking the coroutine, and the caller would wait for ever.
        with self._lock:
            try:
                loop = self._running()
                return asyncio.run_coroutine_threadsafe(_EndsForks(coroutine), loop)
            except BaseException:
                coroutine.close()  # otherwise Python warns that it was never awaited
                raise

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise ZkplanError("the worker has ended, and starts no more coroutines")
        if self._loop is None or self._loop.is_closed():
            loop = asyncio.new_event_loop()
            try:
                DaemonThread(self._serve, "zkplan-asyncio", (loop,)).start()
            except BaseException:
                loop.close()  # the next coroutine gets a new loop, and perhaps a thread
                raise
            self._loop = loop
        return self._loop

    def close(self) -> None:
        """Cancel the coroutines that still run, and never start the loop again. Returns at once."""
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            if loop is not None:
                with suppress(RuntimeError):  # its thread has closed the loop already
                    loop.call_soon_threadsafe(loop.stop)

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the loop until `close`, whatever a coroutine does: stops the loop, raises SystemExit
        (which asyncio also raises here) or an error that asyncio cannot even log, or uses up the
        memory. Otherwise all other coroutines would wait for ever."""
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
    """Return the error as it is: a future would replace a CancelledError by one without a message
    and traceback."""
    try:
        return await coroutine, None
    except GeneratorExit:
        raise  # the loop is closed, so no caller waits for the outcome
    except BaseException as error:
        return None, error


class _EndsForks(Coroutine[Any, Any, Any]):
    """The outcome of a coroutine whose forked processes end with its step. Such a process cannot
    await anything: its copy of the event loop would run the other coroutines, too."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._first: Coroutine[Any, Any, Any] | None = coroutine
        self._coroutine, self._pid = _outcome(coroutine), os.getpid()

    def send(self, value: Any) -> Any:
        self._first = None
        return self._step(self._coroutine.send, value)

    def throw(self, *error: Any) -> Any:
        self._close_unstarted()
        return self._step(self._coroutine.throw, *error)

    def close(self) -> None:
        self._close_unstarted()
        self._coroutine.close()

    def _close_unstarted(self) -> None:
        """Without this, Python warns that a coroutine cancelled before its first step was never
        awaited."""
        if self._first is not None:
            self._first.close()
            self._first = None

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


# ---- End a process that a task has forked where the task's code ends.
#
# Otherwise the process would go on in zkplan's code as a copy of its worker, with the worker's
# sockets but without its other threads. It would wait for ever, and so would a task that waits for
# the process.


class EndingForks:
    """A block for code of a task: a process that the task forks there ends with the block.

    Code that runs for each task calls `leave_fork` instead: blocks took a tenth of a worker's time.
    """

    __slots__ = ("_pid",)

    def __enter__(self) -> None:
        self._pid = os.getpid()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        leave_fork(self._pid, error)


def leave_fork(pid: int, error: BaseException | None = None) -> None:
    """End this process if it is not `pid`, the process in which the task's code began."""
    if os.getpid() != pid:
        exit_fork(error)


def exit_fork(error: BaseException | None) -> NoReturn:
    """End this process as Python does, but without `atexit`: these functions are the worker's."""
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
