"""Choose the plans that a worker looks at next, and the plan that it claims from.

Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet

from .plan_shares import Shares
from .plan_view import PlanView

#: Seconds between two looks of a worker without a free slot. It looks at a plan that has news and
#: holds no claim here, because the plan may have to go first.
GLANCE_S = 0.1


class Candidates:
    """All plans that this worker knows, served in turn."""

    def __init__(self, shares: Shares | None = None, kinds: Collection[str] = ()) -> None:
        self._kinds = kinds
        self.shares = shares or Shares()
        self.views: dict[str, PlanView] = {}
        #: Whether an entry that waits for a permit may be tried.
        self.may_try: Callable[[PlanView, float], bool] = lambda view, now: False
        #: Plans of which this worker lately could not run something.
        self._left: set[str] = set()
        #: Plans with entries to claim; the first is next in turn.
        self._stocked: dict[str, None] = {}
        #: Plans that need a look, now or later; the first is next in turn.
        self._wanting: dict[str, None] = {}
        self._looked_at = 0.0
        self._glanced_at = float("-inf")
        #: Plans that the current sweep has not visited yet.
        self._sweep: list[str] = []

    def set_plans(self, numbers: list[str], path_of: Callable[[str], str]) -> list[PlanView]:
        """Take a new listing of the active plans. Forgets and returns plans that are missing."""
        for number in numbers:
            if number not in self.views:
                self.views[number] = PlanView(number, path_of(number), kinds=self._kinds)
                self._wanting.setdefault(number)
        gone = [self.views[number] for number in set(self.views) - set(numbers)]
        self._forget([view.number for view in gone])
        return gone

    def begin_anew(self, active: Iterable[str]) -> None:
        """Forget the active plans that were known to have ended: they have begun again."""
        ended = [
            number for number in active if number in self.views and self.views[number].finished
        ]
        self._forget(ended)

    def _forget(self, numbers: Iterable[str]) -> None:
        for number in numbers:
            del self.views[number]
            self._stocked.pop(number, None)
            self._wanting.pop(number, None)
            self._left.discard(number)
            self.shares.forget(number)

    def __contains__(self, number: object) -> bool:
        """Whether the plan may have work, as far as this worker knows."""
        view = self.views.get(number)  # type: ignore[call-overload]
        return view is not None and not view.finished and view.state != "cancelled"

    def unfinished(self) -> Iterator[PlanView]:
        """All plans but those known to be done."""
        return (view for view in self.views.values() if not view.finished)

    def file(self, view: PlanView) -> None:
        """Put a plan into the right queue after something about it has changed."""
        if self.views.get(view.number) is not view:
            return  # removed meanwhile
        if (view.own or view.waiting) and view.running:
            if view.number not in self._stocked:
                self._stocked[view.number] = None
                self.shares.came(view.number, view.listed_at)
        else:
            self._stocked.pop(view.number, None)
        if view.is_left and not view.finished:
            self._left.add(view.number)
        else:
            self._left.discard(view.number)
        wanting = view.must_look or view.changed or view.due_at < float("inf")
        if wanting and not view.finished:
            self._wanting.setdefault(view.number)
        else:
            self._wanting.pop(view.number, None)

    def rest(self, number: str, now: float) -> None:
        """Leave the plan alone for a moment, as ZooKeeper has no room for its results or claims."""
        view = self.views.get(number)
        if view is not None:
            view.rest(now)
            self.file(view)

    def has_run(self, number: str) -> None:
        """Note that a task of the plan has run here."""
        view = self.views.get(number)
        if view is None:
            return
        view.is_left = False
        self._left.discard(number)
        if view.left.in_vain:
            view.left.in_vain, view.avoid_s = 0, 0.0

    def list_anew(self) -> None:
        """Forget all listings, because another order is needed."""
        for view in [self.views[number] for number in self._stocked]:
            view.drop_listing()
            self.file(view)

    def grow_old(self, now: float) -> None:
        """Mark the listings that are too old for the next claim."""
        views = [view for number in self._stocked if (view := self.views[number]).must_look]
        for view in views:
            view.grow_old(now, len(views))

    def choose(self, now: float) -> PlanView | None:
        """The plan whose first entry ranks highest; of several, the one whose turn it is.

        Returns None if there is none, or while all plans of the highest rank wait for a new
        listing.
        """
        best: list[PlanView] = []
        for number in list(self._stocked):
            view = self.views[number]
            if not ((view.own or view.waiting) and view.running):
                del self._stocked[number]
            elif not view.own and not self.may_try(view, now):
                view.held_back = True
            elif now >= view.avoid_until:
                if view.held_back:
                    view.held_back = False
                    self.shares.came(number, now)
                view.offered = True
                if not best or view.rank < best[0].rank:
                    best = [view]
                elif view.rank == best[0].rank:
                    best.append(view)
        room = {view.number: self.shares.new_room(view.number) for view in best}
        listed = [view.number for view in best if not (view.looking or view.stale)]
        ready = [number for number in listed if room[number] != 0]
        if not ready:
            return None
        chosen = self.shares.next([(v.number, v.weight) for v in best], ready, now)
        if chosen is None:
            return None
        view, most = self.views[chosen[0]], room[chosen[0]]
        view.most = min((each for each in (chosen[1], most) if each is not None), default=None)
        return view

    def must_yield(self, plans: AbstractSet[str], now: float) -> bool:
        """Whether another plan has a task that goes before the tasks that a commit makes runnable
        in one of `plans`."""
        if not self._stocked or (len(plans) == 1 and self._stocked.keys() <= plans):
            return False
        stocked = [view for view in map(self.views.__getitem__, self._stocked) if view.own]
        others = [(v.rank, v) for v in stocked if v.running and now >= v.avoid_until]
        for view in filter(None, map(self.views.get, plans)):
            rank, rivals = view.usual_rank, [each for each in others if each[1] is not view]
            if any(other < rank for other, _ in rivals):
                return True
            equals = [(v.number, v.weight) for other, v in rivals if other == rank]
            if equals and self.shares.is_ahead((view.number, view.weight), equals, now):
                return True
        return False

    def awaits_a_first_look(self, now: float) -> bool:
        """Whether the first look at a plan is under way, and began a moment ago."""
        return any(
            view.looking and view.listed_at == float("-inf") and now < view.asked_at + GLANCE_S
            for view in map(self.views.__getitem__, self._wanting)
        )

    @property
    def leaves_some(self) -> bool:
        """Whether there are plans of which this worker lately could not run something."""
        return bool(self._left)

    @property
    def has_stock(self) -> bool:
        """Whether entries to claim are known, now or once a limit has room."""
        return bool(self._stocked)

    def without_claims(self, now: float) -> int:
        """How many plans have entries or are new, of which this worker holds no claim."""
        waiting = self._stocked.keys() | self._wanting.keys()
        views = [self.views[number] for number in waiting if not self.shares.holds_some(number)]
        return sum(
            bool(view.own) or (view.listed_at == float("-inf") and view.wants_look(now))
            for view in views
        )

    @property
    def want_looks(self) -> bool:
        """Whether any plan may need a listing, now or later."""
        return bool(self._wanting)

    def to_look(self, now: float, most: int, hungry: bool) -> list[PlanView]:
        """At most `most` plans that need a listing. If the worker is not `hungry`, these are only
        changed plans, and now and then one plan without a claim here."""
        self._looked_at = now
        found: list[PlanView] = []
        glances = not hungry and now >= self._glanced_at + GLANCE_S
        for number in self._wanting:
            if len(found) >= most:
                break
            view = self.views[number]
            if (view.changed and not view.looking) or (hungry and view.wants_look(now)):
                found.append(view)
            elif glances and view.wants_look(now) and not self.shares.holds_some(number):
                found.append(view)
                glances, self._glanced_at = False, now
        for view in found:
            # Move the plan to the end of the queue. Otherwise the worker could look for ever at a
            # few plans with constant news whose tasks others claim, and never at a plan with work.
            del self._wanting[view.number]
            self._wanting[view.number] = None
        return found

    def next_event(self) -> float:
        """The earliest monotonic time at which a look becomes due.

        Leaves out looks that are due already: these wait for a free slot or an answer, and the loop
        would spin.
        """
        due = float("inf")
        for number in self._wanting:
            view = self.views[number]
            if view.looking or view.finished or view.own:
                continue
            at = view.avoid_until
            if view.waiting:
                at = max(at, view.renew_at if view.must_look else float("inf"))
            elif not view.must_look:
                at = max(at, view.due_at)
            if at > self._looked_at:
                due = min(due, at)
        return due

    def to_check(self, now: float, share: tuple[int, int], first_s: float) -> PlanView | None:
        """The idle plan whose background check is most overdue, or None.

        Measures lateness in the plan's own period. So a plan that becomes idle does not wait for
        thousands of long idle plans, nor these for ever for a few plans whose checks always find
        something.
        """
        place, count = share
        best: PlanView | None = None
        longest = 0.0
        for view in self.views.values():
            if not view.is_idle(now) or int(view.number) % count != place:
                continue
            if view.check_s == 0.0:
                view.check_at, view.check_s = now + first_s, first_s
            late_s = now - view.check_at
            if late_s >= 0.0 and (best is None or late_s / view.check_s > longest):
                best, longest = view, late_s / view.check_s
        return best

    def sweep(self, most: int) -> list[PlanView]:
        """The next `most` unfinished plans, in turn."""
        if not self._sweep:
            self._sweep = [view.number for view in self.unfinished()]
        numbers, self._sweep = self._sweep[:most], self._sweep[most:]
        return [self.views[number] for number in numbers if number in self.views]

    def touched(self, number: str | None, control: bool) -> None:
        """Note that a watch of the plan fired; `control`: the watch of its `ready`. With None, all
        plans get a look."""
        if number is not None and number not in self.views:
            return
        for view in self.views.values() if number is None else (self.views[number],):
            if view.finished:
                continue
            view.must_look = True
            if control or number is None:
                # The watch of `ready` has fired, so set it again. Other events do not set the watch
                # of a long listing again, because it would fire with the next claim.
                view.watch = True
            view.changed = view.changed or control
            self._wanting.setdefault(view.number)
