"""Answer `zkplan.current()`: what a running task can ask and do, and its plan, to which it may
add."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Any

from ..basics.public_calls import Duration
from ..errors import (
    InvalidTask,
    PayloadUndecodable,
    PlanError,
    ServerFull,
    TaskCancelled,
    TaskError,
    ZkplanError,
)
from ..plan import Plan
from ..protocol.core.add import NewTask
from ..protocol.core.claim import write_log
from ..protocol.core.plan_life import PlanStatus
from ..protocol.records import PlanRecord
from ..tasks import MapResults, Task
from ..transport import Transport
from ..values.codec import LOG, VALUE, Codec
from ..values.connection import Connection
from ..values.function_codec import is_json
from .job import LOST, Job

#: The most log entries of one attempt. With more, no single transaction could delete the task.
LOGS_PER_ATTEMPT = 500


class Context:
    """The running task, as `zkplan.current()` returns it inside the task's function."""

    __slots__ = ("_codec", "_job", "_log_refused", "_plan_within", "_transport", "_unsettled")

    def __init__(
        self, job: Job, transport: Transport, codec: Codec, plan_within: Callable[[Job], Plan]
    ) -> None:
        self._job = job
        self._transport, self._codec, self._plan_within = transport, codec, plan_within
        #: Log entries that nobody has awaited yet, oldest first.
        self._unsettled: dict[_LogEntry, None] = {}
        self._log_refused: ServerFull | None = None

    @property
    def worker(self) -> str:
        """The ID of the worker that runs this task."""
        return self._job.worker

    @property
    def attempt(self) -> int:
        """The fencing number N, which grows with every claim of this task. Pass it to the systems
        that you write to. Raises TaskError in a pure task."""
        self._refuse_if_pure("asks for its attempt number")
        return self._job.claim.n

    @property
    def plan(self) -> Plan:
        """The plan of this task. Tasks that you add to it become part of this task's commit.

        Raises TaskError in a pure task.
        """
        self._refuse_if_pure("uses its plan")
        return self._plan_within(self._job)

    @property
    def task(self) -> Task:
        """This task. As an argument of a task that you add, it stands for this task's result."""
        return self.plan.task(self._job.claim.task)

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def cancelled(self) -> bool:
        """True if the result is not wanted any more: plan cancelled, claim lost, timed out, worker
        stopping."""
        return self._job.is_unwanted()

    def check(self) -> None:
        """Raise TaskCancelled if `cancelled` is True."""
        if self._job.why_stop:
            self._job.heeded = True
            raise TaskCancelled(self.name, f"{self.name}: {self._job.why_stop}")

    def log(self, value: Any) -> Awaitable[None]:
        """Store a progress note or a checkpoint with the task. The next attempt finds it in `logs`.

        In a plain function this returns when the entry is stored. In a coroutine it returns at
        once, so that it blocks no other coroutine: `await` the returned object to know that the
        entry is stored. An entry that is not awaited is stored before the result is; if it fails,
        the attempt fails.

        Raises TaskCancelled if the claim is gone, NotSerialisable, PayloadTooLarge,
        TransactionRejected if an access list forbids the entry, and ServerFull. If the function
        does not catch ServerFull, it runs again later, and no attempt is used up. Raises TaskError
        in a pure task.
        """
        self._refuse_if_pure("logs")
        job, codec = self._job, self._codec
        if job.log_count >= LOGS_PER_ATTEMPT:
            raise TaskError(
                self.name, f"{self.name} has written {LOGS_PER_ATTEMPT} log entries, the limit"
            )
        _, body = codec.open(VALUE, codec.seal_value(value, as_json=is_json(job.function)))
        entry = self._start_log(body)
        if not _in_coroutine():
            entry.wait()
        return entry

    def _log_body(self, body: bytes) -> None:
        """Store the value that a process of the task has encoded. Raises as `log`."""
        self._start_log(body).wait()

    def _start_log(self, body: bytes) -> _LogEntry:
        job = self._job
        entry = _LogEntry(self._settle)
        self._unsettled[entry] = None
        job.log_count += 1
        # The rest runs on the kazoo thread that gets the answer, so it must not wait.
        step = write_log(job.claim, self._codec.seal(LOG, body))
        self._transport.start(step, lambda resume: resume(), entry.end)
        return entry

    @property
    def logs(self) -> list[Any]:
        """The entries that earlier attempts logged, oldest first. Entries that cannot be decoded
        here are left out."""
        found = []
        for sealed in self._job.loaded.logs:
            try:
                found.append(self._codec.load(self._codec.open(LOG, sealed)[1]))
            except PayloadUndecodable:
                continue
        return found

    def _refuse_if_pure(self, what: str) -> None:
        if self._job.options.pure:
            raise TaskError(
                self.name,
                f"{self.name} is added with pure=True, and {what}: a pure task depends on its "
                "arguments alone, and may run more often than its attempts say. Add it without "
                "pure=True",
            )

    def _finish_logs(self) -> None:
        """Wait for the entries that nobody awaited. Raises as `log` does."""
        while self._unsettled:
            next(iter(self._unsettled)).wait()

    def _is_refused_log(self, error: ServerFull) -> bool:
        """Whether this very error came from a log entry of this task."""
        return error is self._log_refused

    def _settle(self, entry: _LogEntry, name: str | None, error: BaseException | None) -> None:
        job = self._job
        is_new = entry in self._unsettled
        self._unsettled.pop(entry, None)
        if is_new and name is not None:
            job.loaded.others.append(name)
        elif is_new:
            job.log_count -= 1
        if isinstance(error, ServerFull):
            self._log_refused = error
        if error is not None:
            raise error
        if name is None:
            job.stop(LOST, time.monotonic())
            self.check()


