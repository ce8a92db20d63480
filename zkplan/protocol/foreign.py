"""Znodes that zkplan did not make: find those that are in the way, and pass or delete them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ..errors import TransactionRejected
from .requests import Create, Delete, Multi, Op, ReadChildren, ReadMany, Refused, Step
from .shared import GROUP_OPS_MAX, READS_PER_REQUEST

#: The most foreign znodes that are deleted with one of zkplan's own. More are left to a person.
BELOW_MAX = 1000


def below(path: str, most: int = BELOW_MAX) -> Step[list[str]]:
    """The paths of all znodes below `path`, children before their parents.

    zkplan makes no znodes below claims, marks, arguments and entries. Somebody else's would keep
    these from ever being deleted. Raises TransactionRejected for more than `most`.
    """
    found: list[str] = []
    level: Sequence[str] = [path]
    while level:
        following: list[str] = []
        for start in range(0, len(level), READS_PER_REQUEST):
            chunk = level[start : start + READS_PER_REQUEST]
            answers = yield ReadMany([ReadChildren(parent) for parent in chunk])
            for parent, names in zip(chunk, answers, strict=True):
                following += [f"{parent}/{name}" for name in names or ()]
        found += following
        if len(found) > most:
            raise TransactionRejected(
                f"there are more than {most} znodes below {path}, where zkplan makes none: "
                "delete them"
            )
        level = following
    found.reverse()
    return found


def with_below(path: str, known: Sequence[str]) -> Step[list[str]]:
    """`known` in order of deletion, after the znodes that are found below `path` now."""
    return list(dict.fromkeys([*(yield from below(path)), *known]))


def delete_below(path: str) -> Step[None]:
    """Delete all znodes below `path`, in as many transactions as it takes.

    What others delete or add meanwhile is ignored, because the caller looks again.
    """
    doomed = yield from below(path, sys.maxsize)
    for start in range(0, len(doomed), GROUP_OPS_MAX):
        ops: list[Op] = [Delete(each) for each in doomed[start : start + GROUP_OPS_MAX]]
        answer = yield Multi(ops)
        for op in ops if isinstance(answer, Refused) else ():
            yield Multi([op])


def skip_number(parent: str) -> Step[None]:
    """Make the counter of `parent` skip a number whose name somebody else has taken.

    A sequential create is refused there. Since a refused create does not count, it would be refused
    for ever.
    """
    yield Multi([Create(f"{parent}/gap"), Delete(f"{parent}/gap")])
