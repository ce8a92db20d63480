"""Settle: decide what to do with a claim whose attempt has ended. The settler does it.

Nearly pure: it reads the time and a random number for the delay of the next attempt, and writes the
log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

from ..log import get_logger
from ..protocol.ending import fail_again, fail_for_good, postpone
from ..protocol.layout import ADDS, DELIVERED, Paths
from ..protocol.part import Part
from ..protocol.records import Dead, Failure
from ..protocol.requests import Step
from ..protocol.shared import GROUP_BYTES_MAX
from ..serialization.codec import FAILURE, Codec
from .failures import for_log
from .job import Ended, Job
from .output import PRINTED_ROOM, note_printed
from .retry_delay import retry_delay_s

logger = get_logger("zkplan.worker")
#: The kind of the failure of a task that an operator has cancelled.
CANCELLED = "TaskCancelled"
#: The most of the type of a failure that the history keeps.
ERROR_CHARS_MAX = 60


class End(NamedTuple):
    """Run the step that `make` makes: it ends the claim, for another attempt or for good."""

    job: Job
    make: Callable[[], Step[bool]]


class HandBack(NamedTuple):
    """Hand the claim back; no attempt is used up.

    With `cannot_run` this worker lacks something, and leaves the task to others for a while. With
    `no_room` ZooKeeper is full, and with `store_away` the store cannot be used: the plan is left
    alone for a moment.
    """

    job: Job
    cannot_run: str = ""
    no_room: bool = False
    store_away: str = ""
    #: What the log says in place of `cannot_run`.
    shown: str = ""


def settle(ended: Ended, codec: Codec, paths: Paths) -> Part | End | HandBack | None:
    """Decide what follows from the end of an attempt: the commit of a part, or another end.

    None: the claim was lost, so there is nothing to do.
    """
    job = ended.job
    if ended.fenced:
        return None
    job.claim.fact = ended.fact
    if job.output is not None:
        # What does not fit its commit goes in transactions of its own.
        together = len(ended.outcome) + sum(task.size for task in job.adds)
        taken = together if together <= 2 * GROUP_BYTES_MAX else len(ended.outcome)
        note_printed(job, PRINTED_ROOM - taken)
    if ended.stopped:
        logger.info(
            "%s of %s ended early, as it was told to (%s): handing it back",
            job.name,
            job.claim.plan_path,
            job.stop_reason or "the reason has passed meanwhile",
            extra=job.log_fields,
        )
        return HandBack(job)
    if ended.cannot_run or ended.server_full or ended.store_away:
        away = ended.store_away
        return HandBack(job, ended.cannot_run, ended.server_full, away, ended.shown)
    if ended.not_before:
        due_ms = ceil(1000 * ended.not_before)
        return End(job, partial(postpone, job.claim, due_ms, paths.delayed))
    if ended.failure is not None:
        failure, shown = ended.failure, ended.shown
        return settle_failure(job, failure, codec, paths, final=ended.final, shown=shown)
    return Part(
        job.loaded,
        ended.outcome,
        ended.skipped or job.options.keep,
        adds=job.adds,
        run=ended.run,
        version=job.version,
        # An operator's skip has been counted by its own transaction.
        skips=ended.skipped and job.loaded.result is None,
    )


def settle_failure(
    job: Job,
    failure: Failure,
    codec: Codec,
    paths: Paths,
    *,
    final: bool = False,
    deliverable: bool = True,
    shown: str = "",
) -> Part | End:
    """Decide what follows from a failure. `final`: no further attempt can change it.

    A part that is returned goes down the edges. That needs a failure that is `deliverable`, and a
    plan whose `on_failure` says so. `shown`: see `failures.for_log`.
    """
    claim, options = job.claim, job.options
    note_printed(job, PRINTED_ROOM)
    claim.fact = claim.fact._replace(error=failure.kind[:ERROR_CHARS_MAX])
    sealed = codec.seal(FAILURE, failure.to_bytes())
    if not final and claim.a + 1 < options.attempts:
        logger.info(
            "%s of %s failed (%d of %d attempts used): %s",
            job.name,
            claim.plan_path,
            claim.a + 1,
            options.attempts,
            for_log(failure, job, shown),
            extra=job.log_fields,
        )
        delay_s = retry_delay_s(options, claim.a)
        due_ms = int((time.time() + delay_s) * 1000) if options.retry_delay > 0 else None
        delay_ms = int(delay_s * 1000)
        return End(job, partial(fail_again, claim, sealed, due_ms, paths.delayed, delay_ms))
    told = for_log(failure, job, shown)
    if failure.kind == CANCELLED and job.loaded.result is not None:
        logger.info("%s of %s was cancelled", job.name, claim.plan_path, extra=job.log_fields)
    else:
        logger.warning(
            *("%s of %s is out of attempts: %s", job.name, claim.plan_path, told),
            extra=job.log_fields,
        )
    # If losses have used up all attempts, this claim only found that out, and is no attempt itself.
    used_up = min(claim.a + 1, max(claim.a, options.attempts))
    summary = failure.summary[:500]
    dead = Dead(claim.rank, claim.n, used_up, job.name, summary, failure.worker, claim.queue)
    cascades = job.plan is not None and job.plan.on_failure == "cascade"
    deliverable = deliverable and all(edge.k >= 0 for _, edge in job.loaded.edges)
    # Or an earlier claim has delivered along some of them, and left its mark.
    takes = any(edge.fails for _, edge in job.loaded.edges) or DELIVERED in job.loaded.others
    if (takes or cascades) and deliverable:
        # If a wide delivery has begun, what it delivers is the outcome, not a new text.
        outcome = job.loaded.result or sealed
        return Part(job.loaded, outcome, True, dead.to_bytes(), holds=True, cascades=cascades)
    dead = dead._replace(undelivered=cascades)
    # What an operator has decided is the outcome: a lost answer is recognised by it. It goes, but
    # where tasks are missing that count since it was fixed: a retry goes on with these.
    decided = job.loaded.result
    outcome = decided or sealed
    has_result = decided is not None and ADDS not in job.loaded.others
    return End(job, partial(fail_for_good, claim, outcome, dead, has_result=has_result))
