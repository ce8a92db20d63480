"""Tasks as they complete, with the meanings of `concurrent.futures`; in coroutines, too."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ..basics.durations import Duration
from ..connection import Connection
from ..errors import WaitTimeout, ZkplanError
from ..serialization.codec import FAILURE
from ..store.ahead import Read
from .group import Group, Waited, tasks_in
from .outcomes import with_outcomes, with_reads
from .patience import checked_timeout
from .plan_tasks import Completed
from .watcher import Callback

if TYPE_CHECKING:
    import asyncio


class Future(Waited, Protocol):
    """What these functions need of a task. Task implements it."""

    def _bring(self, outcome: bytes | None, read: Read | None = None) -> None:
        """Keep the sealed outcome for the next call of `result` or `exception`; `read` gives the
        blob of its value."""

    def _is_taken(self) -> bool:
        """Whether `result` has taken what was brought."""

    def _watch(self, callback: Callback) -> Callable[[], None]:
        """Call back once when it completes. Returns what takes that back."""


T = TypeVar("T", bound=Future)


def as_completed(tasks: Iterable[T], timeout: Duration | None = None) -> AsCompleted[T]:
    """Iterate over tasks as they complete, with `for` or `async for`. `timeout` is in seconds.

    A task has completed when it has finished, is out of attempts, or can never finish because its
    plan was cancelled or removed, or has failed. `task.result()` returns the value or raises what
    went wrong; here it needs no request. The tasks may be of several plans. One that is given twice
    comes once.

    Raises ZkplanError for what is no task; WaitTimeout if the time, counted from this call, is over
    before the last task has completed; ZooKeeperUnavailable; and PlanError inside the `with` block
    of a plan that is not marked ready.
    """
    return AsCompleted(tasks, timeout)


class AsCompleted(Generic[T]):
    """What `as_completed` returns: iterate over it once."""

    def __init__(self, tasks: Iterable[T], timeout: Duration | None) -> None:
        timeout = checked_timeout(timeout)
        #: By client, too: plans of two roots or servers may have the same path.
        self._tasks = {_identity(task): task for task in tasks_in(tasks, "as_completed")}
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout

    def __iter__(self) -> Iterator[T]:
        # Large values are not read for who takes none.
        are_taken = threading.Event()
        with Group[T]() as group:
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

    async def __aiter__(self) -> AsyncIterator[T]:
        import asyncio  # here: most programs have no coroutines

        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[T, bytes | None]] = asyncio.Queue()

        def watch(task: T) -> Callable[[], None]:
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


def _place_of(pair: tuple[Future, Completed]) -> tuple[Connection, str]:
    return pair[0]._waited_for()[:2]


def _identity(task: Future) -> tuple[int, str, str]:
    client, plan_path, number = task._waited_for()
    return id(client), plan_path, number


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *args: object) -> None:
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():  # nobody is left to tell
            raise


class DoneAndNotDone(tuple[set[T], set[T]], Generic[T]):
    """What `wait` returns: `done, not_done`."""

    # No NamedTuple: before Python 3.11 that cannot be generic.
    __slots__ = ()

    @property
    def done(self) -> set[T]:
        return self[0]

    @property
    def not_done(self) -> set[T]:
        return self[1]


def wait(
    tasks: Iterable[T], timeout: Duration | None = None, return_when: str = ALL_COMPLETED
) -> DoneAndNotDone[T]:
    """Wait for tasks, of one plan or several. `timeout` is in seconds; when it is over, return.

    `return_when` is `ALL_COMPLETED`, `FIRST_COMPLETED` or `FIRST_EXCEPTION`, as in
    `concurrent.futures`. `as_completed` says when a task has completed. Raises
    ZooKeeperUnavailable, ZkplanError for another `return_when` or what is no task, and PlanError
    inside the `with` block of a plan that is not marked ready.
    """
    timeout = checked_timeout(timeout)
    if return_when not in (ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION):
        raise ZkplanError(
            "return_when must be ALL_COMPLETED, FIRST_COMPLETED or FIRST_EXCEPTION, not "
            f"{return_when!r}"
        )
    deadline = None if timeout is None else time.monotonic() + timeout
    done: set[T] = set()
    with Group[T]() as group:
        group.add(tasks_in(tasks, "wait"))
        while group.open:
            found = group.wait(deadline)
            if not found:
                break
            done.update(task for task, _ in found)
            if return_when == FIRST_COMPLETED:
                break
            if return_when == FIRST_EXCEPTION and any(
                completed.error is not None or _is_failure(outcome)
                for (_, completed), outcome in with_outcomes(found)
            ):
                break
        return DoneAndNotDone((done, set(group.open)))


def _is_failure(outcome: bytes | None) -> bool:
    return outcome is not None and outcome[2:3] == FAILURE


async def completion(task: Future) -> tuple[Completed, bytes | None]:
    """Wait in a coroutine until a task has completed; see `as_completed`."""
    import asyncio  # here: most programs have no coroutines

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Completed, bytes | None]] = loop.create_future()

    def complete(told: tuple[Completed, bytes | None]) -> None:
        if not future.done():  # it may have been cancelled meanwhile
            future.set_result(told)

    unwatch = task._watch(lambda *told: _call_soon(loop, complete, told))
    try:
        return await future
    finally:
        unwatch()
