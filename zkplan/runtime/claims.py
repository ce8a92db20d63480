"""The claims that this worker holds: how many more it may make, and how it hands them back.

All stages of the worker share these counts. A claim is counted from the transaction that makes it
until it is settled.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ..basics.text import count
from ..log import get_logger
from ..protocol.ending import ENDINGS_PER_MULTI, hand_back
from ..protocol.load import Loaded
from ..protocol.part import Part
from ..protocol.requests import Step
from ..protocol.shared import Claim
from . import capacity
from .job import CANCELLED, REMOVED, SILENCE, TAKEN, Job
from .kept_results import KeptResults
from .output import PRINTED_ROOM, note_printed
from .prefetch import Prefetch
from .shares import Shares
from .statistics import Counters
from .steps import Steps
from .thread_pool import ThreadPool

#: What was to come of a claim that is gone.
UNSTARTED = "it is not run here"
RESULT = "its result is refused"
FAILURE = "its failure is refused"
HAND_BACK = "it is not handed back"
#: What a worker says for each time that it hands claims back unasked; `zkplan stress` counts these.
HANDED_BACK = "waited behind tasks that hold all slots"
logger = get_logger("zkplan.worker")


class Claims:
    """Tasks that are claimed, loaded, waiting for a slot, running or waiting for a commit. Only the
    loop uses it."""

    def __init__(
        self,
        steps: Steps,
        pool: ThreadPool,
        kept: KeptResults,
        prefetch: Prefetch,
        counters: Counters,
        shares: Shares,
    ) -> None:
        self._steps, self._pool, self._kept, self._prefetch = steps, pool, kept, prefetch
        self._counters, self.shares = counters, shares
        self.capacity = capacity.Capacity(pool.count)
        #: By the path of its claim, what has been loaded and is not settled.
        self.jobs: dict[str, Job] = {}
        #: Entries in the claim under way; claims whose tasks are being loaded; claims that commits
        #: and publications under way may make.
        self.claiming = self.loading = self.allowed = 0
        #: Parts that wait for their commit.
        self.uncommitted: deque[Part] = deque()
        #: The results of parts that wait or are being committed, in bytes.
        self.uncommitted_bytes = 0
        #: Told of the permits of each claim that has ended.
        self.given_back: Callable[[Sequence[str]], None] = lambda permits: None
        #: The worker stops: it claims and starts nothing more.
        self.draining = False
        #: It was told to claim and start nothing more until it is told to run on.
        self.paused = False

    @property
    def starts_nothing(self) -> bool:
        """Whether what is claimed and has not started goes back."""
        return self.draining or self.paused

    @property
    def held(self) -> int:
        """The number of claims that still need a slot: being made, loaded, waiting or running."""
        pool = self._pool
        return self.claiming + self.allowed + self.loading + pool.waiting() + len(pool.running)

    def free(self, *, plenty: bool = True) -> int:
        """How many more tasks to claim; `plenty`: more is runnable than this worker takes."""
        pool = self._pool
        slots, in_pool = pool.slots, pool.waiting() + len(pool.running)
        held = self.claiming + self.allowed + self.loading + in_pool
        if self._kept.is_met or not slots:
            # However much waits for a commit, only further commits can make room. And if no slot is
            # left, nothing is claimed ahead.
            return slots - held
        # What ran and is not settled is in a commit, or waits for one.
        uncommitted = len(self.jobs) - in_pool
        free = self.capacity.free(held, uncommitted, self.uncommitted_bytes, plenty=plenty)
        return free - (pool.count - slots)

    @property
    def must_make_room(self) -> bool:
        """Whether results wait because ZooKeeper is full: only further commits can make room."""
        return self._kept.is_met

    @property
    def spare(self) -> int:
        """Idle slots for which a task of another worker's share is worth a conflict."""
        return max(0, self.free(plenty=False)) if self.capacity.are_long else 0

    def job_of(self, loaded: Loaded) -> Job:
        return self.jobs.get(loaded.claim.path) or Job(loaded)

    def commit(self, part: Part) -> None:
        """Have `part` committed with the next group."""
        self.uncommitted.append(part)
        self.uncommitted_bytes += len(part.outcome)

    def tell_silence(self, is_silent: bool) -> None:
        """Tell running tasks that ZooKeeper does not answer, or answers again."""
        for job in self.jobs.values():
            if is_silent and not job.stop_reason:
                job.stop_reason = SILENCE
            elif not is_silent and job.stop_reason == SILENCE:
                job.stop_reason = ""

    # ---- ending

    def end(self, claim: Claim) -> None:
        """The claim is settled: nothing of its job is needed any more."""
        self.jobs.pop(claim.path, None)
        self.shares.closed(claim.path)
        if claim.permits:
            self.given_back(claim.permits)
        self._prefetch.forget(claim)
        self._kept.settled(claim)

    def lost(self, claim: Claim, what: str, job: Job | None = None) -> None:
        """The claim is gone; `what` became of what was to come of it."""
        job = job or self.jobs.get(claim.path)
        name = job.options.name if job is not None else ""
        number = f"task-{claim.task}"
        self.end(claim)
        self._counters.fenced += 1
        reason = job.stop_reason if job is not None else ""
        expected = what is UNSTARTED or reason in (CANCELLED, REMOVED, TAKEN)
        # A lost answer can hide that this worker's own commit ended the claim: not always a loss.
        unknown = (
            "another worker took it over, the plan was removed, or an earlier copy of the same "
            "transaction was applied"
        )
        logger.log(
            logging.INFO if expected else logging.WARNING,
            "lost the claim of %s of %s, attempt %d, so %s: %s",
            f"{name} ({number})" if name not in ("", number) else number,
            claim.plan_path,
            claim.n + 1,
            what,
            reason if reason in (CANCELLED, REMOVED, TAKEN) else unknown,
        )

    def end_by(self, job: Job, make: Callable[[], Step[bool]]) -> None:
        """End the claim by a step that says whether it was still held."""
        claim = job.claim
        self.end(claim)

        def ended(held: bool) -> None:
            if not held:
                self.lost(claim, FAILURE, job)

        self._steps.until_done(make, ended, f"{claim.task_path} stays claimed")

    def hand_back(self, jobs: list[Job], log: bytes = b"") -> None:
        """Make their tasks runnable again, without using up an attempt. `log` is kept with each
        task."""
        claims = [job.claim for job in jobs]
        for claim, job in zip(claims, jobs, strict=True):
            note_printed(job, PRINTED_ROOM // min(len(jobs), ENDINGS_PER_MULTI))
            self.end(claim)
        if not claims:
            return
        self._counters.handed_back += len(claims)
        what = "a task stays claimed"

        def handed_back(held: int | None) -> None:
            if held is None:
                for claim in claims:  # those that are handed back are not any more
                    self._steps.until_done(partial(hand_back, [claim], log), lambda _: None, what)
            elif held < len(jobs) == 1:
                self.lost(claims[0], HAND_BACK, jobs[0])
            elif held < len(jobs):
                self._counters.fenced += len(jobs) - held
                many = count(len(jobs) - held, "claim")
                logger.info("lost %s of %d that were to be handed back", many, len(jobs))

        self._steps.start_contained(hand_back(claims, log), handed_back, what, instead=None)

    def hand_back_stalled(self, now: float) -> None:
        """If long tasks occupy all slots, hand back what was claimed ahead, so that others can run
        it."""
        if not self._pool.waiting() or now - self.capacity.last_end <= capacity.STALLED_S:
            return
        jobs = self._pool.take_waiting()
        if jobs:
            many = count(len(jobs), "claim")
            logger.info("%s %s for %g s: handed back", many, HANDED_BACK, capacity.STALLED_S)
        self.capacity.stalled(now)
        self.hand_back(jobs)

    def withdraw(self, plan: str) -> None:
        """The plan was paused or cancelled: hand back its tasks that have not started."""
        waiting = self._pool.take_waiting()
        for job in waiting:
            if job.claim.plan != plan:
                self._pool.put(job)
        self.hand_back([job for job in waiting if job.claim.plan == plan])
