"""What becomes of a claimed task before its function is called: whether it is called, and if not,
how the attempt ends. Workers and leases ask this alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

from ..errors import (
    FunctionNotAllowed,
    InvariantViolated,
    PayloadRefused,
    PayloadUndecodable,
    StoreUnavailable,
    ZkplanError,
)
from ..protocol.records import Failure, TaskRecord
from ..protocol.shared import Claim
from ..protocol.sources import outcome_in, source_in
from ..serialization.codec import FAILURE, VALUE, Codec, task_options
from ..serialization.failures import dump_failure
from ..serialization.functions import is_json, is_skipped
from ..transport.server_clock import ServerClock
from .failures import deadline_passed, describe, last_failure, undecodable_for_log
from .job import Ended, Job
from .retry_rules import is_final


class Ready(NamedTuple):
    """The function is to be called: the definition, and the bodies of the opened arguments."""

    record: TaskRecord
    bodies: list[bytes]


def before_call(
    job: Job, codec: Codec, clock: Callable[[], ServerClock], lost_with: Callable[[Claim], str]
) -> Ready | Ended:
    """Read the definition and the arguments of `job`, whose options are known from then on.

    `clock` gives the server's clock, measured; `lost_with` the worker that vanished with the claim
    before, if that is known. Raises what `ended_by` takes.
    """
    loaded = job.loaded
    record = codec.open_definition(loaded.record)
    job.options, job.function = task_options(record), record.function
    options = job.options
    if loaded.result is not None:
        # An earlier claim, or an operator, has stored it: only the delivery is left.
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
    return Ready(record, bodies)


def is_last_attempt(job: Job) -> bool:
    """Whether the loss of this claim would use up the last attempt of the task."""
    claim = job.claim
    return claim.n > claim.a and claim.a + 1 >= job.options.attempts


def _out_of_time(job: Job, clock: ServerClock) -> Ended | None:
    """Its end if it may not run yet, or not any more."""
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
            # Another worker with this key would refuse it, too. The log has named the place before,
            # when it was read (`protection.guard`), and does so once.
            return Ended(job, failure=describe(error, job, codec), final=True)
        case PayloadUndecodable() as own:
            return Ended(job, cannot_run=str(own), shown=undecodable_for_log(own))
        case StoreUnavailable():
            return Ended(job, store_away=str(error))
        case InvariantViolated():
            # zkplan's own words, of znodes: an operator must see them.
            return Ended(job, failure=describe(error, job, codec), shown=str(error))
        case FunctionNotAllowed():
            # It would be refused as well the next time: nobody has allowed it.
            return Ended(job, failure=describe(error, job, codec), final=True, shown=str(error))
    is_last = is_final(job.options, error, codec.function)
    return Ended(job, failure=describe(error, job, codec), final=is_last)


def _own_error(error: BaseException) -> ZkplanError | None:
    """The error if it is one of zkplan's. A pattern would ask the `__class__` of any other, and
    that of a user's class may raise."""
    return cast("ZkplanError", error) if issubclass(type(error), ZkplanError) else None
