"""Failure records: of an exception, of a time-out, of a task whose workers vanished."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Set

from ..basics.exceptions import formatted, frames_of, kind_of, message_of
from ..basics.loaded_code import changed_modules
from ..basics.text import date_time
from ..errors import PayloadUndecodable
from ..log import get_logger
from ..protocol.records import Failure
from ..protocol.shared import Claim
from ..serialization.codec import FAILURE, Codec
from ..serialization.functions import is_json
from .job import Job

TRACEBACK_CHARS_MAX = 16_000
EXCEPTION_BYTES_MAX = 32 * 1024
#: The most modules with a changed file that a failure names.
STALE_MAX = 5
#: The most of a message that a line of the log holds.
LOGGED_CHARS_MAX = 500
#: With its level at INFO or lower, the log of a worker has the messages of exceptions, too.
MESSAGES = get_logger("zkplan.worker.messages")
MESSAGES.setLevel(logging.CRITICAL + 1)
#: Packages whose errors of decoding hold the names of what is missing, and no values.
_DECODERS = ("zkplan", "importlib", "_frozen_importlib", "pickle", "dill")
#: The most tasks whose vanished worker is remembered, to name it if they are out of attempts.
LOSSES_MAX = 10_000


class VanishedWorkers:
    """The vanished worker with which each task was lost last, if this worker cleared the claim.

    The tree does not hold it, because a claims node is deleted with its claims. The loop writes,
    and slots read: each access is one atomic operation of a dict.
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
        """Forget the tasks of all other plans, which are done or removed."""
        for task_path in [path for path in self._last if path.rpartition("/")[0] not in plan_paths]:
            del self._last[task_path]

    def before(self, claim: Claim) -> str:
        """The worker that vanished with the claim before this one; empty if not known here."""
        n, worker = self._last.get(claim.task_path, (-1, ""))
        return worker if n == claim.n else ""


def describe(error: BaseException, job: Job, codec: Codec) -> Failure:
    """The failure record of an exception, without the frames of the worker itself."""
    frames = frames_of(error)
    while frames is not None and _is_own(frames.tb_frame.f_globals.get("__name__")):
        frames = frames.tb_next
    text = formatted(error, frames)
    try:
        dumped = codec.dump_exception(error, is_json(job.function))
    except BaseException:
        dumped = b""  # it cannot travel, for whatever reason; its text is kept
    return Failure(
        kind=kind_of(error),
        message=message_of(error)[:2000],
        traceback=text[-TRACEBACK_CHARS_MAX:],
        worker=job.worker,
        n=job.claim.n,
        when=time.time(),
        exception=dumped if len(dumped) <= EXCEPTION_BYTES_MAX else b"",
        traceparent=job.traceparent,
        stale=tuple(changed_modules())[:STALE_MAX],
    )


def sealed(job: Job, codec: Codec, error: BaseException) -> bytes:
    """The same in its envelope, as an outcome."""
    return codec.seal(FAILURE, describe(error, job, codec).to_bytes())


def for_log(failure: Failure, job: Job, shown: str = "") -> str:
    """What the worker's log says of a failure. `shown`: a text of zkplan's own.

    The message of a user's exception may hold arguments, and logs are read by more people than the
    tree. So only its type is told, unless the level of MESSAGES says otherwise.
    """
    is_own = not failure.traceback and not failure.exception
    if is_own or MESSAGES.isEnabledFor(logging.INFO):
        return failure.summary[:LOGGED_CHARS_MAX]
    if shown:
        return f"{failure.kind}: {shown}"[:LOGGED_CHARS_MAX]
    task = f"{int(job.claim.plan)} {int(job.claim.task)}"
    return f"{failure.kind} (`zkplan task show {task}` shows its message)"


def undecodable_for_log(error: PayloadUndecodable) -> str:
    """What the worker's log says of a task that it cannot decode.

    That a module or a name is missing is told. The message of an exception that code of the user
    raised, while it was imported or made a value, is left out.
    """
    text, cause = str(error), error.__cause__
    if cause is None or MESSAGES.isEnabledFor(logging.INFO):
        return text[:LOGGED_CHARS_MAX]
    frames = list(traceback.walk_tb(frames_of(cause)))
    module = str(frames[-1][0].f_globals.get("__name__", "")) if frames else ""
    if module.partition(".")[0] in _DECODERS:
        return text[:LOGGED_CHARS_MAX]
    return text.removesuffix(f": {message_of(cause)}")[:LOGGED_CHARS_MAX]


def time_out(job: Job) -> Failure:
    """The failure record of an attempt that took too long."""
    took = f"{job.preparing} took" if job.preparing else "it ran"
    what = f"{took} longer than its time-out of {job.options.timeout or 0.0:g} s"
    return Failure(
        *("TimeoutError", what, "", job.worker, job.claim.n, time.time()),
        traceparent=job.traceparent,
    )


def deadline_passed(job: Job) -> Failure:
    """The failure record of a task that had not ended by its deadline."""
    passed = date_time(job.options.deadline or 0.0, people=False)
    what = f"its deadline has passed ({passed})"
    return Failure("DeadlinePassed", what, "", job.worker, job.claim.n, time.time())


def cannot_run(job: Job, why: str) -> Failure:
    """The log entry of a task that this worker cannot run. It uses up no attempt."""
    return Failure("PayloadUndecodable", why, "", job.worker, job.claim.n, time.time())


def store_away(job: Job, why: str) -> Failure:
    """The log entry of a task that waits for the store. It uses up no attempt."""
    return Failure("StoreUnavailable", why, "", job.worker, job.claim.n, time.time())


def last_failure(job: Job, codec: Codec, lost_worker: str) -> Failure:
    """Why a task is out of attempts: its last failure, or that its workers vanished.

    `lost_worker` had the claim before this one; empty if that is not known.
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
    # Never name the worker that writes this: a person would search its logs for the cause.
    n = job.claim.n - 1 if lost_worker else job.claim.n
    return Failure("WorkerLost", message, "", lost_worker, n, time.time())


def _is_own(module: object) -> bool:
    return isinstance(module, str) and module.startswith((f"{__package__}.", "zkplan.isolation."))
