"""The context that `zkplan.current()` gives a running task, and the plan that it may add tasks
to."""

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
        #: Log entries that the function has not awaited yet, oldest first.
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
        """This task. Pass it to a task that you add, and that task gets this task's result."""
        return self.plan.task(self._job.claim.task)

    @property
    def name(self) -> str:
        return self._job.name

    @property
    def cancelled(self) -> bool:
        """True if the result is no longer wanted: the plan was cancelled, the claim was lost, the
        task timed out, or the worker stops."""
        return self._job.is_unwanted()

    def check(self) -> None:
        """Raise TaskCancelled if `cancelled` is True."""
        if self._job.why_stop:
            self._job.heeded = True
            raise TaskCancelled(self.name, f"{self.name}: {self._job.why_stop}")

    def log(self, value: Any) -> Awaitable[None]:
        """Store a progress note or a checkpoint with the task. The next attempt finds it in `logs`.

        In a plain function this returns when the entry is stored. In a coroutine it returns at
        once, to block no other coroutine: `await` the returned object to wait until the entry is
        stored. Without `await` the entry is stored before the result; if storing it fails, the
        attempt fails.

        Raises TaskCancelled if the claim was lost, NotSerialisable, PayloadTooLarge,
        TransactionRejected if an access list forbids the entry, and ServerFull. A task whose
        function does not catch ServerFull runs again later, and uses up no attempt. Raises
        TaskError in a pure task, and after LOGS_PER_ATTEMPT entries.
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
        """Store the value that the task's own process has encoded. Raises what `log` raises."""
        self._start_log(body).wait()

    def _start_log(self, body: bytes) -> _LogEntry:
        job = self._job
        entry = _LogEntry(self._settle)
        self._unsettled[entry] = None
        job.log_count += 1
        # `entry.end` runs on the kazoo thread that gets the answer, so it must not wait.
        step = write_log(job.claim, self._codec.seal(LOG, body))
        self._transport.start(step, lambda resume: resume(), entry.end)
        return entry

    @property
    def logs(self) -> list[Any]:
        """The entries of earlier attempts, oldest first, without those that cannot be decoded."""
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
                f"{self.name} is added with pure=True, and {what}: a pure task depends only on "
                "its arguments, and may run more often than its attempts allow. Add it without "
                "pure=True",
            )

    def _finish_logs(self) -> None:
        """Wait for the entries that the function has not awaited. Raises what `log` raises."""
        while self._unsettled:
            next(iter(self._unsettled)).wait()

    def _is_refused_log(self, error: ServerFull) -> bool:
        """Whether a log entry of this task raised exactly this error object."""
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
        # Otherwise a coroutine that is cancelled while it awaits this entry would cancel the
        # future, and `set_result`, on a thread of kazoo, would raise.
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
            "of its function. To use it in another thread or a pool, copy the context: "
            "pool.submit(contextvars.copy_context().run, function)"
        ) from None


# ---- The plan as a running task sees it: tasks that the task adds become part of its commit.


def returned(result: Any, adds: Sequence[NewTask], is_taken: bool) -> Any:
    """The result of a function that has added `adds`: None if `result` is only tasks of `adds`.

    A function that builds a plan may end with `return plan.add_task(...)`. If another task takes
    the result, or the result is kept (`is_taken`), the handles stay, and are refused later: their
    reader expects a value.
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

    The plan never looks empty between the end of the task and the start of the added tasks. `adds`
    collects the tasks that the commit of `task` will add. Without `reads`, nothing checks that the
    limits of these tasks exist: a task waits until its limits are set. Without `shares`, each task
    has its own copy of its function and its constants, and nothing is written.
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
        shares: bool = False,
    ) -> None:
        super().__init__(client, path, record)
        self._task, self._adds, self._reads = task, adds, reads
        if not shares:
            self._constants = None

    def _check_limits(self, tasks: list[NewTask]) -> None:
        if self._reads:
            super()._check_limits(tasks)

    def _submit(self, tasks: list[NewTask]) -> None:
        keyed = next((task for task in tasks if task.key), None)
        if keyed is not None:
            raise InvalidTask(
                keyed.label,
                f"{keyed.label}: leave out `key` for a task that a running task adds: it is part "
                "of that task's commit, so it is added only once anyway",
            )
        if self._constants is not None:
            write = self._constants.write(self._author.explain_plan)
            self._client.transport.run(write, for_ever=True)
        self._adds += tasks

    def flush(self) -> None:
        """Do nothing: the adds are sent with the commit."""

    def mark_ready(self) -> None:
        """Do nothing: the plan runs already."""

    def wait(
        self, timeout: Duration | None = None, progress: bool = False, fail_fast: bool = False
    ) -> PlanStatus:
        raise PlanError(self.path, "a task cannot wait for its own plan, which waits for the task")
