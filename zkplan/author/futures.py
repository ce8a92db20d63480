"""Yield tasks, or call back, as they complete, by the rules of concurrent.futures."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import TYPE_CHECKING, Generic

from ..basics.log import get_logger
from ..basics.public_calls import Duration
from ..errors import WaitTimeout, ZkplanError
from ..values.codec import FAILURE
from ..values.connection import Connection
from .completion import Completed, Group, tasks_in
from .handles import HandleT, TaskHandle
from .patience import checked_timeout
from .results import with_outcomes, with_reads

if TYPE_CHECKING:
    import asyncio

    from .handles import Callback

logger = get_logger("zkplan.plan")


class Watcher:
    """Waits for tasks in a thread of its own, which makes the callbacks. It is thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._group: Group[TaskHandle] | None = None
        self._fresh: list[TaskHandle] = []
        self._callbacks: dict[str, list[Callback]] = {}

    def add(self, task: TaskHandle, callback: Callback) -> None:
        """Call `callback` once when `task` completes, or at once if it has completed. Raises
        PlanError if the wait would never end."""
        _, _, number = task._waited_for()
        with self._lock:
            self._fresh.append(task)
            self._callbacks.setdefault(number, []).append(callback)
            if self._group is not None:
                self._group.hurry()
                return
            self._group = Group()
        threading.Thread(
            target=self._run, args=[self._group], name="zkplan-watcher", daemon=True
        ).start()

    def discard(self, task: TaskHandle, callback: Callback) -> None:
        """Cancel a callback. Does nothing if it was called already."""
        _, _, number = task._waited_for()
        with self._lock:
            waiting = self._callbacks.get(number, [])
            if callback in waiting:
                waiting.remove(callback)
            if not waiting:
                self._callbacks.pop(number, None)
            if self._group is not None:
                self._group.woken.set()

    def _run(self, group: Group[TaskHandle]) -> None:
        with group:
            while True:
                with self._lock:
                    if not self._callbacks:
                        self._group, self._fresh = None, []
                        return
                    fresh, self._fresh = self._fresh, []
                    group.woken.clear()
                try:
                    group.add(fresh)
                    for (_, completed), outcome in with_outcomes(group.look()):
                        self._complete(completed, outcome)
                except Exception as error:
                    self._complete_all(error)
                    continue
                group.pause()

    def _complete(self, completed: Completed, outcome: bytes | None) -> None:
        with self._lock:
            waiting = self._callbacks.pop(completed.number, [])
        for callback in waiting:
            try:
                callback(completed, outcome)
            except BaseException:  # also SystemExit, because the other callbacks are still due
                logger.exception("a callback for task-%s failed", completed.number)

    def _complete_all(self, error: Exception) -> None:
        """End all waits with `error`: ZooKeeper does not answer."""
        with self._lock:
            numbers = list(self._callbacks)
        for number in numbers:
            self._complete(Completed(number, False, error), None)


# ---- Tasks as they complete, as in `concurrent.futures`, also for coroutines.


def as_completed(tasks: Iterable[HandleT], timeout: Duration | None = None) -> AsCompleted[HandleT]:
    """Iterate over tasks as they complete, with `for` or `async for`. `timeout` is in seconds.

    A task has completed when it has finished, is out of attempts, or can never finish because its
    plan was cancelled or removed, or has failed. `task.result()` then returns the value or raises
    the error without another request. The tasks may be of several plans. Duplicates are yielded
    once.

    Raises ZkplanError for an item that is not a task; WaitTimeout if the last task has not
    completed `timeout` seconds after this call; ZooKeeperUnavailable; and PlanError inside the
    `with` block of a plan that is not marked ready.
    """
    return AsCompleted(tasks, timeout)


