"""Add a join that is too wide for one transaction, in repeatable steps, behind an `incomplete`
mark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from ..errors import PlanNotFound
from . import failpoints
from .add_chain import AddChain
from .adding import NewTask, dep_number, key_ops, names_of, read_finished
from .edges import edge_ops, publish_ops
from .layout import INCOMPLETE, TAKES_FAILURES
from .records import ready_to_bytes
from .requests import (
    Applied,
    Create,
    Delete,
    Multi,
    Op,
    ReadChildren,
    ReadData,
    ReadMany,
    Reason,
    SetData,
    Step,
)
from .shared import Dependent, rejected
from .sources import argument_of, with_sources

#: A join with more edges is added in several transactions, behind an `incomplete` mark.
EDGES_PER_MULTI = 1200
#: Edges per transaction while a wide join is defined.
EDGES_PER_STEP = 600


def add_wide_join(chain: AddChain, task: NewTask) -> Step[None]:
    """Create `task` with an `incomplete` mark, then its edges, then delete the mark.

    K counts one arrival more than there are edges: the deletion of the mark. Step i demands version
    i of the mark. So a repeated step is recognised, and no arrival is counted twice.
    """
    number, name = yield from _create(chain, task)
    if task.number:
        return  # another author has added it under the same key
    path = f"{chain.plan_path}/task-{number}"
    k = len(task.deps) + 1
    # It is asked for the positions of one step: a dependency of an earlier one may have delivered
    # and finished since. If it raises, the incomplete task stays, and the check reports it.
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
    """How many steps add its edges: the version of `incomplete` behind the last of them."""
    return -(-len(task.deps) // EDGES_PER_STEP)


def steps_of(task: NewTask, first: int = 0) -> Iterator[tuple[int, Sequence[int]]]:
    """Each step from the `first` on, with the positions of its edges."""
    for step in range(first, step_count(task)):
        start = step * EDGES_PER_STEP
        yield step, range(start, min(start + EDGES_PER_STEP, len(task.deps)))


def wide_join_ops(plan_path: str, task: NewTask, number: str, record: bytes, name: str) -> list[Op]:
    """Create the task without its edges. `name` says who adds it; `record` has its sources."""
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
    """Add the edges at these positions, in the step that `mark` counts. False: there is no mark.

    `find` reads the outcomes of those dependencies that have finished. `dying`: see `task_ops`.
    """
    path, k = f"{plan_path}/task-{number}", len(task.deps) + 1
    arrived = SetData(f"{path}/ready", ready_to_bytes(k, task.queue))
    while True:
        ops: list[Op] = [mark]
        for position in positions:
            value, source = task.known.get(position), dep_number(task.deps[position])
            if value is not None:
                # Count its arrival here, because no delivery will ever count it.
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
