"""Commit: store the results of finished tasks and deliver them, many tasks in one transaction.

S4, S5: the first operation of each task deletes its claim, so a worker whose claim was released is
refused, and a repeated transaction too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import (
    UNREACHABLE,
    PayloadTooLarge,
    PlanCancelled,
    ZkplanError,
    ZooKeeperError,
)
from . import failpoints
from .adding import NewTask, added_ops, dep_number, next_number, settle_finished
from .claim import new_claim, take_ops
from .foreign import with_below
from .layout import DELIVERED
from .load import Loaded
from .requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from .shared import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    NO_DRIVE,
    OP_OVERHEAD,
    Claim,
    Dependent,
    Drive,
    Registration,
    pending_bytes,
    rejected,
)

#: The owner of an operation that belongs to no part.
GUARD, OLD_PENDING, PENDING = -1, -2, -3
#: How often one part removes somebody else's znodes that are in its way.
FOREIGN_MAX = 20


@dataclass(slots=True, eq=False)
class Part:
    """One finished task: its sealed outcome, and what its commit does besides delivering it.

    With `keep` None an outcome is kept if it went to no dependent. `dead` is the dead letter of a
    failure that goes down the edges. `adds` are the tasks that the function added.
    """

    loaded: Loaded
    outcome: bytes
    keep: bool | None = None
    dead: bytes = b""
    adds: list[NewTask] = field(default_factory=list)
    reloads: int = 0
    #: The last refusal: the path of a znode, and why.
    refused_by: str = ""

    @property
    def kept(self) -> bool:
        """Whether the commit keeps the outcome under `results`."""
        if self.dead or self.keep is not None:
            return bool(self.dead or self.keep)
        # A wide delivery has deleted edges; its mark `delivered` says so.
        return not (self.loaded.edges or self._lent or DELIVERED in self.loaded.others)

    @property
    def op_count(self) -> int:
        loaded = self.loaded
        return (
            8
            + 9 * len(loaded.edges)
            + len(loaded.others)
            + len(loaded.below)
            + sum(task.op_count for task in self.adds)
        )

    @property
    def size(self) -> int:
        """An upper bound for the bytes of its operations."""
        edges = len(self.loaded.edges)
        per_op = OP_OVERHEAD + len(self.loaded.claim.task_path) + 40
        return (
            per_op * self.op_count
            + len(self.outcome) * (edges + 2 + self._lent)
            + 60 * edges
            + sum(task.size for task in self.adds)
        )

    @property
    def growth(self) -> int:
        """About how many bytes its commit adds to the tree."""
        taken = len(self.outcome) * (len(self.loaded.edges) + self.kept)
        freed = len(self.loaded.record) + sum(map(len, self.loaded.arguments))
        return taken + sum(task.size for task in self.adds) - freed

    @property
    def _lent(self) -> int:
        """How many of the added tasks get this result directly, without an edge."""
        own = self.loaded.claim.task
        return sum(own in map(dep_number, task.deps) for task in self.adds)

    @property
    def fits(self) -> bool:
        """Whether one transaction can carry it. Otherwise it needs wide delivery."""
        return self.op_count <= 4 * GROUP_OPS_MAX and self.size <= 2 * GROUP_BYTES_MAX


@dataclass(slots=True)
class Committed:
    """The result of a commit, and what must follow it.

    `full` are dependents whose last edge this commit delivered. They must be published; the record
    `pending` on the claims node says so. `stale` parts must be loaded again. `poison` parts fail
    alone. `no_room` parts wait until the server has room. `old_pending` records were not settled.
    """

    done: list[Part] = field(default_factory=list)
    fenced: list[Part] = field(default_factory=list)
    stale: list[Part] = field(default_factory=list)
    poison: list[tuple[Part, ZkplanError]] = field(default_factory=list)
    no_room: list[tuple[Part, ZkplanError]] = field(default_factory=list)
    inherited: list[Claim] = field(default_factory=list)
    full: list[Dependent] = field(default_factory=list)
    pending: str = ""
    old_pending: list[str] = field(default_factory=list)
    worker_gone: bool = False
    refusals: int = 0


class _Draft:
    """A transaction that is being built, with the owner of each operation."""

    def __init__(self, me: Registration, parts: Sequence[Part], drive: Drive) -> None:
        self.me = me
        self.ops: list[Op] = []
        self.owners: list[int] = []
        self.deliveries: dict[tuple[str, str], tuple[Dependent, int]] = {}
        self.inherited: list[Claim] = []
        self.pending = ""
        guarded: set[str] = set()
        for index, part in enumerate(parts):
            self._finish(part, drive, guarded)
            self.owners += [index] * (len(self.ops) - len(self.owners))
        for claim in self.inherited:
            self.ops += take_ops(me, claim)
        self.owners += [GUARD] * (len(self.ops) - len(self.owners))
        if guarded:
            checks: list[Op] = [Check(me.worker_path)]
            checks += [Check(f"{path}/ready", drive.versions[path]) for path in sorted(guarded)]
            self.ops[:0] = checks
            self.owners[:0] = [GUARD] * len(checks)
            shift = len(checks)
            self.deliveries = {
                key: (dependent, at + shift) for key, (dependent, at) in self.deliveries.items()
            }

    def _finish(self, part: Part, drive: Drive, guarded: set[str]) -> None:
        loaded = part.loaded
        claim = loaded.claim
        task_path, ops = claim.task_path, self.ops
        ops += [Delete(path) for path in loaded.below]
        ops.append(Delete(claim.path))
        if loaded.owner:
            ops.append(Delete(f"{task_path}/owner"))
        for prov, edge in loaded.edges:
            dependent = f"{claim.plan_path}/task-{edge.task}"
            k = b"%d" % edge.k
            ops.append(Create(f"{dependent}/arg-{edge.position}", part.outcome))
            ops.append(Delete(f"{dependent}/dep-{edge.position}"))
            ops.append(SetData(f"{dependent}/ready", k))
            target = Dependent(claim.plan, edge.task, edge.k, edge.rank)
            if edge.k > 1:
                self.deliveries[claim.plan_path, edge.task] = (target, len(ops) - 1)
            ops.append(Delete(f"{task_path}/{prov}"))
            if edge.k == 1:
                # It has only one edge, so this delivery is the last, and publishes the task.
                ops.append(SetData(f"{dependent}/ready", k, 1))
                if claim.plan_path in drive.versions and len(self.inherited) < drive.capacity:
                    made = new_claim(self.me, claim.plan, edge.rank, edge.task, 0, 0)
                    self.inherited.append(made)
                    guarded.add(claim.plan_path)
                else:
                    ops.append(Create(f"{claim.plan_path}/runnable/{target.entry.name}"))
        if part.kept:
            ops.append(Create(f"{claim.plan_path}/results/{claim.task}", part.outcome))
        if part.dead:
            ops.append(Create(f"{claim.plan_path}/dead/{claim.task}", part.dead))
        if part.adds:
            ops.append(SetData(f"{claim.plan_path}/add-count"))
        for name in loaded.others:
            ops.append(Delete(f"{task_path}/{name}"))
        if loaded.result is not None:
            ops.append(Delete(f"{task_path}/result"))
        ops.append(Delete(task_path))

    def add_tasks(self, parts: Sequence[Part], next_tasks: dict[str, int]) -> None:
        """Add the tasks that the functions added, in the same transaction as the results."""
        counts = dict(next_tasks)
        for index, part in enumerate(parts):
            if part.adds:
                path = part.loaded.claim.plan_path
                finishing = {
                    other.loaded.claim.task: other.outcome
                    for other in parts
                    if other.loaded.claim.plan_path == path
                }
                self.ops += added_ops(path, part.adds, counts[path], finishing)
                self.owners += [index] * (len(self.ops) - len(self.owners))
                counts[path] += len(part.adds)

    def leave_pending(self) -> None:
        """S1: a pending record names each task whose `ready` is at K, until it is published."""
        if self.deliveries:
            self.pending = f"{self.me.claims_path}/pending-{next(self.me.uids)}"
            named = [dependent for dependent, _ in self.deliveries.values()]
            self.ops.append(Create(self.pending, pending_bytes(named)))
            self.owners.append(PENDING)

    def full(self, results: list[object]) -> list[Dependent]:
        """The dependents whose `ready` reached K in this transaction."""
        return [
            dependent for dependent, at in self.deliveries.values() if results[at] == dependent.k
        ]


def commit(
    me: Registration, parts: Sequence[Part], old_pending: Sequence[str], drive: Drive
) -> Step[Committed]:
    """Commit `parts` in as few transactions as refusals allow. Each part is settled once."""
    report = Committed()
    rest, pending_records = list(parts), list(old_pending)
    next_tasks: dict[str, int] = {}
    while rest:
        yield from _learn_numbers(report, rest, next_tasks)
        if not rest:
            break
        draft = _Draft(me, rest, drive)
        draft.add_tasks(rest, next_tasks)
        for pending in pending_records:
            draft.ops.append(Delete(pending))
            draft.owners.append(OLD_PENDING)
        draft.leave_pending()
        failpoints.reach("commit.before")
        try:
            answer = yield Multi(draft.ops)
        except PayloadTooLarge:
            # It needs kept results that were found only now. Built again, it is delivered wide.
            largest = max(rest, key=lambda part: part.size)
            rest.remove(largest)
            report.stale.append(largest)
            continue
        if isinstance(answer, Applied):
            failpoints.reach("commit.made")
            report.full = draft.full(answer.results)
            return _settled(report, draft, rest)
        report.refusals += 1
        if answer.repeated:
            names = set((yield ReadChildren(me.claims_path)) or ())
            mark = draft.pending or next((claim.path for claim in draft.inherited), "")
            if mark and mark.rpartition("/")[2] in names:
                report.full = yield from _full_now(draft)
                return _settled(report, draft, rest)
        if answer.reason is Reason.FULL:
            # Parts that free more than they take go on, and make room for the others.
            drive, error = NO_DRIVE, rejected("committing results", answer)
            growing = [p for p in rest if p.adds] or [p for p in rest if p.growth > 0] or rest
            report.no_room += [(part, error) for part in growing]
            rest = [part for part in rest if part not in growing]
            continue
        owner = draft.owners[answer.at]
        if owner == GUARD:
            # The plan changed, or this worker's registration went: publish, do not claim.
            drive = NO_DRIVE
        elif owner == OLD_PENDING:
            # Another worker settled it. An old pending record is never worth a result.
            pending_records = [pending for pending in pending_records if pending != answer.path]
        elif owner == PENDING:
            report.worker_gone = True
            report.stale += rest
            return report
        else:
            yield from _sort_out(report, rest, owner, answer, next_tasks)
    report.old_pending = pending_records  # nothing was applied: they stand
    return report


def _settled(report: Committed, draft: _Draft, parts: list[Part]) -> Committed:
    report.done += parts
    report.inherited = draft.inherited
    report.pending = draft.pending
    return report


def _full_now(draft: _Draft) -> Step[list[Dependent]]:
    """After a lost answer the versions are unknown: whatever is at K now must be published."""
    named = [dependent for dependent, _ in draft.deliveries.values()]
    nodes = yield ReadMany(
        [ReadData(f"{draft.me.paths.task(d.plan, d.task)}/ready") for d in named]
    )
    return [d for d, node in zip(named, nodes, strict=True) if node and node.version == d.k]


def _learn_numbers(report: Committed, rest: list[Part], next_tasks: dict[str, int]) -> Step[None]:
    for part in list(rest):
        path = part.loaded.claim.plan_path
        if part.adds and path not in next_tasks:
            try:
                plan = yield ReadData(path)
            except UNREACHABLE:
                raise
            except ZooKeeperError as error:  # an access list: no other part is affected
                rest.remove(part)
                report.poison.append((part, error))
                continue
            next_tasks[path] = next_number(plan) if plan is not None else 0


def _sort_out(
    report: Committed, rest: list[Part], owner: int, answer: Refused, next_tasks: dict[str, int]
) -> Step[None]:
    """Decide what to do with a part, given which of its operations was refused."""
    part = rest[owner]
    part.refused_by = f"{answer.path}: {answer.reason.value}"
    claim = part.loaded.claim
    missing = answer.reason is Reason.NO_NODE
    if answer.path == claim.path and missing:
        report.fenced.append(rest.pop(owner))
    elif answer.path == f"{claim.task_path}/owner" and missing:
        part.loaded.owner = False
    elif answer.reason is Reason.NOT_EMPTY and answer.path != claim.task_path:
        # zkplan makes no znodes below a claim or below a child of a task: somebody else did.
        part.reloads += 1
        if part.reloads > FOREIGN_MAX:
            report.stale.append(rest.pop(owner))
            return
        try:
            part.loaded.below = yield from with_below(answer.path, part.loaded.below)
        except UNREACHABLE:
            raise
        except ZooKeeperError as error:
            rest.pop(owner)
            report.poison.append((part, error))
    elif answer.path in part.loaded.below:
        part.loaded.below = []  # gone, by itself or with what is above it
    elif part.adds and missing and _is_add(answer.path, part):
        next_tasks.pop(claim.plan_path, None)
        if answer.path.endswith("/prov-"):
            try:
                for task in part.adds:
                    yield from settle_finished(claim.plan_path, task)
            except UNREACHABLE:
                raise
            except ZkplanError as error:
                rest.pop(owner)
                report.poison.append((part, error))
    elif part.adds and missing and answer.path == f"{claim.plan_path}/add-count":
        rest.pop(owner)
        report.poison.append((part, being_removed(claim.plan_path)))
    elif answer.reason in (
        Reason.NO_NODE,
        Reason.NODE_EXISTS,
        Reason.NOT_EMPTY,
        Reason.BAD_VERSION,
    ):
        report.stale.append(rest.pop(owner))
    else:
        rest.pop(owner)
        report.poison.append((part, rejected(f"committing {claim.task_path}", answer)))


def being_removed(plan_path: str) -> PlanCancelled:
    return PlanCancelled(
        plan_path, f"{plan_path} is being removed: its tasks can add no more tasks"
    )


def _is_add(path: str, part: Part) -> bool:
    """Whether a refused path belongs to tasks that the part adds, not to its own delivery."""
    own = {f"{part.loaded.claim.plan_path}/task-{edge.task}" for _, edge in part.loaded.edges}
    parent = path.rpartition("/")[0]
    return path.endswith(("/prov-", "/ready")) and parent not in own
