"""Know one plan: which of its runnable tasks this worker tries to claim, and when.

Pure: time is an argument. Workers that list the same entries must not all try the first ones. So
each prefers its own share, by task number. It takes from another share only if its own is empty and
a moment has passed, or if an entry is urgent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from ..protocol.core.plans_and_queues import PlanLook, Signs
from ..protocol.layout import DEFAULT_QUEUE, RANK_MIDDLE, kind_in, parse_entry
from ..protocol.records import PlanRecord, State
from .plan_entries import (
    AVOID_MAX_S,
    CANDIDATES_MAX,
    NEARLY_EMPTY,
    LeftToOthers,
    Names,
    first_of,
    has_limits,
    last_of_others,
    longer,
    rank_in,
    share_of,
    urgent_of,
)

#: A listing that may be outdated is repeated after this many seconds before more of it is claimed,
#: because a task that was taken over, or one of a high priority, goes first.
REFRESH_S, REFRESH_MAX_S = 1.0, 30.0
#: It is repeated later if all workers together would list more names per second than this, or if
#: listing would take more than this part of the time: a huge plan must not use up a server. Each
#: listing counts as LISTING_NAMES more names.
REFRESH_NAMES_PER_S, LISTING_NAMES, REFRESH_PARTS = 25_000, 1000, 10
#: Seconds after which entries of another share may be taken: its own worker had its chance.
STEAL_AFTER_S = 0.01
#: How many strange names are remembered for each plan.
STRANGE_MAX = 1000
#: The shortest time between two listings while all that is left waits for permits.
LIMITED_LOOK_S = 0.05
#: Whether these limits are known to have no permit left.
IsFull = Callable[[str], bool]
#: Gives the permits for an entry, or None if its limits are full.
Permit = Callable[[str], "tuple[str, ...] | None"]
#: Seconds for which a plan is left alone after ZooKeeper had no room for a claim, or for a task's
#: result or logs.
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
    #: Entries whose limits had no permit when their turn came, by their queue and limits.
    waiting: dict[tuple[str, str], deque[str]] = field(default_factory=dict)
    #: Entries with limits were seen; nothing else was left, and it was not offered for that.
    limited: bool = False
    held_back: bool = False
    #: The kinds that this worker runs, and whether entries of others were seen.
    kinds: Collection[str] = ()
    others_kinds: bool = False
    #: When a listing may be repeated while only such entries are left of it.
    renew_at: float = 0.0
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
    #: The tasks that cannot run here.
    left: LeftToOthers = field(default_factory=LeftToOthers)
    #: Its `ready` changed: look even if no slot is free, because running tasks must be told.
    changed: bool = False
    watch: bool = True
    #: By these the next sweep sees whether it changed; None before the first.
    signs: Signs | None = None
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
        """Whether the plan runs but has nothing to claim.

        A long listing that is used up is no sign of that: the next one is under way, or will be
        asked for as soon as a slot is free. A check of such a plan would read all of it.
        """
        has_work = self.own or self.waiting or self.steal_at or now < self.busy_until
        return self.running and not self.finished and not has_work

    def update(
        self,
        look: PlanLook,
        share: tuple[int, int],
        now: float,
        *,
        spare: int = 0,
        newest_first: bool = False,
        is_full: IsFull = lambda _limits: False,
    ) -> None:
        """Take a new listing. `share` is (this worker's place, number of workers).

        `spare` slots would stay idle after the worker's own share. They take entries from the end
        of other shares at once: the workers of those begin at the front, and most likely have no
        slots for all entries. With `newest_first` the tasks added last are tried first, whatever
        their priority. `is_full` says whether limits are known to have no permit left.
        """
        self.state, self.version = look.state, look.version
        self._take_share(look)
        self.looking = False
        self.waiting.clear()
        names, long = self._first_queue(look, is_full, now)
        # A worker that takes from other shares goes on with that: a new listing must not make it
        # wait again.
        stealing = self.steal_at is not None and now >= self.steal_at
        stealing = stealing or (self.stolen and bool(self.own))
        mine = share_of(names, *share, newest_first=newest_first)
        self.stolen = not mine and bool(names) and stealing
        if self.stolen:
            # The end of the list, which the worker of that share reaches last.
            mine = first_of(names, min((len(names) + 1) // 2, CANDIDATES_MAX), reverse=True)[::-1]
        urgent: list[str] = []
        # Once a second, so that short listings do not make all workers collide each time.
        if mine and now - self.urgent_tried_at >= REFRESH_S:
            urgent, self.urgent_tried_at = urgent_of(names, mine[0], *share), now
        self.own = deque([*urgent, *mine, *last_of_others(names, spare - len(mine), *share)])
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
        self.renew_at = now + (self._refresh_s(1) if long else LIMITED_LOOK_S)
        # A change of `ready` or of the connection while it was under way has used up a watch.
        self.watch = self.changed or not long

    def _take_share(self, look: PlanLook) -> None:
        weight, priority, _ = look.share
        if self.record is not None:
            self.weight = self.record.weight if weight is None else weight
            self.lift = 0 if priority is None else priority - self.record.defaults.priority

    @property
    def rank(self) -> int:
        """The rank of its next entry among those of all plans: a lower one goes first."""
        return rank_in(self.first) - self.lift

    @property
    def usual_rank(self) -> int:
        """The rank of its tasks that have no priority of their own."""
        usual = self.record.defaults.priority if self.record is not None else 0
        return RANK_MIDDLE - usual - self.lift

    def _first_queue(self, look: PlanLook, is_full: IsFull, now: float) -> tuple[Names, bool]:
        """The names to claim from: those of the first queue that has any which can run here.

        Returns also whether one of the listings was long. Names whose limits are full are left
        out; they are in `waiting`.
        """
        chosen, is_long, are_left = Names(()), False, False
        self.left.begin(now)
        for queue, listed in look.listed:
            names = Names((listed or ()) if self.running else ())
            if self.strange:
                # If they stayed in the listing, this worker would look for ever.
                if len(self.strange) < STRANGE_MAX:
                    names = Names(names, lambda name: name not in self.strange)
                else:
                    names = Names(names, self._is_entry)
            if self.others_kinds:
                names = Names(names, self._is_of_mine)
            is_long = is_long or len(names) >= NEARLY_EMPTY
            if self.left.tasks:
                are_left = are_left or len(names) > 0
                names = Names(names, self.left.may_run)
            if self.limited:
                names = self._without_full(queue, names, is_full)
            if len(names) and not len(chosen):
                chosen, self.queue = names, queue
        if are_left and not len(chosen):
            self.left.nothing_else(now)
        return chosen, is_long

    def _is_of_mine(self, name: str) -> bool:
        return "+" not in name or kind_in(name) in self.kinds

    def _without_full(self, queue: str, names: Names, is_full: IsFull) -> Names:
        """The names whose limits are not full; the others wait."""
        full: dict[str, bool] = {}
        for name in names:
            limits = name.partition("~")[2]
            if limits and limits not in full:
                full[limits] = is_full(limits)
        for limits, is_it in full.items():
            if is_it:
                of_limits = partial(has_limits, limits)
                mine = first_of(Names(names, of_limits), CANDIDATES_MAX)
                self.waiting[queue, limits] = deque(mine)
        return Names(names, lambda name: not full.get(name.partition("~")[2], False))

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
        old = now >= self.listed_at + self._refresh_s(plans)
        self.stale = old and self.offered and self.must_look and not self.looking

    def _refresh_s(self, plans: int) -> float:
        wait_s = max(
            REFRESH_S,
            plans * self.listing_names / REFRESH_NAMES_PER_S,
            REFRESH_PARTS * (self.listed_at - self.asked_at),
        )
        return min(wait_s, REFRESH_MAX_S)

    def take(self, count: int, limited: int = 0, permit: Permit | None = None) -> Taken:
        """The next entries to claim, of one queue, and what `permit` gives to those with limits.

        At most `limited` of them have limits. Names that are not entries are remembered and
        ignored.
        """
        taken, now_waiting = Taken(self.queue, [], {}), False
        count = count if self.most is None else min(count, self.most)

        def try_limited(name: str) -> bool:
            if permit is None or len(taken.permits) >= limited:
                return False
            found = permit(name)
            if found is not None:
                taken.permits[name] = found
                taken.names.append(name)
            return found is not None

        for key, names in list(self.waiting.items()):
            if taken.names and key[0] != taken.queue:
                continue
            while names and len(taken.names) < count and try_limited(names[0]):
                taken = taken._replace(queue=key[0])
                names.popleft()
            if not names:
                del self.waiting[key]
        while self.own and len(taken.names) < count and taken.queue == self.queue:
            name = self.own.popleft()
            if parse_entry(name) is None:
                self.bar(name)
            elif not self._is_of_mine(name):
                # For another worker, or a program in another language. A listing without them says
                # what is left.
                self.others_kinds = now_waiting = True
            elif "~" not in name:
                taken.names.append(name)
            elif (self.queue, name.partition("~")[2]) in self.waiting or not try_limited(name):
                self.limited = now_waiting = True
                self.put_back(self.queue, [name])
        if now_waiting and not self.own:
            # Others than those, of another share or queue, may run: a listing without them says so.
            self.must_look = True
        return taken

    def put_back(self, queue: str, names: Iterable[str]) -> None:
        """These have to wait for a permit, or were to be claimed together with such."""
        for name in names:
            if "~" in name:
                self.waiting.setdefault((queue, name.partition("~")[2]), deque()).append(name)
            elif queue == self.queue:
                self.own.append(name)
            else:
                self.must_look = True

    @property
    def first(self) -> str:
        """An entry by whose rank the plan is compared with others; empty if it has none."""
        if self.own:
            return self.own[0]
        return min((names[0] for names in self.waiting.values()), default="")

    def bar(self, name: str) -> None:
        """Never try to claim it again."""
        if len(self.strange) < STRANGE_MAX:
            self.strange.add(name)

    def _is_entry(self, name: str) -> bool:
        """Called for each name only if there are more strange names than are remembered."""
        return name not in self.strange and parse_entry(name) is not None

    def leave(self, now: float, task: str) -> None:
        """That task cannot run here: leave it to others, and go on with the rest of the plan."""
        if self.left.add(task):
            self._avoid(now)

    def _avoid(self, now: float) -> None:
        self.avoid_s = longer(self.avoid_s)
        self.avoid_until = now + self.avoid_s
        self.drop_listing()

    def rest(self, now: float) -> None:
        """ZooKeeper has no room for a claim, or for what came of one: look again in a moment."""
        self.avoid_until = max(self.avoid_until, now + NO_ROOM_REST_S)
        self.drop_listing()

    def drop_listing(self) -> None:
        """Claim nothing more from the last listing: list again."""
        self.own.clear()
        self.waiting.clear()
        self.must_look = True

    def leave_alone(self, now: float) -> None:
        """The plan's record cannot be read here, but a newer worker may read it. Look again after a
        while."""
        self.looking, self.state = False, None
        self.avoid_s = AVOID_MAX_S
        self._avoid(now)

    @property
    def due_at(self) -> float:
        """When a look is due by itself: entries of another share, or tasks that could not run here,
        may be tried then."""
        again_at = self.left.again_at
        return again_at if self.steal_at is None else min(self.steal_at, again_at)

    def wants_look(self, now: float) -> bool:
        if self.looking or self.finished or now < self.avoid_until:
            return False
        if self.own:
            return self.stale
        if self.waiting:
            return self.must_look and now >= self.renew_at
        return self.must_look or now >= self.due_at


class Taken(NamedTuple):
    """Entries of one queue to claim, and the permits to try for those that have limits."""

    queue: str
    names: list[str]
    permits: dict[str, tuple[str, ...]]
