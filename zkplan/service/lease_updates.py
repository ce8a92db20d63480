"""Update several tasks under a lease in one transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..author.operator_actions import Decisions, check_priority
from ..author.task_specs import TaskSpec
from ..errors import InvalidTask, UpdateRefused, ZooKeeperUnavailable
from ..plan import Plan
from ..protocol.core.add import NewTask, dep_number
from ..protocol.core.commit_part import Part
from ..protocol.features.decisions import send_failures
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
from .lease_records import ClaimOutcomeOut, parse_id, refused, why_lost
from .lease_settlement import ServiceRegistration, Settler, measure


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

    `expect` is the version that the task must have, or the beginning of that version.
    """

    task: int
    verb: Verb
    expect: str = ""
    value: Any = None
    priority: int = 0


Operation = Add | Complete | Decide


@dataclass(frozen=True)
class RefusalOut:
    """Why an operation does not fit. `index` is its place in `operations`; `task` is null for a
    task to add. `expected` and `found` are versions of the task or its states. `why` explains the
    refusal, and `todo` says what to do."""

    index: int
    task: int | None
    expected: str
    found: str
    why: str
    todo: str


class Updated(NamedTuple):
    """An update that was applied. `tasks` are the numbers of the added tasks, in order; `existed`
    says which of them were there already, by their keys. `repeated`: an earlier request with the
    same key has applied it."""

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
_TODO = {
    UNKNOWN: "Name a task that was added.",
    UNDEFINED: "Wait until its author has defined it.",
    FINISHED: "Leave this operation out: the task has ended.",
    DECIDED: "Leave this operation out: the outcome of the task is fixed.",
}


def _refused_decision(index: int, wanted: Decide, found: str, why: str) -> RefusalOut:
    """Why a decision, a retry, a move or a check does not fit."""
    expected = wanted.expect or _EXPECTED[wanted.verb]
    why = why or f"task {wanted.task} was found as {found}"
    todo = _TODO.get(found, "Read the task again, and decide again.")
    return RefusalOut(index, wanted.task, expected, found, why, todo)


#: How many operations one update takes.
OPERATIONS_MAX = 500
_TRIES = 5


class Updater:
    """Applies updates. Thread-safe."""

    def __init__(
        self,
        connection: Connection,
        codec: Codec,
        registration: ServiceRegistration,
        settler: Settler,
    ) -> None:
        self._connection, self._codec = connection, codec
        self._run, self._paths = connection.transport.run, connection.paths
        self._registration, self._settler = registration, settler

    def update(
        self,
        plan: Plan,
        operations: Sequence[Operation],
        ends: Mapping[str, Ended | ClaimOutcomeOut],
        key: str | None,
        body: str,
    ) -> Updated:
        """See `Leases.update`. `ends` has for each completion how its attempt has ended, or why it
        cannot be completed."""
        call = os.urandom(8).hex()
        mark = Mark(update_mark(plan.path, key if key is not None else call), call, body)
        wanted = _Wanted(plan, operations, ends, self)
        if wanted.refused:
            # A claim may be gone because this very update has been applied meanwhile.
            if (before := self.before(plan, key, body)) is not None:
                return before
            step = self._step(self._registration.me(), plan, mark, wanted)
            against = self._run(step.judge())
            raise _refusal([*wanted.refused, *self._refusals(wanted, against)], len(operations))
        applied = self._apply(plan, mark, wanted)
        if applied.against:
            raise _refusal(self._refusals(wanted, applied.against), len(operations))
        if applied.repeated:
            return _repeated(applied, body)
        self._follow(plan, applied, wanted)
        numbers = [*map(int, applied.numbers)]
        return Updated(numbers, [task.existed for task in wanted.adds], False)

    def before(self, plan: Plan, key: str | None, body: str) -> Updated | None:
        """The effect of an earlier request with `key`. Raises InvalidTask if its body differs."""
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
            me = self._registration.me()
            step = self._step(me, plan, mark, wanted)
            applied: Applied = self._run(step.apply())
            if not applied.worker_gone:
                return applied
            self._registration.lost(me)
        raise ZooKeeperUnavailable("the session of this service ends again and again")

    def _follow(self, plan: Plan, applied: Applied, wanted: _Wanted) -> None:
        """Do what is owed after the transaction. If this process dies here, others do it."""
        if applied.complete or applied.pending:
            self._settler.publish(self._registration.me(), applied.complete, applied.pending)
        cascades = plan.record.on_failure == "cascade"
        taking = [task for task in wanted.adds if cascades or task.takes_failures]
        sources = [dep_number(d) for task in taking for d in task.deps]
        if sources:
            self._run(send_failures(self._paths, plan.number, sources))
        parts = [each.part for each in wanted.changes if each.part is not None]
        self._settler.finish(parts)

    def part(self, ended: Ended) -> Part | None:
        """The commit of an attempt that has ended; None if it has no result."""
        if ended.failure is not None or ended.not_before or ended.cannot_run or ended.store_away:
            return None
        measure(ended)
        found = settle(ended, self._codec, self._paths)
        return found if isinstance(found, Part) else None

    def _refusals(self, wanted: _Wanted, against: Sequence[Against]) -> list[RefusalOut]:
        places = [*wanted.change_of, *wanted.add_of]
        operations = [wanted.operations[places[each.at]] for each in against]
        late = [each.id for each in operations if isinstance(each, Complete)]
        reasons = self._run(why_lost(self._paths, late))
        found = []
        for each, operation in zip(against, operations, strict=True):
            index = places[each.at]
            match operation:
                case Complete(id=text):
                    found.append(_late(index, reasons[text]))
                case Decide():
                    found.append(_refused_decision(index, operation, each.found, each.why))
                case Add():
                    todo = "Add the task that it needs with keep=true, or leave this one out."
                    expected = "tasks whose results are available"
                    found.append(RefusalOut(index, None, expected, each.found, each.why, todo))
        return found


