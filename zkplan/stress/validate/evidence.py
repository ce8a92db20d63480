"""The evidence for the checks: what a plan should do, what ran, and what is left of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Literal, NamedTuple, TypeVar

from ...protocol.compaction import History
from ..history import Execution

#: How a task ends. A `cut` task depends on a dead one and is never executed.
Fate = Literal["finished", "dead", "cut"]
E_co = TypeVar("E_co", bound=Execution, covariant=True)


class Expected(NamedTuple):
    """What one process that runs everything in order would see, by the keys of the tasks.

    `needs` are the tasks whose results a task takes, `digests` the digests of its arguments,
    `results` what it returns. A task without a fate is never added.
    """

    needs: Mapping[str, Sequence[str]]
    digests: Mapping[str, str]
    results: Mapping[str, str]
    fates: Mapping[str, Fate]


class Kept(NamedTuple):
    """A kept result: the task and execution that it names, and the task number under which it is
    kept."""

    key: str
    result: str
    uid: str
    number: str = ""


@dataclass(kw_only=True)
class Remains:
    """What is in ZooKeeper at the end: names below the plan, and claims of all workers.

    `kept` are the results that were read, `told` its history, if it keeps one.
    """

    plan: list[str] = field(default_factory=list)
    runnable: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    told: History | None = None


class Evidence(ABC, Generic[E_co]):
    """One plan before the checks.

    ZooKeeper alone does not decide which execution was committed: every result names the execution
    that made it, and every execution records whose results it got.
    """

    remains: Remains
    #: Whether tasks may run without a claim of their own: pure ones, behind another.
    runs_ahead: bool = False

    @property
    @abstractmethod
    def expected(self) -> Expected: ...

    @property
    @abstractmethod
    def executions(self) -> Mapping[str, Sequence[E_co]]:
        """Those of each task, by its key."""

    @property
    @abstractmethod
    def acknowledged(self) -> Set[str]:
        """The tasks that must run: those that were certainly added."""

    @property
    @abstractmethod
    def dead(self) -> Set[str]:
        """The tasks that have a dead letter."""

    @abstractmethod
    def may_be_lost(self, execution: Execution, until: float) -> bool:
        """Whether its worker may have lost the claim by then, or handed it back."""

    @cached_property
    def everything(self) -> list[E_co]:
        return [each for runs in self.executions.values() for each in runs]

    @cached_property
    def by_uid(self) -> dict[str, E_co]:
        return {execution.uid: execution for execution in self.everything}

    @cached_property
    def committed(self) -> dict[str, set[str]]:
        """The executions whose results anybody got, by task."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for execution in self.everything:
            for uid in execution.got:
                if uid in self.by_uid:
                    found[self.by_uid[uid].key].add(uid)
        for kept in self.remains.kept:
            found[kept.key].add(kept.uid)
        return dict(found)

    def fate(self, key: str) -> Fate | Literal["absent"]:
        return self.expected.fates.get(key, "absent")
