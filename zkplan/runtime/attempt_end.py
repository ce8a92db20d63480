"""Decide what follows from the end of an attempt (commit, retry, failure), and carry it out.

`settle` is nearly pure: it reads the time and a random number for the delay of the next attempt,
and writes the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from random import Random
from typing import NamedTuple

from ..backoff import CHANCE
from ..basics.log import get_logger
from ..errors import PayloadTooLarge, ZkplanError
from ..protocol.core.commit import Committed
from ..protocol.core.commit_part import Part
from ..protocol.core.end_claims import fail_again, fail_for_good, postpone
from ..protocol.core.load import Loaded, load
from ..protocol.layout import ADDS, DELIVERED, Paths
from ..protocol.records import Dead, Failure
from ..protocol.requests import Step
from ..protocol.transactions import GROUP_BYTES_MAX
from ..transport.server_clock import CLOCK, Clock
from ..values.codec import FAILURE, Codec
from . import attempts
from .attempts import for_log, is_final, retry_delay_s
from .claims import RESULT, UNSTARTED, Claims, KeptResults
from .job import STOP_GRACE_S, Ended, Job
from .membership import Membership
from .output import PRINTED_ROOM, note_printed
from .plan_candidates import Candidates
from .slots import Slots
from .statistics import Counters
from .steps import Steps

logger = get_logger("zkplan.worker")
#: The kind of the failure of a task that an operator has cancelled.
CANCELLED = "TaskCancelled"
#: The most characters of a failure's kind that the history keeps.
ERROR_CHARS_MAX = 60


class End(NamedTuple):
    """Run the step that `make()` returns, which ends the claim, for another attempt or for good."""

    job: Job
    make: Callable[[], Step[bool]]


class HandBack(NamedTuple):
    """Hand the claim back; no attempt is used up.

    `cannot_run`: what this worker lacks, so it leaves the task to others for a while. `no_room`:
    ZooKeeper is full. `store_away`: why the store cannot be used. After these two the worker leaves
    the plan alone for a moment.
    """

    job: Job
    cannot_run: str = ""
    no_room: bool = False
    store_away: str = ""
    #: The text for the log instead of `cannot_run`.
    shown: str = ""


def settle(
    ended: Ended, codec: Codec, paths: Paths, clock: Clock = CLOCK, chance: Random = CHANCE
) -> Part | End | HandBack | None:
    """Decide what follows from the end of an attempt: the commit of a part, or another end.

    None: the claim was lost, so there is nothing to do.
    """
    job = ended.job
    if ended.fenced:
        return None
    job.claim.fact = ended.fact
    if job.output is not None:
        # What does not fit into the commit goes into transactions of its own.
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
        return settle_failure(
            job,
            ended.failure,
            codec,
            paths,
            final=ended.final,
            shown=ended.shown,
            clock=clock,
            chance=chance,
        )
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
    clock: Clock = CLOCK,
    chance: Random = CHANCE,
) -> Part | End:
    """Decide what follows from a failure. `final`: another attempt cannot help.

    A returned Part delivers the failure along the edges. This needs `deliverable`, and an edge that
    takes failures or a plan with `on_failure="cascade"`. `shown`: see `attempts.for_log`.
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
        delay_s = retry_delay_s(options, claim.a, chance)
        due_ms = int((clock.wall() + delay_s) * 1000) if options.retry_delay > 0 else None
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
    # If losses have used up all attempts, this claim is not an attempt itself.
    used_up = min(claim.a + 1, max(claim.a, options.attempts))
    summary = failure.summary[:500]
    dead = Dead(claim.rank, claim.n, used_up, job.name, summary, failure.worker, claim.queue)
    cascades = job.plan is not None and job.plan.on_failure == "cascade"
    deliverable = deliverable and all(edge.k >= 0 for _, edge in job.loaded.edges)
    # A DELIVERED mark: an earlier claim has delivered along some of the edges.
    takes = any(edge.fails for _, edge in job.loaded.edges) or DELIVERED in job.loaded.others
    if (takes or cascades) and deliverable:
        # If a wide delivery has begun, its outcome must be delivered on, not a new failure.
        outcome = job.loaded.result or sealed
        return Part(job.loaded, outcome, True, dead.to_bytes(), holds=True, cascades=cascades)
    dead = dead._replace(undelivered=cascades)
    # An operator's decision is the outcome, also to recognise it after a lost answer. The stored
    # result is deleted, unless the task has begun to add many tasks (ADDS): a retry adds the rest.
    decided = job.loaded.result
    outcome = decided or sealed
    has_result = decided is not None and ADDS not in job.loaded.others
    return End(job, partial(fail_for_good, claim, outcome, dead, has_result=has_result))