def _refusal(refused: Sequence[RefusalOut], count: int) -> UpdateRefused:
    many = f"{len(refused)} of {count} operations do not fit, and nothing was written"
    in_order = sorted(refused, key=lambda each: each.index)
    return UpdateRefused(f"{many}: {refused[0].why}", in_order)


def _repeated(applied: Applied, body: str) -> Updated:
    if applied.body != body:
        why = "another update with this key was applied: give each update a key of its own"
        raise InvalidTask("", why)
    return Updated([*map(int, applied.numbers)], [True] * len(applied.numbers), True)


class _Wanted:
    """The operations of one update as the protocol takes them, with their places in it."""

    def __init__(
        self,
        plan: Plan,
        operations: Sequence[Operation],
        ends: Mapping[str, Ended | ClaimOutcomeOut],
        updater: Updater,
    ) -> None:
        self.operations = operations
        self.changes: list[Change] = []
        self.change_of: list[int] = []
        self.add_of = [i for i, each in enumerate(operations) if isinstance(each, Add)]
        self.refused: list[RefusalOut] = []
        decisions = Decisions(plan)
        for index, each in enumerate(operations):
            if isinstance(each, Complete):
                self._complete(plan, index, each.id, ends[each.id], updater)
            elif isinstance(each, Decide):
                self._change(index, _change(decisions, each))
        specs = [each.spec for each in operations if isinstance(each, Add)]
        self.adds: list[NewTask] = plan._define(specs)[1] if specs else []
        self._refuse_twins()

    def _change(self, index: int, change: Change) -> None:
        self.changes.append(change)
        self.change_of.append(index)

    def _complete(
        self, plan: Plan, index: int, text: str, end: Ended | ClaimOutcomeOut, updater: Updater
    ) -> None:
        if isinstance(end, ClaimOutcomeOut):
            self.refused.append(_late(index, end))
            return
        claim = end.job.claim
        if claim.plan != plan.number:
            why = f"{text} is a claim of plan {int(claim.plan)}, not of this one"
            raise InvalidTask("", f"operations[{index}]: {why}")
        part = updater.part(end)
        if part is None:
            why = "the task has ended without this result, or its deadline has passed"
            self.refused.append(_late(index, refused(text, "ended", why)))
        else:
            self._change(index, Change(claim.task, "complete", part=part))

    def _refuse_twins(self) -> None:
        """Raises InvalidTask if two operations are about one task."""
        seen: dict[str, int] = {}
        named = [(each.task, i) for each, i in zip(self.changes, self.change_of, strict=True)]
        named += [(f"key {new.key}", i) for new, i in zip(self.adds, self.add_of, strict=True)]
        for name, index in named:
            if name != "key " and name in seen:
                why = f"it names the task of operations[{seen[name]}] again"
                raise InvalidTask("", f"operations[{index}]: {why}: name each task once")
            seen[name] = index


def _late(index: int, outcome: ClaimOutcomeOut) -> RefusalOut:
    known = parse_id(outcome.id)
    task = int(known.parsed.task) if known is not None else None
    todo = "Drop the result, and send the rest of the update again without it."
    if outcome.refused == "invalid":
        todo = "Change the value."
    found = outcome.refused or "decided"
    return RefusalOut(index, task, "a claim that stands", found, outcome.why, todo)


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
