"""Hold the claims of a worker: how many more it may make, which results it keeps, how it hands
back.

All stages of the worker share these counts. A claim is counted from the transaction that makes it
until it is settled.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from ..basics.log import get_logger
from ..basics.text import count
from ..errors import ZkplanError
from ..protocol.core.commit_part import Part
from ..protocol.core.end_claims import ENDINGS_PER_MULTI, hand_back
from ..protocol.core.load import Loaded
from ..protocol.requests import Step
from ..protocol.transactions import Claim
from .ahead import Prefetch
from .job import CANCELLED, REMOVED, SILENCE, TAKEN, Job
from .output import PRINTED_ROOM, note_printed
from .plan_shares import Shares
from .slots import Slots
from .statistics import Counters
from .steps import Steps

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
        *,
        steps: Steps,
        pool: Slots,
        kept: KeptResults,
        prefetch: Prefetch,
        counters: Counters,
        shares: Shares,
    ) -> None:
        self._steps, self._pool, self._kept, self._prefetch = steps, pool, kept, prefetch
        self._counters, self.shares = counters, shares
        self.capacity = Capacity(pool.count)
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

    def queue_commit(self, part: Part) -> None:
        """Have `part` committed with the next group."""
        self.uncommitted.append(part)
        self.uncommitted_bytes += len(part.outcome)

    def note_silence(self, is_silent: bool) -> None:
        """ZooKeeper does not answer, or answers again: running tasks can ask for that."""
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
        if not self._pool.waiting() or now - self.capacity.last_end <= STALLED_S:
            return
        jobs = self._pool.take_waiting()
        if jobs:
            many = count(len(jobs), "claim")
            logger.info("%s %s for %g s: handed back", many, HANDED_BACK, STALLED_S)
        self.capacity.stalled(now)
        self.hand_back(jobs)

    def withdraw(self, plan: str) -> None:
        """The plan was paused or cancelled: hand back its tasks that have not started."""
        waiting = self._pool.take_waiting()
        for job in waiting:
            if job.claim.plan != plan:
                self._pool.put(job)
        self.hand_back([job for job in waiting if job.claim.plan == plan])


# ---- Decide how many tasks a worker claims: enough for its slots, but not those others could run.
#
# Pure. Short tasks are claimed before slots are free, so that claiming and loading overlap with
# running. Three things limit that: long tasks, large values, and commits that are behind.


#: The most claims beyond a worker's slots, if its tasks are short. With the next limit this stays
#: below 1 000 ephemerals in one session, which endanger a server.
AHEAD_MAX = 160
#: How many seconds of work may wait here, which another worker could be doing meanwhile.
AHEAD_S = 0.05
#: How many bytes the arguments and results of tasks claimed ahead may take, by the average so far.
AHEAD_BYTES_MAX = 8 * 1024 * 1024
#: Results that wait for a commit or are in one. Each one above this limit means one claim less.
#: Three commits of small results are about 600 tasks.
UNCOMMITTED_MAX = 640
#: The same limit in bytes. Above it nothing is claimed.
UNCOMMITTED_BYTES_MAX = 4 * 1024 * 1024
#: Claims that wait behind long tasks are handed back after this long, so that others can run them.
STALLED_S = 0.2
#: Where little is runnable, tasks that take longer than this are not claimed ahead: publishing one,
#: and claiming it elsewhere, takes about as long.
SHARE_WORTH_S = 0.004
#: The weight of the newest task in the averages.
_NEWEST = 0.1


class Capacity:
    """Calculates with averages over the tasks that ended lately on one worker."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._task_s = 1.0
        #: The average of logarithms, so that a few tasks that waited for a processor do not make
        #: all look long.
        self._task_log_s = 0.0
        self._task_bytes = 0.0
        #: What follows from the averages, where more is runnable and where it is not: it is asked
        #: for many times between two tasks that end. None: they have changed.
        self._ahead: tuple[int, int] | None = None
        #: When a task ended, or more began: monotonic.
        self.last_end = 0.0

    def ended(self, seconds: float, size: int, now: float) -> None:
        """Note how long a task has run, and how many bytes its arguments and its result had."""
        self.last_end = now
        self._task_s += _NEWEST * (seconds - self._task_s)
        self._task_log_s += _NEWEST * (math.log(max(seconds, 1e-6)) - self._task_log_s)
        self._task_bytes += _NEWEST * (size - self._task_bytes)
        self._ahead = None

    def stalled(self, now: float) -> None:
        """Claim nothing ahead until short tasks have ended here: it would only be handed back."""
        self.last_end = now
        self._task_s = max(self._task_s, STALLED_S)
        self._ahead = None

    @property
    def are_long(self) -> bool:
        """Whether the tasks that ended lately took so long that another worker had better run some
        of them than wait for all.
        """
        return self._task_log_s >= math.log(SHARE_WORTH_S)

    def free(self, held: int, uncommitted: int, uncommitted_bytes: int, *, plenty: bool) -> int:
        """How many more tasks to claim; 0 or less: none.

        `held` claims still need a slot, `uncommitted` ones have a result that is not committed.
        `plenty` says that more is runnable than this worker takes, or that no other is there to
        run it: then claiming ahead leaves nobody idle.
        """
        if uncommitted_bytes >= UNCOMMITTED_BYTES_MAX:
            return 0
        ahead = self._ahead or self._claimed_ahead()
        free = self.threads + ahead[not plenty] - held
        return free if uncommitted <= UNCOMMITTED_MAX else free - (uncommitted - UNCOMMITTED_MAX)

    def _claimed_ahead(self) -> tuple[int, int]:
        ahead = 0
        if self._task_s < STALLED_S:
            by_time = AHEAD_S * self.threads / max(self._task_s, 1e-6)
            by_size = AHEAD_BYTES_MAX / max(self._task_bytes, 1.0)
            ahead = int(min(AHEAD_MAX, by_time, by_size))
        self._ahead = ahead, 0 if self.are_long else ahead
        return self._ahead


