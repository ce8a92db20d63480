"""Add the tasks of a function in many transactions, all or none.

Their definitions are staged below the adding task. The transaction that fixes its outcome makes the
definitions count. After that the holder of its claim adds the tasks bit by bit, and lets them run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from ...errors import (
    PayloadRefused,
    PayloadTooLarge,
    PayloadUndecodable,
    ResultNotKept,
    ZkplanError,
)
from .. import failpoints
from ..fields import require_proven
from ..interference import skip_number
from ..layout import ADDED, ADDS, INCOMPLETE, STAGED
from ..records import count_from_bytes
from ..requests import (
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
from ..transactions import (
    GROUP_BYTES_MAX,
    GROUP_OPS_MAX,
    GUARD,
    REFUSALS_MAX,
    Claim,
    Draft,
    is_applied,
    rejected,
    require_race,
    too_busy,
)
from . import repeatable_adds
from .add import (
    NewTask,
    being_removed,
    chunks_of,
    dep_number,
    first_place,
    names_of,
    next_number,
    read_finished,
    task_ops,
    tasks_of,
)
from .commit_part import Part
from .edges import with_sources
from .load import drop_removed, read_all
from .plans_and_queues import make_queues

#: How many tasks one transaction lets run, with at most four operations each.
_GO = GROUP_OPS_MAX // 4
#: Makes the sealed failure that replaces an outcome which cannot be read.
Lost = Callable[[ZkplanError], bytes]


# ---- Before the outcome is fixed.


def stage(part: Part) -> Step[Op | None]:
    """Stage the definitions of the added tasks below their task. Returns the operation that makes
    them count, for the transaction that fixes the outcome; None if the claim is gone.

    Raises ResultNotKept, PlanError or PayloadTooLarge if a task cannot be added.
    """
    loaded, claim = part.loaded, part.loaded.claim
    yield from _require_sources(claim, part.adds)
    if not part.queues_made:
        if (yield from make_queues(claim.plan_path, part.lacks_queues())) is None:
            raise being_removed(claim.plan_path)
        part.queues_made = True
    # What an earlier claim has staged does not count.
    stale = [name for name in loaded.others if name.startswith(STAGED)]
    stale = [name for name in stale if not name.startswith(f"{STAGED}{claim.n}-")]
    for start in range(0, len(stale), GROUP_OPS_MAX):
        names = stale[start : start + GROUP_OPS_MAX]
        answer = yield Multi([Check(claim.path), *_deletes(claim.task_path, names)])
        if isinstance(answer, Applied):
            loaded.others = [name for name in loaded.others if name not in names]
    count = 0
    for count, chunk in enumerate(chunks_of(part.adds), 1):
        failpoints.reach("wide_adds.staging")
        create = Create(f"{claim.task_path}/{STAGED}{claim.n}-{count - 1}", chunk)
        answer = yield Multi([Check(claim.path), create])
        if isinstance(answer, Applied):
            continue
        if answer.reason is Reason.NO_NODE:
            yield from drop_removed([claim])
            return None
        # It exists if this claim tried to commit before, and the server was full.
        if answer.reason is not Reason.NODE_EXISTS:
            raise rejected(f"adding the tasks of {claim.task_path}", answer)
    return Create(f"{claim.task_path}/{ADDS}", b"%d %d" % (claim.n, count))


def _require_sources(claim: Claim, tasks: Sequence[NewTask]) -> Step[None]:
    """Raise if a dependency outside the set has finished without a kept outcome: once the outcome
    is fixed, the set cannot be refused any more."""
    labels = {dep: task.label for task in tasks for dep in task.deps if isinstance(dep, str)}
    labels.pop(claim.task, None)
    numbers = sorted(labels)
    # Not the znodes of the tasks themselves: those hold all their constant arguments.
    reads = [ReadData(f"{claim.plan_path}/task-{number}/ready") for number in numbers]
    for number, node in zip(numbers, (yield from read_all(reads, None)), strict=True):
        if node is None:
            probe = NewTask(labels[number], "", b"", [number])
            yield from read_finished(claim.plan_path, probe)


# ---- After the outcome is fixed, by the holder of the claim.


@dataclass(slots=True)
class _Adds:
    """The staged tasks in order. The first `done` of them are in the plan, with numbers."""

    claim: Claim
    tasks: list[NewTask]
    lost: Lost
    done: int = 0
    #: Dependencies whose outcomes cannot be read.
    dying: set[str] = field(default_factory=set)

    @property
    def mark(self) -> Check:
        return Check(f"{self.claim.task_path}/{ADDS}")

    @property
    def holder(self) -> str:
        return f"task-{self.claim.task}"

    def is_held(self, task: NewTask) -> bool:
        """Whether `task` must wait for the end of the adds, as later tasks may depend on it."""
        of_set = (dep == self.claim.task or isinstance(dep, NewTask) for dep in task.deps)
        return not any(of_set)

    def is_incomplete(self, task: NewTask) -> bool:
        """Whether `task` gets the mark that `_let_go` deletes."""
        return _is_wide(task) or self.is_held(task)

    def number(self, first: int, count: int) -> None:
        """Number the next tasks."""
        for offset, task in enumerate(self.tasks[self.done : self.done + count]):
            task.number = f"{first + offset:010d}"
        self.done += count

    def find(self, task: NewTask, among: Sequence[int] | None = None) -> Step[None]:
        """As `read_finished`, but an outcome that cannot be read becomes a failure."""
        try:
            yield from read_finished(self.claim.plan_path, task, among)
            return
        except (ResultNotKept, PayloadTooLarge, PayloadRefused):
            pass  # the error does not say which position
        for position in range(len(task.deps)) if among is None else among:
            try:
                yield from read_finished(self.claim.plan_path, task, [position])
            except (ResultNotKept, PayloadTooLarge, PayloadRefused) as error:
                self.lose(task, position, error)

    def lose(self, task: NewTask, position: int, error: ZkplanError) -> None:
        task.known[position] = self.lost(error)
        self.dying.add(dep_number(task.deps[position]))


def _is_wide(task: NewTask) -> bool:
    return len(task.deps) > repeatable_adds.EDGES_PER_MULTI


def add_staged(claim: Claim, lost: Lost) -> Step[None]:
    """Add the tasks that count, and let them run. Other claimants may do the same at the same time.

    Raises PlanError if the plan takes no more tasks, PayloadUndecodable if the staged tasks
    cannot be read, and ZooKeeperError. The next holder of the claim goes on.
    """
    adds = yield from _read(claim, lost)
    if adds is None:
        return
    # Tasks that were added before this claim may still lack edges.
    for task in adds.tasks[: adds.done]:
        yield from _add_edges(adds, task)
    most, refusals = len(adds.tasks), 0
    while adds.done < len(adds.tasks):
        failpoints.reach("wide_adds.between")
        before = adds.done
        try:
            stands = yield from _add_piece(adds, most)
        except PayloadTooLarge as error:
            most = 1 if most > 1 else _drop_known(adds, error)
            continue
        if not stands:
            return
        for task in adds.tasks[before : adds.done]:
            yield from _add_edges(adds, task)
        refusals = 0 if adds.done > before else refusals + 1
        if refusals > REFUSALS_MAX:
            raise too_busy(f"adding the tasks of {claim.task_path}")
    incomplete = [task for task in adds.tasks if adds.is_incomplete(task)]
    for start in range(0, len(incomplete), _GO):
        failpoints.reach("wide_adds.let_go")
        if not (yield from _let_go(adds, incomplete[start : start + _GO])):
            return
    yield from _forget(claim)


def _read(claim: Claim, lost: Lost) -> Step[_Adds | None]:
    """The staged tasks, and how many were added; None if nothing is left to do."""
    path = f"{claim.task_path}/{ADDS}"
    while True:
        mark, names = yield ReadMany((ReadData(path), ReadChildren(claim.task_path)))
        if mark is None:
            return None
        n, count = _two_numbers(path, mark.data)
        staged = [f"{claim.task_path}/{name}" for name in _counting(names or (), n, count)]
        added = sorted(
            int(name[len(ADDED) :])
            for name in names or ()
            if name.startswith(ADDED) and name[len(ADDED) :].isdecimal()
        )
        marks = [f"{claim.task_path}/{ADDED}{index}" for index in added]
        nodes = yield from read_all([ReadData(each) for each in (*staged, *marks)])
        if all(node is not None for node in nodes):
            break
        if (yield ReadData(path)) is not None:
            missing = [*staged, *marks][[node is None for node in nodes].index(True)]
            raise PayloadUndecodable(f"{missing} is gone: its tasks cannot be added")
    for node in nodes:
        require_proven(node.data)
    chunks, records = nodes[: len(staged)], nodes[len(staged) :]
    adds = _Adds(claim, tasks_of([node.data for node in chunks]), lost)
    for index, node in zip(added, records, strict=True):
        if index == adds.done:
            adds.number(*_two_numbers(f"{claim.task_path}/{ADDED}{index}", node.data))
    return adds


def _counting(names: Sequence[str], n: int, count: int) -> list[str]:
    """The chunks that count, in order, whether they are among the `names` or not."""
    return [f"{STAGED}{n}-{index}" for index in range(count)]


def _two_numbers(path: str, data: bytes) -> tuple[int, int]:
    require_proven(data)
    first, _, second = data.partition(b" ")
    if not (first.isdigit() and second.isdigit()):
        raise PayloadUndecodable(f"{path} does not hold two numbers")
    return int(first), int(second)


def _add_piece(adds: _Adds, most: int) -> Step[bool]:
    """Add at most `most` of the tasks that are left. Returns False if nothing is left to do."""
    claim = adds.claim
    plan = yield ReadData(claim.plan_path)
    draft, first = Draft(), next_number(plan) if plan is not None else 0
    piece = _piece(adds, most)
    record = Create(f"{claim.task_path}/{ADDED}{adds.done}", b"%d %d" % (first, len(piece)))
    draft.ops = [adds.mark, record, SetData(f"{claim.plan_path}/add-count")]
    draft.own(GUARD)
    numbers: dict[NewTask, str] = {}
    for index, task in enumerate(piece):
        number = numbers[task] = f"{first + index:010d}"
        if _is_wide(task):
            sources = with_sources(task.record, [dep_number(dep) for dep in task.deps])
            of_join = claim.plan_path, task, number, sources, adds.holder
            draft.ops += repeatable_adds.wide_join_ops(*of_join)
        else:
            held = adds.holder if adds.is_held(task) else ""
            draft.ops += task_ops(claim.plan_path, task, number, numbers, adds.dying, held)
        draft.own(index)
    draft.facts = names_of(claim.plan_path, piece, first)
    answer = yield draft.multi
    if isinstance(answer, Applied):
        adds.number(first, len(piece))
        return True
    owner = draft.owners[answer.at]
    return (yield from _explain(adds, answer, None if owner == GUARD else piece[owner]))


def _piece(adds: _Adds, most: int) -> list[NewTask]:
    """The next tasks that one transaction carries. A wide join comes alone."""
    piece: list[NewTask] = []
    ops = size = 0
    for task in adds.tasks[adds.done : adds.done + most]:
        ops, size = ops + task.op_count, size + task.size
        if piece and (ops > GROUP_OPS_MAX or size > GROUP_BYTES_MAX or _is_wide(task)):
            break
        piece.append(task)
        if _is_wide(task):
            break
    return piece


def _explain(adds: _Adds, answer: Refused, task: NewTask | None) -> Step[bool]:
    """Learn from the refusal of a piece. Returns False if nothing is left to do."""
    claim = adds.claim
    require_race(answer, f"adding the tasks of {claim.task_path}")
    if answer.path == adds.mark.path:
        return False
    if answer.path == f"{claim.plan_path}/add-count":
        raise being_removed(claim.plan_path)
    if answer.at == 1 and answer.reason is Reason.NODE_EXISTS:
        # Another claimant has added them, or an earlier copy of this transaction.
        node = yield ReadData(answer.path)
        if node is not None:
            adds.number(*_two_numbers(answer.path, node.data))
    elif task is not None and answer.path.endswith("/prov-"):
        yield from adds.find(task)
    elif answer.path.endswith("/task-"):
        yield from skip_number(claim.plan_path)
    return True


def _drop_known(adds: _Adds, error: PayloadTooLarge) -> int:
    """The next task is too large with its known outcomes, so it gets failures instead."""
    task = adds.tasks[adds.done]
    if not task.known:
        raise error
    for position in task.known:
        adds.lose(task, position, error)
    return 1


def _add_edges(adds: _Adds, task: NewTask) -> Step[None]:
    """Add the missing edges of a wide join."""
    if not _is_wide(task):
        return
    path = f"{adds.claim.plan_path}/task-{task.number}/{INCOMPLETE}"
    node = yield ReadData(path)
    for step, positions in repeatable_adds.steps_of(task, node.version) if node is not None else ():
        failpoints.reach("wide_adds.edges")
        mark = SetData(path, adds.holder.encode(), step)
        of_task = adds.claim.plan_path, task, task.number, positions, mark
        yield from repeatable_adds.add_edges(*of_task, partial(adds.find, task), adds.dying)


def _let_go(adds: _Adds, tasks: Sequence[NewTask]) -> Step[bool]:
    """Delete the marks, which counts as an arrival. Returns False if nothing is left to do."""
    plan_path, standing = adds.claim.plan_path, set[str]()
    for _ in range(REFUSALS_MAX):
        reads = [
            ReadData(f"{plan_path}/task-{task.number}/{name}")
            for task in tasks
            for name in ("ready", INCOMPLETE)
        ]
        nodes = yield ReadMany(reads)
        ops: list[Op] = [adds.mark]
        for task, ready, mark in zip(tasks, nodes[::2], nodes[1::2], strict=True):
            if ready is None or mark is None:
                continue  # another claimant did it, or its plan is being removed
            path, k = f"{plan_path}/task-{task.number}", count_from_bytes(ready.data)
            steps = repeatable_adds.step_count(task) if _is_wide(task) else 0
            ops += [Delete(f"{path}/{INCOMPLETE}", steps)]
            ops += [SetData(f"{path}/ready", ready.data, ready.version)]
            if ready.version + 1 == k:
                place = first_place(plan_path, task, task.number)
                ops.append(SetData(f"{path}/ready", ready.data, k))
                ops.append(Check(place) if place in standing else Create(place))
        if len(ops) == 1:
            return True
        answer = yield Multi(ops)
        if is_applied(answer, f"adding the tasks of {adds.claim.task_path}"):
            return True
        if answer.path == adds.mark.path:
            return False
        if answer.reason is Reason.NODE_EXISTS:
            standing.add(answer.path)  # somebody else made the entry, so it is used
        else:
            standing.discard(answer.path)
    raise too_busy(f"adding the tasks of {adds.claim.task_path}")


def _forget(claim: Claim) -> Step[None]:
    """Delete the mark and what was staged. What is left goes with the task."""
    names = (yield ReadChildren(claim.task_path)) or ()
    kept = sorted(name for name in names if name.startswith((STAGED, ADDED)))
    for start in range(0, len(kept) + 1, GROUP_OPS_MAX):
        doomed = kept[start : start + GROUP_OPS_MAX]
        ops = _deletes(claim.task_path, [ADDS, *doomed] if not start else doomed)
        if ops and not isinstance((yield Multi(ops)), Applied):
            return  # another claimant has done it


def _deletes(task_path: str, names: Sequence[str]) -> list[Op]:
    return [Delete(f"{task_path}/{name}") for name in names]