# ---- Carry out what settlement decides, and handle parts whose commit was refused.
#
# A refused part is read again, fails alone, or is kept until there is room.


#: How often one part is read again before its task fails.
RELOADS_MAX = 20
#: Seconds for which a plan is left alone after the store could not be used.
STORE_REST_S = 1.0


@dataclass(eq=False)
class Settler:
    """Settles the claims of one worker; only the loop's thread calls it."""

    steps: Steps
    membership: Membership
    paths: Paths
    codec: Codec
    pool: Slots
    claims: Claims
    kept: KeptResults
    candidates: Candidates
    counters: Counters
    clock: Clock
    chance: Random
    #: The plans whose tasks wait for the store, until one of them has run.
    _without_store: set[str] = field(default_factory=set)

    @property
    def lacks_store(self) -> bool:
        """Whether tasks wait because the store cannot be used. Any thread may ask."""
        return bool(self._without_store)

    # ---- attempts

    def ended(self, ended: Ended) -> None:
        """Settle the claim of an attempt that has ended."""
        self.counters.failed += ended.failure is not None
        claim = ended.job.claim
        self.claims.shares.ended(claim.path, claim.plan, ended.seconds)
        settled = settle(ended, self.codec, self.paths, self.clock, self.chance)
        if settled is None:
            self.claims.lost(ended.job.claim, UNSTARTED)
        else:
            self._carry_out(settled)

    def end_overdue(self, now: float) -> None:
        """End the claims of tasks that timed out, or whose grace after an order to stop is over.
        Threads cannot be stopped, so drop what these return. Commit tasks that are held too long
        for the pure tasks after them."""
        if now <= self.pool.next_deadline():
            return
        for job in [job for job in list(self.pool.running) if now > job.held_until]:
            if job.held is not None:
                self.pool.write_off(job)
                self.counters.executed += 1 + len(job.held.run)
                self.ended(job.held)
        for job in list(self.pool.running):
            if now > job.given_up_at and job.held is None:
                self._give_up(job, now)
        for job in [job for job in list(self.pool.running) if now > job.deadline]:
            is_last = now > job.last_call
            report = attempts.deadline_passed if is_last else attempts.time_out
            failure = report(job, self.clock)
            why = "its deadline has passed" if is_last else "it ran longer than its time-out"
            self.write_off(job, why)
            self.claims.shares.ended(job.claim.path, job.claim.plan, now - job.started)
            self._failed(job, failure, final=is_last or is_final(job.options, TimeoutError()))

    def _give_up(self, job: Job, now: float) -> None:
        """Stop waiting for a function that was told to stop and has not returned."""
        logger.info(
            "%s of %s has not returned %g s after it was told to stop (%s), and is given up",
            *(job.name, job.claim.plan_path, STOP_GRACE_S, job.stop_reason),
            extra=job.log_fields,
        )
        self.write_off(job, job.stop_reason)
        self.claims.shares.ended(job.claim.path, job.claim.plan, now - job.started)
        self.claims.hand_back([job])  # harmless if an operator has taken the claim

    def write_off(self, job: Job, why: str) -> None:
        """Stop waiting for the function of `job`."""
        job.stop_reason = why
        self.counters.written_off += 1
        self.pool.write_off(job)

    def _failed(
        self,
        job: Job,
        failure: Failure,
        *,
        held: bool = False,
        final: bool = False,
        shown: str = "",
    ) -> None:
        self.counters.failed += 1
        final = final or held
        settled = settle_failure(
            job,
            failure,
            self.codec,
            self.paths,
            final=final,
            deliverable=not held,
            shown=shown,
            clock=self.clock,
            chance=self.chance,
        )
        self._carry_out(settled)

    # ---- what settlement decides

    def _carry_out(self, settled: Part | End | HandBack) -> None:
        match settled:
            case Part(loaded):
                self._without_store.discard(loaded.claim.plan)
                self.candidates.has_run(loaded.claim.plan)
                self.claims.queue_commit(settled)
            case End(job, make):
                self.claims.end_by(job, make)
            case HandBack(job, cannot_run, no_room, store_away, shown):
                log = self._leave_to_others(job, cannot_run, shown) if cannot_run else b""
                if no_room:
                    self._wait_for_room(job)
                elif store_away:
                    log = self._wait_for_store(job, store_away)
                self.claims.hand_back([job], log)

    def _leave_to_others(self, job: Job, why: str, shown: str) -> bytes:
        """Leave the task to other workers. Returns a log entry for the task, or nothing."""
        claim = job.claim
        self.counters.left_to_others += 1
        view = self.candidates.views.get(claim.plan)
        first = view is None or view.left.is_new
        if view is not None:
            view.leave(self.clock.monotonic(), claim.task)
            self.candidates.file(view)
        if not first:
            return b""  # log it once, not at every hand-back, to keep the task small
        told = shown or why
        logger.warning(
            *("%s cannot run here and is left to others: %s", claim.task_path, told),
            extra=job.log_fields,
        )
        return self.codec.seal(FAILURE, attempts.cannot_run(job, why, self.clock).to_bytes())

    def _wait_for_room(self, job: Job) -> None:
        """Leave the plan alone for a moment; neither the task nor the plan is to blame."""
        self.steps.complaints.tell(
            f"{job.claim.plan_path}: ZooKeeper has no room for its results or logs, so tasks go "
            "back and are run again; remove plans that are not needed any more, or raise the limit"
        )
        self.candidates.rest(job.claim.plan, self.clock.monotonic())

    def _wait_for_store(self, job: Job, why: str) -> bytes:
        """Leave the plan alone for a moment. Returns a log entry, for the author, or nothing."""
        plan = job.claim.plan
        self.candidates.rest(plan, self.clock.monotonic() + STORE_REST_S)
        if plan in self._without_store:
            return b""  # log it once, not at every hand-back, to keep the tasks and the log small
        self._without_store.add(plan)
        logger.warning(
            "%s: tasks with large values are handed back, and run when the store answers: %s",
            job.claim.plan_path,
            why,
        )
        return self.codec.seal(FAILURE, attempts.store_away(job, why, self.clock).to_bytes())

    # ---- what commits report

    def committed(self, report: Committed) -> None:
        """Settle each part of a commit."""
        claims = self.claims
        self.counters.committed += sum(1 + len(part.run) for part in report.done)
        self.counters.refusals += report.refusals
        poison = [part for part, _ in report.poison]
        refused = [part for part, _ in report.no_room]
        for part in (*report.done, *report.fenced, *report.stale, *poison, *refused):
            claims.uncommitted_bytes -= len(part.outcome)
        for part in report.done:
            claims.end(part.loaded.claim)
        for part in report.fenced:
            claims.lost(part.loaded.claim, RESULT)
        for part in report.stale:
            self._changed(part)
        for part, error in report.poison:
            self._refused(part, error)
        for part, error in report.no_room:
            self._keep(part, error)

    def _changed(self, part: Part) -> None:
        """Read and commit again a task that has changed since it was read (a new edge or log)."""
        part.reloads += 1
        if part.reloads > RELOADS_MAX:
            why = "its znodes change faster than it can be committed"
            if part.refused_by:
                why = f"its commit is refused again and again, the last time by {part.refused_by}"
            self._refused(part, RuntimeError(why))
        elif self.membership.me is None:
            self.claims.queue_commit(part)
        else:
            self._commit_anew(part)

    def _refused(self, part: Part, error: Exception) -> None:
        """Fail the task of a part that ZooKeeper refuses for its own reason; other parts go on."""
        job = self.claims.job_of(part.loaded)
        # If `part` was to deliver a failure, the task becomes dead. Otherwise it would be retried
        # for ever.
        failure = attempts.describe(error, job, self.codec, self.clock)
        # The next attempt's payload would be as large.
        final = isinstance(error, PayloadTooLarge)
        self._failed(job, failure, held=bool(part.dead), final=final, shown=str(error))

    def _keep(self, part: Part, error: ZkplanError) -> None:
        """Commit `part` later, as ZooKeeper has no room for it now."""
        job = self.claims.job_of(part.loaded)
        rest_s = self.kept.keep(job.claim, len(part.outcome), error)
        if rest_s is None:
            self._carry_out(HandBack(job, no_room=True))
            return
        # If the worker ends, hand the claim back. If another worker had to clear the claim, that
        # would count as a loss, and use up an attempt.
        give_up = partial(self.claims.hand_back, [job])
        self.steps.rest(self.clock.monotonic() + rest_s, partial(self._commit_anew, part), give_up)

    def _commit_anew(self, part: Part) -> None:
        """Read the task of `part` as it is now, and commit it."""
        claim = part.loaded.claim

        def loaded(found: list[Loaded]) -> None:
            if not found:
                self.claims.lost(claim, RESULT)
                return
            # The task may have a stored result by now, which must not change.
            self.claims.job_of(part.loaded).loaded = part.loaded = found[0]
            self.claims.queue_commit(part)

        self.steps.until_done(
            partial(load, [claim]),
            loaded,
            f"{claim.task_path} stays claimed",
            given_up=partial(self.claims.end, claim),
        )
