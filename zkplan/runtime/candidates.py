"""All plans a worker knows: which one it looks at next, and which one it claims from.

Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .plan_view import PlanView


class Candidates:
    """All plans this worker knows, served in turn."""

    def __init__(self) -> None:
        self.views: dict[str, PlanView] = {}
        #: Plans with entries to claim, the next in turn first.
        self._stocked: dict[str, None] = {}
        #: Plans that want a look now or at a known time, the next in turn first.
        self._wanting: dict[str, None] = {}
        self._looked_at = 0.0
        #: Plans that the present sweep has still to visit.
        self._sweep: list[str] = []

    def set_plans(self, numbers: list[str], path_of: Callable[[str], str]) -> None:
        """Take up a listing of the active plans: new ones are looked at, others forgotten."""
        for number in numbers:
            if number not in self.views:
                self.views[number] = PlanView(number, path_of(number))
                self._wanting.setdefault(number)
        for number in set(self.views) - set(numbers):
            del self.views[number]
            self._stocked.pop(number, None)
            self._wanting.pop(number, None)

    def unfinished(self) -> Iterator[PlanView]:
        """All plans but those known to be done."""
        return (view for view in self.views.values() if not view.finished)

    def file(self, view: PlanView) -> None:
        """Put a plan where it belongs after something about it changed."""
        if self.views.get(view.number) is not view:
            return  # removed meanwhile
        if view.own and view.running:
            self._stocked.setdefault(view.number)
        else:
            self._stocked.pop(view.number, None)
        wanting = view.must_look or view.changed or view.steal_at is not None
        if wanting and not view.finished:
            self._wanting.setdefault(view.number)
        else:
            self._wanting.pop(view.number, None)

    def rest(self, number: str, until: float) -> None:
        """ZooKeeper has no room for what comes of that plan now: look at it again then."""
        view = self.views.get(number)
        if view is not None:
            view.rest(until)
            self.file(view)

    def list_anew(self) -> None:
        """Forget what was listed: it is wanted in another order."""
        for view in [self.views[number] for number in self._stocked]:
            view.own.clear()
            view.must_look = True
            self.file(view)

    def grow_old(self, now: float) -> None:
        """Something is about to be claimed: find out which listings are too old for that."""
        views = [view for number in self._stocked if (view := self.views[number]).must_look]
        for view in views:
            view.grow_old(now, len(views))

    def choose(self, now: float) -> PlanView | None:
        """The plan whose first entry ranks highest; plans of one rank take turns.

        None also where those of the highest rank all wait to be listed again, or for the answer.
        """
        best: PlanView | None = None
        for number in list(self._stocked):
            view = self.views[number]
            if not (view.own and view.running):
                del self._stocked[number]
            elif now >= view.avoid_until:
                view.offered = True
                if best is None or _order(view) < _order(best):
                    best = view
        if best is not None and (best.looking or best.stale):
            return None
        if best is not None:
            del self._stocked[best.number]
            self._stocked[best.number] = None  # to the end of the line
        return best

    def to_look(self, now: float, most: int, hungry: bool) -> list[PlanView]:
        """Plans whose listing is wanted, at most `most`; without hunger only those that changed."""
        self._looked_at = now
        found: list[PlanView] = []
        for number in self._wanting:
            if len(found) >= most:
                break
            view = self.views[number]
            if (view.changed and not view.looking) or (hungry and view.wants_look(now)):
                found.append(view)
        for view in found:
            # To the end of the line: a few plans of which there is always news, all of it claimed
            # by others, would else be looked at for ever, and one with work to do never.
            del self._wanting[view.number]
            self._wanting[view.number] = None
        return found

    def next_event(self) -> float:
        """The earliest monotonic time at which waiting alone makes a look due.

        What was due at the last look around waits for a free slot or an answer, not for time:
        counted here, it would make the loop spin.
        """
        due = float("inf")
        for number in self._wanting:
            view = self.views[number]
            if view.looking or view.finished or view.own:
                continue
            at = view.avoid_until
            if not view.must_look:
                at = max(at, view.steal_at or 0.0)
            if at > self._looked_at:
                due = min(due, at)
        return due

    def to_check(self, now: float, share: tuple[int, int], first_s: float) -> PlanView | None:
        """The idle plan whose background check is the longest overdue, None where none is due.

        As measured by its own period: one that stands still for the first time does not wait for
        thousands that have stood still for long, nor do these wait for ever for a few of which
        each check finds something. First of all come those that were never taken up (of plain
        creates): nothing of them runs until then. Only once, since it may be refused.
        """
        place, count = share
        best: PlanView | None = None
        longest = (False, 0.0)
        for view in self.views.values():
            if not view.idle or int(view.number) % count != place:
                continue
            if view.check_s == 0.0:
                view.check_at, view.check_s = now + first_s, first_s
            late_s = now - view.check_at
            overdue = (view.adopt and view.check_s == first_s, late_s / view.check_s)
            if late_s >= 0.0 and (best is None or overdue > longest):
                best, longest = view, overdue
        return best

    def sweep(self, most: int) -> None:
        """Have the next `most` unfinished plans looked at, in turn."""
        for number in list(self._sweep)[:most]:
            self._sweep.remove(number)
            self.touched(number, control=False)
        if not self._sweep:
            self._sweep = [view.number for view in self.unfinished()]

    def touched(self, number: str | None, control: bool) -> None:
        """A watch of that plan fired, `control` that of its `ready`; None: look at all of them."""
        if number is not None and number not in self.views:
            return
        for view in self.views.values() if number is None else (self.views[number],):
            if view.finished:
                continue
            view.must_look = True
            if control or number is None:
                # That of `ready` is gone. That of a long listing, its first one, is not renewed:
                # it would fire with the next claim.
                view.watch = True
            view.changed = view.changed or control
            self._wanting.setdefault(view.number)


def _order(view: PlanView) -> tuple[str, bool]:
    return view.own[0][:4], view.looking or view.stale
