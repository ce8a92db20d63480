"""The claims of a worker: how many more it may make, which results it keeps, how it hands back.

All stages of the worker share these counts. A claim counts from the transaction that makes it until
it is settled.
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

#: What happens to the task or the result of a lost claim, for the log.
UNSTARTED = "it is not run here"
RESULT = "its result is refused"
FAILURE = "its failure is refused"
HAND_BACK = "it is not handed back"
#: Logged each time that a worker hands back claims by itself; `zkplan stress` counts these lines.
HANDED_BACK = "waited behind tasks that hold all slots"
logger = get_logger("zkplan.worker")


class Claims:
    """The tasks that a worker has claimed, until their commits. Only the loop uses this class."""

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
        #: By the path of its claim: each loaded job that is not settled.
        self.jobs: dict[str, Job] = {}
        #: The number of entries in the claim under way, of claims whose tasks are being loaded, and
        #: of claims that commits and publications under way may make.
        self.claiming = self.loading = self.allowed = 0
        #: Parts that wait for their commit.
        self.uncommitted: deque[Part] = deque()
        #: The bytes of all results that wait for a commit or are in one.
        self.uncommitted_bytes = 0
        #: Called with the permits of each claim that has ended.
        self.given_back: Callable[[Sequence[str]], None] = lambda permits: None
        #: The worker stops: it claims and starts nothing more.
        self.draining = False
        #: An operator has paused the worker: it claims and starts nothing until it is resumed.
        self.paused = False

    @property
    def starts_nothing(self) -> bool:
        """Whether claimed tasks that have not started must go back."""
        return self.draining or self.paused

    @property
    def slots(self) -> int:
        """How many tasks may run at once now."""
        return self._pool.slots

    @property
    def held(self) -> int:
        """The number of claims that need a slot: being made or loaded, waiting, or running."""
        pool = self._pool
        return self.claiming + self.allowed + self.loading + pool.waiting() + len(pool.running)

    def free(self, *, plenty: bool = True) -> int:
        """How many more tasks to claim. `plenty`: see `Capacity.free`."""
        pool = self._pool
        slots, in_pool = pool.slots, pool.waiting() + len(pool.running)
        held = self.claiming + self.allowed + self.loading + in_pool
        if self._kept.is_met or not slots:
            # Ignore how much waits for a commit: only further commits can make room. And without a
            # slot, claim nothing ahead.
            return slots - held
        # Jobs that have run and are not settled are in a commit, or wait for one.
        uncommitted = len(self.jobs) - in_pool
        free = self.capacity.free(held, uncommitted, self.uncommitted_bytes, plenty=plenty)
        return free - (pool.count - slots)

    @property
    def must_make_room(self) -> bool:
        """Whether results wait because ZooKeeper is full: only further commits can make room."""
        return self._kept.is_met

    @property
    def spare(self) -> int:
        """How many idle slots should try tasks of other shares, at the risk of a conflict."""
        return max(0, self.free(plenty=False)) if self.capacity.are_long else 0

    def job_of(self, loaded: Loaded) -> Job:
        return self.jobs.get(loaded.claim.path) or Job(loaded)

    def queue_commit(self, part: Part) -> None:
        """Commit `part` with the next group."""
        self.uncommitted.append(part)
        self.uncommitted_bytes += len(part.outcome)

    def note_silence(self, is_silent: bool) -> None:
        """Note that ZooKeeper does not answer, or answers again, where running tasks see it."""
        for job in self.jobs.values():
            if is_silent and not job.stop_reason:
                job.stop_reason = SILENCE
            elif not is_silent and job.stop_reason == SILENCE:
                job.stop_reason = ""

    # ---- ending

    def end(self, claim: Claim) -> None:
        """Forget `claim` and its job, as the claim is settled."""
        self.jobs.pop(claim.path, None)
        self.shares.closed(claim.path)
        if claim.permits:
            self.given_back(claim.permits)
        self._prefetch.forget(claim)
        self._kept.settled(claim)

    def lost(self, claim: Claim, what: str, job: Job | None = None) -> None:
        """Log that the claim was lost, and forget it. `what`: for example RESULT."""
        job = job or self.jobs.get(claim.path)
        name = job.options.name if job is not None else ""
        number = f"task-{claim.task}"
        self.end(claim)
        self._counters.fenced += 1
        reason = job.stop_reason if job is not None else ""
        expected = what is UNSTARTED or reason in (CANCELLED, REMOVED, TAKEN)
        # Not always a loss: if an answer was lost, this worker's own commit may have ended the
        # claim.
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
        """End the claim by a step, which returns whether the claim was still held."""
        claim = job.claim
        self.end(claim)

        def ended(held: bool) -> None:
            if not held:
                self.lost(claim, FAILURE, job)

        self._steps.until_done(make, ended, f"{claim.task_path} stays claimed")

    def hand_back(self, jobs: list[Job], log: bytes = b"") -> None:
        """Make the tasks of `jobs` runnable again, without using up an attempt. Add `log` to each
        task, unless it is empty."""
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
                for claim in claims:  # claims that went back already are no longer held: no harm
                    self._steps.until_done(partial(hand_back, [claim], log), lambda _: None, what)
            elif held < len(jobs) == 1:
                self.lost(claims[0], HAND_BACK, jobs[0])
            elif held < len(jobs):
                self._counters.fenced += len(jobs) - held
                many = count(len(jobs) - held, "claim")
                logger.info("lost %s of %d that were to be handed back", many, len(jobs))

        self._steps.start_contained(hand_back(claims, log), handed_back, what, instead=None)

    def hand_back_stalled(self, now: float) -> None:
        """If long tasks hold all slots, hand back the tasks claimed ahead, for other workers."""
        if not self._pool.waiting() or now - self.capacity.last_end <= STALLED_S:
            return
        jobs = self._pool.take_waiting()
        if jobs:
            many = count(len(jobs), "claim")
            logger.info("%s %s for %g s: handed back", many, HANDED_BACK, STALLED_S)
        self.capacity.stalled(now)
        self.hand_back(jobs)

    def withdraw(self, plan: str) -> None:
        """Hand back the tasks of a paused or cancelled plan that have not started."""
        waiting = self._pool.take_waiting()
        for job in waiting:
            if job.claim.plan != plan:
                self._pool.put(job)
        self.hand_back([job for job in waiting if job.claim.plan == plan])


# ---- Decide how many tasks a worker claims: enough for its slots, but none that others could run.
#
# Pure. Short tasks are claimed before slots are free, so that claiming and loading overlap with
# running. Three things limit this: long tasks, large values, and commits that are behind.


#: The most claims beyond a worker's slots, if its tasks are short. With UNCOMMITTED_MAX, a session
#: has fewer than 1 000 ephemerals; more would endanger a server.
AHEAD_MAX = 160
#: The most seconds of work that may wait here, though other workers could do it meanwhile.
AHEAD_S = 0.05
#: The most bytes of arguments and results of tasks claimed ahead, by the average so far.
AHEAD_BYTES_MAX = 8 * 1024 * 1024
#: How many results may wait for a commit or be in one. Each further result means one claim less.
#: Three commits of small results are about 600 tasks.
UNCOMMITTED_MAX = 640
#: The same limit in bytes. At this limit nothing is claimed.
UNCOMMITTED_BYTES_MAX = 4 * 1024 * 1024
#: Seconds after which claims that wait behind long tasks are handed back, for other workers.
STALLED_S = 0.2
#: If few tasks are runnable, tasks longer than this (in seconds) are not claimed ahead: to publish
#: a task and claim it elsewhere takes about as long.
SHARE_WORTH_S = 0.004
#: The weight of the newest task in the averages.
_NEWEST = 0.1


class Capacity:
    """The capacity of one worker, by averages over the tasks that ended there lately."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._task_s = 1.0
        #: An average of logarithms: a few tasks that waited for a processor do not raise it much.
        self._task_log_s = 0.0
        self._task_bytes = 0.0
        #: The cached `_claimed_ahead()`; None if the averages have changed since. The worker asks
        #: many times between the ends of two tasks.
        self._ahead: tuple[int, int] | None = None
        #: When a task last ended, or was last put into the queue of the slots: monotonic.
        self.last_end = 0.0

    def ended(self, seconds: float, size: int, now: float) -> None:
        """Note how long a task has run, and the bytes (`size`) of its arguments and result."""
        self.last_end = now
        self._task_s += _NEWEST * (seconds - self._task_s)
        self._task_log_s += _NEWEST * (math.log(max(seconds, 1e-6)) - self._task_log_s)
        self._task_bytes += _NEWEST * (size - self._task_bytes)
        self._ahead = None

    def stalled(self, now: float) -> None:
        """Claim nothing ahead until short tasks have ended here: such claims would only go back."""
        self.last_end = now
        self._task_s = max(self._task_s, STALLED_S)
        self._ahead = None

    @property
    def are_long(self) -> bool:
        """Whether recent tasks were so long that other workers should run some of those waiting
        here."""
        return self._task_log_s >= math.log(SHARE_WORTH_S)

    def free(self, held: int, uncommitted: int, uncommitted_bytes: int, *, plenty: bool) -> int:
        """How many more tasks to claim; 0 or less: none.

        `held` claims still need a slot; `uncommitted` claims have a result that is not committed.
        `plenty`: more tasks are runnable than this worker takes, or there is no other worker, so
        claiming ahead leaves no worker idle.
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
# This uses up no attempt. Tasks whose commits delete more than they add make room. Dependents are
# added after their dependencies, and their commits delete their arguments. So meanwhile this worker
# prefers the newest tasks.


#: The most results to keep here, and their most bytes. A task beyond that is handed back, and runs
#: again later.
KEPT_MAX = 400
KEPT_BYTES_MAX = 64 * 1024 * 1024
#: Seconds before a result is committed again: the first delay, doubled each time, and the longest.
KEPT_REST_FIRST_S, KEPT_REST_MAX_S = 0.5, 10.0


class KeptResults:
    """The results that one worker keeps; only the loop's thread calls this class."""

    def __init__(self) -> None:
        #: By the path of the claim: the size of the result, and its last delay in seconds.
        self._kept: dict[str, tuple[int, float]] = {}
        #: Whether the worker keeps any result. Not a property, because the loop asks ten times for
        #: each task of a chain.
        self.is_met = False

    def keep(self, claim: Claim, size: int, error: ZkplanError) -> float | None:
        """Keep a result of `size` bytes that ZooKeeper had no room for.

        Returns the seconds until the next try, or None if the worker keeps too much already.
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
        """Forget `claim`, which was committed, lost, or handed back."""
        if self._kept.pop(claim.path, None) is not None and not self._kept:
            self.is_met = False
            logger.warning("this worker no longer keeps results: all of them are settled")

    def _is_full(self, size: int) -> bool:
        kept = sum(other for other, _ in self._kept.values())
        return len(self._kept) >= KEPT_MAX or kept + size > KEPT_BYTES_MAX
