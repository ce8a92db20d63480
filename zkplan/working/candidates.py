"""Which plan a worker looks at next, and which of its runnable entries it tries to claim.

Pure: time is an argument. Two workers that list the same entries must not all reach for the first
ones: each prefers its own share by task number, and takes from another's share only after it found
its own empty and a moment has passed. Contention is avoided, not suffered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..layout import parse_entry
from ..protocol.look import PlanLook
from ..records import PlanRecord, State

#: Entries kept per listing. More would only grow old; the listing is repeated when they are used
#: up.
CANDIDATES_MAX = 16_384
#: Seconds after which another worker's share may be taken: its preferred worker had its chance.
STEAL_AFTER_S = 0.01
#: Strange names remembered for each plan.
STRANGE_MAX = 1000
#: A listing shorter than this is watched: soon there is nothing left, and news must wake the
#: worker.
NEARLY_EMPTY = 64
#: Seconds a plan is left alone after this worker could not decode a task of it, doubled each time.
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0


@dataclass(slots=True)
class PlanView:
    """What this worker knows of one plan."""

    number: str
    path: str
    record: PlanRecord | None = None
    state: State | None = None
    version: int = -1
    own: deque[str] = field(default_factory=deque)
    #: Entries of others' shares were seen; after this time they may be taken.
    steal_at: float | None = None
    #: Names under `runnable` that are no entries, or cannot be claimed: somebody else made them, or
    #: something below them.
    strange: set[str] = field(default_factory=set)
    must_look: bool = True
    looking: bool = False
    #: Its `ready` changed: look even when no slot is free, for running tasks must be told.
    changed: bool = False
    watch: bool = True
    adopt: bool = False
    #: It is done, for ever: never looked at again.
    finished: bool = False
    avoid_until: float = 0.0
    avoid_s: float = 0.0
    #: For the background check: when it is next due, and how long it took.
    check_at: float = 0.0
    check_s: float = 5.0

    @property
    def running(self) -> bool:
        return self.state == "running"

    def update(self, look: PlanLook, share: tuple[int, int], now: float) -> None:
        """Take up a listing. `share` is (this worker's place, number of workers)."""
        self.state, self.version = look.state, look.version
        self.looking = False
        self.adopt = look.state == "running" and look.names is None
        names: Sequence[str] = (look.names or ()) if self.running else ()
        if self.strange:
            # Listed again and again they would keep this worker looking for ever.
            if len(self.strange) < STRANGE_MAX:
                names = [name for name in names if name not in self.strange]
            else:
                names = [name for name in names if self._is_entry(name)]
        stealing = self.steal_at is not None and now >= self.steal_at
        mine = _share_of(names, *share)
        if not mine and names and stealing:
            # The tail of the list, where the preferred worker comes last.
            mine = sorted(names)[len(names) // 2 :][:CANDIDATES_MAX]
        self.own = deque(mine)
        if mine or not names:
            self.steal_at = None
        elif self.steal_at is None or stealing:
            # An earlier time stands: news of the plan must not put stealing off for ever.
            self.steal_at = now + STEAL_AFTER_S
        # Without a watch nothing would wake this worker: look again when these are used up. News
        # that came while this listing was under way has set must_look already, and it stays set.
        self.must_look = self.must_look or not self.watch
        self.watch = len(names) < NEARLY_EMPTY

    def begin_look(self) -> bool:
        """A listing starts; gives whether it is to be watched."""
        self.looking, self.must_look, self.changed = True, False, False
        return self.watch

    def take(self, count: int) -> list[str]:
        """The next entries to claim; names that are no entries are remembered and passed over."""
        taken: list[str] = []
        while self.own and len(taken) < count:
            name = self.own.popleft()
            if parse_entry(name) is not None:
                taken.append(name)
            else:
                self.bar(name)
        return taken

    def bar(self, name: str) -> None:
        """Never try to claim it again."""
        if len(self.strange) < STRANGE_MAX:
            self.strange.add(name)

    def _is_entry(self, name: str) -> bool:
        """Asked of each name only where there are more strange ones than are remembered."""
        return name not in self.strange and parse_entry(name) is not None

    def avoid(self, now: float) -> None:
        """This worker could not decode a task of the plan: leave it to others for a while."""
        if now >= self.avoid_until:  # tasks that were claimed together count once
            self.avoid_s = min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * self.avoid_s))
            self.avoid_until = now + self.avoid_s
        self.own.clear()
        self.must_look = True

    def leave_alone(self, now: float) -> None:
        """Its record cannot be read here: another worker may be newer; look again after a while."""
        self.looking, self.state = False, None
        self.avoid_s = AVOID_MAX_S
        self.avoid(now)

    def wants_look(self, now: float) -> bool:
        if self.looking or self.finished or now < self.avoid_until or self.own:
            return False
        return self.must_look or (self.steal_at is not None and now >= self.steal_at)


def _share_of(names: Iterable[str], me: int, count: int) -> list[str]:
    """The first entries of this worker's share, sorted; walked once, without holding them all."""
    mine: list[str] = []
    for name in names:
        if count < 2 or _number(name) % count == me:
            mine.append(name)
            if len(mine) >= 2 * CANDIDATES_MAX:
                mine.sort()
                del mine[CANDIDATES_MAX:]
    mine.sort()
    return mine[:CANDIDATES_MAX]


def _number(name: str) -> int:
    digits = name[5:15]
    return int(digits) if digits.isdecimal() else 0


class Candidates:
    """All plans this worker knows, served in turn, at a cost that does not grow with them."""

    def __init__(self) -> None:
        self.views: dict[str, PlanView] = {}
        #: Plans with entries to claim, the next in turn first.
        self._stocked: dict[str, None] = {}
        #: Plans that want a look now or at a known time.
        self._wanting: set[str] = set()
        self._looked_at = 0.0
        #: Plans that the present sweep has still to visit.
        self._sweep: list[str] = []

    def set_plans(self, numbers: list[str], path_of: Callable[[str], str]) -> None:
        """Take up a listing of the root: new plans are looked at, removed ones forgotten."""
        for number in numbers:
            if number not in self.views:
                self.views[number] = PlanView(number, path_of(number))
                self._wanting.add(number)
        for number in set(self.views) - set(numbers):
            del self.views[number]
            self._stocked.pop(number, None)
            self._wanting.discard(number)

    def unfinished(self) -> Iterator[PlanView]:
        """All plans but those known to be done."""
        return (view for view in self.views.values() if not view.finished)

    def file(self, view: PlanView) -> None:
        """Put a plan where it belongs after something about it changed."""
        if view.number not in self.views:
            return  # removed meanwhile
        if view.own and view.running:
            self._stocked.setdefault(view.number)
        else:
            self._stocked.pop(view.number, None)
        wanting = view.must_look or view.changed or view.steal_at is not None
        if wanting and not view.finished:
            self._wanting.add(view.number)
        else:
            self._wanting.discard(view.number)

    def choose(self, now: float) -> PlanView | None:
        """The plan whose first entry ranks highest; plans of one rank take turns."""
        best: PlanView | None = None
        for number in list(self._stocked):
            view = self.views[number]
            if not (view.own and view.running):
                del self._stocked[number]
            elif now >= view.avoid_until and (best is None or view.own[0][:4] < best.own[0][:4]):
                best = view
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
            view.must_look = view.watch = True
            view.changed = view.changed or control
            self._wanting.add(view.number)
