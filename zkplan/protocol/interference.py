"""How a step copes with interference: znodes that people made or deleted, and late copies of its
own transactions."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Generic, TypeVar

from ..errors import TransactionRejected
from .requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadMany,
    Reason,
    Refused,
    Step,
)
from .transactions import GROUP_OPS_MAX, READS_PER_REQUEST

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


#: What lies directly below a root or a plan, and may be made anew: no name in it comes back.
_FOLDERS = re.compile(
    "(.+)/(?:workers|claims|delayed|gates|failed"
    "|plan-[0-9]{10}/(?:runnable|dead|results|queues(?:/[a-z0-9._-]{1,40})?))"
)


def folder_restored(refused: Refused) -> Step[bool]:
    """Make the folder anew that somebody has deleted, where a create was refused for want of it.

    Returns False where something else is missing. A plan that takes no tasks any more gets none:
    it may be under removal.
    """
    folder = refused.path.rpartition("/")[0]
    found = _FOLDERS.fullmatch(folder)
    if refused.reason is not Reason.NO_NODE or found is None:
        return False
    ops: list[Op] = [Create(folder)]
    plan_path = "/".join(folder[len(found[1]) :].split("/")[:2])
    if plan_path.startswith("/plan-"):
        plan_path = found[1] + plan_path
        ops.insert(0, Check(f"{plan_path}/add-count"))
        if "/queues/" in folder and (yield ReadChildren(f"{plan_path}/queues")) is None:
            ops.insert(1, Create(f"{plan_path}/queues"))
    return isinstance((yield Multi(ops)), Applied)


def untouched(path: str, node: Node) -> list[Op]:
    """Operations that change nothing, and are refused if a child of `path` was made since `node`
    was read.

    A claim makes a child of its task. So a task that was found nowhere after `node` was read is
    still nowhere: nobody has claimed it meanwhile. A second copy is refused, too.
    """
    gap = f"{path}/gap-{(node.cversion + node.child_count) // 2:010d}"
    return [Create(f"{path}/gap-", sequence=True, becomes=gap), Delete(gap)]


def skip_number(parent: str) -> Step[None]:
    """Make the counter of `parent` skip a number whose name somebody else has taken.

    A sequential create is refused there. Since a refused create does not count, it would be refused
    for ever.
    """
    yield Multi([Create(f"{parent}/gap"), Delete(f"{parent}/gap")])


# ---- Late copies: find which refused transaction of a step was applied after all.
#
# A transaction whose answer was lost is sent again. The repetition may be refused for a reason that
# passes, say a lease that is not empty yet, while the first copy is still under way. Then that copy
# may be applied while the step tries something else.


T = TypeVar("T")


class LateCopies(Generic[T]):
    """The transactions of one step that were refused after a lost answer."""

    def __init__(self, claims_path: str) -> None:
        """`claims_path` is the claims node of the worker that sends them."""
        self._claims_path = claims_path
        #: The names on the claims node when it was read last.
        self.standing: Sequence[str] = ()
        self._sent: list[tuple[Sequence[str], T]] = []

    def applied(self, answer: Refused, names: Sequence[str], sent: T) -> Step[T | None]:
        """Which transaction was applied: `sent`, which `answer` refuses, or one before it.

        To be asked after every refusal. `names` are those that `sent` makes on the claims node, and
        nobody but this step. Without names nobody is owed anything if it was applied, and it is not
        looked for. Where several make the same name, the first comes back: see `standing`.
        """
        if answer.repeated and names:
            self._sent.append((names, sent))
        if not self._sent:
            return None
        self.standing = (yield ReadChildren(self._claims_path)) or ()
        return next((sent for names, sent in self._sent if stands_any(names, self.standing)), None)


def stands_any(names: Sequence[str], standing: Sequence[str]) -> bool:
    """Whether any of `names` stands.

    Of the claims that a transaction has made, an operator may have taken some since. Where all were
    taken, nothing is left to do.
    """
    return not {*names}.isdisjoint(standing)
