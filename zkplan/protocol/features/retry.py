"""Run failed tasks again: one dead task, or all failed tasks of a plan that has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ...basics.text import date_time
from ...errors import PayloadUndecodable, PlanCancelled, PlanError, PlanNotFound, TaskError
from .. import failpoints
from ..core.edges import Edge, sources_of
from ..core.load import read_all
from ..core.plan_indexes import Entry as FailedEntry
from ..core.plan_indexes import cleared
from ..core.plan_life import cascades
from ..core.plans_and_queues import readable_record, require_known_format
from ..fields import require_known_key, require_opened, require_proven
from ..layout import TAKES_FAILURES, Entry, active_entry, entry_path, parse_delayed, parse_task
from ..records import (
    Dead,
    Share,
    control_from_bytes,
    control_to_bytes,
    queue_from_bytes,
    ready_to_bytes,
    share_from_bytes,
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
    SetData,
    Step,
)
from ..transactions import GROUP_OPS_MAX, REFUSALS_MAX, ensure, is_applied, too_busy
from .decisions import CUT
from .gates import wait_again_ops
from .task_place import Place


def retry(plan_path: str, task: str) -> Step[bool]:
    """Make a dead task runnable again, with all its attempts. Returns False if it is not dead.

    Raises PayloadUndecodable if its dead letter is damaged, TaskError if it lacks arguments because
    it was cancelled, or if its failure has cascaded (see `reopen`), and TransactionRejected.
    """
    path = f"task-{task}"
    names = (f"dead/{task}", f"results/{task}", path, f"{path}/gate", f"{path}/{CUT}")
    reads = [ReadData(f"{plan_path}/{name}") for name in names]
    dead, outcome, node, gate, cut, plan = yield ReadMany([*reads, ReadData(plan_path)])
    if dead is None or node is None or plan is None:
        return False
    require_known_format(plan_path, plan.data)
    if cascades(plan):
        raise TaskError(
            task,
            f"the failure of task {task} of {plan_path} has gone to its dependents "
            f'(on_failure="cascade"), so it cannot be retried alone: retry the plan once it has '
            f"ended (`zkplan plan retry {int(plan_path[-10:])}`)",
        )
    letter = Dead.from_bytes(dead.data)
    if letter.n < 0:
        # Without the N of its last claim, the name of an entry might come back (S8).
        raise PayloadUndecodable(
            f"task {task} of {plan_path} cannot be retried: {letter.error}; add it again"
        )
    if cut is not None:
        raise TaskError(
            task,
            f"task {task} of {plan_path} was cancelled while it waited for others, so it lacks "
            "their results and cannot be retried: skip it, or add it again",
        )
    place = Place("dead", "", letter.rank, letter.n, queue=letter.queue)
    place = place._replace(has_outcome=outcome is not None)
    ops = retry_ops(plan_path, task, place, is_gate=gate is not None)
    failpoints.reach("retry.between")
    answer = yield Multi(ops)
    # False: somebody else has retried it meanwhile.
    return answer.repeated or is_applied(answer, f"retrying task {task} of {plan_path}")


def retry_ops(plan_path: str, task: str, place: Place, *, is_gate: bool) -> list[Op]:
    """Make a dead task runnable again. A gate waits again."""
    entry = Entry(place.rank, task, place.next_n, 0)
    # One retry for each death (ADR 9): a late copy, or a second operator, could retry a later death
    # with the same name and version, and the name of an entry would come back.
    ops: list[Op] = [Create(f"{plan_path}/task-{task}/retry-{place.n}")]
    if place.has_outcome:
        ops.append(Delete(f"{plan_path}/results/{task}"))
    ops.append(Delete(f"{plan_path}/dead/{task}"))
    if is_gate:
        return ops + wait_again_ops(plan_path, entry, place.queue)
    return [*ops, Create(entry_path(plan_path, place.queue, entry))]


def run_now_ops(plan_path: str, place: Place) -> list[Op]:
    """Make a delayed task runnable at once."""
    later = parse_delayed(place.path.rpartition("/")[2])
    if later is None:
        return []
    return [Delete(place.path), Create(entry_path(plan_path, later.queue, later.entry))]


def run_now(plan_path: str, place: Place) -> Step[bool]:
    """Make a delayed task runnable at once. Returns False if it is not delayed any more. Raises
    TransactionRejected."""
    name, ops = place.path.rpartition("/")[2], run_now_ops(plan_path, place)
    if not ops:
        return False
    answer = yield Multi(ops)
    # False: it became due, or somebody else has made it runnable.
    return answer.repeated or is_applied(answer, f"retrying {name} of {plan_path}")


# ---- Reopen: run the failed tasks of a plan that has ended again (`on_failure="cascade"`).
#
# Tasks whose failures cascaded stay in the tree, dead, with their arguments. To reopen the plan,
# each dead task waits again for the arguments that come from other dead tasks, and keeps its other
# arguments. Then `done` is deleted.
#
# A small plan takes one transaction. For a larger plan, the first transaction pauses the plan,
# which is still done, so that no task can be claimed. Each later transaction checks the version of
# `ready`. If the caller dies in between, the next call goes on.


#: How many tasks one batch reads.
TASKS_PER_BATCH = 300
#: The reason for the pause of a plan that is being reopened.
UNDER_WAY = "a retry puts its failed tasks back"


class _Ended(NamedTuple):
    """A plan that is done, as it was read."""

    ready: Node
    indexed: bool
    tasks: list[str]


@dataclass(slots=True)
class _Task:
    """A task of a plan that is done. Without a `letter`, an earlier call has put it back."""

    number: str
    letter: Dead | None
    has_outcome: bool
    version: int
    queue: str
    sources: list[str]
    names: frozenset[str]
    #: The positions that wait again for an outcome.
    waits: list[int] = field(default_factory=list)

    @property
    def can_run(self) -> bool:
        """Whether the task has its arguments or can get them again, so no operator has cut it."""
        return self.letter is None or (self.letter.n >= 0 and CUT not in self.names)


def reopen(plan_path: str, now: float) -> Step[int]:
    """Run the failed tasks of a plan that is done again. Returns how many tasks run again.

    A task that was cancelled before it had all its arguments cannot run again, nor can tasks that
    failed because of it. `now` is in wall-clock seconds since 1970. Raises PlanNotFound,
    PlanCancelled for a plan that is being removed, PlanError for one that is not done, whose
    deadline has passed or that somebody else retries at this moment, PayloadUndecodable if the plan
    cannot be read here, and TransactionRejected.
    """
    for _ in range(REFUSALS_MAX):
        found = yield from _read_plan(plan_path, now)
        again = _choose((yield from _read_tasks(plan_path, found.tasks)))
        if not again:
            return 0
        if any("gate" in task.names for task in again):
            yield from ensure(f"{plan_path.rpartition('/')[0]}/gates")  # an import makes none
        failpoints.reach("reopen.read")
        ops = [op for task in again for piece in _pieces(plan_path, task) for op in piece]
        if len(ops) <= GROUP_OPS_MAX:
            done = yield from _open(plan_path, found, found.ready.version, ops)
        else:
            done = yield from _in_parts(plan_path, found, again)
        if done:
            return len(again)
    raise too_busy(f"retrying {plan_path}")


def _read_plan(plan_path: str, now: float) -> Step[_Ended]:
    entry_path = active_entry(plan_path)
    paths = [plan_path, f"{plan_path}/ready", f"{plan_path}/done", entry_path]
    plan, ready, done, entry = yield ReadMany([ReadData(path) for path in paths])
    if plan is None:
        raise PlanNotFound(plan_path, f"there is no plan {plan_path}")
    require_known_key(plan_path, plan.data)
    require_known_format(plan_path, plan.data)
    if done is None or ready is None:
        raise PlanError(
            plan_path,
            f"{plan_path} has not ended, so its failed tasks cannot run again yet: wait for its "
            "end (`Plan.wait`, `zkplan plan wait`), then retry it",
        )
    require_proven(done.data)
    require_opened(f"{plan_path}/ready", ready.data)
    if control_from_bytes(ready.data) == "cancelled":
        raise PlanCancelled(plan_path, f"{plan_path} is being removed: its tasks do not run again")
    record = readable_record(plan.data)
    if record is not None and record.deadline is not None and record.deadline <= now:
        raise PlanError(
            plan_path,
            f"{plan_path} is past its deadline ({date_time(record.deadline, people=False)}), so it "
            "would be cancelled at once: create a new plan",
        )
    names = yield ReadChildren(plan_path)
    tasks = sorted(number for name in names or () if (number := parse_task(name)) is not None)
    return _Ended(ready, entry is not None, tasks)


def _read_tasks(plan_path: str, numbers: Sequence[str]) -> Step[list[_Task]]:
    found: list[_Task] = []
    for start in range(0, len(numbers), TASKS_PER_BATCH):
        batch = numbers[start : start + TASKS_PER_BATCH]
        reads: list[ReadData | ReadChildren] = []
        for number in batch:
            path = f"{plan_path}/task-{number}"
            reads += (ReadData(path), ReadData(f"{path}/ready"), ReadChildren(path))
            reads += (ReadData(f"{plan_path}/dead/{number}"),)
            reads += (ReadChildren(f"{plan_path}/results/{number}"),)  # its data may be large
        answers = yield from read_all(reads)
        for at, number in enumerate(batch):
            node, ready, names, letter, outcome = answers[5 * at : 5 * at + 5]
            if node is None or ready is None or names is None:
                continue  # removed meanwhile
            require_opened(f"{plan_path}/task-{number}", node.data)
            found.append(
                _Task(
                    number=number,
                    letter=Dead.from_bytes(letter.data) if letter is not None else None,
                    has_outcome=outcome is not None,
                    version=ready.version,
                    queue=queue_from_bytes(ready.data),
                    sources=sources_of(node.data, sum(map(_is_position, names))),
                    names=frozenset(names),
                )
            )
    return found


def _is_position(name: str) -> bool:
    return name.startswith(("arg-", "dep-"))


def _choose(standing: list[_Task]) -> list[_Task]:
    """The tasks that run again, with the positions at which they wait. All tasks that still exist
    have failed, so an argument that came from such a task is a failure."""
    by_number = {task.number: task for task in standing}
    feeds: dict[str, list[_Task]] = {}
    for task in standing:
        for source in dict.fromkeys(task.sources):
            if source in by_number and source != task.number:  # a gate names itself
                feeds.setdefault(source, []).append(task)
    lost = [task.number for task in standing if not task.can_run]
    found = set(lost)
    while lost:
        for task in feeds.get(lost.pop(), ()):
            if task.number not in found and TAKES_FAILURES not in task.names:
                found.add(task.number)
                lost.append(task.number)
    again = [task for task in standing if task.number not in found]
    runs = {task.number for task in again}
    for task in again:
        task.waits = [
            position
            for position, source in enumerate(task.sources)
            if source in runs and source != task.number
        ]
    return again


def _pieces(plan_path: str, task: _Task) -> Iterator[list[Op]]:
    """Put a task back, in pieces: after each piece another call could go on. The last piece deletes
    the dead letter."""
    letter = task.letter
    if letter is None:
        return
    path = f"{plan_path}/task-{task.number}"
    # The version counts arrivals and never goes back, so K grows by the edges that are open again.
    k, n = task.version + 1 + len(task.waits), letter.n + 1
    for position in task.waits:
        if f"dep-{position:010d}" not in task.names:
            edge = Edge(
                task=task.number,
                position=f"{position:010d}",
                k=k,
                rank=letter.rank,
                queue=task.queue,
                fails=TAKES_FAILURES in task.names,
                n=n,
            )
            yield _reopened(plan_path, task, position, edge)
    # A witness, as for the retry of one task.
    ops: list[Op] = [Create(f"{path}/retry-{letter.n}")]
    if task.has_outcome:
        ops.append(Delete(f"{plan_path}/results/{task.number}"))
    ops.append(Delete(f"{plan_path}/dead/{task.number}"))
    entry = Entry(letter.rank, task.number, n, 0)
    if task.waits:
        ops.append(SetData(f"{path}/ready", ready_to_bytes(k, task.queue), task.version))
    elif "gate" in task.names:
        ops += wait_again_ops(plan_path, entry, task.queue)
    else:
        ops.append(Create(entry_path(plan_path, task.queue, entry)))
    yield ops


def _reopened(plan_path: str, task: _Task, position: int, edge: Edge) -> list[Op]:
    """Replace a failure with the edge along which it came."""
    path, source = f"{plan_path}/task-{task.number}", task.sources[position]
    return [
        Delete(f"{path}/arg-{position:010d}"),
        Create(f"{path}/dep-{position:010d}", source.encode()),
        Create(f"{plan_path}/task-{source}/prov-", edge.to_bytes(), sequence=True),
    ]


def _in_parts(plan_path: str, found: _Ended, again: list[_Task]) -> Step[bool]:
    ready = f"{plan_path}/ready"
    # S9: nothing is claimed before the last transaction. Another call that began before is refused.
    paused = control_to_bytes("paused", UNDER_WAY, share_from_bytes(found.ready.data))
    answer = yield Multi([Check(f"{plan_path}/done"), SetData(ready, paused, found.ready.version)])
    if not is_applied(answer, f"retrying {plan_path}"):
        return False
    version, part = found.ready.version + 1, list[Op]()
    for task in again:
        for piece in _pieces(plan_path, task):
            if part and len(part) + len(piece) > GROUP_OPS_MAX:
                if not (yield from _send_part(plan_path, version, part)):
                    return False
                part = []
            part += piece
    return (yield from _open(plan_path, found, version, part))


def _send_part(plan_path: str, version: int, ops: list[Op]) -> Step[bool]:
    """Put some tasks back. Returns False if another call has put some of them back meanwhile."""
    failpoints.reach("reopen.between")
    ready = f"{plan_path}/ready"
    answer = yield Multi([Check(ready, version), *ops])
    if is_applied(answer, f"retrying {plan_path}") or answer.repeated:
        return True  # its own first copy was applied, or the next part is refused
    if answer.path == ready:
        raise PlanError(plan_path, f"somebody else retries {plan_path} at this moment")
    return False


def _open(plan_path: str, found: _Ended, version: int, ops: list[Op]) -> Step[bool]:
    """Put the last tasks back, and let the plan run. Returns False if something has changed."""
    ready, done, entry = f"{plan_path}/ready", f"{plan_path}/done", active_entry(plan_path)
    share = share_from_bytes(found.ready.data)
    runs = control_to_bytes("running", share=Share(*share[:2], (share.retried or 0) + 1))
    enter: Op = Check(entry) if found.indexed else Create(entry)
    in_failed = FailedEntry(plan_path)
    while True:
        failpoints.reach("reopen.open")
        last: list[Op] = [Create(f"{plan_path}/add-count"), enter, *in_failed.deleted]
        answer = yield Multi([SetData(ready, runs, version), Delete(done), *ops, *last])
        if isinstance(answer, Applied):
            return True
        if answer.repeated and (yield ReadData(done)) is None:
            return True  # the first copy was applied
        if answer.path == entry and answer.reason is Reason.NODE_EXISTS:
            enter = Check(entry)  # somebody else made it, so it is used
        elif (yield from cleared(plan_path, answer)):
            enter = Create(entry)
        elif (yield from in_failed.cleared(answer)):
            continue
        elif not is_applied(answer, f"retrying {plan_path}"):
            return False
