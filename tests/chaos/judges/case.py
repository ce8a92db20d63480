"""One plan before the checker: its history, what was left of it, the faults of its time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from zkplan.stress.checks import Remains

from ..actors.workloads import parent_of
from .histories import Execution, PlanHistory
from .ledger import Ledger

#: A commit is sent when its function has ended, and again until it is answered. A fault that begins
#: so long afterwards finds nothing of the execution any more.
COMMITTED_S = 10.0
#: What the ticks of a server add to a session (two of 250 ms, for it ends at a multiple of it),
#: and the longest wait of a client between two attempts to connect, after which it is told (1 s).
_TOLD_S = 1.5


class Letter(NamedTuple):
    """A dead letter: the number of the task's last claim, and its attempts that are used up."""

    n: int
    a: int


class Kept(NamedTuple):
    """A kept result: whose it says that it is, and under which task number it stands."""

    key: str
    digest: str
    uid: str
    number: str = ""


@dataclass(frozen=True)
class Left:
    """What stood in ZooKeeper when the plan was done. `dead` has the dead letters by task keys.

    `failed` are the keys of those whose failure is kept; `?` and a number where none is known.
    """

    remains: Remains
    kept: list[Kept]
    dead: dict[str, Letter] = field(default_factory=dict)
    added: int = 0
    failed: list[str] = field(default_factory=list)


def noticed_s(session_s: float) -> float:
    """How long a claim may be lost by a fault that is healed, until its worker knows.

    The server may have heard of the worker last when the fault ended. It ends the session one
    time-out later; until the worker is connected again, and told, it begins what it had claimed.
    What it claims from then on is another worker's claim. So nothing longer is excused.
    """
    return session_s + _TOLD_S


@dataclass(frozen=True)
class Case:
    """One plan before the checker."""

    plan: PlanHistory
    left: Left
    ledger: Ledger
    session_s: float
    #: Slots are always free: a task starts so soon after the last that it needs has ended.
    soon_s: float = float("inf")

    @cached_property
    def committed(self) -> dict[str, set[str]]:
        """The executions whose values anybody got, by task."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for execution in self.everything:
            for uid in execution.got:
                if uid in self.by_uid:
                    found[self.by_uid[uid].key].add(uid)
        for kept in self.left.kept:
            found[kept.key].add(kept.uid)
        return dict(found)

    @cached_property
    def everything(self) -> list[Execution]:
        return [each for runs in self.plan.executions.values() for each in runs]

    @cached_property
    def by_uid(self) -> dict[str, Execution]:
        return {execution.uid: execution for execution in self.everything}

    @property
    def numbers(self) -> dict[str, str]:
        """The numbers of its tasks, as far as their author was told, by their keys."""
        told = self.plan.batches.values()
        return {k: n for each in told for k, n in zip(each.keys, each.numbers, strict=False)}

    @cached_property
    def acknowledged(self) -> set[str]:
        """The tasks that have to run."""
        return self.certain()

    def certain(self, standing: Set[str] = frozenset()) -> set[str]:
        """The tasks that were added for certain: told to their author, or by a committed task.

        Those that are `standing` have committed nothing.
        """
        found = {key for batch in self.plan.batches.values() for key in batch.certain}
        for key in self.plan.workload.items:
            parent = parent_of(key)
            committed = parent in found and parent not in standing
            if committed and self.fate(str(parent)) == "finished":
                found.add(key)
        return found

    def lost_without_a_line(self, claims: int, begin: float, end: float) -> int:
        """How many attempts at most were used up by executions of which nobody told, in that time.

        A worker notes in ZooKeeper that a function starts, and is lost before that function has
        written its first line. `claims` is the number of those under which nothing is known to
        have begun.
        """
        return min(claims, self.ledger.losses(begin - self.noticed_s, end))

    @property
    def noticed_s(self) -> float:
        """How long after a fault a worker may begin what it claimed before, and is to lose."""
        return noticed_s(self.session_s)

    def fate(self, key: str) -> str:
        return self.plan.workload.fates.get(key, "absent")
