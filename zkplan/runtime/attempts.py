"""Begin or refuse an attempt, record its failure, and decide whether and when to try again."""

from __future__ import annotations

import base64
import logging
import traceback
from collections.abc import Callable, Set
from random import Random
from typing import Any, NamedTuple, cast

from ..backoff import Backoff
from ..basics.log import get_logger
from ..basics.text import date_time, formatted, frames_of, kind_of, message_of
from ..errors import (
    FunctionNotAllowed,
    InvariantViolated,
    PayloadRefused,
    PayloadTooLarge,
    PayloadUndecodable,
    StoreUnavailable,
    ZkplanError,
)
from ..protocol.core.edges import outcome_in, source_in
from ..protocol.records import Failure, TaskRecord
from ..protocol.task_options import TaskOptions
from ..protocol.transactions import Claim
from ..transport.server_clock import CLOCK, Clock, ServerClock
from ..values.codec import FAILURE, VALUE, Codec, dump_failure, task_options
from ..values.function_codec import is_json, is_skipped
from ..values.functions_by_name import changed_modules
from ..values.shared import constants_of
from .job import Ended, Job


class Ready(NamedTuple):
    """The function may be called: the definition, and the bodies of the opened arguments."""

    record: TaskRecord
    bodies: list[bytes]


def before_call(
    job: Job, codec: Codec, clock: Callable[[], ServerClock], lost_with: Callable[[Claim], str]
) -> Ready | Ended:
    """Open the definition and the arguments of `job`, and set its options and function.

    `clock()` returns the measured clock of the server. `lost_with(claim)` returns the worker that
    vanished with the previous claim, or an empty string. Raises errors for `ended_by`.
    """
    loaded = job.loaded
    record = codec.open_definition(loaded.record)
    job.options, job.function = task_options(record), record.function
    options = job.options
    if loaded.result is not None:
        # An earlier claim, or an operator, has stored the outcome: only the delivery is left.
        kind, body = codec.open(VALUE + FAILURE, loaded.result)
        if kind == FAILURE:
            return Ended(job, failure=Failure.from_bytes(body), final=True)
        return Ended(job, outcome=loaded.result, skipped=is_skipped(body))
    if loaded.damage or record.positions != len(loaded.arguments):
        raise InvariantViolated(
            f"{loaded.claim.task_path} has {len(loaded.arguments)} of {record.positions} "
            f"arguments ({loaded.damage or 'some are missing'}): it was changed by hand"
        )
    if loaded.refused is not None:
        told = str(loaded.refused)
        return Ended(job, failure=describe(loaded.refused, job, codec), final=True, shown=told)
    if options.not_before is not None or options.deadline is not None:
        ended = _out_of_time(job, clock())
        if ended is not None:
            return ended
    if loaded.claim.a >= options.attempts:
        lost_worker = lost_with(loaded.claim)
        return Ended(job, failure=last_failure(job, codec, lost_worker), final=True)
    bodies, failures = [], []
    for argument in loaded.arguments:
        kind, body = codec.open(VALUE + FAILURE, outcome_in(argument))
        if kind == FAILURE:
            failures.append((source_in(argument), Failure.from_bytes(body)))
            body = dump_failure(failures[-1][1])
        bodies.append(body)
    if failures and options.run_if == "all_succeeded":
        source, cause = failures[0]
        return Ended(job, failure=cause.upstream(source), final=True)
    if not failures and options.run_if == "any_failed":
        nothing = codec.seal_skipped(None, options.name, is_json(record.function))
        return Ended(job, outcome=nothing, skipped=True)
    return Ready(record, bodies + constants_of(options) if options.constants else bodies)


def is_last_attempt(job: Job) -> bool:
    """Whether the loss of this claim would use up the last attempt of the task."""
    claim = job.claim
    return claim.n > claim.a and claim.a + 1 >= job.options.attempts


def _out_of_time(job: Job, clock: ServerClock) -> Ended | None:
    """The end of the attempt, if `job` may not run yet or no longer."""
    options, now = job.options, clock.now()
    if options.deadline is not None:
        job.last_call = clock.monotonic_at(options.deadline)
        if now >= options.deadline:
            return Ended(job, failure=deadline_passed(job), final=True)
    if options.not_before is not None and now < options.not_before:
        return Ended(job, not_before=options.not_before)
    return None


def ended_by(error: BaseException, job: Job, codec: Codec) -> Ended:
    """How an attempt ends by an error of zkplan, or of the function."""
    match _own_error(error):
        case PayloadRefused():
            # Another worker with this key would refuse it, too. `values.guard` has logged the place
            # when it read the value, and logs each place once.
            return Ended(job, failure=describe(error, job, codec), final=True)
        case PayloadUndecodable() as own:
            return Ended(job, cannot_run=str(own), shown=undecodable_for_log(own))
        case StoreUnavailable():
            return Ended(job, store_away=str(error))
        case InvariantViolated():
            # zkplan's own text about znodes, which an operator must see.
            return Ended(job, failure=describe(error, job, codec), shown=str(error))
        case FunctionNotAllowed():
            # The next attempt would be refused, too: the function is not on the allow list.
            return Ended(job, failure=describe(error, job, codec), final=True, shown=str(error))
    is_last = is_final(job.options, error, codec.function)
    return Ended(job, failure=describe(error, job, codec), final=is_last)


