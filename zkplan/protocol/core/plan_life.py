"""The life of a plan: ready, paused, resumed, cancelled, finished; its status, weight and
priority."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...basics.notebook_html import plan_html
from ...errors import PayloadUndecodable, PlanCancelled, PlanDrained, PlanError, PlanNotFound
from .. import failpoints
from ..fields import (
    Unproven,
    as_whole_from_0,
    from_json,
    require_known_key,
    require_opened,
    require_proven,
    to_json,
)
from ..layout import HISTORY, PLAN_FIXED, QUEUES, active_entry, author_mark
from ..records import (
    PlanRecord,
    Share,
    State,
    control_from_bytes,
    control_reason,
    control_to_bytes,
    is_starting,
    share_from_bytes,
    was_cancelled,
)
from ..requests import (
    Applied,
    Check,
    Create,
    Delete,
    Multi,
    Node,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    Refused,
    SetData,
    Step,
)
from ..transactions import REFUSALS_MAX, is_applied, rejected, require_race, too_busy
from . import shared
from .add import task_count
from .plan_indexes import Entry as FailedEntry
from .plan_indexes import cleared
from .plans_and_queues import read_queues, readable_record, record_in, require_known_format

#: Why a worker cancels a plan.
DEADLINE_PASSED = "its deadline has passed"


class PlanStatus(NamedTuple):
    """A plan in numbers.

    `state` is `defining`, `running`, `paused`, `cancelled`, `done` or `failed`. A plan has failed
    if tasks have failed for good, and nothing else can run until they are retried: with
    on_failure="cascade" it has ended then. `tasks` counts the unfinished tasks, among them
    `runnable` and `dead` ones (failed for good, themselves or because a task before them failed).
    `outcomes` counts kept results and final failures, `added` all tasks ever added, `finished`
    the tasks that have finished. `created` is in wall-clock seconds since 1970 of the machine that
    created the plan. `key`, `not_before` and `deadline` are as its author gave them; `weight` and
    `priority` as they count now. `reason` says why zkplan cancelled it, such as its deadline.
    `skipped` counts skipped tasks, since an import. `ended` is when it was done, or imported as
    done, by the clock of ZooKeeper; None before. `retried` counts how often it ran again after its
    end. `unread` says why its record cannot be read here, such as another format; then all
    that its author gave is unknown. Empty if it can be read.
    """

    name: str
    path: str
    state: str
    tasks: int
    runnable: int
    dead: int
    outcomes: int
    added: int
    created: float
    key: str = ""
    not_before: float | None = None
    deadline: float | None = None
    reason: str = ""
    weight: int = 1
    priority: int = 0
    skipped: int = 0
    ended: float | None = None
    retried: int = 0
    unread: str = ""

    @property
    def finished(self) -> int:
        return self.added - self.tasks

    @property
    def has_ended(self) -> bool:
        """Whether no task of it runs again unless it is retried: it is done or cancelled, or has
        failed with on_failure="cascade". With "hold" the dependents of failed tasks still wait."""
        return self.ended is not None or self.state == "cancelled"

    def _repr_html_(self) -> str:
        # The status does not distinguish running from waiting tasks.
        rest = max(0, self.tasks - self.runnable - self.dead)
        counts = {"finished": self.finished, "runnable": self.runnable}
        counts |= {"running or waiting": rest, "dead": self.dead}
        return plan_html(self.name, self.path, self.state, self.added, counts)


def status(plan_path: str) -> Step[PlanStatus]:
    """Read the status, mostly with one batch of reads, however large the plan is. Raises
    PlanNotFound. The state of a plan that has not ended is never `failed`."""
    names = ("ready", "done", *PLAN_FIXED, QUEUES, HISTORY)
    around = [ReadData(f"{plan_path}/{name}") for name in names]
    while True:
        # Tasks are counted as the children that are not in `names`. A batch of reads need not be a
        # snapshot: if one of `names` is made or deleted between two reads, the count is wrong. So
        # they are read before and after the plan, until both agree. Each is made once and deleted
        # once, so this ends.
        nodes = yield ReadMany([*around, ReadData(plan_path), *around])
        before, plan, after = nodes[: len(names)], nodes[len(names)], nodes[len(names) + 1 :]
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        if [node is None for node in before] == [node is None for node in after]:
            break
    ready, done, adds, _, runnable, dead, outcomes, queues, _ = after
    unread = ""
    try:
        record = record_in(plan_path, plan.data)
    except PayloadUndecodable as error:
        unread = str(error)
        record = PlanRecord("(cannot be read here)", "", plan.created_ms / 1000)
    state: str = "defining" if ready is None else control_from_bytes(ready.data)
    if done is not None and not isinstance(done.data, Unproven):
        state = "failed" if dead is not None and dead.child_count else "done"
    tasks = plan.child_count - sum(node is not None for node in after)
    # Besides finished tasks only `add-count` is ever deleted, by the end or by a cancel. A retry
    # after the end deletes `done`, and makes `add-count` again.
    adds_gone = state in ("done", "failed", "cancelled") and adds is None
    retried = (share_from_bytes(ready.data).retried or 0) if ready is not None else 0
    finished = (plan.cversion - plan.child_count) // 2 - adds_gone - 2 * retried
    waiting = runnable.child_count if runnable is not None else 0
    if queues is not None:
        found = yield from read_queues(plan_path)
        waiting = sum(node.child_count for node in found.values())
    weight, priority = share_of(record, ready)
    return PlanStatus(
        name=record.name,
        path=plan_path,
        state=state,
        tasks=tasks,
        runnable=waiting,
        dead=dead.child_count if dead is not None else 0,
        outcomes=outcomes.child_count if outcomes is not None else 0,
        added=tasks + max(0, finished),
        created=record.created,
        key=record.key,
        not_before=record.not_before,
        deadline=record.deadline,
        reason=control_reason(ready.data) if ready is not None and state == "cancelled" else "",
        weight=weight,
        priority=priority,
        # Only skips write this znode, once each.
        skipped=outcomes.version if outcomes is not None else 0,
        ended=done.created_ms / 1000 if state in ("done", "failed") and done is not None else None,
        retried=retried,
        unread=unread,
    )


def cascades(plan: Node) -> bool:
    """Whether failures go to the dependents, by the record of this plan."""
    record = readable_record(plan.data)
    return record is not None and record.on_failure == "cascade"


def failed_tasks(done: bytes) -> int:
    """How many tasks had failed when the plan ended, as `done` says; 0 if it cannot be read."""
    try:
        return as_whole_from_0(from_json(done, "the end of a plan").get("failed")) or 0
    except PayloadUndecodable:
        return 0


def mark_ready(plan_path: str, record: PlanRecord | None = None) -> Step[None]:
    """Let the plan run, and put it into the index. Repeating it does no harm. `record` is that of a
    plan which this client has created itself; without it, the record is read.

    Raises PlanNotFound, PlanCancelled, TransactionRejected, ServerFull; and PayloadUndecodable if
    the record of the plan cannot be read here: workers with its sealing key would not accept what
    this client writes.
    """
    if record is None:
        plan = yield ReadData(plan_path)
        data = plan.data if plan is not None else b""
        require_opened(plan_path, data)
        require_known_format(plan_path, data)
        record = _keyed_record(data)
    entry = active_entry(plan_path)
    start = Create(f"{plan_path}/ready", control_to_bytes("running"))
    enter: Op = Create(entry)
    marks: list[Op] = []
    if record is not None and record.key:
        marks.append(Delete(author_mark(plan_path, record.uid)))
    for _ in range(REFUSALS_MAX):
        answer = yield Multi([start, enter, *marks])
        if isinstance(answer, Applied):
            return
        if any(answer.path == mark.path for mark in marks):
            marks = []  # the mark of the author is gone
        elif answer.path == entry and answer.reason is Reason.NODE_EXISTS:
            enter = Check(entry)  # somebody else made it, so it is used
        elif (yield from cleared(plan_path, answer)):
            enter = Create(entry)
        else:
            break
    if answer.reason is Reason.NO_NODE and answer.path != entry:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}: it was removed")
    if answer.reason is not Reason.NODE_EXISTS or answer.path == entry:
        raise rejected(f"marking {plan_path} ready", answer)
    ready = yield ReadData(f"{plan_path}/ready")
    require_opened(f"{plan_path}/ready", ready.data if ready is not None else b"")
    if ready is not None and control_from_bytes(ready.data) == "cancelled":
        raise was_cancelled(plan_path, ready.data)


def _keyed_record(data: bytes) -> PlanRecord | None:
    """The record of a plan with a key: its author has left a mark."""
    if b'"key"' not in data:
        return None
    try:
        return PlanRecord.from_bytes(data)
    except PayloadUndecodable:
        return None


def change_state(
    plan_path: str, state: State, reason: str = "", *, of_any_key: bool = False
) -> Step[None]:
    """Pause, resume or cancel. Every change raises the version that claims check (S9).

    A cancel also deletes `add-count`, so that no task can be added, and the plan's entry in the
    index. `reason` is for people. Raises PayloadUndecodable if the record of the plan is sealed
    with a key that is not known here, unless `of_any_key`, for a removal; and if its state was not
    sealed for its place, unless a cancel replaces it.
    """
    entry_path, in_failed = active_entry(plan_path), FailedEntry(plan_path)
    reads = [ReadData(plan_path + name) for name in ("", "/ready", "/done", "/add-count")]
    for _ in range(REFUSALS_MAX):
        plan, ready, done, adds, entry = yield ReadMany([*reads, ReadData(entry_path)])
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        if done is not None:
            raise PlanDrained(plan_path, f"{plan_path} is done: there is nothing to change")
        if not of_any_key:
            require_known_key(plan_path, plan.data)
            require_known_format(plan_path, plan.data)
        ops: list[Op] = []
        if ready is None:
            if state != "cancelled":
                raise PlanError(
                    plan_path,
                    f"{plan_path} is not marked ready yet, so it does not run: its author marks it "
                    "ready, or you do, if it is complete, with `zkplan plan mark-ready`",
                )
            ops.append(Create(f"{plan_path}/ready", control_to_bytes(state)))
        else:
            if state != "cancelled":
                require_opened(f"{plan_path}/ready", ready.data)  # it may have been cancelled
            now = control_from_bytes(ready.data)
            if now == state:
                # The server that was asked may be behind.
                ops.append(Check(f"{plan_path}/ready", ready.version))
            elif now == "cancelled":
                raise PlanCancelled(plan_path, f"{plan_path} was cancelled, which cannot be undone")
            else:
                data = control_to_bytes(state, reason, share_from_bytes(ready.data))
                ops.append(SetData(f"{plan_path}/ready", data, ready.version))
        if state == "cancelled" and adds is not None:
            ops.append(Delete(f"{plan_path}/add-count"))
        if state == "cancelled" and entry is not None:
            ops.append(Delete(entry_path))
        if reason == DEADLINE_PASSED:
            ops += in_failed.made
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return
        if (yield from cleared(plan_path, answer)) or (yield from in_failed.cleared(answer)):
            continue
        require_race(answer, f"changing {plan_path} to {state}")
    raise too_busy(f"changing {plan_path}")


def cancel_as_read(
    plan_path: str, ready: Node, adds: Node, indexed: bool, dead: Sequence[str]
) -> Step[bool]:
    """Cancel a plan in which nothing can run, as was proved after these were read. Returns whether
    it is cancelled: not if a task was added since (the version of `add-count`) or retried (its dead
    letter is gone), or if the plan was changed (the version of `ready`). Raises AccessDenied.
    """
    ops: list[Op] = [Check(f"{plan_path}/dead/{number}") for number in dead]
    ops.append(SetData(f"{plan_path}/ready", control_to_bytes("cancelled"), ready.version))
    ops.append(Delete(f"{plan_path}/add-count", adds.version))
    if indexed:
        ops.append(Delete(active_entry(plan_path)))
    answer = yield Multi(ops)
    if isinstance(answer, Refused) and answer.right:
        raise rejected(f"cancelling {plan_path}", answer)
    # A lost answer counts as a refusal: the plan is cancelled then, and the next call removes it.
    return isinstance(answer, Applied)


def _as_read(path: str, ready: Node) -> Op:
    """Check that the state is as it was read. With sealing keys a first version says nothing: if
    its maker died before the second, write the state here, or no reader would accept the end."""
    if is_starting(ready.data):
        return SetData(path, control_to_bytes("running"), ready.version)
    return Check(path, ready.version)


def _end(when: float, failed: int, ready: Node) -> bytes:
    """The data of `done`. With `retried`, an earlier end is not taken for a later one."""
    retried = share_from_bytes(ready.data).retried
    return to_json({"when": when, "failed": failed} | ({"retried": retried} if retried else {}))


def finish(plan_path: str, when: float) -> Step[bool]:
    """Create `done` if no task is left that may run. Returns whether the plan is done.

    Where failures cascade, failed tasks stay, dead. `add-count` is read before the tasks are
    counted, and deleted at that version, so an add in between refuses this (S7). If adds keep
    coming, a later commit or a check ends the plan. Raises PayloadRefused for a forged `done`.
    """
    # The queues are read after the plan: if made in between, they are not among its children.
    parts = ("/add-count", "", "/ready", "/done", "/dead", f"/{QUEUES}", f"/{HISTORY}")
    reads = [*(ReadData(plan_path + name) for name in parts), ReadData(active_entry(plan_path))]
    in_failed = FailedEntry(plan_path)
    for _ in range(REFUSALS_MAX):
        adds, plan, ready, done, dead, queues, history, entry = yield ReadMany(reads)
        if done is not None:
            require_proven(done.data)
            return True
        if adds is None or plan is None or ready is None:
            return False
        failed = dead.child_count if dead is not None else 0
        left = task_count(plan, ready, queues, history)
        if left > 0 and (left != failed or not cascades(plan)):
            return False
        # The count assumes that all fixed children exist, but somebody may have deleted some.
        rooms = (plan_path, f"{plan_path}/dead", f"{plan_path}/add-ids")
        names, letters, left_by_adds = yield ReadMany([ReadChildren(path) for path in rooms])
        stay = {f"task-{number}" for number in letters or ()} if left > 0 else set()
        if names is None or any(name.startswith("task-") and name not in stay for name in names):
            return False
        failpoints.reach("finish.between")
        ops: list[Op] = [
            Delete(f"{plan_path}/add-count", adds.version),
            Create(f"{plan_path}/done", _end(when, failed, ready)),
            # S7, S14: a late copy must not end a plan that was retried or indexed since.
            _as_read(f"{plan_path}/ready", ready),
        ]
        if entry is not None:
            ops.append(Delete(active_entry(plan_path)))
        if failed:
            ops += in_failed.made
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            if not failed:  # else a retry needs what its tasks share
                yield from shared.drop(plan_path, left_by_adds)
            return True
        if (yield from cleared(plan_path, answer)) or (yield from in_failed.cleared(answer)):
            continue
        require_race(answer, f"ending {plan_path}")
    return False


# ---- The share of a plan in the workers: its weight and its priority, changeable while it runs.


def share_of(record: PlanRecord, ready: Node | None) -> tuple[int, int]:
    """The weight and the priority of a plan, by its record and its `ready`."""
    share = share_from_bytes(ready.data if ready is not None else b"")
    return (
        record.weight if share.weight is None else share.weight,
        record.defaults.priority if share.priority is None else share.priority,
    )


def change_share(plan_path: str, wanted: Share) -> Step[None]:
    """Give a plan another weight or priority; None leaves that as it is. The state stays (S21).

    Raises PlanNotFound, PlanDrained, PlanCancelled, PlanError for a plan that is not marked ready,
    and PayloadUndecodable if the state cannot be read here.
    """
    control = f"{plan_path}/ready"
    reads = [ReadData(path) for path in (plan_path, control, f"{plan_path}/done")]
    for _ in range(REFUSALS_MAX):
        plan, ready, done = yield ReadMany(reads)
        if plan is None:
            raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
        require_known_format(plan_path, plan.data)
        if done is not None:
            raise PlanDrained(plan_path, f"{plan_path} is done: there is nothing to share")
        if ready is None:
            raise PlanError(
                plan_path,
                f"{plan_path} is not marked ready yet, so it has no share: give weight and "
                "priority to create_plan, or change them once it is marked ready",
            )
        require_opened(control, ready.data)  # it may have been cancelled
        state = control_from_bytes(ready.data)
        if state == "cancelled":
            raise PlanCancelled(plan_path, f"{plan_path} was cancelled: it does not run any more")
        now = share_from_bytes(ready.data)
        share = Share(*(old if new is None else new for old, new in zip(now, wanted, strict=True)))
        data = control_to_bytes(state, control_reason(ready.data), share)
        op: Op = SetData(control, data, ready.version)
        if share == now:
            # The server that was asked may be behind.
            op = Check(control, ready.version)
        if is_applied((yield Multi([op])), f"changing the share of {plan_path}"):
            return
    raise too_busy(f"changing the share of {plan_path}")
