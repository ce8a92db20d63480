"""The claims that this worker holds: from the claim, or the inheritance, until each is settled."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from ..execution import Job
from ..protocol.commit import Part
from ..protocol.failure import hand_back
from ..protocol.load import FirstReads, Loaded, load
from ..protocol.shared import NO_DRIVE, Claim, Drive
from . import losses, room

if TYPE_CHECKING:
    from .engine import Engine
    from .plan_view import PlanView


class Claims:
    """What is being loaded, waits for a slot, or runs; only the loop's thread calls it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: By the path of its claim, what has been loaded and is not settled.
        self.jobs: dict[str, Job] = {}
        self._loading = 0
        #: Claims that commits and publications under way may make.
        self._promised = 0
        self._room = room.Room(engine.threads)
        self._last_end = 0.0

    @property
    def held(self) -> int:
        """Claims that still need a slot: being made, being loaded, waiting, running."""
        slots = self._engine.slots
        claiming = self._engine.seeker.claiming + self._promised
        return claiming + self._loading + slots.waiting + len(slots.running)

    def free(self, *, plenty: bool = True) -> int:
        """How many more tasks to claim; `plenty`: more is runnable than this worker takes."""
        slots = self._engine.slots
        if self._engine.no_room.is_met:
            # Whatever waits to be committed: only further commits can make room.
            return self._engine.threads - self.held
        # What ran and is not settled is in a commit, or waits for one.
        uncommitted = max(0, len(self.jobs) - slots.waiting - len(slots.running))
        return self._room.free(
            self.held, uncommitted, self._engine.delivery.waiting_bytes, plenty=plenty
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
        engine = self._engine
        if engine.me is None or engine.leaving.begun or not engine.trusted:
            return NO_DRIVE
        versions = {}
        plenty = True
        for part in parts:
            view = engine.seeker.candidates.views.get(part.loaded.claim.plan)
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
        engine = self._engine
        return engine.share[1] < 2 or (not view.stolen and len(view.own) > 2 * engine.threads)

    def take_on(self, claims: list[Claim], read: FirstReads | None = None) -> None:
        """Load and run tasks that this worker has claimed."""
        if claims:
            self._loading += len(claims)
            self._engine.go_contained(
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
            self._engine.again.go(
                partial(load, [claim]), partial(self._take_up, [claim]), _unread(claim)
            )

    def _take_up(self, claims: list[Claim], loaded: list[Loaded]) -> None:
        losses.before_start(self._engine, claims, loaded)
        if self._engine.leaving.begun:
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
            view = self._engine.seeker.candidates.views.get(job.claim.plan)
            job.plan = view.record if view is not None else None
            if view is not None and not view.running:
                self.give_back([job])  # paused or cancelled since it was claimed
            else:
                jobs.append(job)
        for job in jobs:
            self.jobs[job.claim.path] = job
            self._engine.slots.put(job)
        for job in jobs:
            self._engine.ahead.begin(job)

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
        if not self._engine.slots.waiting or now - self._last_end <= room.STALLED_S:
            return
        jobs = self._engine.slots.take_waiting()
        losses.tell_handed_back(len(jobs), room.STALLED_S)
        self._last_end = now
        self._room.stalled()
        self.give_back(jobs)

    def withdraw(self, plan: str) -> None:
        """The plan was paused or cancelled: what it has waiting here is handed back unstarted."""
        slots = self._engine.slots
        waiting = slots.take_waiting()
        for job in waiting:
            if job.claim.plan != plan:
                slots.put(job)
        self.give_back([job for job in waiting if job.claim.plan == plan])

    def end_job(self, claim: Claim) -> None:
        """The claim is settled: nothing of its job is needed any more."""
        self.jobs.pop(claim.path, None)
        self._engine.ahead.forget(claim)
        self._engine.no_room.settled(claim)

    def give_back(self, jobs: list[Job], log: bytes = b"") -> None:
        """Hand claims back without using up an attempt."""
        claims = [job.claim for job in jobs]
        for job in jobs:
            self.end_job(job.claim)
        if claims:
            engine = self._engine
            engine.statistics.handed_back += len(claims)
            told = losses.if_fewer(engine, jobs)

            def handed_back(held: int | None) -> None:
                if held is not None:
                    told(held)
                    return
                for claim in claims:  # those that are handed back are not any more
                    engine.again.go(partial(hand_back, [claim], log), lambda _: None, what)

            what = "a task stays claimed"
            engine.go_contained(hand_back(claims, log), handed_back, what, instead=None)


def _unread(claim: Claim) -> str:
    return f"{claim.task_path} cannot be read"