class _LogEntry:
    """A log entry under way. Await it to wait until it is stored, without blocking a thread."""

    def __init__(self, settle: Callable[[_LogEntry, str | None, BaseException | None], None]):
        self._settle = settle
        self._ended: Future[tuple[str | None, BaseException | None]] = Future()
        # Otherwise a coroutine that is cancelled while it awaits this would cancel the entry, too.
        # Setting its result, on a thread of kazoo, would then be an error.
        self._ended.set_running_or_notify_cancel()

    def end(self, name: str | None, error: BaseException | None) -> None:
        self._ended.set_result((name, error))

    def wait(self) -> None:
        self._settle(self, *self._ended.result())

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.wrap_future(self._ended).__await__()
        self.wait()


def _in_coroutine() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


#: The context of the task that runs in this thread, or in this coroutine.
running: contextvars.ContextVar[Context] = contextvars.ContextVar("zkplan_current")


def current() -> Context:
    """Return the context of the running task. Raises ZkplanError outside a task."""
    try:
        return running.get()
    except LookupError:
        raise ZkplanError(
            "zkplan.current() works only inside a task that a worker runs, and only in the thread "
            "of its function: to have it in another thread or in a pool, carry it over, such as "
            "pool.submit(contextvars.copy_context().run, function)"
        ) from None


# ---- The plan as a running task sees it: tasks that it adds become part of its commit.


def returned(result: Any, adds: Sequence[NewTask], is_taken: bool) -> Any:
    """What counts as the result of a function that has added `adds`: None in place of these tasks.

    A function that builds a plan may end with `return plan.add_task(...)`. Where a task takes its
    result, or it is to be kept, handles are refused as anywhere: their readers would miss a value.
    """
    handles = result.tasks if type(result) is MapResults else result
    handles = [handles] if type(handles) is Task else handles
    if is_taken or type(handles) is not list or not handles:
        return result
    own = set(map(id, adds))
    is_own = all(type(each) is Task and id(each._new) in own for each in handles)
    return None if is_own else result


class PlanWithin(Plan):
    """The plan inside a running task. A task that runs again never adds its tasks twice.

    The plan cannot look empty between the end of the task and its adds. `adds` collects the tasks
    that the commit of `task` will add. Without `reads` nobody looks whether the limits that they
    name exist: they wait until these are set.
    """

    def __init__(
        self,
        client: Connection,
        path: str,
        record: PlanRecord | None,
        task: str,
        adds: list[NewTask],
        *,
        reads: bool = True,
    ) -> None:
        super().__init__(client, path, record)
        self._task, self._adds, self._reads = task, adds, reads

    def _check_limits(self, tasks: list[NewTask]) -> None:
        if self._reads:
            super()._check_limits(tasks)

    def _submit(self, tasks: list[NewTask]) -> None:
        keyed = next((task for task in tasks if task.key), None)
        if keyed is not None:
            raise InvalidTask(
                keyed.label,
                f"{keyed.label}: a task that a running task adds has no key: it is part of that "
                "task's commit, so it is added once in any case",
            )
        self._adds += tasks

    def flush(self) -> None:
        """Do nothing: the adds are sent with the commit."""

    def mark_ready(self) -> None:
        """Do nothing: the plan runs already."""

    def wait(
        self, timeout: Duration | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        raise PlanError(self.path, "a task cannot wait for its own plan: it is part of it")
