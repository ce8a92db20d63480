"""Add in steps that are safe to repeat: the chain of one author's adds, and joins too wide for
one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from ...errors import PlanDrained, PlanNotFound
from .. import failpoints
from ..interference import skip_number
from ..layout import INCOMPLETE, TAKES_FAILURES, TASK_KEY, is_gate_entry
from ..records import control_from_bytes, ready_to_bytes, was_cancelled
from ..requests import (
    Applied,
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
from ..transactions import Dependent, rejected
from .add import NewTask, dep_number, key_ops, names_of, next_number, read_finished
from .edges import argument_of, edge_ops, publish_ops, with_sources


class AddChain:
    """What one author knows about one plan. The tree has the identity of its last add (ADR 1)."""

    def __init__(self, plan_path: str, next_task: int | None = None) -> None:
        self.plan_path = plan_path
        self._next = next_task
        self._uid = os.urandom(8).hex()
        self._count = 0
        self.previous = ""
        #: The queues that are known to exist.
        self.queues: set[str] = set()

    def learn(self, again: bool = False) -> Step[int]:
        """The predicted number of the next task."""
        if self._next is None or again:
            plan = yield ReadData(self.plan_path)
            if plan is None:
                raise PlanNotFound(self.plan_path, f"{self.plan_path} does not exist any more")
            self._next = next_number(plan)
        return self._next

    def begin(self, previous: str) -> tuple[str, list[Op]]:
        """A new identity, and the operations that an add starts with.

        Deleting the `previous` identity chains the adds of one author: a batch is applied only
        after the one before it, so its predicted numbers never belong to other tasks.
        """
        self._count += 1
        identity = f"{self._uid}-{self._count}"
        ops: list[Op] = [Create(f"{self.plan_path}/add-ids/{identity}")]
        if previous:
            ops.append(Delete(f"{self.plan_path}/add-ids/{previous}"))
        return identity, [*ops, SetData(f"{self.plan_path}/add-count")]

    def applied(self, identity: str, count: int) -> None:
        self.previous = identity
        if self._next is not None:
            self._next += count

    def explain(self, answer: Refused, task: NewTask | None) -> Step[None]:
        """Learn from a refusal what to change. Raises if the add can never succeed."""
        is_strange = is_gate_entry(answer.path, self.plan_path)  # `gates` exists already
        if is_strange or answer.reason not in (Reason.NO_NODE, Reason.NODE_EXISTS):
            raise rejected(f"adding to {self.plan_path}", answer)
        if task is not None and f"/add-ids/{TASK_KEY}" in answer.path:
            node = yield ReadData(answer.path)
            if node is not None:  # else its plan is being removed
                task.is_there(node.data)
                return
        if answer.path.endswith(("/add-count", "/add-ids")) or "/add-ids/" in answer.path:
            yield from self.explain_plan()
            if self.previous and answer.path.endswith(self.previous):
                self.previous = ""
        elif answer.path.endswith("/prov-") and task is not None:
            yield from read_finished(self.plan_path, task)
        elif answer.path.endswith("/task-") and answer.reason is Reason.NODE_EXISTS:
            yield from skip_number(self.plan_path)
        yield from self.learn(again=True)

    def explain_plan(self) -> Step[None]:
        """Raise the error that says why the plan takes no tasks. Returns if it takes them by
        now."""
        parts = ("", "/done", "/ready", "/add-count", "/add-ids")
        reads = ReadMany([ReadData(f"{self.plan_path}{part}") for part in parts])
        missed: list[bool] = []
        while True:
            plan, done, ready, adds, authors = nodes = yield reads
            # If something is missing, read again until it is missing twice: between the reads of
            # one batch the plan may have ended, or a check may have put back what was deleted.
            missing = [node is None for node in nodes]
            if missing == missed or not any(missing[3:]):
                break
            missed = missing
        if plan is None:
            raise PlanNotFound(self.plan_path, f"{self.plan_path} was removed; create a new plan")
        if done is not None:
            raise PlanDrained(
                self.plan_path,
                f"{self.plan_path} has run all its tasks and is done; create a new plan for more",
            )
        if ready is not None and control_from_bytes(ready.data) == "cancelled":
            raise was_cancelled(self.plan_path, ready.data)
        if authors is None:
            raise PlanNotFound(
                self.plan_path,
                f"{self.plan_path} has no `add-ids`, so no task can be added: it is being removed, "
                "or somebody deleted that by hand; `zkplan plan check` puts it back",
            )
        if adds is None:
            raise PlanNotFound(
                self.plan_path, f"{self.plan_path} is being removed; create a new plan"
            )


# ---- Add a join that is too wide for one transaction, in repeatable steps.


#: A join with more edges is added in several transactions, with an `incomplete` mark.
EDGES_PER_MULTI = 1200
#: Edges per transaction while a wide join is defined.
EDGES_PER_STEP = 600


def add_wide_join(chain: AddChain, task: NewTask) -> Step[None]:
    """Create `task` with an `incomplete` mark, then its edges, then delete the mark.

    K counts one arrival more than there are edges: the deletion of the mark. Step i checks version
    i of the mark, so a repeated step is refused, and no arrival is counted twice.
    """
    number, name = yield from _create(chain, task)
    if task.number:
        return  # another author has added it under the same key
    path = f"{chain.plan_path}/task-{number}"
    k = len(task.deps) + 1
    # `find` reads only the positions of one step: dependencies of earlier steps may have finished
    # since. If it raises, the incomplete task stays, and the check reports it.
    find = partial(read_finished, chain.plan_path, task)
    for step, positions in steps_of(task):
        failpoints.reach("wide_join.between")
        mark = SetData(f"{path}/{INCOMPLETE}", name, step)
        stands = yield from add_edges(chain.plan_path, task, number, positions, mark, find)
        if not stands:
            raise PlanNotFound(
                chain.plan_path, f"{task.label} vanished while its edges were added: {path}"
            )
    yield from _release(chain.plan_path, path, task, number, step_count(task), k)
    task.number = number


def step_count(task: NewTask) -> int:
    """How many steps add the edges, which is the version of `incomplete` after the last step."""
    return -(-len(task.deps) // EDGES_PER_STEP)


def steps_of(task: NewTask, first: int = 0) -> Iterator[tuple[int, Sequence[int]]]:
    """The steps from `first` on, with the positions of their edges."""
    for step in range(first, step_count(task)):
        start = step * EDGES_PER_STEP
        yield step, range(start, min(start + EDGES_PER_STEP, len(task.deps)))


def wide_join_ops(plan_path: str, task: NewTask, number: str, record: bytes, name: str) -> list[Op]:
    """Create the task without its edges. `name` names its adder, `record` includes its sources."""
    path = f"{plan_path}/task-{number}"
    ops: list[Op] = [
        Create(f"{plan_path}/task-", record, sequence=True, becomes=path),
        Create(f"{path}/ready", ready_to_bytes(len(task.deps) + 1, task.queue)),
        Create(f"{path}/{INCOMPLETE}", name.encode()),
        *key_ops(plan_path, task, number),
    ]
    if task.takes_failures:
        ops.append(Create(f"{path}/{TAKES_FAILURES}"))
    return ops


def _create(chain: AddChain, task: NewTask) -> Step[tuple[str, bytes]]:
    record = with_sources(task.record, list(map(dep_number, task.deps)))
    while True:
        number = f"{(yield from chain.learn()):010d}"
        identity, ops = chain.begin(chain.previous)
        ops += wide_join_ops(chain.plan_path, task, number, record, identity)
        answer = yield Multi(ops, names_of(chain.plan_path, [task], int(number)))
        applied = isinstance(answer, Applied)
        if not applied and answer.repeated:
            applied = identity in ((yield ReadChildren(f"{chain.plan_path}/add-ids")) or ())
        if applied:
            chain.applied(identity, 1)
            return number, identity.encode()
        yield from chain.explain(answer, task)
        if task.number:
            return task.number, b""


def add_edges(
    plan_path: str,
    task: NewTask,
    number: str,
    positions: Sequence[int],
    mark: SetData,
    find: Callable[[Sequence[int]], Step[None]],
    dying: Collection[str] = (),
) -> Step[bool]:
    """Add the edges at these positions in the step that `mark` counts. Returns False if the mark is
    gone. `find` reads the outcomes of finished dependencies. `dying`: see `task_ops`."""
    path, k = f"{plan_path}/task-{number}", len(task.deps) + 1
    arrived = SetData(f"{path}/ready", ready_to_bytes(k, task.queue))
    while True:
        ops: list[Op] = [mark]
        for position in positions:
            value, source = task.known.get(position), dep_number(task.deps[position])
            if value is not None:
                # No delivery will count this arrival.
                argument = argument_of(source, value, ended=source not in dying)
                ops.append(Create(f"{path}/arg-{position:010d}", argument))
                ops.append(arrived)
                continue
            edge = (source, number, position, k, task.rank, task.queue, task.takes_failures)
            ops += edge_ops(plan_path, *edge)
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return True
        node = yield ReadData(mark.path)
        if node is None:
            return False
        if node.version > mark.version:
            return True  # an earlier copy of this very step was applied
        if answer.reason is not Reason.NO_NODE or not answer.path.endswith("/prov-"):
            raise rejected(f"adding the edges of {path}", answer)
        yield from find(positions)


def _release(
    plan_path: str, path: str, task: NewTask, number: str, steps: int, k: int
) -> Step[None]:
    while True:
        ready, mark = yield ReadMany([ReadData(f"{path}/ready"), ReadData(f"{path}/{INCOMPLETE}")])
        if mark is None:
            return  # an earlier copy of this transaction deleted the mark
        if ready is None:
            raise PlanNotFound(plan_path, f"{task.label} vanished while its edges were added")
        ops: list[Op] = [
            Delete(f"{path}/{INCOMPLETE}", steps),
            SetData(f"{path}/ready", ready_to_bytes(k, task.queue), ready.version),
        ]
        if ready.version + 1 == k:
            ops += publish_ops(plan_path, Dependent("", number, k, task.rank, task.queue))
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return
