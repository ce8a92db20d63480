"""Runs one claimed task: decode, call, encode; and the context the function sees while it runs."""

from __future__ import annotations

import contextvars
import inspect
import threading
import time
import traceback
from collections.abc import Callable, Set
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..errors import (
    InvariantViolated,
    PayloadTooLarge,
    PayloadUndecodable,
    ServerFull,
    TaskCancelled,
    TaskError,
    TransactionRejected,
    ZkplanError,
)
from ..inspect.slots import worker_here
from ..protocol import failpoints
from ..protocol.adding import NewTask
from ..protocol.failure import mark_started, write_log
from ..protocol.load import Loaded
from ..protocol.records import Failure, PlanRecord, TaskOptions, TaskRecord
from ..protocol.shared import REQUEST_BYTES_MAX, Claim
from ..serialization.codec import FAILURE, LOG, TASK, VALUE, Codec, dump, load, task_options
from .coroutines import EventLoop

if TYPE_CHECKING:
    from ..plan import Plan
    from ..task import Task
    from ..transport import Transport

#: What one result may take: a request, less the operations that carry it along one edge.
RESULT_BYTES_MAX = REQUEST_BYTES_MAX - 8 * 1024
TRACEBACK_CHARS_MAX = 16_000
EXCEPTION_BYTES_MAX = 32 * 1024
#: Tasks whose lost worker is remembered, to name it should they be out of attempts.
LOSSES_MAX = 10_000
#: Log entries of one attempt; more would make the task too large to be deleted in one transaction.
LOGS_PER_ATTEMPT = 500


@dataclass(slots=True, eq=False)
class Job:
    """A claimed task on its way through this worker."""

    loaded: Loaded
    adds: list[NewTask] = field(default_factory=list)
    options: TaskOptions = field(default_factory=TaskOptions)
    #: Why the function should stop, empty while it need not.
    stop_reason: str = ""
    #: Monotonic time at which it started and must have ended; 0 and infinity while unknown.
    started: float = 0.0
    deadline: float = float("inf")
    #: Set by the worker when it gave the claim away: whatever the function still returns is
    #: dropped.
    abandoned: bool = False
    log_count: int = 0
    #: The function was told to stop; the reason may have passed since (an answer came after all).
    heeded: bool = False
    #: Ends a coroutine whose result is not waited for any more; a thread cannot be ended.
    cancel: Callable[[], object] = bool
    plan: PlanRecord | None = None

    @property
    def claim(self) -> Claim:
        return self.loaded.claim

    def is_unwanted(self) -> bool:
        """Whether its result is not wanted any more."""
        return bool(self.stop_reason) or self.heeded

    @property
    def worker(self) -> str:
        """The ID under which the claim was made: that of the claims node it lies on."""
        return self.claim.path.split("/")[-2]


@dataclass(slots=True)
class Ended:
    """How an attempt ended. Exactly one of the fields from `outcome` (sealed) on says it."""

    job: Job
    seconds: float
    outcome: bytes = b""
    failure: Failure | None = None
    #: The failure came down an edge, or no attempts are left: it is final.
    final: bool = False
    #: Why it cannot run, or go on, here; no attempt is used up.
    undecodable: str = ""
    #: ZooKeeper has no room for what it logs; no attempt is used up.
    no_room: str = ""
    #: The claim was gone before the function started.
    fenced: bool = False
    #: The function gave up because its result was not wanted: no attempt is used up.
    gave_up: bool = False


class Context:
    """What `zkplan.current()` gives inside a task."""

    def __init__(self, job: Job, runner: Runner) -> None:
        self._job = job
        self._runner = runner
        self._log_refused: ServerFull | None = None
        self.worker = job.worker
        #: The fencing number N: grows with every claim of this task. Pass it to what you write to.
        self.attempt = job.claim.n

    @property
    def plan(self) -> Plan:
        """The plan of this task; tasks added to it become part of this task's commit."""
        return self._runner.plan_within(self._job)

    @property
    def task(self) -> Task:
        """This task; as an argument of a task added here it stands for this task's result."""
        return self.plan.task(self._job.claim.task)

    @property
    def name(self) -> str:
        return self._job.options.name or f"task-{self._job.claim.task}"

    @property
    def cancelled(self) -> bool:
        """True once the result is not wanted: plan cancelled, claim lost, timed out, stopping."""
        return self._job.is_unwanted()

    def check(self) -> None:
        """Raise TaskCancelled if the result is not wanted any more."""
        if self._job.stop_reason:
            self._job.heeded = True
            raise TaskCancelled(self.name, f"{self.name}: {self._job.stop_reason}")

    def log(self, value: Any) -> None:
        """Keep a progress note or a checkpoint with the task; the next attempt finds it in `logs`.

        Raises TaskCancelled when the claim is gone, NotSerialisable, PayloadTooLarge;
        TransactionRejected where an access list forbids it; ServerFull (a function that lets it
        pass is run again later, and no attempt is used up).
        """
        job = self._job
        if job.log_count >= LOGS_PER_ATTEMPT:
            raise TaskError(
                self.name, f"{self.name} has written {LOGS_PER_ATTEMPT} log entries, the limit"
            )
        codec = self._runner.codec
        _, body = codec.open(VALUE, codec.seal_value(value))
        step = write_log(job.claim, codec.seal(LOG, body))
        try:
            name = self._runner.transport.run(step, for_ever=True)
        except ServerFull as full:
            self._log_refused = full
            raise
        if name is None:
            job.stop_reason = "its claim was released"
            self.check()
        else:
            job.log_count += 1
            job.loaded.others.append(name)

    @property
    def logs(self) -> list[Any]:
        """What earlier attempts logged, oldest first. What cannot be decoded here is left out."""
        found = []
        for sealed in self._job.loaded.logs:
            try:
                found.append(load(self._runner.codec.open(LOG, sealed)[1]))
            except PayloadUndecodable:
                continue
        return found