def _own_error(error: BaseException) -> ZkplanError | None:
    """`error` if zkplan defines its class, else None. A class pattern would read `__class__` of
    other errors, too, which may raise in a user's class."""
    return cast("ZkplanError", error) if issubclass(type(error), ZkplanError) else None


# ---- Failure records: for an exception, a time-out, a task whose workers vanished.


TRACEBACK_CHARS_MAX = 16_000
EXCEPTION_BYTES_MAX = 32 * 1024
#: A failure names at most this many modules whose files have changed.
STALE_MAX = 5
#: The most characters of a message in one line of the log.
LOGGED_CHARS_MAX = 500
#: If its level is INFO or lower, the log of a worker also has the messages of exceptions.
MESSAGES = get_logger("zkplan.worker.messages")
MESSAGES.setLevel(logging.CRITICAL + 1)
#: Packages whose decoding errors contain missing names, but no values.
_DECODERS = ("zkplan", "importlib", "_frozen_importlib", "pickle", "dill")
#: The most tasks whose vanished worker is remembered, for the failure of a task out of attempts.
LOSSES_MAX = 10_000


class VanishedWorkers:
    """By task: the vanished worker that last held its claim, if this worker has cleared the claim.

    ZooKeeper has no record of that worker, because a claims node is deleted with its claims. The
    loop writes and slots read: each access is one atomic operation of a dict.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, str]] = {}

    def note(self, task_path: str, n: int, worker: str) -> None:
        """Note that the claim before number `n` was lost with `worker`."""
        self._last.pop(task_path, None)
        self._last[task_path] = (n, worker)
        if len(self._last) > LOSSES_MAX:
            del self._last[next(iter(self._last))]

    def keep_only(self, plan_paths: Set[str]) -> None:
        """Forget all tasks but those of `plan_paths`: the other plans are done or removed."""
        for task_path in [path for path in self._last if path.rpartition("/")[0] not in plan_paths]:
            del self._last[task_path]

    def before(self, claim: Claim) -> str:
        """The worker that vanished with the previous claim; empty if this worker does not know."""
        n, worker = self._last.get(claim.task_path, (-1, ""))
        return worker if n == claim.n else ""


def describe(error: BaseException, job: Job, codec: Codec, clock: Clock = CLOCK) -> Failure:
    """The failure record of an exception, without the worker's own frames in the traceback."""
    frames = frames_of(error)
    while frames is not None and _is_own_frame(frames.tb_frame.f_globals.get("__name__")):
        frames = frames.tb_next
    text = formatted(error, frames)
    try:
        dumped = codec.dump_exception(error, is_json(job.function))
    except BaseException:
        dumped = b""  # the exception cannot be encoded; its text is kept anyway
    return Failure(
        kind=kind_of(error),
        message=message_of(error)[:2000],
        traceback=text[-TRACEBACK_CHARS_MAX:],
        worker=job.worker,
        n=job.claim.n,
        when=clock.wall(),
        exception=dumped if len(dumped) <= EXCEPTION_BYTES_MAX else b"",
        traceparent=job.traceparent,
        stale=tuple(changed_modules())[:STALE_MAX],
    )


def sealed(job: Job, codec: Codec, error: BaseException, clock: Clock = CLOCK) -> bytes:
    """The failure record of an exception, sealed as an outcome."""
    return codec.seal(FAILURE, describe(error, job, codec, clock).to_bytes())


def for_log(failure: Failure, job: Job, shown: str = "") -> str:
    """The text of a failure for the worker's log. `shown`: a text of zkplan about the failure.

    The message of a user's exception may contain arguments, and more people read logs than
    ZooKeeper. So the log has only the exception's type, unless the level of MESSAGES allows more.
    """
    is_own = not failure.traceback and not failure.exception
    if is_own or MESSAGES.isEnabledFor(logging.INFO):
        return failure.summary[:LOGGED_CHARS_MAX]
    if shown:
        return f"{failure.kind}: {shown}"[:LOGGED_CHARS_MAX]
    task = f"{int(job.claim.plan)} {int(job.claim.task)}"
    return f"{failure.kind} (`zkplan task show {task}` shows its message)"


def undecodable_for_log(error: PayloadUndecodable) -> str:
    """The text for the worker's log about a task that it cannot decode.

    It names a missing module or name. It omits the message of an exception that user code raised
    while it was imported or decoded a value.
    """
    text, cause = str(error), error.__cause__
    if cause is None or MESSAGES.isEnabledFor(logging.INFO):
        return text[:LOGGED_CHARS_MAX]
    frames = list(traceback.walk_tb(frames_of(cause)))
    module = str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""
    if module.partition(".")[0] in _DECODERS:
        return text[:LOGGED_CHARS_MAX]
    return text.removesuffix(f": {message_of(cause)}")[:LOGGED_CHARS_MAX]


