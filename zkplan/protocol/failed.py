"""The index of plans that have failed: those that ended with dead tasks, or at their deadline.

It is for people, so that no view has to read all plans that have ended. The transaction that ends a
plan so makes its entry, and the one that reopens it deletes that (S25). `ROOT/failed` exists from
the first such end on.
"""

from __future__ import annotations

from .foreign import delete_below
from .layout import Paths, failed_entry, parse_number
from .requests import Check, Create, Delete, Multi, Op, ReadChildren, Reason, Refused, Step


def list_failed(paths: Paths) -> Step[list[str]]:
    """The numbers of the plans that have failed, latest first."""
    names = yield ReadChildren(paths.failed)
    found = (number for name in names or () if (number := parse_number(name)) is not None)
    return sorted(found, reverse=True)


class Entry:
    """The entry of one plan, for a transaction that makes or deletes it."""

    def __init__(self, plan_path: str) -> None:
        self._path = failed_entry(plan_path)
        self._stands = False
        self._is_gone = False

    @property
    def made(self) -> list[Op]:
        """The operation after which it stands."""
        return [Check(self._path) if self._stands else Create(self._path)]

    @property
    def deleted(self) -> list[Op]:
        """The operation after which it does not stand."""
        return [] if self._is_gone else [Delete(self._path)]

    def cleared(self, refused: Refused) -> Step[bool]:
        """Whether it was to blame that a transaction with one of these was refused. If so, another
        try begins with what is known now."""
        if refused.path != self._path:
            return False
        if refused.reason is Reason.NODE_EXISTS:
            self._stands = True  # somebody else has made it
        elif refused.reason is Reason.NOT_EMPTY:
            yield from delete_below(self._path)
        elif refused.reason is Reason.NO_NODE:
            self._stands, self._is_gone = False, True
            yield Multi([Create(self._path.rpartition("/")[0])])
        else:
            return False
        return True