_current: contextvars.ContextVar[Context] = contextvars.ContextVar("zkplan_current")


def current() -> Context:
    """The context of the running task; raises ZkplanError outside of one."""
    try:
        return _current.get()
    except LookupError:
        raise ZkplanError("zkplan.current() works only inside a task that a worker runs") from None


class Losses:
    """Which vanished workers held which tasks, as far as this process cleared their claims nodes.

    The tree does not say it: a claims node goes with its claims. Written by the worker's loop, read
    by its slots; each step is one of a dict's own.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}

    def note(self, task_path: str, n: int, worker: str) -> None:
        """The claim before the one of number `n` was lost with `worker`."""
        self._last.pop(task_path, None)
        self._last[task_path] = (n, worker)
        if len(self._last) > LOSSES_MAX:
            del self._last[next(iter(self._last))]

    def keep_only(self, plan_paths: Set[str]) -> None:
        """Forget the tasks of all other plans: those are done or removed, and want no names."""
        for task_path in [path for path in self._last if path.rpartition("/")[0] not in plan_paths]:
            del self._last[task_path]

    def before(self, claim: Claim) -> str:
        """The worker lost with the claim before this one; empty where that is not known here."""
        n, worker = self._last.get(claim.task_path, (-1, ""))
        return worker if n == claim.n else ""


class Runner:
    """Runs jobs for one worker. Thread-safe: each slot calls `run`."""

    def __init__(
        self, transport: Transport, codec: Codec, plan_within: Callable[[Job], Plan]
    ) -> None:
        self.transport = transport
        self.codec = codec
        self.plan_within = plan_within
        self._event_loop = EventLoop()
        self._brink = threading.Lock()
        self.losses = Losses()

    def run(self, job: Job) -> Ended:
        """Run the function of `job` once. Never raises: what happened is in what it gives back."""
        started = time.monotonic()
        job.started = started
        try:
            ended = self._attempt(job)
        except PayloadUndecodable as error:
            ended = Ended(job, 0.0, undecodable=str(error))
        except BaseException as error:
            ended = Ended(job, 0.0, failure=self.describe(error, job))
        ended.seconds = time.monotonic() - started
        return ended

    def _attempt(self, job: Job) -> Ended:
        loaded, codec = job.loaded, self.codec
        record = TaskRecord.from_bytes(codec.open(TASK, loaded.record)[1])
        job.options = options = task_options(record)
        if loaded.result is not None:
            # Decided by an earlier claim: only the delivery is left.
            kind, body = codec.open(VALUE + FAILURE, loaded.result)
            if kind == FAILURE:
                return Ended(job, 0.0, failure=Failure.from_bytes(body), final=True)
            return Ended(job, 0.0, outcome=loaded.result)
        if loaded.damage or record.positions != len(loaded.arguments):
            raise InvariantViolated(
                f"{loaded.claim.task_path} has {len(loaded.arguments)} of {record.positions} "
                f"arguments ({loaded.damage or 'some are missing'}): it was changed by hand"
            )
        if loaded.claim.a >= options.attempts:
            failure = self.last_failure(job)
            return Ended(job, 0.0, failure=failure, final=True)
        values = []
        for sealed in loaded.arguments:
            kind, body = codec.open(VALUE + FAILURE, sealed)
            if kind == FAILURE:
                cause = Failure.from_bytes(body)
                failure = cause._replace(
                    kind="UpstreamFailed", message=f"a task it depends on failed: {cause.summary}"
                )
                return Ended(job, 0.0, failure=failure, final=True)
            values.append(load(body))
        function = codec.function(record.function)
        args, kwargs = load(record.arguments, values)
        # Where the loss of this worker would be its last attempt, a task runs beside no other such
        # task: whichever runs when the worker vanishes is the one to blame.
        at_the_brink = loaded.claim.n > loaded.claim.a and loaded.claim.a + 1 >= options.attempts
        with self._brink if at_the_brink else nullcontext():
            return self._run_function(job, function, args, kwargs)

    def _run_function(
        self, job: Job, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> Ended:
        claim, timeout = job.claim, job.options.timeout
        if job.is_unwanted():
            return Ended(job, 0.0, gave_up=True)  # while it waited for its turn
        if claim.n > claim.a:
            # An earlier claim ended without an outcome: this task may be what killed its worker.
            try:
                if not self.transport.run(mark_started(claim), for_ever=True):
                    return Ended(job, 0.0, fenced=True)
            except TransactionRejected as error:
                # It has not run, so it must not use up an attempt: as what is not understood here.
                return Ended(job, 0.0, undecodable=f"its start cannot be noted: {error}")
            job.loaded.others.append(f"started-{claim.n}")
        if timeout is not None:
            job.deadline = time.monotonic() + timeout
        context = Context(job, self)
        try:
            failpoints.reach("task.before")
            result = self._call(context, function, args, kwargs)
            failpoints.reach("task.after")
        except ServerFull as full:
            if full is not context._log_refused:  # by a plan that it builds: it may mend that
                return Ended(job, 0.0, failure=self.describe(full, job))
            # What it logs has no room: the task is not to blame.
            return Ended(job, 0.0, no_room=str(full))
        except TaskCancelled:
            if not job.is_unwanted():
                raise
            return Ended(job, 0.0, gave_up=True)
        except PayloadUndecodable as error:
            # The function's own: it asked for the result of some other task. This one is decoded.
            return Ended(job, 0.0, failure=self.describe(error, job))
        # A result that is kept says whose it is. One that has edges is not, unless asked for.
        is_kept = job.options.keep or (job.options.keep is None and not job.loaded.edges)
        outcome = self.codec.seal_value(result, job.options.name if is_kept else "")
        if len(outcome) > RESULT_BYTES_MAX:
            raise PayloadTooLarge("the result", len(outcome), RESULT_BYTES_MAX)
        return Ended(job, 0.0, outcome=outcome)

    def _call(self, context: Context, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        token, here = _current.set(context), worker_here.set(context.worker)
        try:
            result = function(*args, **kwargs)
            if not inspect.iscoroutine(result):
                return result
            # It runs in a copy of this context, so that `current` finds its own task there.
            future = self._event_loop.start(result)
        finally:
            _current.reset(token)
            worker_here.reset(here)
        job = context._job
        job.cancel = future.cancel
        # The worker may have written the job off just before: it would run on for nobody. One that
        # was merely told to stop decides by itself, and its result may still count.
        if job.abandoned:
            future.cancel()
        return future.result()

    def close(self) -> None:
        self._event_loop.close()

    def describe(self, error: BaseException, job: Job) -> Failure:
        """The failure record of an exception; frames of zkplan itself are left out."""
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_globals.get("__name__") == __name__:
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames))
        try:
            pickled = dump(error.with_traceback(None))
        except BaseException:
            pickled = b""  # it cannot travel (whatever its own code raises); the text does
        return Failure(
            kind=type(error).__qualname__,
            message=_message(error)[:2000],
            traceback=text[-TRACEBACK_CHARS_MAX:],
            worker=job.worker,
            n=job.claim.n,
            when=time.time(),
            exception=pickled if len(pickled) <= EXCEPTION_BYTES_MAX else b"",
        )

    def last_failure(self, job: Job) -> Failure:
        """Why a task is out of attempts: its last failure, else that its workers vanished."""
        for sealed in reversed(job.loaded.logs):
            try:
                return Failure.from_bytes(self.codec.open(FAILURE, sealed)[1])
            except PayloadUndecodable:
                continue
        a = job.claim.a
        lost = "a worker vanished while it" if a == 1 else f"{a} workers vanished while they"
        worker = self.losses.before(job.claim)
        which = f"; {'it' if a == 1 else 'the last one'} was {worker}" if worker else ""
        message = (
            f"{lost} ran it{which} (killed, out of memory, crashed, or its task held the "
            "interpreter lock longer than the session time-out; the first such loss of a "
            "task may be free, and is not counted then)"
        )
        # Never the worker that says so: whoever looks for the cause would look at its logs.
        n = job.claim.n - 1 if worker else job.claim.n
        return Failure("WorkerLost", message, "", worker, n, time.time())


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as broken:
        # Without this, the error would end the slot's thread and the task would never end.
        return f"(its message cannot be made: {type(broken).__name__})"
