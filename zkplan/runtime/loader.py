"""Load: read the tasks that this worker has claimed, and queue them for the slots."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

from ..protocol.load import FirstReads, Loaded, load
from ..protocol.shared import Claim
from .candidates import Candidates
from .claims import UNSTARTED, Claims
from .job import Job
from .prefetch import Prefetch
from .steps import Steps
from .thread_pool import ThreadPool


@dataclass(eq=False)
class Loader:
    """Takes tasks from their claim to the queue of the slots. Only the loop's thread calls it."""

    steps: Steps
    claims: Claims
    pool: ThreadPool
    candidates: Candidates
    prefetch: Prefetch

    def take_on(self, claims: list[Claim], read: FirstReads | None = None) -> None:
        """Load and run tasks that this worker has claimed; `read` are reads made with the claim."""
        if claims:
            self.claims.loading += len(claims)
            for each in claims:
                self.claims.shares.opened(each.path, each.plan)
            self.steps.start_contained(
                load(claims, read),
                lambda loaded: self._loaded(claims, loaded),
                _unread(claims[0]),
                instead=None,
            )

    def _loaded(self, claims: list[Claim], loaded: list[Loaded] | None) -> None:
        self.claims.loading -= len(claims)
        if loaded is not None:
            self._take_up(claims, loaded)
            return
        # One of them cannot be read and stays claimed here. The others must still run, and more of
        # their plan: what is not read takes no slot.
        for each in claims:
            self.claims.shares.closed(each.path)
            self.steps.until_done(
                partial(load, [each]), partial(self._take_up, [each]), _unread(each)
            )

    def _take_up(self, claims: list[Claim], loaded: list[Loaded]) -> None:
        if len(loaded) < len(claims):
            standing = {item.claim.path for item in loaded}
            for each in claims:
                if each.path not in standing:
                    self.claims.lost(each, UNSTARTED)
        if self.claims.starts_nothing:
            self.claims.hand_back([Job(item) for item in loaded])  # nothing new starts
        else:
            self.start(loaded)

    def prefetched(self, loaded: Loaded | None, claim: Claim) -> None:
        """The answer of a prefetch came after the commit that claimed the task."""
        self.claims.loading -= 1
        if loaded is not None:
            self.start([loaded])
        else:
            self.take_on([claim])

    def start(self, loaded: list[Loaded]) -> None:
        """Put tasks into the queue of the slots."""
        self.claims.capacity.last_end = time.monotonic()
        jobs = []
        for job in [Job(item) for item in loaded]:
            view = self.candidates.views.get(job.claim.plan)
            if view is not None:
                job.plan, job.version = view.record, view.version
            if view is None or not view.running:
                self.claims.hand_back([job])  # paused, cancelled or removed since it was claimed
            else:
                jobs.append(job)
        # Before a slot has the job: a short task would end, and its commit would leave together
        # with the read. The server answers the read only after the commit then, and the next hop
        # of a chain waits for it.
        for job in jobs:
            if job.loaded.edges:
                self.prefetch.begin(job.loaded, lambda: self.claims.free() - len(jobs))
        for job in jobs:
            self.claims.jobs[job.claim.path] = job
            self.claims.shares.opened(job.claim.path, job.claim.plan)
            self.pool.put(job)


def _unread(claim: Claim) -> str:
    return f"{claim.task_path} cannot be read"
