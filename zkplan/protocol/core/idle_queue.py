"""The queue of idle workers: its first is awake, and wakes others when there is more to do.

Each idle worker has an ephemeral place, named by its group and its ID. The order is that of the
names. A worker that is not the first watches the place before its own, as in the lock recipe of
ZooKeeper. So whenever the first leaves, the next one wakes up, and only that one. The first
watches the whole queue, so it sleeps as soon as another worker comes in before it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from ..interference import folder_restored
from ..layout import Paths
from ..requests import Applied, Create, Delete, Multi, ReadChildren, ReadData, Reason, Refused, Step
from ..transactions import Registration, rejected


def group_of(queues: Sequence[str], kinds: Sequence[str], keys: str) -> str:
    """The group of a worker. The workers of a group can run the same tasks, by what they were
    started with."""
    traits = "\n".join([",".join(sorted(queues)), ",".join(sorted(kinds)), keys])
    return f"{zlib.crc32(traits.encode()):08x}"


def enter(me: Registration, place: str) -> Step[bool]:
    """Take a place in the queue. Returns False without the registration of `me`.

    Raises TransactionRejected. A copy of this transaction may be applied after `leave`, which
    therefore leaves a watch.
    """
    while True:
        if (yield ReadData(me.worker_path)) is None:
            return False
        answer = yield Multi([Create(place, ephemeral=True)])
        if isinstance(answer, Refused) and answer.reason is not Reason.NODE_EXISTS:
            if (yield from folder_restored(answer)):
                continue
            raise rejected(f"worker {me.worker} taking a place", answer)
        if (yield ReadData(place, watch=True)) is not None:
            return True


class Queue(NamedTuple):
    """The queue as one worker has found it. `idle` counts the places of all groups."""

    is_first: bool
    idle: int


def line_up(paths: Paths, group: str, place: str) -> Step[Queue | None]:
    """Find out whether a worker is the first of its group. Leaves watches on its place, and on the
    place before it, or for the first on the queue. Returns None if its place is gone: somebody
    wakes it.
    """
    while True:
        names = yield ReadChildren(paths.idle)
        if (yield ReadData(place, watch=True)) is None:
            return None
        before = _before(paths, group, place, names)
        if not before:
            names = yield ReadChildren(paths.idle, watch=True)
            before = _before(paths, group, place, names)
        if not before:
            return Queue(True, len(names or ()))
        if (yield ReadData(before, watch=True)) is not None:
            return Queue(False, len(names or ()))


def leave(place: str) -> Step[None]:
    """Leave the queue. A watch announces a late copy of the transaction that has made the place.

    Raises TransactionRejected.
    """
    while True:
        answer = yield Multi([Delete(place)])
        if isinstance(answer, Refused) and answer.reason is not Reason.NO_NODE:
            raise rejected(f"leaving {place}", answer)
        if (yield ReadData(place, watch=True)) is None:
            return


def wake(paths: Paths, group: str, first: str, most: int) -> Step[None]:
    """Wake at most `most` workers behind the first, the last ones of the queue.

    The place of a worker is deleted: its watch wakes it.
    """
    names = yield ReadChildren(paths.idle)
    asleep = [path for path in _places(paths, group, names) if path > first]
    woken = asleep[-most:]
    if woken and not isinstance((yield Multi([Delete(path) for path in woken])), Applied):
        for path in woken:  # one of them has left meanwhile
            yield Multi([Delete(path)])


def _places(paths: Paths, group: str, names: Sequence[str] | None) -> list[str]:
    """The places of the group, in order."""
    return sorted(f"{paths.idle}/{name}" for name in names or () if name.startswith(f"{group}-"))


def _before(paths: Paths, group: str, place: str, names: Sequence[str] | None) -> str:
    """The place of the group before this one; empty if it is the first."""
    before = [path for path in _places(paths, group, names) if path < place]
    return before[-1] if before else ""
