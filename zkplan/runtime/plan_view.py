"""What a worker knows of one plan, and which runnable entries it tries to claim, and when.

Pure: time is an argument. Workers that list the same entries must not all try the first ones. So
each prefers its own share, by task number. It takes from another share only if its own is empty and
a moment has passed, or if an entry is urgent.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ..protocol.layout import DEFAULT_QUEUE, RANK_MIDDLE, parse_entry
from ..protocol.look import PlanLook, Signs
from ..protocol.records import PlanRecord, State

#: Entries kept of a listing; it is repeated when they are used up. A busy worker claims so many in
#: REFRESH_MAX_S, so that a huge plan is not listed more often than its listings grow old. They take
#: 5 MB.
CANDIDATES_MAX = 65_536
#: Names of a listing are sorted in with those that are kept, so many at a time.
_BATCH = 16_384
#: A listing that may be outdated is repeated after this many seconds before more of it is claimed,
#: because a task that was taken over, or one of a high priority, goes first.
REFRESH_S, REFRESH_MAX_S = 1.0, 30.0
#: It is repeated later if all workers together would list more names per second than this, or if
#: listing would take more than this part of the time: a huge plan must not use up a server. Each
#: listing counts as LISTING_NAMES more names.
REFRESH_NAMES_PER_S, LISTING_NAMES, REFRESH_PARTS = 25_000, 1000, 10
#: Urgent entries of other shares that are tried before the worker's own, once a second. Only a few,
#: because all workers try the same ones, and each that is taken already costs a claim another round
#: trip.
URGENT_MAX = 8
#: Seconds after which entries of another share may be taken: its own worker had its chance.
STEAL_AFTER_S = 0.01
#: How many strange names, and tasks that cannot run here, are remembered for each plan.
STRANGE_MAX = 1000
#: A listing shorter than this is watched: soon nothing is left of it, and a change must wake the
#: worker.
NEARLY_EMPTY = 64
#: Seconds for which a plan is left alone after one of its tasks could not run here, doubled each
#: time.
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0
#: The same after ZooKeeper had no room for a claim, or for a task's result or logs.
NO_ROOM_REST_S = 1.0


@dataclass(slots=True)
class PlanView:
    """What this worker knows of one plan."""

    number: str
    path: str
    record: PlanRecord | None = None
    state: State | None = None
    version: int = -1
    own: deque[str] = field(default_factory=deque)
    #: The queue that `own` is of: the first of those that this worker serves that has entries.
    queue: str = DEFAULT_QUEUE
    #: Entries of other shares were seen. After this time they may be taken.
    steal_at: float | None = None
    #: Names under `runnable` that are not entries or cannot be claimed, because somebody else made
    #: them or something below them.
    strange: set[str] = field(default_factory=set)
    must_look: bool = True
    looking: bool = False
    #: When the last listing was requested and when it came, and what it costs all workers, in
    #: names.
    asked_at: float = 0.0
    listed_at: float = float("-inf")
    listing_names: int = 0
    #: A claim was possible from the last listing. Before that it is never stale: otherwise a worker
    #: so slow that each listing is old when it comes would list for ever and claim nothing.
    offered: bool = False
    #: What is left of the listing is too old to claim from.
    stale: bool = False
    #: What is left of the listing belongs to other shares.
    stolen: bool = False
    #: Until then, a listing that is used up does not say that nothing is left to claim.
    busy_until: float = float("-inf")
    #: When urgent entries were last tried.
    urgent_tried_at: float = float("-inf")
    #: Tasks that this worker could not run. They are tried last, or no other would be tried.
    cannot_run: set[str] = field(default_factory=set)
    #: Its `ready` changed: look even if no slot is free, because running tasks must be told.
    changed: bool = False
    watch: bool = True
    #: By these the next sweep sees whether it changed; None before the first.
    signs: Signs | None = None
    adopt: bool = False
    #: Its weight, and by how much its priority exceeds that of its record.
    weight: int = 1
    lift: int = 0
    #: How many of its tasks the next claim may take, so that others have their turn; None: any.
    most: int | None = None
    #: The plan is done for good. It is never looked at again.
    finished: bool = False
    avoid_until: float = 0.0
    avoid_s: float = 0.0
    #: For the background check: when it is due next, and the period; 0.0 until the first.
    check_at: float = 0.0
    check_s: float = 0.0

    @property
    def running(self) -> bool:
        return self.state == "running"

    def is_idle(self, now: float) -> bool:
        """Whether the plan runs but has nothing to claim, or was never checked.

        A long listing that is used up is no sign of that: the next one is under way, or will be
        asked for as soon as a slot is free. A check of such a plan would read all of it.
        """
        has_work = self.own or self.steal_at or now < self.busy_until
        return self.running and not self.finished and (self.adopt or not has_work)

    def update(
        self,
        look: PlanLook,
        share: tuple[int, int],
        now: float,
        *,
        spare: int = 0,
        newest_first: bool = False,
    ) -> None:
        """Take a new listing. `share` is (this worker's place, number of workers).

        `spare` slots would stay idle after the worker's own share. They take entries from the end
        of other shares at once: the workers of those begin at the front, and most likely have no
        slots for all entries. With `newest_first` the tasks added last are tried first, whatever
        their priority.
        """
        self.state, self.version = look.state, look.version
        self._take_share(look)
        self.looking = False
        self.adopt = look.state == "running" and (DEFAULT_QUEUE, None) in look.listed
        names, long = self._first_queue(look)
        # A worker that takes from other shares goes on with that: a new listing must not make it
        # wait again.
        stealing = self.steal_at is not None and now >= self.steal_at
        stealing = stealing or (self.stolen and bool(self.own))
        mine = _share_of(names, *share, newest_first=newest_first)
        self.stolen = not mine and bool(names) and stealing
        if self.stolen:
            # The end of the list, which the worker of that share reaches last.
            mine = _first(names, min((len(names) + 1) // 2, CANDIDATES_MAX), reverse=True)[::-1]
        urgent: list[str] = []
        # Once a second, so that short listings do not make all workers collide each time. Not in a
        # plan that was left alone for long: the urgent task may be the one that kept this worker
        # from it.
        if mine and now - self.urgent_tried_at >= REFRESH_S and self.avoid_s < AVOID_MAX_S:
            urgent, self.urgent_tried_at = _urgent(names, mine[0], *share), now
        self.own = deque([*urgent, *mine, *_last_of_others(names, spare - len(mine), *share)])
        self.offered = False
        self.busy_until = now + REFRESH_MAX_S if long else float("-inf")
        self.listed_at, self.listing_names = now, (LISTING_NAMES + len(names)) * share[1]
        if self.own or not names:
            self.steal_at = None
        elif self.steal_at is None or stealing:
            # An earlier time stays: changes of the plan must not delay this for ever.
            self.steal_at = now + STEAL_AFTER_S
        # Without a watch nothing would wake this worker, so look again when these are used up. A
        # change during this listing has set must_look already, and it stays set.
        self.must_look = self.must_look or not self.watch
        # A change of `ready` or of the connection while it was under way has used up a watch.
        self.watch = self.changed or not long

    def _take_share(self, look: PlanLook) -> None:
        weight, priority = look.share
        if self.record is not None:
            self.weight = self.record.weight if weight is None else weight
            self.lift = 0 if priority is None else priority - self.record.defaults.priority

    @property
    def rank(self) -> int:
        """The rank of its next entry among those of all plans: a lower one goes first."""
        return _rank(self.own[0]) - self.lift

    @property
    def usual_rank(self) -> int:
        """The rank of its tasks that have no priority of their own."""
        usual = self.record.defaults.priority if self.record is not None else 0
        return RANK_MIDDLE - usual - self.lift

    def _first_queue(self, look: PlanLook) -> tuple[_Names, bool]:
        """The names to claim from: those of the first queue that has any which can run here.

        Returns also whether one of the listings was long.
        """
        chosen, is_long = _Names(()), False
        can_run = False
        for queue, listed in look.listed:
            names = _Names((listed or ()) if self.running else ())
            if self.strange:
                # If they stayed in the listing, this worker would look for ever.
                if len(self.strange) < STRANGE_MAX:
                    names = _Names(names, lambda name: name not in self.strange)
                else:
                    names = _Names(names, self._is_entry)
            is_long = is_long or len(names) >= NEARLY_EMPTY
            others = names
            if self.cannot_run:
                others = _Names(names, lambda name: name[5:15] not in self.cannot_run)
            if (len(others) and not can_run) or (len(names) and not len(chosen)):
                chosen = others if len(others) else names
                can_run, self.queue = bool(len(others)), queue
        return chosen, is_long

    def begin_look(self, now: float) -> bool:
        """Note that a listing starts. Returns whether to watch it."""
        self.looking, self.must_look, self.changed, self.stale = True, False, False, False
        self.asked_at = now
        return self.watch

    def grow_old(self, now: float, plans: int) -> None:
        """Mark the listing as stale if it is; `plans` is the number of plans to list again as
        often.

        A watched listing is not stale as long as its watch has not fired.
        """
        wait_s = max(
            REFRESH_S,
            plans * self.listing_names / REFRESH_NAMES_PER_S,
            REFRESH_PARTS * (self.listed_at - self.asked_at),
        )
        old = now >= self.listed_at + min(wait_s, REFRESH_MAX_S)
        self.stale = old and self.offered and self.must_look and not self.looking

    def take(self, count: int) -> list[str]:
        """The next entries to claim. Names that are not entries are remembered and ignored."""
        taken: list[str] = []
        count = count if self.most is None else min(count, self.most)
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
        """Called for each name only if there are more strange names than are remembered."""
        return name not in self.strange and parse_entry(name) is not None

    def avoid(self, now: float, task: str | None = None) -> None:
        """One of its tasks cannot run here: leave the plan to others for a while.

        The task itself is left alone for longer. Otherwise two workers that each lack what the
        first task of their share needs could try these two for ever.
        """
        if task is not None and len(self.cannot_run) < STRANGE_MAX:
            self.cannot_run.add(task)
        if now >= self.avoid_until:  # tasks that were claimed together count once
            self.avoid_s = min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * self.avoid_s))
            self.avoid_until = now + self.avoid_s
        self.drop_listing()

    def rest(self, now: float) -> None:
        """ZooKeeper has no room for a claim, or for what came of one: look again in a moment."""
        self.avoid_until = max(self.avoid_until, now + NO_ROOM_REST_S)
        self.drop_listing()

    def drop_listing(self) -> None:
        """Claim nothing more from the last listing: list again."""
        self.own.clear()
        self.must_look = True

    def leave_alone(self, now: float) -> None:
        """The plan's record cannot be read here, but a newer worker may read it. Look again after a
        while."""
        self.looking, self.state = False, None
        self.avoid_s = AVOID_MAX_S
        self.avoid(now)

    def wants_look(self, now: float) -> bool:
        if self.looking or self.finished or now < self.avoid_until:
            return False
        if self.own:
            return self.stale
        return self.must_look or (self.steal_at is not None and now >= self.steal_at)


class _Names:
    """The names of a listing, or those of them that `keep` lets pass.

    They are decoded each time: a list of all names of a huge plan would take more memory than the
    worker has besides.
    """

    def __init__(
        self, names: Collection[str] | _Names, keep: Callable[[str], bool] | None = None
    ) -> None:
        self._names, self._keep = names, keep
        self._count = len(names) if keep is None else sum(map(keep, names))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._names) if self._keep is None else filter(self._keep, self._names)


def _share_of(names: Iterable[str], me: int, count: int, *, newest_first: bool) -> list[str]:
    """The first entries of this worker's share, sorted."""
    order = (lambda name: -_number(name)) if newest_first else None
    if count > 1:
        names = (name for name in names if _number(name) % count == me)
    return _first(names, CANDIDATES_MAX, order)


def _first(
    names: Iterable[str],
    most: int,
    order: Callable[[str], int] | None = None,
    *,
    reverse: bool = False,
) -> list[str]:
    """The first `most` names in that order. Holds one batch more than that at a time, not all."""
    first: list[str] = []
    names = iter(names)
    while batch := list(islice(names, _BATCH)):
        first += batch
        first.sort(key=order, reverse=reverse)
        del first[most:]
    return first


def _urgent(names: Iterable[str], first: str, me: int, count: int) -> list[str]:
    """The first entries of other shares that must not wait for their own worker, which may be busy
    for hours. They rank before `first`, or were claimed before and lost.
    """
    rank = first[:4]
    found = (
        name
        for name in names
        if name < first
        and (name[:4] < rank or name[15:18] != ".0.")
        and _number(name) % count != me
        and parse_entry(name) is not None
    )
    return heapq.nsmallest(URGENT_MAX, found)


def _last_of_others(names: _Names, most: int, me: int, count: int) -> list[str]:
    """The last entries of others' shares, at most `most`, where that is all but few entries."""
    if most <= 0 or count < 2 or len(names) >= NEARLY_EMPTY:
        return []
    return heapq.nlargest(most, (name for name in names if _number(name) % count != me))


def _rank(name: str) -> int:
    # What is no entry goes first: it is found out when it is taken.
    return int(name[:4]) if name[:4].isdecimal() else 0


def _number(name: str) -> int:
    digits = name[5:15]
    return int(digits) if digits.isdecimal() else 0
