"""The claims that this worker holds: from the claim, or the inheritance, until each is settled."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ..protocol.commit import Part
from ..protocol.failure import hand_back
from ..protocol.load import FirstReads, Loaded, load
from ..protocol.shared import NO_DRIVE, Claim, Drive
from . import capacity, losses
from .execution import Job

if TYPE_CHECKING:
    from .loop import Loop
    from .plan_view import PlanView


class Claims:
    """What is being loaded, waits for a slot, or runs; only the loop's thread calls it."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        #: By the path of its claim, what has been loaded and is not settled.
        self.jobs: dict[str, Job] = {}
        self._loading = 0
        #: Claims that commits and publications under way may make.
        self._promised = 0
        self._room = capacity.Room(loop.threads)
        self._last_end = 0.0

    @property
    def held(self) -> int:
        """Claims that still need a slot: being made, being loaded, waiting, running."""
        slots = self._loop.slots
        claiming = self._loop.poller.claiming + self._promised
        return claiming + self._loading + slots.waiting + len(slots.running)

    def free(self, *, plenty: bool = True) -> int:
        """How many more tasks to claim; `plenty`: more is runnable than this worker takes."""
        slots = self._loop.slots
        if self._loop.no_room.is_met:
            # Whatever waits to be committed: only further commits can make room.
            return self._loop.threads - self.held
        # What ran and is not settled is in a commit, or waits for one.
        uncommitted = max(0, len(self.jobs) - slots.waiting - len(slots.running))
        return self._room.free(
            self.held, uncommitted, self._loop.delivery.waiting_bytes, plenty=plenty
        )

    @property
    def are_long(self) -> bool:
        """Whether tasks take so long that one which waits here had better run elsewhere."""
        return self._room.are_long

    @property
    def spare(self) -> int:
        """Idle slots for which a task of another worker's share is worth a conflict."""
        return max(0, self.free(plenty=False)) if self.are_long else 0

    def drive(self, parts: list[Part], most: int, spare: int) -> Drive:
        """What this worker may claim by itself while it commits `parts`: at most `most` tasks.

        `spare` claims end by it. Where more is runnable than all workers take, as many may follow
        them, however far the commits are behind: their dependents go before further tasks, or
        results would pile up in ZooKeeper.
        """
        loop = self._loop
        if loop.me is None or loop.shutdown.begun or not loop.trusted:
            return NO_DRIVE
        versions = {}
        plenty = True
        for part in parts:
            view = loop.poller.candidates.views.get(part.loaded.claim.plan)
            if view is not None and view.running:
                versions[view.path] = view.version
                plenty = plenty and self.is_plenty(view)
        free = self.free(plenty=plenty)
        return Drive(min(most, max(0, free, spare if plenty else 0)), versions)

    def promise(self, drive: Drive) -> Drive:
        """Count what `drive` may claim as held, until `redeem`."""
        self._promised += drive.capacity
        return drive

    def redeem(self, drive: Drive) -> None:
        """What was promised is claimed by now, or never will be."""
        self._promised -= drive.capacity

    def is_plenty(self, view: PlanView) -> bool:
        """Whether claiming ahead from that plan leaves no other worker idle."""
        loop = self._loop
        return loop.share[1] < 2 or (not view.stolen and len(view.own) > 2 * loop.threads)

    def take_on(self, claims: list[Claim], read: FirstReads | None = None) -> None:
        """Load and run tasks that this worker has claimed."""
        if claims:
            self._loading += len(claims)
            self._loop.go_contained(
                load(claims, read),
                lambda loaded: self._loaded(claims, loaded),
                _unread(claims[0]),
                instead=None,
            )

    def _loaded(self, claims: list[Claim], loaded: list[Loaded] | None) -> None:
        self._loading -= len(claims)
        if loaded is not None:
            self._take_up(claims, loaded)
            return
        # One of them cannot be read, and stays claimed here; the others must not stay with it.
        for claim in claims:
            self._loop.again.go(
                partial(load, [claim]), partial(self._take_up, [claim]), _unread(claim)
            )

    def _take_up(self, claims: list[Claim], loaded: list[Loaded]) -> None:
        losses.before_start(self._loop, claims, loaded)
        if self._loop.shutdown.begun:
            self.give_back([Job(item) for item in loaded])  # nothing new starts while it drains
        else:
            self.start(loaded)

    def expect(self, count: int) -> None:
        """Claims whose tasks are on their way and come through `inherited_arrived`."""
        self._loading += count

    def start(self, loaded: list[Loaded]) -> None:
        self._last_end = time.monotonic()
        jobs = []
        for job in [Job(item) for item in loaded]:
            view = self._loop.poller.candidates.views.get(job.claim.plan)
            job.plan = view.record if view is not None else None
            if view is None or not view.running:
                self.give_back([job])  # paused, cancelled or removed since it was claimed
            else:
                jobs.append(job)
        for job in jobs:
            self.jobs[job.claim.path] = job
            self._loop.slots.put(job)
        for job in jobs:
            self._loop.ahead.begin(job)

    def inherited_arrived(self, loaded: Loaded | None, claim: Claim) -> None:
        """What was read ahead came after the commit that inherited the task."""
        self._loading -= 1
        if loaded is not None:
            self.start([loaded])
        else:
            self.take_on([claim])

    def ended(self, seconds: float, size: int, now: float) -> None:
        """A task took so long and so many bytes: how many are claimed ahead goes by it."""
        self._last_end = now
        self._room.ended(seconds, size)

    def give_back_stalled(self, now: float) -> None:
        """Where long tasks hold all slots, what was claimed ahead goes back for others to run."""
        if not self._loop.slots.waiting or now - self._last_end <= capacity.STALLED_S:
            return
        jobs = self._loop.slots.take_waiting()
        losses.tell_handed_back(len(jobs), capacity.STALLED_S)
        self._last_end = now
        self._room.stalled()
        self.give_back(jobs)

    def withdraw(self, plan: str) -> None:
        """The plan was paused or cancelled: what it has waiting here is handed back unstarted."""
        slots = self._loop.slots
        waiting = slots.take_waiting()
        for job in waiting:
            if job.claim.plan != plan:
                slots.put(job)
        self.give_back([job for job in waiting if job.claim.plan == plan])

    def end_job(self, claim: Claim) -> None:
        """The claim is settled: nothing of its job is needed any more."""
        self.jobs.pop(claim.path, None)
        self._loop.ahead.forget(claim)
        self._loop.no_room.settled(claim)

    def give_back(self, jobs: list[Job], log: bytes = b"") -> None:
        """Hand claims back without using up an attempt."""
        claims = [job.claim for job in jobs]
        for job in jobs:
            self.end_job(job.claim)
        if claims:
            loop = self._loop
            loop.statistics.handed_back += len(claims)
            told = losses.if_fewer(loop, jobs)

            def handed_back(held: int | None) -> None:
                if held is not None:
                    told(held)
                    return
                for claim in claims:  # those that are handed back are not any more
                    loop.again.go(partial(hand_back, [claim], log), lambda _: None, what)

            what = "a task stays claimed"
            loop.go_contained(hand_back(claims, log), handed_back, what, instead=None)


def _unread(claim: Claim) -> str:
    return f"{claim.task_path} cannot be read"