def time_out(job: Job, clock: Clock = CLOCK) -> Failure:
    """The failure record of an attempt that took too long."""
    took = f"{job.preparing} took" if job.preparing else "it ran"
    what = f"{took} longer than its time-out of {job.options.timeout or 0.0:g} s"
    return Failure(
        *("TimeoutError", what, "", job.worker, job.claim.n, clock.wall()),
        traceparent=job.traceparent,
    )


def deadline_passed(job: Job, clock: Clock = CLOCK) -> Failure:
    """The failure record of a task that had not ended by its deadline."""
    passed = date_time(job.options.deadline or 0.0, people=False)
    what = f"its deadline has passed ({passed})"
    return Failure("DeadlinePassed", what, "", job.worker, job.claim.n, clock.wall())


def cannot_run(job: Job, why: str, clock: Clock) -> Failure:
    """The log entry for a task that this worker cannot run, which uses up no attempt."""
    return Failure("PayloadUndecodable", why, "", job.worker, job.claim.n, clock.wall())


def store_away(job: Job, why: str, clock: Clock) -> Failure:
    """The log entry for a task that waits for the store, which uses up no attempt."""
    return Failure("StoreUnavailable", why, "", job.worker, job.claim.n, clock.wall())


def last_failure(job: Job, codec: Codec, lost_worker: str, clock: Clock = CLOCK) -> Failure:
    """Why a task is out of attempts: its last failure, or WorkerLost if its workers vanished.

    `lost_worker` held the previous claim; empty if unknown.
    """
    for sealed in reversed(job.loaded.logs):
        try:
            return Failure.from_bytes(codec.open(FAILURE, sealed)[1])
        except PayloadUndecodable:
            continue
    a = job.claim.a
    lost = "a worker vanished while it" if a == 1 else f"{a} workers vanished while they"
    which = f"; {'it' if a == 1 else 'the last one'} was {lost_worker}" if lost_worker else ""
    message = (
        f"{lost} ran it{which} (killed, out of memory, crashed, or its task held the "
        "interpreter lock longer than the session time-out; the first such loss of a "
        "task may be free, and is not counted then)"
    )
    # Do not name the worker that writes this record: people would search its logs for the cause.
    n = job.claim.n - 1 if lost_worker else job.claim.n
    return Failure("WorkerLost", message, "", lost_worker, n, clock.wall())


def _is_own_frame(module: object) -> bool:
    # The functions of shell commands are in this package, too, but the task itself calls them.
    return (
        isinstance(module, str)
        and module.startswith(f"{__package__}.")
        and not module.startswith(f"{__package__}.shell")
    )


# ---- Whether an exception is worth another attempt, by the `fatal` and `retry_if` of its task.


logger = get_logger("zkplan.worker")


def is_final(
    options: TaskOptions,
    error: BaseException,
    load: Callable[[bytes], Callable[..., Any]] | None = None,
) -> bool:
    """Whether the task fails for good, although it has attempts left.

    Compares classes by their names, to import nothing. `load` decodes a `retry_if` that is a
    function. Without `load` the function is not called: only the process that ran the task may.
    """
    if issubclass(type(error), PayloadTooLarge):
        return True  # the next attempt's payload would be as large
    if not options.fatal and not options.retry_if:
        return False
    rule = options.retry_if
    try:
        names = {f"{kind.__module__}:{kind.__qualname__}" for kind in type(error).__mro__}
        if names.intersection(options.fatal):
            return True
        if not isinstance(rule, str):
            return bool(rule) and not names.intersection(rule)
        return load is not None and not load(base64.b64decode(rule))(error)
    except BaseException as wrong:
        # A broken rule must not cost the task its attempts, or the worker a slot.
        told = "a function given as retry_if raised %s, so its task is retried as if it had none"
        logger.warning(told, kind_of(wrong))
        return False


# ---- The delay before the next attempt of a failed task.


#: The longest delay, however many failures there were, unless `retry_delay` itself is longer.
RETRY_DELAY_MAX_S = 300.0
#: The longest delay whose due time fits into a name. Only a record made by hand asks for more.
DELAY_S_MAX = 365 * 24 * 3600.0


def retry_delay_s(options: TaskOptions, attempts: int, chance: Random) -> float:
    """Seconds to wait after a failure; `attempts` were used up before it."""
    if options.retry_delay <= 0:
        return 0.0
    backoff = Backoff(options.retry_delay, 2.0, max(RETRY_DELAY_MAX_S, options.retry_delay), 0.3)
    # An entry made by hand may have so many attempts that the power would overflow.
    return min(backoff.delay_s(min(attempts, 1000), chance.random()), DELAY_S_MAX)
