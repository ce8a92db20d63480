"""The promises of zkplan as pure checks of evidence: S3 to S8, S13 and L3."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from ..protocol.history.compaction import History
from ..protocol.history.segments import Record
from ..protocol.layout import HISTORY, PLAN_FIXED, QUEUES
from .stress_tasks import Execution

#: How a task ends. A `cut` task depends on a dead one and is never executed.
Fate = Literal["finished", "dead", "cut"]
E_co = TypeVar("E_co", bound=Execution, covariant=True)


class Expected(NamedTuple):
    """The oracle: the outcome of one process that runs everything in order, by the tasks' keys.

    `needs` has the tasks whose results a task takes, `digests` the digest of its arguments,
    `results` its return value. A task without a fate is never added.
    """

    needs: Mapping[str, Sequence[str]]
    digests: Mapping[str, str]
    results: Mapping[str, str]
    fates: Mapping[str, Fate]


class Kept(NamedTuple):
    """A kept result: the task and the execution that it names, and the number it is kept under."""

    key: str
    result: str
    uid: str
    number: str = ""


@dataclass(kw_only=True)
class Remains:
    """The state of ZooKeeper at the end: names below the plan, and claims of all workers.

    `kept` has the results that were read, and `history` the plan's history, if it keeps one.
    """

    plan: list[str] = field(default_factory=list)
    runnable: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)
    delayed: list[str] = field(default_factory=list)
    claims: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    history: History | None = None


class Evidence(ABC, Generic[E_co]):
    """The evidence on one plan, before the checks.

    ZooKeeper alone does not show which execution was committed. So every result names the execution
    that made it, and every execution records whose results it got.
    """

    remains: Remains
    #: Whether tasks may run without a claim of their own, as pure tasks do after another task.
    runs_ahead: bool = False

    @property
    @abstractmethod
    def expected(self) -> Expected: ...

    @property
    @abstractmethod
    def executions(self) -> Mapping[str, Sequence[E_co]]:
        """The executions of each task, by its key."""

    @property
    @abstractmethod
    def acknowledged(self) -> Set[str]:
        """The tasks that were certainly added, and so must run."""

    @property
    @abstractmethod
    def dead(self) -> Set[str]:
        """The tasks that have a dead letter."""

    @abstractmethod
    def may_be_lost(self, execution: Execution, until: float) -> bool:
        """Whether the worker may have lost the claim, or handed it back, by the time `until`."""

    @cached_property
    def everything(self) -> list[E_co]:
        return [each for runs in self.executions.values() for each in runs]

    @cached_property
    def by_uid(self) -> dict[str, E_co]:
        return {execution.uid: execution for execution in self.everything}

    @cached_property
    def committed(self) -> dict[str, set[str]]:
        """The executions whose results were taken or kept, by task."""
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


# ---- Check what ran, with which arguments, and whose result was committed: S3, S4, S5 and L3.
# Pure.


def nothing_acknowledged_is_lost(evidence: Evidence[Execution]) -> Iterator[str]:
    """L3: every acknowledged task ended as the oracle says."""
    for key in sorted(evidence.acknowledged):
        runs, fate = evidence.executions.get(key, ()), evidence.fate(key)
        if fate == "finished" and not any(each.returned for each in runs):
            yield f"task {key} was acknowledged and never returned ({len(runs)} executions)"
        elif fate != "finished" and key not in evidence.dead:
            yield f"task {key} must be {fate} and has no dead letter"
        elif fate == "cut" and runs:
            yield f"{runs[0]} ran, though a task that it needs has failed"


def arguments_are_exact(evidence: Evidence[Execution]) -> Iterator[str]:
    """S3: every execution, however it ended, had exactly the right arguments."""
    for execution in evidence.everything:
        yield from wrong_arguments(evidence.expected, execution)


def wrong_arguments(expected: Expected, execution: Execution) -> Iterator[str]:
    """Yield each mistake in the arguments of an execution."""
    needs = expected.needs.get(execution.key)
    if needs is None:
        yield f"{execution} is of no task of the plan"
    elif len(execution.got) != len(needs):
        yield f"{execution} had {len(execution.got)} of {len(needs)} arguments"
    elif execution.digest != expected.digests[execution.key]:
        yield f"{execution} had other arguments than the oracle, or in another order"


def values_come_from_executions(evidence: Evidence[Execution]) -> Iterator[str]:
    """S3, S4: an execution of the right task had returned each argument before."""
    for execution in evidence.everything:
        needs = evidence.expected.needs.get(execution.key, ())
        for uid, needed in zip(execution.got, needs, strict=False):
            maker = evidence.by_uid.get(uid)
            if maker is None:
                yield f"{execution} got a value of {uid}, which nobody made"
            elif maker.key != needed:
                yield f"{execution} got a value of {maker} in place of one of {needed}"
            elif not maker.returned:
                yield f"{execution} got a value of {maker}, which never returned"
            elif maker.ended > execution.began:  # type: ignore[operator]
                yield f"{execution} began before {maker} had ended"
    for kept in evidence.remains.kept:
        maker = evidence.by_uid.get(kept.uid)
        if maker is None or maker.key != kept.key or not maker.returned:
            yield f"the kept result of {kept.key} is of {kept.uid}, which is {maker}"


def results_are_fixed_once(evidence: Evidence[Execution]) -> Iterator[str]:
    """S4: all dependents of a task got the result of the same execution."""
    for key, uids in evidence.committed.items():
        if len(uids) > 1:
            found = ", ".join(str(evidence.by_uid.get(uid, uid)) for uid in sorted(uids))
            yield f"task {key} was committed {len(uids)} times: {found}"


def the_last_claim_commits(evidence: Evidence[Execution]) -> Iterator[str]:
    """S5: no execution has a larger attempt number than the one that was committed."""
    for key, uids in evidence.committed.items():
        for uid in uids & evidence.by_uid.keys():
            winner = evidence.by_uid[uid]
            for other in evidence.executions[key]:
                if other.n > winner.n:
                    yield f"{winner} was committed, though {other} had a later claim"


def results_are_the_oracles(evidence: Evidence[Execution]) -> Iterator[str]:
    """S4: all returned values and all kept results are those of the oracle."""
    results = evidence.expected.results
    for execution in evidence.everything:
        if execution.value not in (None, results.get(execution.key)):
            yield f"{execution} returned another value than the oracle"
    for kept in evidence.remains.kept:
        right = results.get(kept.key)
        if kept.result != right:
            yield f"the kept result of {kept.key} is {kept.result}, the oracle has {right}"


# ---- Check the attempt numbers of the executions of each task: S8. Pure.


def attempts_are_unique(evidence: Evidence[Execution]) -> Iterator[str]:
    """S8: no two executions of a task have the same attempt number."""
    for key, runs in evidence.executions.items():
        for n, count in Counter(each.n for each in runs).items():
            if count > 1:
                yield f"task {key} was executed {count} times as attempt {n}"


def only_losses_and_failures_repeat(evidence: Evidence[Execution]) -> Iterator[str]:
    """S8: a task runs again only after a failure, a lost worker, or a hand-back."""
    for runs in evidence.executions.values():
        for first, second in pairwise(sorted(runs, key=lambda each: each.n)):
            if not first.raised and not evidence.may_be_lost(first, second.began):
                yield f"{second} repeats {first}, which nothing had disturbed"


# ---- Check what is left of a plan that is done: S6 and S7. Pure.


def nothing_is_left(evidence: Evidence[Execution]) -> Iterator[str]:
    """S6, S7: only its fixed children, outcomes and dead tasks are left of a done plan."""
    left = evidence.remains
    dead = {f"task-{number}" for number in left.dead}
    yield from strangers([name for name in left.plan if name not in dead], "done")
    yield from (f"{name} is dead, but missing" for name in sorted(dead - {*left.plan}))
    if "done" not in left.plan:
        yield "`done` is missing"
    for kind in ("runnable", "delayed", "claims"):
        yield from (f"{kind}: {name} is left" for name in getattr(left, kind))
    for key in sorted(evidence.dead):
        if evidence.fate(key) not in ("dead", "cut"):
            yield f"task {key} has a dead letter, but must be {evidence.fate(key)}"


def strangers(names: Iterable[str], besides: str) -> Iterator[str]:
    """Yield each child of a plan that zkplan has not made, or should have removed.

    The queues of a plan stay as long as the plan; their entries are runnable.
    """
    expected = {*PLAN_FIXED, "ready"} - {"add-count"}
    known = {*expected, besides, QUEUES, HISTORY}
    yield from (f"{name} is left" for name in names if name not in known)
    yield from (f"`{name}` is missing" for name in sorted(expected - {*names}))


# ---- Check a history (S13): the states that follow from its events alone fit the tree, the
# results, and the records of the tasks themselves. Pure, and without zkplan's own reading of it.


#: The index of the place in an event, by the event's letter.
_PLACES = {"a": 3, "r": 2, "u": 2, "g": 2, "m": 2, "t": 2, "f": 2, "h": 2, "l": 2, "o": 2}


@dataclass
class _Told:
    """One task in a history: how often it was added and ended, its last place, its claims."""

    added: int = 0
    ended: int = 0
    flags: int = 0
    place: str = ""
    claims: list[tuple[int, str]] = field(default_factory=list)


def the_history_agrees(evidence: Evidence[Any]) -> Iterator[str]:
    """S13: the history agrees with the tree and the results. If a part of the history was dropped,
    this checks the rest."""
    left = evidence.remains
    if left.history is None:
        return
    if left.history.untold:
        return  # the history records that a full server or an access list prevented events
    tasks, ends = _rebuilt(left.history.records)
    yield from _order(left.history.records)
    yield from (f"{name} of the history cannot be read" for name in left.history.damaged)
    standing = {int(name[5:]) for name in left.plan if name.startswith("task-")}
    kept, dead = _numbers(left.outcomes), _numbers(left.dead)
    is_whole = not (left.history.cut.events or left.history.cut.imported)
    for number, task in sorted(tasks.items()):
        if is_whole and task.added != 1:
            yield f"task {number} was added {task.added} times"
        if task.ended > 1:
            yield f"task {number} ended {task.ended} times"
        if bool(task.ended) == (number in standing):
            yield f"task {number} ended {task.ended} times, and it exists: {number in standing}"
        if (task.place == "x") != (number in dead):
            yield f"task {number} is recorded at {task.place!r}, a letter: {number in dead}"
        if task.ended and bool(task.flags & 1) != (number in kept):
            yield f"task {number} ended with flags {task.flags}, an outcome: {number in kept}"
        attempts = [n for n, _ in task.claims]
        if attempts != sorted(set(attempts)):
            yield f"task {number} was claimed with the numbers {attempts}"
    if is_whole:
        yield from (f"task {number} is not recorded" for number in sorted(standing - set(tasks)))
    if ("done" in left.plan) != bool(ends) or ends > 1:
        yield f"the plan is recorded as done {ends} times"
    waiting = sum(task.place[:1] == "d" for task in tasks.values())
    if waiting != len(left.delayed) and is_whole:
        yield f"{waiting} tasks are recorded as delayed, and {len(left.delayed)} are"
    if is_whole:
        yield from _attempts(evidence, tasks)


def _numbers(names: Iterable[str]) -> set[int]:
    return {int(name) for name in names if name.isdecimal()}


def _rebuilt(records: list[Record]) -> tuple[dict[int, _Told], int]:
    """The tasks, and how often the plan is recorded as done, minus how often it was retried."""
    tasks: defaultdict[int, _Told] = defaultdict(_Told)
    ends = 0
    for record in records:
        for letter, *rest in record.events:
            if letter in "DR":
                ends += 1 if letter == "D" else -1
            elif letter not in "Se":
                _moved(tasks[rest[0]], record.by, letter, [letter, *rest])
    return dict(tasks), ends


def _moved(task: _Told, by: str, letter: str, event: list[Any]) -> None:
    task.added += letter == "a"
    if letter == "k":
        task.ended, task.place, task.flags = task.ended + 1, "", event[2]
    elif letter in "xw":
        task.place = "x" if letter == "x" else ""
    elif letter == "c":
        n = event[2] if len(event) > 2 and event[2] else 0
        task.place = "c"
        task.claims.append((n, event[3] if len(event) > 3 else by))
    elif letter in _PLACES:
        at = _PLACES[letter]
        task.place = event[at] if len(event) > at else ""


def _order(records: list[Record]) -> Iterator[str]:
    numbers = [record.number for record in records]
    for before, after in itertools.pairwise(numbers):
        if after <= before:
            yield f"number {after} comes after number {before}"


def _attempts(evidence: Evidence[Any], tasks: dict[int, _Told]) -> Iterator[str]:
    """Each execution has a recorded claim, except pure tasks, which may run without one."""
    recorded = {claim for task in tasks.values() for claim in task.claims}
    for execution in evidence.everything:
        if (execution.n, execution.worker) not in recorded and not evidence.runs_ahead:
            yield f"{execution} ran, but its claim is not recorded"
