"""Order the runnable entries of one plan: a worker's own share first, others' later, unfit ones
last."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from ..protocol.layout import parse_entry

#: Entries kept of a listing; it is repeated when they are used up. A busy worker claims so many in
#: REFRESH_MAX_S, so that a huge plan is not listed more often than its listings grow old. They take
#: 5 MB.
CANDIDATES_MAX = 65_536
#: Names of a listing are sorted in with those that are kept, so many at a time.
_BATCH = 16_384
#: Urgent entries of other shares that are tried before the worker's own, once a second. Only a few,
#: because all workers try the same ones, and each that is taken already costs a claim another round
#: trip.
URGENT_MAX = 8
#: A listing shorter than this is watched: soon nothing is left of it, and a change must wake the
#: worker.
NEARLY_EMPTY = 64


class Names:
    """The names of a listing, or those of them that `keep` lets pass.

    They are decoded each time: a list of all names of a huge plan would take more memory than the
    worker has besides.
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
    """The first `most` names in that order that `keep` lets pass. Holds one batch more than that
    at a time, not all."""
    first: list[str] = []
    # Where there are enough, what goes behind them is neither kept nor sorted in: of a sorted
    # listing that is all the rest.
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


def last_of_others(names: Names, most: int, me: int, count: int) -> list[str]:
    """The last entries of others' shares, at most `most`, where that is all but few entries."""
    if most <= 0 or count < 2 or len(names) >= NEARLY_EMPTY:
        return []
    return heapq.nlargest(most, (name for name in names if _number(name) % count != me))


def _number(name: str) -> int:
    digits = name[5:15]
    return int(digits) if digits.isdecimal() else 0


def rank_in(name: str) -> int:
    """The rank of an entry. What is no entry goes first: it is found out when it is taken."""
    return int(name[:4]) if name[:4].isdecimal() else 0


# ---- The tasks of one plan that this worker cannot run: which it leaves to others, and for how
# long.
#
# Pure: time is an argument.


#: Seconds for which such tasks are left alone once no other is left, doubled each time. So is a
#: plan whose record cannot be read here, or of which so many tasks in a row cannot run.
AVOID_FIRST_S, AVOID_MAX_S = 1.0, 60.0
IN_VAIN_MAX = 100
#: How many such tasks are remembered.
REMEMBERED_MAX = 1000


def longer(rest_s: float) -> float:
    """The next rest after one of that many seconds."""
    return min(AVOID_MAX_S, max(AVOID_FIRST_S, 2 * rest_s))


@dataclass(slots=True)
class LeftToOthers:
    """Each of these tasks is tried once, and all of them again when no other task is left.

    If they were tried in their turn, a few would keep all others of the plan waiting, and two
    workers that each lack what the first task of their share needs could try these two for ever.
    """

    tasks: set[str] = field(default_factory=set)
    #: When they are tried again: known once no other is left.
    again_at: float = float("inf")
    rest_s: float = 0.0
    #: How many of them came in a row.
    in_vain: int = 0

    @property
    def is_new(self) -> bool:
        """Whether the plan has had no such task yet."""
        return not self.tasks and not self.rest_s

    def add(self, task: str) -> bool:
        """Returns whether the plan has to rest: claims of such tasks keep others from them."""
        if len(self.tasks) < REMEMBERED_MAX:
            self.tasks.add(task)
        self.in_vain += 1
        return self.in_vain % IN_VAIN_MAX == 0

    def may_run(self, name: str) -> bool:
        """Whether the task of that entry may run here, as far as is known."""
        return name[5:15] not in self.tasks

    def begin(self, now: float) -> None:
        """Before a listing is taken: forget the tasks if it is time to try them again."""
        if now >= self.again_at:
            self.tasks.clear()
            self.again_at = float("inf")

    def nothing_else(self, now: float) -> None:
        """The listing has no other task."""
        if self.again_at == float("inf"):
            self.rest_s = longer(self.rest_s)
            self.again_at = now + self.rest_s
