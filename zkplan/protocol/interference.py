"""How steps handle znodes that others made or deleted, and late copies of their transactions."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Generic, TypeVar

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

#: The most foreign znodes that zkplan deletes below one of its own. More are left to a person.
BELOW_MAX = 1000
#: Znodes below which zkplan makes none. A foreign znode there would prevent their deletion.
_LEAVES = re.compile(
    "/(?:claims/[^/]+/[^/]+|(?:active|failed|delayed|gates|keys)/[^/]+|limits/[^/]+/permit-[^/]+"
    "|schedules/[^/]+/next-[^/]+|plan-[0-9]{10}/(?:ready|done|add-count|queues/[^/]+/[^/]+"
    "|(?:runnable|dead|results|add-ids|history|task-[0-9]{10})/[^/]+))"
)


def leaf_cleared(root: str, refused: Refused) -> Step[bool]:
    """Delete foreign znodes below a leaf, if a transaction was refused because of them. Returns
    whether the transaction can be sent again."""
    if refused.reason is not Reason.NOT_EMPTY or not refused.path.startswith(root):
        return False
    if not _LEAVES.fullmatch(refused.path, len(root)):
        return False
    return (yield from delete_below(refused.path, BELOW_MAX))


def delete_below(path: str, most: int = sys.maxsize) -> Step[bool]:
    """Delete all znodes below `path`, in as many transactions as it takes. Returns False if some
    are left: there are more than `most`, or an access list forbids it."""
    doomed: list[str] = []
    level = [path]
    while level:
        found: list[str] = []
        for start in range(0, len(level), READS_PER_REQUEST):
            chunk = level[start : start + READS_PER_REQUEST]
            answers = yield ReadMany([ReadChildren(parent) for parent in chunk], strict=False)
            for parent, names in zip(chunk, answers, strict=True):
                found += [f"{parent}/{name}" for name in names or ()]
        level = found
        doomed += level
        if len(doomed) > most:
            return False
    doomed.reverse()  # children before their parents
    are_gone = True
    for start in range(0, len(doomed), GROUP_OPS_MAX):
        ops: list[Op] = [Delete(each) for each in doomed[start : start + GROUP_OPS_MAX]]
        answer = yield Multi(ops)
        for op in ops if isinstance(answer, Refused) else ():
            answer = yield Multi([op])
            if isinstance(answer, Refused) and answer.reason is not Reason.NO_NODE:
                are_gone = False
    return are_gone


#: Folders of a root or a plan. They may be made again, because no name in them is used twice.
_FOLDERS = re.compile(
    "(.+)/(?:workers|claims|delayed|gates|failed|idle"
    "|plan-[0-9]{10}/(?:runnable|dead|results|queues(?:/[a-z0-9._-]{1,40})?))"
)


def folder_restored(refused: Refused) -> Step[bool]:
    """Make a folder again, if a create was refused because somebody deleted that folder.

    Returns False if something else is missing. A plan that takes no more tasks gets no folder: its
    removal may be under way.
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
    answer = yield Multi(ops)
    # Another step may have made the folder meanwhile.
    return isinstance(answer, Applied) or answer.reason is Reason.NODE_EXISTS


def untouched(path: str, node: Node) -> list[Op]:
    """Operations that change nothing, and are refused if a child of `path` was made after `node`
    was read.

    A claim makes a child of its task. So if the task was in no place when it was looked for after
    `node` was read, these operations prove that it is not claimed. A second copy is refused, too.
    """
    gap = f"{path}/gap-{(node.cversion + node.child_count) // 2:010d}"
    return [Create(f"{path}/gap-", sequence=True, becomes=gap), Delete(gap)]


def skip_number(parent: str) -> Step[None]:
    """Make the counter of `parent` skip a number whose name somebody else took. A refused create
    does not raise the counter, so a sequential create would be refused forever."""
    yield Multi([Create(f"{parent}/gap"), Delete(f"{parent}/gap")])


# ---- Late copies: find which refused transaction of a step was applied after all.
#
# A transaction whose answer was lost is sent again. The second copy may be refused for a reason
# that passes, such as a lease that is not empty yet, while the first is still under way. Then the
# first may be applied while the step tries something else.


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
        """The transaction that was applied after all, or None: `sent`, or an earlier one.

        Call this after every refusal (`answer`) of `sent`. `names` are names on the claims node
        that only `sent` makes. A transaction without names needs no follow-up, so nothing looks for
        it. If several transactions make the same name, the first is returned: see `standing`.
        """
        if answer.repeated and names:
            self._sent.append((names, sent))
        if not self._sent:
            return None
        self.standing = (yield ReadChildren(self._claims_path)) or ()
        return next((sent for names, sent in self._sent if stands_any(names, self.standing)), None)


def stands_any(names: Sequence[str], standing: Sequence[str]) -> bool:
    """Whether any of `names` is in `standing`. An operator may have taken some claims of the
    transaction since; if all were taken, nothing is left to do."""
    return not {*names}.isdisjoint(standing)
