"""What a worker knows of one plan: which of its runnable entries it tries to claim, and until when.

Pure: time is an argument. Two workers that list the same entries must not all reach for the first
ones: each prefers its own share by task number, and takes from another's share only after it found
its own empty and a moment has passed, or what is pressing. Contention is avoided, not suffered.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..protocol.layout import parse_entry
from ..protocol.look import PlanLook
from ..protocol.records import PlanRecord, State

#: Entries kept per listing. More would only grow old; the listing is repeated when they are used
#: up.
CANDIDATES_MAX = 16_384
#: A listing that something may have happened to since is repeated after this many seconds, before
#: more of it is claimed: a task that was taken over, or one of a high priority, goes before others.
REFRESH_S, REFRESH_MAX_S = 1.0, 30.0
#: Later where all workers together would list more names per second than this, and where listing
#: would take more than one part in so many of the time: a server must not be spent on a huge plan.
#: Each listing counts as LISTING_NAMES more.
REFRESH_NAMES_PER_S, LISTING_NAMES, REFRESH_PARTS = 25_000, 1000, 10
#: Pressing entries of others' shares that are tried before one's own, once a second. Few: all
#: workers reach for the same ones, and each that came late costs a claim another round trip.
PRESSING_MAX = 8
#: Seconds after which another worker's share may be taken: its preferred worker had its chance.
STEAL_AFTER_S = 0.01
#: Strange names, and tasks that cannot run here, remembered for each plan.
STRANGE_MAX = 1000
#: A listing shorter than this is watched: soon there is nothing left, and news must wake the
#: worker.
NEARLY_EMPTY = 64
#: Seconds a plan is left alone after a task of it could not run here, doubled each time.
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
    #: When the last listing was asked for and came, and what it costs all workers, in names.
    asked_at: float = 0.0
    listed_at: float = float("-inf")
    listing_names: int = 0
    #: A claim could be made from the last listing. Until then it is never stale: a worker that is
    #: so slow that each listing is old when it comes would list for ever, and claim nothing.
    offered: bool = False
    #: What is left of the listing is too old to claim from.
    stale: bool = False
    #: What is left of the listing is of others' shares.
    stolen: bool = False
    #: When something that presses was last tried.
    pressed_at: float = float("-inf")
    #: Tasks that cannot run here: the last that are tried, or this worker would come to no other.
    cannot_run: set[str] = field(default_factory=set)
    #: Its `ready` changed: look even when no slot is free, for running tasks must be told.
    changed: bool = False
    watch: bool = True
    adopt: bool = False
    #: It is done, for ever: never looked at again.
    finished: bool = False
    avoid_until: float = 0.0
    avoid_s: float = 0.0
    #: For the background check: when it is next due, and after how long; 0.0 until it first is.
    check_at: float = 0.0
    check_s: float = 0.0

    @property
    def running(self) -> bool:
        return self.state == "running"

    @property
    def idle(self) -> bool:
        """It runs, and nothing of it is to be claimed, or it was never taken up."""
        stands_still = self.adopt or not (self.own or self.steal_at)
        return self.running and not self.finished and stands_still

    def update(
        self,
        look: PlanLook,
        share: tuple[int, int],
        now: float,
        *,
        spare: int = 0,
        newest_first: bool = False,
    ) -> None:
        """Take up a listing. `share` is (this worker's place, number of workers).

        `spare` slots would stay idle after its own share, and take from the end of others' shares
        at once: their workers begin at the front, and have no slot free for all, most likely.
        `newest_first` has the tasks that were added last tried first, whatever their priorities.
        """
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
        long = len(names) >= NEARLY_EMPTY
        if self.cannot_run:
            others = [name for name in names if name[5:15] not in self.cannot_run]
            names = others or names
        # What it steals it goes on with: listing again must not make it wait anew.
        stealing = self.steal_at is not None and now >= self.steal_at
        stealing = stealing or (self.stolen and bool(self.own))
        mine = _share_of(names, *share, newest_first=newest_first)
        self.stolen = not mine and bool(names) and stealing
        if self.stolen:
            # The tail of the list, where the preferred worker comes last.
            mine = sorted(names)[len(names) // 2 :][:CANDIDATES_MAX]
        pressing: list[str] = []
        # Once a second, so that short listings do not make all workers collide each time. Nor in a
        # plan that was left alone for long: what kept this worker from it may be what presses.
        if mine and now - self.pressed_at >= REFRESH_S and self.avoid_s < AVOID_MAX_S:
            pressing, self.pressed_at = _pressing(names, mine[0], *share), now
        self.own = deque([*pressing, *mine, *_last_of_others(names, spare - len(mine), *share)])
        self.offered = False
        self.listed_at, self.listing_names = now, (LISTING_NAMES + len(names)) * share[1]
        if self.own or not names:
            self.steal_at = None
        elif self.steal_at is None or stealing:
            # An earlier time stands: news of the plan must not put stealing off for ever.
            self.steal_at = now + STEAL_AFTER_S
        # Without a watch nothing would wake this worker: look again when these are used up. News
        # that came while this listing was under way has set must_look already, and it stays set.
        self.must_look = self.must_look or not self.watch
        # What was told while it was under way, of `ready` or of the connection, took a watch along.
        self.watch = self.changed or not long

    def begin_look(self, now: float) -> bool:
        """A listing starts; gives whether it is to be watched."""
        self.looking, self.must_look, self.changed, self.stale = True, False, False, False
        self.asked_at = now
        return self.watch

    def grow_old(self, now: float, plans: int) -> None:
        """Find the listing stale, where it is; `plans` are to be listed again, each as often.

        One that is watched is not while nothing was told of.
        """
        wait_s = max(
            REFRESH_S,
            plans * self.listing_names / REFRESH_NAMES_PER_S,
            REFRESH_PARTS * (self.listed_at - self.asked_at),
        )
        old = now >= self.listed_at + min(wait_s, REFRESH_MAX_S)
        self.stale = old and self.offered and self.must_look and not self.looking

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

    def avoid(self, now: float, task: str | None = None) -> None:
        """That task of the plan cannot run here: leave it to others for a while.

        The task for longer: two workers that each lack what the first task of their shares needs
        would else go on with these two for ever.
        """
        if task is not None and len(self.cannot_run) < STRANGE_MAX:
            self.cannot_run.add(task)
        if now >= self.avoid_until:  # tasks that were claimed together count once
            self.avoid_s = min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * self.avoid_s))
            self.avoid_until = now + self.avoid_s
        self.own.clear()
        self.must_look = True

    def rest(self, until: float) -> None:
        """ZooKeeper has no room for a claim now: look again then, a monotonic time in seconds."""
        self.avoid_until = max(self.avoid_until, until)
        self.own.clear()
        self.must_look = True

    def leave_alone(self, now: float) -> None:
        """Its record cannot be read here: another worker may be newer; look again after a while."""
        self.looking, self.state = False, None
        self.avoid_s = AVOID_MAX_S
        self.avoid(now)

    def wants_look(self, now: float) -> bool:
        if self.looking or self.finished or now < self.avoid_until:
            return False
        if self.own:
            return self.stale
        return self.must_look or (self.steal_at is not None and now >= self.steal_at)


def _share_of(names: Iterable[str], me: int, count: int, *, newest_first: bool) -> list[str]:
    """The first entries of this worker's share, sorted; walked once, without holding them all."""
    order = (lambda name: -_number(name)) if newest_first else None
    mine: list[str] = []
    for name in names:
        if count < 2 or _number(name) % count == me:
            mine.append(name)
            if len(mine) >= 2 * CANDIDATES_MAX:
                mine.sort(key=order)
                del mine[CANDIDATES_MAX:]
    mine.sort(key=order)
    return mine[:CANDIDATES_MAX]


def _pressing(names: Iterable[str], first: str, me: int, count: int) -> list[str]:
    """The first entries of others' shares that must not wait for the one whose share they are: it
    may be busy for hours. They rank before `first`, or were claimed before and lost.
    """
    rank = first[:4]
    found = (
        name
        for name in names
        if (name[:4] < rank or (name[15:18] != ".0." and name < first))
        and _number(name) % count != me
        and parse_entry(name) is not None
    )
    return heapq.nsmallest(PRESSING_MAX, found)


def _last_of_others(names: Sequence[str], most: int, me: int, count: int) -> list[str]:
    """The last entries of others' shares, at most `most`, where that is all but few entries."""
    if most <= 0 or count < 2 or len(names) >= NEARLY_EMPTY:
        return []
    return heapq.nlargest(most, (name for name in names if _number(name) % count != me))


def _number(name: str) -> int:
    digits = name[5:15]
    return int(digits) if digits.isdecimal() else 0
