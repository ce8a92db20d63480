"""One worker's view of a plan: which of its runnable tasks to try to claim, and when.

Pure: time is an argument. Workers that list the same entries must not all try the first ones. So
each worker prefers its own share, by task number. It takes an entry of another share only if its
own share is empty and a moment has passed, or if the entry is urgent.
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

#: The least and most seconds after which a listing that may be outdated is repeated before the next
#: claim from it, because a task that was taken over, or has a high priority, goes first.
REFRESH_S, REFRESH_MAX_S = 1.0, 30.0
#: A listing is repeated later if all workers together would list more than REFRESH_NAMES_PER_S
#: names per second, or if listing would take more than 1/REFRESH_PARTS of the time: a huge plan
#: must not use up a server. Each listing counts as LISTING_NAMES more names.
REFRESH_NAMES_PER_S, LISTING_NAMES, REFRESH_PARTS = 25_000, 1000, 10
#: Seconds after which a worker may take entries of another share, whose worker had its chance.
STEAL_AFTER_S = 0.01
#: The most strange names to remember for each plan.
STRANGE_MAX = 1000
#: The shortest time between two listings while all entries left wait for permits.
LIMITED_LOOK_S = 0.05
#: Whether limits, joined by `~`, are known to have no permit left.
IsFull = Callable[[str], bool]
#: Returns the permits to try for an entry, or None if its limits are full.
Permit = Callable[[str], "tuple[str, ...] | None"]
#: Seconds for which a plan is left alone after ZooKeeper had no room for a claim, or for a task's
#: result or logs.
NO_ROOM_REST_S = 1.0


@dataclass(slots=True)
class PlanView:
    """What this worker knows about one plan."""

    number: str
    path: str
    record: PlanRecord | None = None
    state: State | None = None
    version: int = -1
    #: The entries to claim, in order.
    own: deque[str] = field(default_factory=deque)
    #: By queue and limits: entries whose limits had no permit when their turn came.
    waiting: dict[tuple[str, str], deque[str]] = field(default_factory=dict)
    #: The plan has had entries with limits.
    limited: bool = False
    #: The plan was not offered, because only entries that wait for permits were left.
    held_back: bool = False
    #: The kinds that this worker runs, and whether the plan has had entries of other kinds.
    kinds: Collection[str] = ()
    others_kinds: bool = False
    #: When the worker may list again while only entries that wait for permits are left.
    renew_at: float = 0.0
    #: The queue of `own`: the first queue served by this worker that has entries.
    queue: str = DEFAULT_QUEUE
    #: If the plan has entries of other shares only: when this worker may take them.
    steal_at: float | None = None
    #: Names under `runnable` that are not entries, or that cannot be claimed because of foreign
    #: znodes below them.
    strange: set[str] = field(default_factory=set)
    must_look: bool = True
    looking: bool = False
    #: When the last listing was requested and when it came, and its cost for all workers, in names.
    asked_at: float = 0.0
    listed_at: float = float("-inf")
    listing_names: int = 0
    #: The worker could claim from the last listing. Until then the listing is never stale: a slow
    #: worker, whose listings are old when they come, would list for ever and claim nothing.
    offered: bool = False
    #: The rest of the listing is too old to claim from.
    stale: bool = False
    #: The rest of the listing belongs to other shares.
    stolen: bool = False
    #: Until then, the end of the listing does not mean that nothing is left to claim.
    busy_until: float = float("-inf")
    #: When urgent entries were last tried.
    urgent_tried_at: float = float("-inf")
    #: The tasks that cannot run here.
    left: LeftToOthers = field(default_factory=LeftToOthers)
    #: Its `ready` changed: look even without a free slot, because running tasks must be told.
    changed: bool = False
    #: Whether the next listing must set watches.
    watch: bool = True
    #: What the last sweep saw, to notice changes; None before the first.
    signs: Signs | None = None
    #: Its weight, and by how much its priority exceeds the priority in its record.
    weight: int = 1
    lift: int = 0
    #: The most tasks for the next claim, so that other plans have their turn; None: any number.
    most: int | None = None
    #: This worker could not run something of the plan, and has run nothing of it since.
    is_left: bool = False
    #: How many entries the last listing had that may run here.
    entries: int = 0
    #: The plan is done for good, and gets no more looks.
    finished: bool = False
    #: The plan rests until this time, and for how long it last rested.
    avoid_until: float = 0.0
    avoid_s: float = 0.0
    #: When the next background check is due, and its period; 0.0 until the first.
    check_at: float = 0.0
    check_s: float = 0.0

    @property
    def running(self) -> bool:
        return self.state == "running"

    def is_idle(self, now: float) -> bool:
        """Whether the plan runs but has nothing to claim.

        The end of a long listing is no sign of this: the next listing is under way, or starts when
        a slot is free. And a check of such a plan would read all of it.
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
        of other shares at once: the workers of these shares begin at the front, and most likely
        lack slots for all entries. `newest_first`: try the tasks added last first, whatever their
        priority. `is_full(limits)`: whether limits are known to have no permit left.
        """
        self.state, self.version = look.state, look.version
        self._take_share(look)
        self.looking = False
        self.waiting.clear()
        names, long = self._first_queue(look, is_full, now)
        self.entries = len(names)
        # A worker that takes from other shares goes on at once, without another wait.
        stealing = self.steal_at is not None and now >= self.steal_at
        stealing = stealing or (self.stolen and bool(self.own))
        mine = share_of(names, *share, newest_first=newest_first)
        self.stolen = not mine and bool(names) and stealing
        if self.stolen:
            # Take the end of the list, which the worker of that share reaches last.
            mine = first_of(names, min((len(names) + 1) // 2, CANDIDATES_MAX), reverse=True)[::-1]
        urgent: list[str] = []
        # Once a second, so that all workers do not collide at each of many short listings.
        if mine and now - self.urgent_tried_at >= REFRESH_S:
            urgent, self.urgent_tried_at = urgent_of(names, mine[0], *share), now
        self.own = deque([*urgent, *mine, *last_of_others(names, spare - len(mine), *share)])
        self.offered = False
        self.busy_until = now + REFRESH_MAX_S if long else float("-inf")
        self.listed_at, self.listing_names = now, (LISTING_NAMES + len(names)) * share[1]
        if self.own or not names:
            self.steal_at = None
        elif self.steal_at is None or stealing:
            # Keep an earlier time: changes of the plan must not delay stealing for ever.
            self.steal_at = now + STEAL_AFTER_S
        # Without a watch nothing would wake this worker, so look again when the entries are used
        # up. A change during this listing has set must_look already.
        self.must_look = self.must_look or not self.watch
        self.renew_at = now + (self._refresh_s(1) if long else LIMITED_LOOK_S)
        # `changed`: `ready` or the connection changed during the listing, which used up its watch.
        self.watch = self.changed or not long

    def _take_share(self, look: PlanLook) -> None:
        weight, priority, _ = look.share
        if self.record is not None:
            self.weight = self.record.weight if weight is None else weight
            self.lift = 0 if priority is None else priority - self.record.defaults.priority

    @property
    def rank(self) -> int:
        """The rank of its next entry among the entries of all plans: the lowest goes first."""
        return rank_in(self.first) - self.lift

    @property
    def usual_rank(self) -> int:
        """The rank of its tasks without a priority of their own."""
        usual = self.record.defaults.priority if self.record is not None else 0
        return RANK_MIDDLE - usual - self.lift

    def _first_queue(self, look: PlanLook, is_full: IsFull, now: float) -> tuple[Names, bool]:
        """The names to claim from: names of the first queue that can run here.

        Returns also whether one of the listings was long. Moves names whose limits are full to
        `waiting`.
        """
        chosen, is_long, are_left = Names(()), False, False
        self.left.begin(now)
        for queue, listed in look.listed:
            names = Names((listed or ()) if self.running else ())
            if self.strange:
                # Drop strange names: otherwise this worker would look for ever.
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
        """Mark the listing as stale if it is too old. `plans`: how many plans the worker must list
        again at this rate.

        A watched listing does not grow stale until its watch fires.
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
        """The next entries to claim, all of one queue, and the permits from `permit` for those with
        limits.

        At most `limited` of them have limits. Remembers and skips names that are not entries.
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
                # Entries for other workers, or programs in other languages. A listing without them
                # will show what is left.
                self.others_kinds = now_waiting = True
            elif "~" not in name:
                taken.names.append(name)
            elif (self.queue, name.partition("~")[2]) in self.waiting or not try_limited(name):
                self.limited = now_waiting = True
                self.put_back(self.queue, [name])
        if now_waiting and not self.own:
            # Entries of another share or queue may be able to run: list again, without these.
            self.must_look = True
        return taken

    def put_back(self, queue: str, names: Iterable[str]) -> None:
        """Put back entries that must wait for permits, and others of the same claim."""
        for name in names:
            if "~" in name:
                self.waiting.setdefault((queue, name.partition("~")[2]), deque()).append(name)
            elif queue == self.queue:
                self.own.append(name)
            else:
                self.must_look = True

    @property
    def first(self) -> str:
        """The entry whose rank counts for the plan; empty if the plan has none."""
        if self.own:
            return self.own[0]
        return min((names[0] for names in self.waiting.values()), default="")

    def bar(self, name: str) -> None:
        """Never try to claim the entry `name` again."""
        if len(self.strange) < STRANGE_MAX:
            self.strange.add(name)

    def _is_entry(self, name: str) -> bool:
        """Whether `name` is an entry. Asked only if too many names are strange to remember all."""
        return name not in self.strange and parse_entry(name) is not None

    def leave(self, now: float, task: str) -> None:
        """Leave a task that cannot run here to others, and go on with the rest of the plan."""
        self.is_left = True
        if self.left.add(task):
            self._avoid(now)

    def _avoid(self, now: float) -> None:
        self.avoid_s = longer(self.avoid_s)
        self.avoid_until = now + self.avoid_s
        self.drop_listing()

    def rest(self, now: float) -> None:
        """Look again in a moment, as ZooKeeper has no room for a claim, a result or a log."""
        self.is_left = True
        self.avoid_until = max(self.avoid_until, now + NO_ROOM_REST_S)
        self.drop_listing()

    def drop_listing(self) -> None:
        """Claim nothing more from the last listing: list again."""
        self.own.clear()
        self.waiting.clear()
        self.must_look = True

    def leave_alone(self, now: float) -> None:
        """Look again after a while at a plan that this worker cannot read, or claim from. A newer
        worker may be able to."""
        self.looking, self.state, self.is_left = False, None, True
        self.avoid_s = AVOID_MAX_S
        self._avoid(now)

    @property
    def due_at(self) -> float:
        """When a look is due by time, for entries of other shares or tasks that cannot run here."""
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
