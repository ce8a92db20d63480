"""What follows when an attempt has ended: a commit, another attempt, a dead letter, a hand-back."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ..backoff import CHANCE, Backoff
from ..protocol.commit import Part
from ..protocol.failure import fail_again, fail_for_good
from ..protocol.load import Loaded, load
from ..protocol.records import Dead, Failure
from ..protocol.requests import Step
from ..protocol.shared import Claim
from ..serialization.codec import FAILURE
from . import losses
from .execution import Ended, Job

if TYPE_CHECKING:
    from .loop import Loop

logger = logging.getLogger("zkplan.worker")

#: Longest delay between attempts, whatever `retry_delay` and the number of failures.
RETRY_DELAY_MAX_S = 300.0
#: Beyond this a due time does not fit its name; only a record made by hand asks for it.
DELAY_S_MAX = 365 * 24 * 3600.0
#: How often one part is loaded and built again before it counts as poison.
RELOADS_MAX = 20


def settle(loop: Loop, ended: Ended) -> Part | None:
    """The part to commit, or None where the claim ends in another way."""
    job = ended.job
    if ended.fenced:
        losses.lost(loop, job.claim, losses.UNSTARTED)
        loop.claims.end_job(job.claim)
        return None
    if ended.gave_up:
        logger.info(
            "%s of %s ended early, as it was told to (%s): handing it back",
            job.options.name or f"task-{job.claim.task}",
            job.claim.plan_path,
            job.stop_reason or "that has passed, but it had seen it",
        )
        loop.claims.give_back([job])
        return None
    if ended.undecodable:
        leave_to_others(loop, job, ended.undecodable)
        return None
    if ended.no_room:
        # Without a log entry: there is no room for that either.
        leave_to_others(loop, job, ended.no_room, logs=False)
        return None
    if ended.failure is not None:
        return _failed(loop, job, ended.failure, ended.final)
    return Part(job.loaded, ended.outcome, job.options.keep, adds=job.adds)


def _failed(
    loop: Loop, job: Job, failure: Failure, final: bool, *, deliverable: bool = True
) -> Part | None:
    claim, options = job.claim, job.options
    loop.statistics.failed += 1
    sealed = loop.codec.seal(FAILURE, failure.to_bytes())
    name = options.name or f"task-{claim.task}"
    if not final and claim.a + 1 < options.attempts:
        logger.info(
            "%s of %s failed (attempt %d of %d): %s",
            name,
            claim.plan_path,
            claim.a + 1,
            options.attempts,
            failure.summary,
        )
        due, delay = None, 0.0
        if options.retry_delay > 0:
            backoff = Backoff(
                options.retry_delay, 2.0, max(RETRY_DELAY_MAX_S, options.retry_delay), 0.3
            )
            # A number of attempts that only an entry made by hand has would be beyond reckoning.
            delay = min(backoff.delay_s(min(claim.a, 1000), CHANCE.random()), DELAY_S_MAX)
            due = int((time.time() + delay) * 1000)
        later, delay_ms = loop.paths.delayed, int(delay * 1000)
        _end(loop, claim, partial(fail_again, claim, sealed, due, later, delay_ms))
        return None
    logger.warning("%s of %s is out of attempts: %s", name, claim.plan_path, failure.summary)
    # Where losses have used up all of them, this claim has found that out, and is none itself.
    used_up = min(claim.a + 1, max(claim.a, options.attempts))
    dead = Dead(claim.rank, claim.n, used_up, name, failure.summary[:500], failure.worker)
    view = loop.poller.candidates.views.get(claim.plan)
    cascade = view is not None and view.record is not None and view.record.on_failure == "cascade"
    if cascade and deliverable and all(edge.k >= 0 for _, edge in job.loaded.edges):
        # What a wide delivery has begun to deliver is the outcome, not a second wording of it.
        return Part(job.loaded, job.loaded.result or sealed, True, dead.to_bytes())
    _end(loop, claim, partial(fail_for_good, claim, sealed, dead))
    return None


def _end(loop: Loop, claim: Claim, make: Callable[[], Step[bool]]) -> None:
    what = f"{claim.task_path} stays claimed"
    told = losses.if_lost(loop, claim, losses.FAILURE)
    loop.claims.end_job(claim)
    loop.again.go(make, told, what)


def timed_out(loop: Loop, job: Job) -> None:
    """The thread cannot be stopped, but its claim ends now: what it still returns is dropped."""
    timeout = job.options.timeout or 0.0
    failure = Failure(
        "TimeoutError",
        f"it ran longer than its time-out of {timeout:g} s",
        "",
        job.worker,
        job.claim.n,
        time.time(),
    )
    part = _failed(loop, job, failure, final=False)
    if part is not None:
        loop.delivery.add(part)


def leave_to_others(loop: Loop, job: Job, why: str, *, logs: bool = True) -> None:
    """This worker lacks something: hand back, use no attempt, look elsewhere for a while.

    With `logs` the task tells why, once.
    """
    claim = job.claim
    view = loop.poller.candidates.views.get(claim.plan)
    first = view is None or view.avoid_s == 0
    if view is not None:
        view.avoid(time.monotonic(), claim.task)
        loop.poller.candidates.file(view)
    log = b""
    if first:
        # Once, not with every hand-back: the task shows why nobody runs it, and stays small.
        logger.warning("%s cannot run here and is left to others: %s", claim.task_path, why)
    if first and logs:
        failure = Failure("PayloadUndecodable", why, "", job.worker, claim.n, time.time())
        log = loop.codec.seal(FAILURE, failure.to_bytes())
    loop.claims.give_back([job], log)


def reload(loop: Loop, part: Part) -> None:
    """The task changed since it was read (a new edge, a new log): read and commit it again."""
    part.reloads += 1
    if part.reloads > RELOADS_MAX:
        why = "its znodes change faster than it can be committed"
        if part.refused_by:
            why = f"its commit is refused again and again, the last time by {part.refused_by}"
        poisoned(loop, part, RuntimeError(why))
        return
    if loop.me is None:
        loop.delivery.add(part)
        return
    commit_anew(loop, part)


def commit_anew(loop: Loop, part: Part) -> None:
    """Read the task of `part` as it is now, and commit it."""

    def loaded(found: list[Loaded]) -> None:
        if not found:
            losses.lost(loop, part.loaded.claim, losses.RESULT)
            loop.claims.end_job(part.loaded.claim)
            return
        part.loaded = found[0]
        loop.delivery.add(part)

    claim = part.loaded.claim
    loop.again.go(
        partial(load, [claim]),
        loaded,
        f"{claim.task_path} stays claimed",
        given_up=partial(loop.claims.end_job, claim),
    )


def poisoned(loop: Loop, part: Part, error: Exception) -> None:
    """A part that ZooKeeper refuses for a reason of its own fails alone; the others go on."""
    job = loop.claims.jobs.get(part.loaded.claim.path) or Job(part.loaded)
    # Read again since it ran, it may show a fixed result, which must not be worded anew.
    job.loaded = part.loaded
    failure = loop.runner.describe(error, job)
    # A failure that cannot be delivered either is held: tried again it would be tried for ever.
    held = bool(part.dead)
    settled = _failed(loop, job, failure, final=held, deliverable=not held)
    if settled is not None:
        loop.delivery.add(settled)
