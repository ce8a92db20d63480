"""The half of a worker that finds work: lists plans, looks at them, claims their runnable tasks."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..backoff import CHANCE
from ..protocol.active import list_active
from ..protocol.claim import Claimed, claim
from ..protocol.look import PlanLook, look
from ..protocol.records import PlanRecord
from ..protocol.requests import ReadData, Step
from ..protocol.shared import Registration
from .candidates import Candidates
from .plan_view import PlanView

if TYPE_CHECKING:
    from .loop import Loop

#: Listings under way at once.
LOOKS_MAX = 4
#: The rest before a claim for which there was no room is tried again, in seconds.
NO_ROOM_REST_S = 1.0
#: Plans looked at in one turn for changes that no watch told: idle cost must not grow with them.
PLANS_PER_SWEEP = 50


class Poller:
    """Keeps the candidates of one engine fresh, and claims from them."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.candidates = Candidates()
        #: Entries in the claim under way; one claim at a time, so that its size follows the load.
        self.claiming = 0
        self._looking = 0
        self._listing = False
        self._must_list = True
        #: In which order the listings at hand were sorted.
        self._newest_first = False

    def touched(self, path: str | None) -> bool:
        """A watch fired; None: the connection changed. True: it concerned nothing but plans."""
        root, active = self._loop.paths.root, self._loop.paths.active
        if path is None or path == active:
            self._must_list = True
        if path is None:
            self.candidates.touched(None, control=True)
            return False
        prefix = root + "/plan-"
        if path.startswith(prefix):
            number = path[len(prefix) : len(prefix) + 10]
            self.candidates.touched(number, path.endswith("/ready"))
            return True
        return path == active

    def look_again(self) -> None:
        """Look as after a change that nobody told of: at the list of plans, at some of them."""
        self._must_list = True
        self.candidates.sweep(PLANS_PER_SWEEP)

    def advance(self, now: float) -> None:
        """Start the looks and the claim that are wanted now."""
        loop = self._loop
        if self._must_list and not self._listing:
            self._must_list, self._listing = False, True
            loop.go(list_active(loop.paths, watch=True), self._plans_listed)
        if self._newest_first != loop.no_room.is_met:
            self._newest_first = loop.no_room.is_met
            self.candidates.list_anew()
        me = self._wants_claim()
        if me is not None:
            self.candidates.grow_old(now)
        most = LOOKS_MAX - self._looking
        for view in self.candidates.to_look(now, most, hungry=loop.claims.free() > 0):
            self._look(view)
        if me is not None:
            self._claim(now, me)

    def _plans_listed(self, numbers: list[str]) -> None:
        self._listing = False
        # Each worker in an order of its own: all of them would else look at the same few plans
        # first, and reach for the same tasks.
        CHANCE.shuffle(numbers)
        # One that was cancelled is not active any more: its running tasks must be told.
        held = {job.claim.plan for job in self._loop.claims.jobs.values()}
        numbers += held.intersection(self.candidates.views).difference(numbers)
        self.candidates.set_plans(numbers, self._loop.paths.plan)
        losses = self._loop.runner.losses
        losses.keep_only({view.path for view in self.candidates.unfinished()})

    def _look(self, view: PlanView) -> None:
        self._looking += 1
        self._loop.statistics.looks += 1

        def looked(found: PlanLook | None) -> None:
            self._looking -= 1
            self._looked(view, found)

        # A plan that this worker may not read, or of a format that it does not know, is somebody
        # else's; it must not end the workers of all the others.
        step = _look(view, view.begin_look(time.monotonic()))
        what = f"{view.path} is left to other workers"
        self._loop.go_contained(step, looked, what, instead=None)

    def _looked(self, view: PlanView, found: PlanLook | None) -> None:
        before = view.state
        if found is None:
            view.leave_alone(time.monotonic())
        else:
            view.update(
                *(found, self._loop.share, time.monotonic()),
                spare=self._loop.claims.spare,
                newest_first=self._loop.no_room.is_met,
            )
        self.candidates.file(view)
        if view.state != "running" and before == "running":
            self._loop.claims.withdraw(view.number)
        if view.state == "cancelled" and before != "cancelled":
            for job in self._loop.claims.jobs.values():
                if job.claim.plan == view.number:
                    job.stop_reason = "its plan was cancelled"

    def _wants_claim(self) -> Registration | None:
        """As whom this worker claims now, None while it does not."""
        loop = self._loop
        free, held = loop.claims.free(), loop.claims.held
        if self.claiming or not loop.trusted or free <= 0:
            return None
        if held > loop.threads and free < held:
            return None  # small claims cost as much as large ones: wait until half of it is free
        return loop.me

    def _claim(self, now: float, me: Registration) -> None:
        loop = self._loop
        view = self.candidates.choose(now)
        if view is None:
            return
        known = len(view.strange)
        names = view.take(loop.claims.free(plenty=loop.claims.is_plenty(view)))
        if not known and view.strange:
            self._loop.complaints.tell(
                f"{view.path}/runnable holds names that are no entries, and are passed over: "
                f"{min(view.strange)!r:.100}"
            )
        self.candidates.file(view)
        if not names:
            return
        self.claiming = len(names)

        def claimed(made: Claimed | None) -> None:
            self.claiming = 0
            if made is None:
                view.leave_alone(time.monotonic())
                self.candidates.file(view)
            else:
                self._claimed(me, view, made)

        step = claim(me, view.number, view.version, names)
        loop.go_contained(step, claimed, f"{view.path} is left to other workers", instead=None)

    def _claimed(self, me: Registration, view: PlanView, made: Claimed) -> None:
        self._loop.statistics.conflicts += made.conflicts
        for name in made.barred:
            view.bar(name)
            self._loop.complaints.tell(
                f"{view.path}/runnable/{name} is never claimed: there are znodes below it or below "
                "the mark of its task, where zkplan makes none; delete them"
            )
        if made.no_room is not None:
            self._loop.complaints.tell(f"claims wait until there is room for them: {made.no_room}")
            view.rest(time.monotonic() + NO_ROOM_REST_S)
            self.candidates.file(view)
        if made.worker_gone:
            self._loop.lost_registration(me)
        if made.plan_changed or made.worker_gone:
            view.own.clear()
            view.must_look = True
            self.candidates.file(view)
        self._loop.claims.take_on(made.claims, made.read)


def _look(view: PlanView, watch: bool) -> Step[PlanLook]:
    """Raises PayloadUndecodable where the plan is of a format that this worker does not know."""
    if view.record is None:
        node = yield ReadData(view.path)
        view.record = PlanRecord.from_bytes(node.data if node is not None else b"")
    return (yield from look(view.path, watch))
