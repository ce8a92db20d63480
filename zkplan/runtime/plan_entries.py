"""Order the runnable entries of one plan: a worker's own share first, other shares later, tasks
that cannot run here last."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ..protocol.layout import parse_entry

#: How many entries of a listing to keep (5 MB). When they are used up, the worker lists again. A
#: busy worker needs REFRESH_MAX_S for them, so a huge plan is not listed more often than that.
CANDIDATES_MAX = 65_536
#: How many names of a listing to sort in at a time.
_BATCH = 16_384
#: How many urgent entries of other shares to try before the worker's own, once a second. Only a
#: few, because all workers try the same entries, and each one that is taken already costs a claim
#: another round trip.
URGENT_MAX = 8
#: A listing shorter than this is watched: the worker soon uses it up, and then a change must wake
#: the worker.
NEARLY_EMPTY = 64


class Names:
    """The names of a listing for which `keep` is True.

    Filters the names at each iteration: a list of all names of a huge plan would take more memory
    than the rest of the worker.
    """

    def __init__(
        self, names: Collection[str] | Names, keep: Callable[[str], bool] | None = None
    ) -> None:
        self._names, self._keep = names, keep
        self._count = len(names) if keep is None else sum(map(keep, names))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        return iter(self._names) if self._keep is None else filter(self._keep, self._names)


def has_limits(limits: str, name: str) -> bool:
    return name.partition("~")[2] == limits


def share_of(names: Iterable[str], me: int, count: int, *, newest_first: bool) -> list[str]:
    """The first entries of this worker's share, sorted."""
    order = (lambda name: -_number(name)) if newest_first else None
    keep = (lambda name: _number(name) % count == me) if count > 1 else None
    return first_of(names, CANDIDATES_MAX, order, keep=keep)


def first_of(
    names: Iterable[str],
    most: int,
    order: Callable[[str], int] | None = None,
    *,
    reverse: bool = False,
    keep: Callable[[str], bool] | None = None,
) -> list[str]:
    """The first `most` names by `order` for which `keep` is True. Holds at most one batch more, not
    all names."""
    first: list[str] = []
    # Once there are enough names, skip all that come after `last`: the whole rest of a sorted
    # listing.
    last: str | None = None
    passing = (
        name
        for name in names
        if (last is None or (name > last) is reverse) and (keep is None or keep(name))
    )
    while batch := list(islice(passing, _BATCH)):
        first += batch
        first.sort(key=order, reverse=reverse)
        del first[most:]
        if order is None and len(first) == most > 0:
            last = first[-1]
    return first


def urgent_of(names: Iterable[str], first: str, me: int, count: int) -> list[str]:
    """The first entries of other shares that must not wait for their own worker, which may be busy
    for hours: entries of a better rank than `first`, or whose earlier claim was lost.
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


def last_of_others(names: Names, most: int, me: int, count: int) -> list[str]:
    """The last entries of other shares, at most `most`; none unless the listing is short."""
    if most <= 0 or count < 2 or len(names) >= NEARLY_EMPTY:
        return []
    return heapq.nlargest(most, (name for name in names if _number(name) % count != me))


def _number(name: str) -> int:
    digits = name[5:15]
    return int(digits) if digits.isdecimal() else 0


def rank_in(name: str) -> int:
    """The rank of an entry; 0 for a name that is not an entry, which `take` will find and skip."""
    return int(name[:4]) if name[:4].isdecimal() else 0


# ---- The tasks of one plan that this worker cannot run, and how long it leaves them to others.
#
# Pure: time is an argument.


#: Seconds for which such tasks are left alone once no other task is left: the first time, doubled
#: each time, and the longest. The same for a plan whose record cannot be read here, and for a plan
#: of which IN_VAIN_MAX tasks in a row cannot run.
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0
IN_VAIN_MAX = 100
#: The most such tasks to remember.
REMEMBERED_MAX = 1000


def longer(rest_s: float) -> float:
    """The rest that follows a rest of `rest_s` seconds."""
    return min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * rest_s))


@dataclass(slots=True)
class LeftToOthers:
    """The tasks that cannot run here. The worker tries each once, and all again when no other task
    is left.

    If it tried them in their turn, a few such tasks would block all others of the plan. And if each
    of two workers could not run the first task of its share, they could try these two for ever.
    """

    tasks: set[str] = field(default_factory=set)
    #: When to try them again; infinite while other tasks are left.
    again_at: float = float("inf")
    rest_s: float = 0.0
    #: How many such tasks came in a row.
    in_vain: int = 0

    @property
    def is_new(self) -> bool:
        """Whether the plan has not had such a task yet."""
        return not self.tasks and not self.rest_s

    def add(self, task: str) -> bool:
        """Add a task. Returns whether the plan must rest, because this worker's claims keep other
        workers from such tasks."""
        if len(self.tasks) < REMEMBERED_MAX:
            self.tasks.add(task)
        self.in_vain += 1
        return self.in_vain % IN_VAIN_MAX == 0

    def may_run(self, name: str) -> bool:
        """Whether the task of the entry may run here, as far as this worker knows."""
        return name[5:15] not in self.tasks

    def begin(self, now: float) -> None:
        """Before a new listing: forget the tasks if it is time to try them again."""
        if now >= self.again_at:
            self.tasks.clear()
            self.again_at = float("inf")

    def nothing_else(self, now: float) -> None:
        """Note that the listing has no other task."""
        if self.again_at == float("inf"):
            self.rest_s = longer(self.rest_s)
            self.again_at = now + self.rest_s
