"""Commit finished tasks: store and deliver many results in one transaction.

S4, S5: the first operation of each task deletes its claim. So a worker whose claim was released is
refused, and so is a repeated transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import PayloadTooLarge, ZkplanError
from .. import failpoints
from ..interference import LateCopies, folder_restored
from ..layout import PENDING
from ..requests import Applied, Create, Delete, Reason, Refused, SetData, Step
from ..transactions import (
    GUARD,
    NO_ALLOWANCE,
    Allowance,
    Claim,
    Dependent,
    Draft,
    Registration,
    or_error,
    pending_bytes,
    rejected,
)
from .add import added_ops, being_removed, names_of, next_number, read_all_finished
from .claim import claim_ops, new_claim
from .commit_part import Part, outcomes
from .edges import is_added, publish_ops
from .plans_and_queues import make_and_count
from .publish import still_complete

#: The owners of operations on pending records.
_OLD_PENDING, _PENDING = -2, -3


@dataclass(slots=True)
class Committed:
    """The result of a commit.

    The caller publishes the `complete` dependents, whose last edge this commit delivered; the
    record `pending` on the claims node names them. The caller also loads `stale` parts again, fails
    `poison` parts, and keeps `no_room` parts for later. `old_pending` records still exist.
    """

    done: list[Part] = field(default_factory=list)
    fenced: list[Part] = field(default_factory=list)
    stale: list[Part] = field(default_factory=list)
    poison: list[tuple[Part, ZkplanError]] = field(default_factory=list)
    no_room: list[tuple[Part, ZkplanError]] = field(default_factory=list)
    inherited: list[Claim] = field(default_factory=list)
    complete: list[Dependent] = field(default_factory=list)
    pending: str = ""
    old_pending: list[str] = field(default_factory=list)
    worker_gone: bool = False
    refusals: int = 0


class _Commit(Draft):
    """The transaction of some parts. The index of a part owns its operations."""

    def __init__(self, me: Registration, parts: Sequence[Part], allowance: Allowance) -> None:
        super().__init__()
        self.me, self.pending = me, ""
        #: With their runs now: a run may be dropped before the draft is found to be applied.
        self.parts = [(part, part.run) for part in parts]
        #: Dependents with more than one edge, and the operation that counts the arrival.
        self.deliveries: dict[tuple[str, str], tuple[Dependent, int]] = {}
        self.inherited: list[Claim] = []
        guarded: dict[str, int] = {}
        for index, part in enumerate(parts):
            self._finish(part, allowance, guarded)
            for each in (part, *part.run):
                self.facts[each.ended_by] = each.fact
            self.own(index)
        for claim in self.inherited:
            self.ops += claim_ops(me, claim)
        self.own(GUARD)
        self._checks = self.guard(me, guarded)

    def _finish(self, part: Part, allowance: Allowance, guarded: dict[str, int]) -> None:
        ops, plan_path = self.ops, part.loaded.claim.plan_path
        ops += part.loaded.release_ops()
        *before, last = part, *part.run
        for each in before:
            # S2, S3: this deletes both ends of the edge to the next task, and the task itself.
            task_path = each.loaded.claim.task_path
            ops += [Delete(f"{task_path}/{prov}") for prov, _ in each.loaded.edges]
            ops += each.end_ops()
        if before:
            # S9: the tasks after the first are not claimed, so they need the check of a claim.
            guarded[plan_path] = allowance.versions[plan_path]
        claim = last.loaded.claim
        argument = last.argument() if last.edges else b""
        for prov, edge in last.edges:
            ops += last.loaded.delivery_ops(prov, edge, argument)
            target = edge.dependent(claim.plan)
            if not last.loaded.counts(edge):
                continue
            if edge.k > 1:
                self.deliveries[plan_path, edge.task] = (target, len(ops) - 2)
            elif edge.k == 1:
                # It has only one edge, so this delivery is the last, and publishes the task.
                claims = allowance.takes(plan_path, edge.queue, len(self.inherited))
                ops += publish_ops(plan_path, target, entry=not claims)
                if claims:
                    of_task = edge.rank, edge.task, 0, 0, edge.queue
                    made = new_claim(self.me, claim.plan, *of_task)
                    self.inherited.append(made)
                    guarded[plan_path] = allowance.versions[plan_path]
        if last.adds:
            ops.append(SetData(f"{plan_path}/add-count"))
        ops += last.end_ops()

    def add_tasks(self, parts: Sequence[Part], next_tasks: dict[str, int]) -> None:
        """Add the tasks that the functions added, in the same transaction as the results."""
        counts = dict(next_tasks)
        for index, part in enumerate(parts):
            if part.adds:
                path = part.loaded.claim.plan_path
                ending = [
                    other
                    for first in parts
                    for other in (first, *first.run)
                    if other.loaded.claim.plan_path == path
                ]
                self.ops += added_ops(path, part.adds, counts[path], *outcomes(ending))
                self.facts |= names_of(path, part.adds, counts[path])
                self.own(index)
                counts[path] += len(part.adds)

    def settle_pending(self, old_pending: Sequence[str]) -> None:
        """S1: a pending record names each task that may be complete, until it is published."""
        self.ops += map(Delete, old_pending)
        self.own(_OLD_PENDING)
        if self.deliveries:
            self.pending = f"{self.me.claims_path}/{PENDING}{next(self.me.uids)}"
            self.ops.append(Create(self.pending, pending_bytes(self.named)))
            self.own(_PENDING)

    @property
    def made(self) -> list[str]:
        """The names that only this transaction makes on the claims node."""
        made = [self.pending] if self.pending else [claim.path for claim in self.inherited]
        return [path.rpartition("/")[2] for path in made]

    @property
    def named(self) -> list[Dependent]:
        return [dependent for dependent, _ in self.deliveries.values()]

    def complete(self, results: list[object]) -> list[Dependent]:
        """The dependents whose `ready` reached K in this transaction."""
        return [
            dependent
            for dependent, at in self.deliveries.values()
            if results[at + self._checks] == dependent.k
        ]


def commit_draft(me: Registration, parts: Sequence[Part]) -> _Commit:
    """The transaction of these parts, for a step that adds operations to it. It claims nothing."""
    return _Commit(me, parts, NO_ALLOWANCE)


def commit(
    me: Registration, parts: Sequence[Part], old_pending: Sequence[str], allowance: Allowance
) -> Step[Committed]:
    """Commit `parts` in as few transactions as refusals allow. Reports each part once."""
    report = Committed()
    rest, pending_records = list(parts), list(old_pending)
    next_tasks: dict[str, int] = {}
    late = LateCopies[_Commit](me.claims_path)
    while rest:
        yield from _learn_numbers(report, rest, next_tasks)
        if not rest:
            break
        _drop_runs(rest, allowance)
        draft = _Commit(me, rest, allowance)
        draft.add_tasks(rest, next_tasks)
        draft.settle_pending(pending_records)
        failpoints.reach("commit.before")
        try:
            answer = yield draft.multi
        except PayloadTooLarge:
            # Kept results made it too large: load the largest part again, to deliver it wide.
            largest = max(rest, key=lambda part: part.size)
            rest.remove(largest)
            largest.cut()
            report.stale.append(largest)
            continue
        if isinstance(answer, Applied):
            failpoints.reach("commit.made")
            return _reported(report, draft, draft.complete(answer.results))
        report.refusals += 1
        before = yield from late.applied(answer, draft.made, draft)
        if before is not None:
            # The versions in the answer are lost, so read which dependents are complete now.
            return _reported(report, before, (yield from still_complete(me, before.named)))
        if answer.reason is Reason.FULL:
            # Parts that free more than they take are sent again, and make room for the others.
            allowance, error = NO_ALLOWANCE, rejected("committing results", answer)
            _drop_runs(rest, allowance)
            growing = [p for p in rest if p.adds] or [p for p in rest if p.growth > 0] or rest
            report.no_room += [(part, error) for part in growing]
            rest = [part for part in rest if part not in growing]
            continue
        owner = draft.owners[answer.at]
        if owner == GUARD:
            # The plan changed, or this worker's registration is gone: publish, do not claim.
            allowance = NO_ALLOWANCE
        elif owner == _OLD_PENDING:
            # Another worker settled the record. Never give up a result for an old record.
            pending_records = [pending for pending in pending_records if pending != answer.path]
        elif owner == _PENDING:
            _drop_runs(rest, NO_ALLOWANCE)
            report.worker_gone = True
            report.stale += rest
            return report
        else:
            yield from _sort_out(report, rest, owner, answer, next_tasks)
    report.old_pending = pending_records  # nothing was applied: they still exist
    return report


def _drop_runs(parts: list[Part], allowance: Allowance) -> None:
    """Drop the runs of plans that were paused, cancelled or changed since."""
    for part in parts:
        if part.run and allowance.versions.get(part.loaded.claim.plan_path) != part.version:
            part.cut()


def _reported(report: Committed, draft: _Commit, complete: list[Dependent]) -> Committed:
    """The report once `draft` was applied: all of its parts are done, even parts that were dropped
    since."""
    for part, run in draft.parts:
        part.run = run
        report.done.append(part)
    report.stale = [part for part in report.stale if part not in report.done]
    report.poison = [item for item in report.poison if item[0] not in report.done]
    report.no_room = [item for item in report.no_room if item[0] not in report.done]
    report.inherited, report.pending, report.complete = draft.inherited, draft.pending, complete
    return report


def _learn_numbers(report: Committed, rest: list[Part], next_tasks: dict[str, int]) -> Step[None]:
    for part in list(rest):
        if not part.adds:
            continue
        path = part.loaded.claim.plan_path
        queues = part.lacks_queues()
        if path not in next_tasks or queues:
            found = yield from or_error(make_and_count(path, queues))
            if isinstance(found, ZkplanError):  # an access list: no other part is affected
                rest.remove(part)
                report.poison.append((part, found))
            else:
                plan, part.queues_made = found
                next_tasks[path] = next_number(plan) if plan is not None else 0


def _sort_out(
    report: Committed, rest: list[Part], owner: int, answer: Refused, next_tasks: dict[str, int]
) -> Step[None]:
    """Decide about the part whose operation was refused."""
    part = rest[owner]
    part.refused_by = answer.why
    loaded, claim = part.loaded, part.loaded.claim
    missing = answer.reason is Reason.NO_NODE
    error: ZkplanError | None = None
    if answer.path == claim.path and missing:
        report.fenced.append(rest.pop(owner))
    elif answer.path == f"{claim.task_path}/owner" and missing:
        loaded.owner = False
    elif claim.lacks(answer):
        pass
    elif part.run:
        part.cut()  # one of its tasks changed; if it is this one, it is refused again alone
    elif missing and (loaded.tear(answer.path) or (yield from folder_restored(answer))):
        pass
    elif part.adds and missing and is_added(answer.path, claim.plan_path, loaded.edges):
        next_tasks.pop(claim.plan_path, None)
        if answer.path.endswith("/prov-"):
            error = yield from or_error(read_all_finished(claim.plan_path, part.adds))
    elif part.adds and missing and answer.path == f"{claim.plan_path}/add-count":
        error = being_removed(claim.plan_path)
    elif missing or answer.reason in (Reason.NODE_EXISTS, Reason.NOT_EMPTY, Reason.BAD_VERSION):
        report.stale.append(rest.pop(owner))
    else:
        error = rejected(f"committing {claim.task_path}", answer)
    if error is not None:
        report.poison.append((rest.pop(owner), error))
