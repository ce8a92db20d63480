"""Run a claimed task: decode it, call its function, and seal the result."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from ..backoff import CHANCE, Backoff
from ..basics import tracing
from ..basics.log import get_logger, task_here
from ..errors import (
    PayloadTooLarge,
    PayloadUndecodable,
    ServerFull,
    StoredValueLost,
    StoreUnavailable,
    TaskCancelled,
    TransactionRejected,
)
from ..protocol import failpoints
from ..protocol.core.claim import mark_started
from ..protocol.records import Failure, TaskRecord
from ..protocol.requests import Fact
from ..protocol.transactions import REQUEST_BYTES_MAX
from ..transport import Transport
from ..transport.server_clock import Clock, ServerClock
from ..values.function_codec import is_json
from ..values.plan_values import Values
from .ahead import RunAhead
from .attempts import VanishedWorkers, before_call, describe, ended_by, is_last_attempt
from .context import Context, returned, running
from .isolation import IsolatedAttempts, Isolation
from .job import Ended, Job, Tail
from .threads import EventLoop, leave_fork

if TYPE_CHECKING:
    from ..plan import Plan

logger = get_logger("zkplan.worker")
#: Seconds for which a result waits for an unavailable store, before its task is handed back.
STORE_PATIENCE_S = 30.0
#: The most bytes of one result: a whole request, less its operations for delivery along one edge.
RESULT_BYTES_MAX = REQUEST_BYTES_MAX - 8 * 1024


class Runner:
    """Runs jobs for one worker. Thread-safe: each slot calls `run`."""

    def __init__(
        self,
        *,
        transport: Transport,
        values: Values,
        plan_within: Callable[[Job], Plan],
        vanished: VanishedWorkers,
        queues: Sequence[str],
        is_busy: Callable[[], bool],
        isolation: Isolation,
        clock: Clock,
        server_clock: ServerClock,
        output_max: int = 0,
    ) -> None:
        """The worker serves `queues`. `is_busy` returns whether tasks wait for a slot.
        `output_max` is how many bytes of each attempt's output to keep."""
        self._clock, self._server_clock, self.output_max = clock, server_clock, output_max
        self._transport, self._plan_within = transport, plan_within
        self._values, self._codec = values, values.codec
        self.vanished = vanished
        self._event_loop = EventLoop()
        self._isolation = isolation
        self._isolated = IsolatedAttempts(isolation, values)
        self._ahead = RunAhead(
            transport=transport,
            codec=self._codec,
            queues=queues,
            run_once=self._once,
            is_busy=is_busy,
            clock=clock,
        )
        #: Held by a task while the loss of this worker would use up the task's last attempt.
        self._last_attempt = threading.Lock()

    def run(self, job: Job) -> Ended:
        """Run `job`, and the pure tasks that may run ahead after it. Never raises: an error becomes
        part of the returned Ended."""
        ended = self._once(job)
        if job.options.pure:
            started = self._clock.monotonic()
            self._ahead.run(ended)
            ended.seconds += self._clock.monotonic() - started
        return ended

    def _once(self, job: Job) -> Ended:
        """Run the function of `job` once. Never raises."""
        job.started = started = self._clock.monotonic()
        has_history = job.plan is None or job.plan.history
        if self.output_max and has_history:
            # Create the Tail before the function runs: two of its threads may print first at once.
            job.output = Tail(self.output_max)
        token = task_here.set(job)
        try:
            ended = self._attempt(job)
        except BaseException as error:
            ended = ended_by(error, job, self._codec)
        finally:
            task_here.reset(token)
            if job.begun:
                job.end_lines()
        now = self._clock.monotonic()
        ended.seconds = now - started
        if has_history:
            ended.fact = Fact(ran_ms=round(1000 * ended.seconds), ended=now)
        if job.span is not None:
            job.span.end(ended)
        return ended

    def _describe(self, error: BaseException, job: Job) -> Failure:
        return describe(error, job, self._codec)

    def close(self) -> None:
        self._event_loop.close()
        self._isolation.close()

    def _attempt(self, job: Job) -> Ended:
        found = before_call(job, self._codec, self._measured, self.vanished.before)
        if isinstance(found, Ended):
            return found
        record, bodies = found
        if tracing.active is not None:
            job.span = tracing.active.start(job, bodies)
            job.traceparent = "" if job.span is None else job.span.traceparent
        try:
            if self._isolation.takes(job.options) and not is_json(record.function):
                ended = self._run_isolated(job, record, bodies)
                if ended is not None:
                    return ended
            function, args, kwargs = self._prepare(job, record, bodies)
        except StoredValueLost as error:
            # Another attempt would not find the value either.
            lost = StoredValueLost(
                f"{job.name} needs a value that is gone: {error}. Restore it, then retry the task "
                f"(`zkplan plan retry {int(job.claim.plan)}`), or create the plan again"
            )
            return Ended(job, failure=self._describe(lost, job), final=True, shown=str(lost))
        # Of the tasks whose last attempt the loss of this worker would use up, only one runs at a
        # time. So if the worker vanishes, only one of them loses its last attempt.
        if is_last_attempt(job):
            with self._last_attempt:
                return self._run_function(job, function, args, kwargs)
        return self._run_function(job, function, args, kwargs)

    def _measured(self) -> ServerClock:
        if not self._server_clock.is_known:
            self._transport.run(self._server_clock.measure(), for_ever=True)
        return self._server_clock

    def _prepare(
        self, job: Job, record: TaskRecord, bodies: list[bytes]
    ) -> tuple[Callable[..., Any], Any, Any]:
        """The function and its arguments. User code runs here, and may hang: an import, or a class
        that decodes its value. So the time-out counts here, too. The call of the function then gets
        the whole time-out again."""
        plan_path, stored = job.claim.plan_path, self._values
        if job.options.timeout is not None:
            job.deadline = self._clock.monotonic() + job.options.timeout
        job.preparing = "importing its function"
        pid = os.getpid()
        try:
            load = partial(stored.load_function, plan_path)
            function = self._codec.function(record.function, load)
            job.preparing = "decoding its arguments"
            values = stored.load_all(plan_path, bodies) if bodies else ()
            args, kwargs = stored.load_call(plan_path, record.arguments, values)
        except BaseException as error:
            leave_fork(pid, error)
            raise
        leave_fork(pid)
        # Next the task may wait for its turn among last attempts, which is not its fault.
        job.deadline = float("inf")
        job.preparing = ""
        return function, args, kwargs

    def _run_isolated(self, job: Job, record: TaskRecord, bodies: list[bytes]) -> Ended | None:
        """Run `job` in a process of its own. None: its function is a coroutine, which must run in
        this process. The job needs no turn among last attempts: it cannot end this worker."""
        context = Context(job, self._transport, self._codec, self._plan_within)
        came = self._isolated.came(job, record, bodies, partial(self._start, job), context)
        if came.is_coroutine:
            return None
        ended = self._isolated.ended(job, came)
        if ended is not None:
            return ended
        job.adds += came.adds
        place, name = (job.claim.plan_path, self._key(job)), job.kept_name
        seal = self._values.seal_carried
        return self._with_outcome(job, seal, *place, came.is_blob, came.result, name)

    def _start(self, job: Job) -> Ended | None:
        """The end of the attempt if the function must not be called; None if it may be called now.
        The time-out counts from here."""
        claim, timeout = job.claim, job.options.timeout
        if job.is_unwanted():
            return Ended(job, stopped=True)  # while the job waited for its turn
        if claim.n > claim.a:
            # An earlier claim ended without an outcome: this task may have killed its worker.
            try:
                if not self._transport.run(mark_started(claim), for_ever=True):
                    return Ended(job, fenced=True)
            except TransactionRejected as error:
                # The function has not run, so no attempt is used up, as for a task that cannot be
                # decoded.
                return Ended(job, cannot_run=f"its start cannot be recorded: {error}")
            job.loaded.others.append(f"started-{claim.n}")
        job.preparing = ""
        job.deadline = job.last_call
        if timeout is not None:
            job.deadline = min(job.deadline, self._clock.monotonic() + timeout)
        return None

    def _run_function(
        self, job: Job, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Ended:
        ended = self._start(job)
        if ended is not None:
            return ended
        context = Context(job, self._transport, self._codec, self._plan_within)
        try:
            failpoints.reach("task.before")
            result = self._call(context, job, function, args, kwargs)
            if job.adds:
                result = returned(result, job.adds, job.is_taken)
            failpoints.reach("task.after")
            context._finish_logs()
        except ServerFull as full:
            if not context._is_refused_log(full):
                # The function itself met the full server, for example while it built a plan.
                return Ended(job, failure=self._describe(full, job))
            # The server has no room for the task's log entries: the task is not to blame.
            return Ended(job, server_full=True)
        except TaskCancelled:
            if not job.is_unwanted():
                raise
            return Ended(job, stopped=True)
        except PayloadUndecodable as error:
            # This task was decoded: the function raised the error when it asked for the result of
            # another task.
            return Ended(job, failure=self._describe(error, job))
        place, name = (job.claim.plan_path, self._key(job)), job.kept_name
        seal = self._values.seal
        return self._with_outcome(job, seal, *place, result, name, is_json(job.function))

    def _key(self, job: Job) -> str:
        """The key of the result in the store; empty if `job` may store no blob.

        S10: only the claim of a task protects its blob from the check of the store. A task that
        runs ahead has no claim, so `seal` returns no bytes for a result that needs the store.
        """
        if self._values.store is None or job.leader is not None:
            return ""
        return f"{job.claim.task}.{job.claim.n}"

    def _with_outcome(self, job: Job, seal: Callable[..., bytes], *result: Any) -> Ended:
        """Seal `result` with `seal`, which stores a large one, as the outcome of `job`."""
        try:
            outcome = seal(*result)
        except StoreUnavailable as error:
            # The function has run, so keep its result until the store is available.
            logger.warning("%s keeps its result until there is a store: %s", job.name, error)
            outcome = self._sealed_later(job, partial(seal, *result), error)
        if not outcome:
            return Ended(job, needs_claim=True)
        if job.traceparent:
            outcome = self._codec.seal_traced(outcome, job.traceparent)
        if len(outcome) > RESULT_BYTES_MAX:
            # The next attempt's result would be as large.
            what = f"the result of task {job.name}"
            too_large = PayloadTooLarge(what, len(outcome), RESULT_BYTES_MAX)
            failure = self._describe(too_large, job)
            return Ended(job, failure=failure, final=True, shown=str(too_large))
        return Ended(job, outcome=outcome)

    def _sealed_later(self, job: Job, seal: Callable[[], bytes], error: StoreUnavailable) -> bytes:
        deadline = self._clock.monotonic() + STORE_PATIENCE_S
        backoff = Backoff(0.05, 2.0, 2.0, 0.3)
        for tries in count():
            delay_s = backoff.delay_s(tries, CHANCE.random())
            if job.is_unwanted() or self._clock.monotonic() + delay_s > deadline:
                break
            time.sleep(delay_s)
            try:
                return seal()
            except StoreUnavailable as again:
                error = again
        raise error

    def _call(
        self, context: Context, job: Job, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        token = running.set(context)
        try:
            pid = os.getpid()
            try:
                result = function(*args, **kwargs)
            except BaseException as raised:
                leave_fork(pid, raised)
                raise
            leave_fork(pid)
            if not inspect.iscoroutine(result):
                return result
            # The coroutine runs in a copy of this context, so that `current` finds the right task.
            future = self._event_loop.start(result)
        finally:
            running.reset(token)
        job.cancel = future.cancel
        # If the worker has written off the job just before, cancel the coroutine. A coroutine that
        # was only told to stop decides by itself, and its result may still count.
        if job.abandoned:
            future.cancel()
        value, error = future.result()
        if error is not None:
            raise error
        return value