# ---- Keep results that a full server refuses, and commit them as soon as there is room.
#
# This uses up no attempt. Room comes from tasks whose commit deletes more than it adds. Dependents
# are added after their dependencies, and their commits delete their arguments. So meanwhile this
# worker prefers the newest tasks.


#: The most results that are kept here, and the most bytes. Beyond that a task is handed back and
#: runs again later.
KEPT_MAX = 400
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Seconds before a result is tried again: the first delay, doubled each time up to the second.
KEPT_REST_FIRST_S, KEPT_REST_MAX_S = 0.5, 10.0


class KeptResults:
    """Which results one worker keeps; only the loop's thread calls it."""

    def __init__(self) -> None:
        #: By the path of the claim: the size of the result, and for how long it rested last.
        self._kept: dict[str, tuple[int, float]] = {}
        #: Whether the server has refused a result that is not committed yet. No property: the loop
        #: asks ten times for each task of a chain.
        self.is_met = False

    def keep(self, claim: Claim, size: int, error: ZkplanError) -> float | None:
        """Keep a result of `size` bytes that ZooKeeper had no room for.

        Returns after how many seconds to try again, or None if too many are kept already.
        """
        if not self._kept:
            logger.warning("this worker keeps results until ZooKeeper has room for them: %s", error)
        if claim.path not in self._kept and self._is_full(size):
            return None
        _, rested_s = self._kept.get(claim.path, (0, 0.0))
        rest_s = min(KEPT_REST_MAX_S, max(KEPT_REST_FIRST_S, 2 * rested_s))
        self._kept[claim.path] = size, rest_s
        self.is_met = True
        return rest_s

    def settled(self, claim: Claim) -> None:
        """Forget `claim`: it was committed, lost, or handed back."""
        if self._kept.pop(claim.path, None) is not None and not self._kept:
            self.is_met = False
            logger.warning("this worker keeps no results any more: all of them are settled")

    def _is_full(self, size: int) -> bool:
        kept = sum(other for other, _ in self._kept.values())
        return len(self._kept) >= KEPT_MAX or kept + size > KEPT_BYTES_MAX