class AsCompleted(Generic[HandleT]):
    """What `as_completed` returns: iterate over it once."""

    def __init__(self, tasks: Iterable[HandleT], timeout: Duration | None) -> None:
        timeout = checked_timeout(timeout)
        #: The keys include the client, because plans of two roots or servers may have the same
        #: path.
        self._tasks = {_identity(task): task for task in tasks_in(tasks, "as_completed")}
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def __iter__(self) -> Iterator[HandleT]:
        # Large values are read only while the caller takes results.
        are_taken = threading.Event()
        with Group[HandleT]() as group:
            group.add(self._tasks.values())
            while group.open:
                found = group.wait(self._deadline)
                if not found:
                    raise self._late(len(group.open), group.why())
                outcomes = with_outcomes(found)
                for (task, _), outcome, read in with_reads(outcomes, _place_of, are_taken.is_set):
                    task._bring(outcome, read)
                    yield task
                    if task._is_taken():
                        are_taken.set()
                    elif read is not None:
                        are_taken.clear()

    async def __aiter__(self) -> AsyncIterator[HandleT]:
        import asyncio  # here: most programs have no coroutines

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[HandleT, bytes | None]] = asyncio.Queue()

        def watch(task: HandleT) -> Callable[[], None]:
            return task._watch(
                lambda _, outcome: _call_soon(loop, queue.put_nowait, (task, outcome))
            )

        unwatch = [watch(task) for task in self._tasks.values()]
        try:
            for done in range(len(self._tasks)):
                left = None if self._deadline is None else self._deadline - time.monotonic()
                try:
                    task, outcome = await asyncio.wait_for(queue.get(), left)
                except asyncio.TimeoutError:
                    raise self._late(len(self._tasks) - done, "they go on") from None
                task._bring(outcome)
                yield task
        finally:
            for each in unwatch:
                each()

    def _late(self, left: int, why: str) -> WaitTimeout:
        return WaitTimeout(
            f"{left} of {len(self._tasks)} tasks have not completed after {self._timeout:g} s; "
            f"{why}"
        )


def _place_of(pair: tuple[TaskHandle, Completed]) -> tuple[Connection, str]:
    return pair[0]._waited_for()[:2]


def _identity(task: TaskHandle) -> tuple[int, str, str]:
    client, plan_path, number = task._waited_for()
    return id(client), plan_path, number


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():  # else nobody waits any more
            raise


class DoneAndNotDone(tuple[set[HandleT], set[HandleT]], Generic[HandleT]):
    """What `wait` returns: `done, not_done`."""

    # Not a NamedTuple, which cannot be generic before Python 3.11.
    __slots__ = ()

    @property
    def done(self) -> set[HandleT]:
        return self[0]

    @property
    def not_done(self) -> set[HandleT]:
        return self[1]


def wait(
    tasks: Iterable[HandleT], timeout: Duration | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone[HandleT]:
    """Wait for tasks of one plan or several, at most `timeout` seconds. Returns `done, not_done`.

    `return_when` is `ALL_COMPLETED`, `FIRST_COMPLETED` or `FIRST_EXCEPTION`, as in
    `concurrent.futures`. See `as_completed` for when a task has completed. Raises
    ZooKeeperUnavailable, ZkplanError for another `return_when` or an item that is not a task, and
    PlanError inside the `with` block of a plan that is not marked ready.
    """
    timeout = checked_timeout(timeout)
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ZkplanError(
            "return_when must be ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, not "
            f"{return_when!r}"
        )
    deadline = None if timeout is None else time.monotonic() + timeout
    done: set[HandleT] = set()
    with Group[HandleT]() as group:
        group.add(tasks_in(tasks, "wait"))
        while group.open:
            found = group.wait(deadline)
            if not found:
                break
            done.update(task for task, _ in found)
            if return_when == FIRST_COMPLETED:
                break
            if return_when == FIRST_EXCEPTION and any(
                completed.error is not None or (outcome or b"")[2:3] == FAILURE
                for (_, completed), outcome in with_outcomes(found)
            ):
                break
        return DoneAndNotDone((done, set(group.open)))


async def completion(task: TaskHandle) -> tuple[Completed, bytes | None]:
    """Wait in a coroutine until a task has completed; see `as_completed`."""
    import asyncio  # here: most programs have no coroutines

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Completed, bytes | None]] = loop.create_future()

    def complete(found: tuple[Completed, bytes | None]) -> None:
        if not future.done():  # it may have been cancelled meanwhile
            future.set_result(found)

    unwatch = task._watch(lambda *found: _call_soon(loop, complete, found))
    try:
        return await future
    finally:
        unwatch()
