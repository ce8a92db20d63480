"""Update several tasks under a lease in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..author.operator_actions import Decisions, check_priority
from ..author.task_specs import TaskSpec
from ..errors import InvalidTask, UpdateRefused, ZooKeeperUnavailable
from ..plan import Plan
from ..protocol.core.add import NewTask, dep_number
from ..protocol.core.commit_part import Part
from ..protocol.features.decisions import tell_failures
from ..protocol.features.update import Mark, Update, find_mark
from ..protocol.features.update import Updated as Applied
from ..protocol.features.update_changes import (
    DECIDED,
    FINISHED,
    UNDEFINED,
    UNKNOWN,
    Against,
    Change,
    Verb,
)
from ..protocol.layout import rank_of, update_mark
from ..protocol.transactions import Registration
from ..runtime.attempt_end import settle
from ..runtime.job import Ended
from ..values.codec import Codec
from ..values.connection import Connection
from ..views.task_info import never_tasks
from .lease_records import Outcome, Refusal, parse_id
from .lease_settlement import Registered, Settling, measure


@dataclass(frozen=True)
class Add:
    """Add a task. Its arguments may be tasks that are added before it in the same update."""

    spec: TaskSpec


@dataclass(frozen=True)
class Complete:
    """Commit a result under a claim."""

    id: str
    value: Any = None


@dataclass(frozen=True)
class Decide:
    """Skip (with `value`), cancel, retry or move (to `priority`) a task, or only check it.

    `expect` is a version of the task, or the beginning of one, which it must have.
    """

    task: int
    verb: Verb
    expect: str = ""
    value: Any = None
    priority: int = 0


Operation = Add | Complete | Decide


class Refused(NamedTuple):
    """Why an operation does not fit: `at` is its place in the update.

    `expected` and `found` are versions of the task, or states; `task` is None for an added one.
    `refused` is that of a completion, as in `Outcome`.
    """

    at: int
    task: int | None
    expected: str
    found: str
    why: str
    todo: str
    refused: Refusal = ""


class Updated(NamedTuple):
    """An update that was applied. `tasks` are the numbers of the added ones, in order; `existed`
    says which of them the plan had by their keys. `repeated`: an earlier request of the same key
    has applied it."""

    tasks: Sequence[int]
    existed: Sequence[bool]
    repeated: bool


_EXPECTED: dict[Verb, str] = {
    "skip": "a task that has not ended",
    "cancel": "a task that has not ended, and is not dead",
    "retry": "a dead or delayed task",
    "move": "a task that is neither running, gated nor dead",
    "check": "a task that has not ended",
}
_READ_AGAIN = "Read the task again, and decide anew."
_TODO = {
    UNKNOWN: "Name a task that was added.",
    UNDEFINED: "Wait until its author has defined it.",
    FINISHED: "Leave this operation out: the task has ended.",
    DECIDED: "Leave this operation out: its outcome is fixed.",
}


def refused_decision(index: int, wanted: Decide, found: str, why: str) -> Refused:
    """What is said of a decision, a retry, a move or a check that does not fit."""
    expected = wanted.expect or _EXPECTED[wanted.verb]
    told = why or f"task {wanted.task} was found as {found}"
    todo = _TODO.get(found, _READ_AGAIN)
    return Refused(index, wanted.task, expected, found, told, todo)


# ---- Update several tasks of a plan: from operations to one transaction, and what must follow it.


#: How many operations one update takes.
OPERATIONS_MAX = 500
_LATE = "Drop the result, and send the rest of the update again without it."
_TRIES = 5


class Updating:
    """Applies updates. Thread-safe."""

    def __init__(
        self, connection: Connection, codec: Codec, registered: Registered, settling: Settling
    ) -> None:
        self._connection, self._codec = connection, codec
        self._run, self._paths = connection.transport.run, connection.paths
        self._registered, self._settling = registered, settling

    def update(
        self,
        plan: Plan,
        operations: Sequence[Operation],
        made: dict[str, Ended | Outcome],
        why: Callable[[Sequence[str]], dict[str, Outcome]],
        key: str | None,
        body: str,
    ) -> Updated:
        """As `Leases.update`. `made` says of each completion how its attempt has ended, or why it
        cannot be completed; `why` why claims do not stand."""
        call = os.urandom(8).hex()
        mark = Mark(update_mark(plan.path, key if key is not None else call), call, body)
        wanted = _Wanted(plan, operations, made, self)
        if wanted.refused:
            # Such a claim may be gone because this very update has been applied meanwhile.
            if (before := self.before(plan, key, body)) is not None:
                return before
            step = self._step(self._registered.me(), plan, mark, wanted)
            against = self._run(step.judge())
            raise _refusal([*wanted.refused, *wanted.told(against, why)], len(operations))
        applied = self._apply(plan, mark, wanted)
        if applied.against:
            raise _refusal(wanted.told(applied.against, why), len(operations))
        if applied.repeated:
            return _repeated(applied, body)
        self._follow(plan, applied, wanted)
        numbers = [*map(int, applied.numbers)]
        return Updated(numbers, [task.existed for task in wanted.adds], False)

    def before(self, plan: Plan, key: str | None, body: str) -> Updated | None:
        """What an earlier request of that key has done. Raises InvalidTask if it was another."""
        if key is None:
            return None
        found = self._run(find_mark(Mark(update_mark(plan.path, key), "", body)))
        return None if found is None else _repeated(found, body)

    def _step(self, me: Registration, plan: Plan, mark: Mark, wanted: _Wanted) -> Update:
        named = {each.task for each in wanted.changes if each.part is None}
        named |= {dep for task in wanted.adds for dep in task.deps if isinstance(dep, str)}
        never = never_tasks(self._connection, plan.path, named)
        return Update(me, plan.number, mark, wanted.changes, wanted.adds, never)

    def _apply(self, plan: Plan, mark: Mark, wanted: _Wanted) -> Applied:
        for _ in range(_TRIES):
            me = self._registered.me()
            step = self._step(me, plan, mark, wanted)
            applied: Applied = self._run(step.apply())
            if not applied.worker_gone:
                return applied
            self._registered.lost(me)
        raise ZooKeeperUnavailable("the session of this service ends again and again")

    def _follow(self, plan: Plan, applied: Applied, wanted: _Wanted) -> None:
        """What is owed behind the transaction. If this process dies here, others do it."""
        if applied.full or applied.pending:
            self._settling.publish(self._registered.me(), applied.full, applied.pending)
        cascades = plan.record.on_failure == "cascade"
        taking = [task for task in wanted.adds if cascades or task.takes_failures]
        sources = [dep_number(d) for task in taking for d in task.deps]
        if sources:
            self._run(tell_failures(self._paths, plan.number, sources))
        parts = [each.part for each in wanted.changes if each.part is not None]
        self._settling.finish(parts)

    def part(self, ended: Ended) -> Part | None:
        """What is committed of an attempt that has ended; None if it is no result."""
        if ended.failure is not None or ended.not_before or ended.cannot_run or ended.store_away:
            return None
        measure(ended)
        found = settle(ended, self._codec, self._paths)
        return found if isinstance(found, Part) else None


def _refusal(refused: Sequence[Refused], count: int) -> UpdateRefused:
    told = f"{len(refused)} of {count} operations do not fit, and nothing was written"
    return UpdateRefused(f"{told}: {refused[0].why}", sorted(refused, key=lambda each: each.at))


def _repeated(applied: Applied, body: str) -> Updated:
    if applied.body != body:
        told = "the key of this update is that of another one, which was applied"
        raise InvalidTask("", f"{told}: give each update a key of its own")
    return Updated([*map(int, applied.numbers)], [True] * len(applied.numbers), True)


class _Wanted:
    """The operations of one update as the protocol takes them, with their places in it."""

    def __init__(
        self,
        plan: Plan,
        operations: Sequence[Operation],
        made: dict[str, Ended | Outcome],
        by: Updating,
    ) -> None:
        self._operations = operations
        self.changes: list[Change] = []
        self._change_of: list[int] = []
        self._add_of = [i for i, each in enumerate(operations) if isinstance(each, Add)]
        self.refused: list[Refused] = []
        decisions = Decisions(plan)
        for index, each in enumerate(operations):
            if isinstance(each, Complete):
                self._complete(plan, index, each, made[each.id], by)
            elif isinstance(each, Decide):
                self._change(index, _change(decisions, each))
        specs = [each.spec for each in operations if isinstance(each, Add)]
        self.adds: list[NewTask] = plan._define(specs)[1] if specs else []
        self._refuse_twins()

    def _change(self, index: int, change: Change) -> None:
        self.changes.append(change)
        self._change_of.append(index)

    def _complete(
        self, plan: Plan, index: int, wanted: Complete, made: Ended | Outcome, by: Updating
    ) -> None:
        if isinstance(made, Outcome):
            self.refused.append(_late(index, wanted, made))
            return
        claim = made.job.claim
        if claim.plan != plan.number:
            told = f"{wanted.id} is a claim of plan {int(claim.plan)}, not of this one"
            raise InvalidTask("", f"operations[{index}]: {told}")
        part = by.part(made)
        if part is None:
            why = "the task has ended without it, or its deadline has passed"
            self.refused.append(_late(index, wanted, Outcome(wanted.id, False, "ended", why)))
        else:
            self._change(index, Change(claim.task, "complete", part=part))

    def _refuse_twins(self) -> None:
        """Raises InvalidTask where two operations mean one task."""
        seen: dict[str, int] = {}
        named = [(each.task, i) for each, i in zip(self.changes, self._change_of, strict=True)]
        named += [(f"key {new.key}", i) for new, i in zip(self.adds, self._add_of, strict=True)]
        for name, index in named:
            if name != "key " and name in seen:
                told = f"it means the task of operations[{seen[name]}] again"
                raise InvalidTask("", f"operations[{index}]: {told}: one update does one thing")
            seen[name] = index

    def told(
        self, against: Sequence[Against], why: Callable[[Sequence[str]], dict[str, Outcome]]
    ) -> list[Refused]:
        """What is said of the operations that do not fit, in their places."""
        places, found = [*self._change_of, *self._add_of], []
        late = [
            wanted
            for each in against
            if isinstance(wanted := self._operations[places[each.at]], Complete)
        ]
        reasons = why([each.id for each in late]) if late else {}
        for each in against:
            index = places[each.at]
            wanted = self._operations[index]
            if isinstance(wanted, Complete):
                found.append(_late(index, wanted, reasons[wanted.id]))
            elif isinstance(wanted, Decide):
                found.append(refused_decision(index, wanted, each.found, each.why))
            else:
                todo = "Add the task that it takes with keep=true, or leave this one out."
                expected = "tasks whose results can be had"
                found.append(Refused(index, None, expected, each.found, each.why, todo))
        return found


def _late(index: int, wanted: Complete, outcome: Outcome) -> Refused:
    known = parse_id(wanted.id)
    task = int(known.name.partition("-")[2][:10]) if known is not None else None
    todo = _LATE if outcome.refused != "invalid" else "Change the value."
    found = outcome.refused or "decided"
    return Refused(index, task, "a claim that stands", found, outcome.why, todo, outcome.refused)


def _change(decisions: Decisions, wanted: Decide) -> Change:
    task, verb = f"{wanted.task:010d}", wanted.verb
    change = Change(task, verb, wanted.expect)
    if verb == "skip":
        change.sealed = decisions.skipped(task, wanted.value)
    elif verb == "cancel":
        change.sealed = decisions.cancelled(task)
    elif verb == "move":
        check_priority(wanted.priority, task)
        change.rank = rank_of(wanted.priority)
    return change
