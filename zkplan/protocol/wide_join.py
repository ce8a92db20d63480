"""Add a join that is too wide for one transaction, in repeatable steps, behind an `incomplete`
mark."""

from __future__ import annotations

from ..errors import PlanNotFound
from . import failpoints
from .add_chain import AddChain
from .adding import NewTask, dep_number, key_ops, names_of, read_finished
from .edges import edge_ops, publish_ops
from .layout import TAKES_FAILURES
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
    SetData,
    Step,
)
from .shared import Dependent
from .sources import argument_of, with_sources

#: Edges per transaction while a wide join is defined.
EDGES_PER_STEP = 600


def add_wide_join(chain: AddChain, task: NewTask) -> Step[None]:
    """Create `task` with an `incomplete` mark, then its edges, then delete the mark.

    K counts one arrival more than there are edges: the deletion of the mark. Step i demands version
    i of the mark. So a repeated step is recognised, and no arrival is counted twice.
    """
    chunks = [
        list(range(start, min(start + EDGES_PER_STEP, len(task.deps))))
        for start in range(0, len(task.deps), EDGES_PER_STEP)
    ]
    number, name = yield from _create(chain, task)
    if task.number:
        return  # another author has added it under the same key
    path = f"{chain.plan_path}/task-{number}"
    k = len(task.deps) + 1
    for step, positions in enumerate(chunks):
        failpoints.reach("wide_join.between")
        mark = SetData(f"{path}/incomplete", name, step)
        yield from _edges(chain.plan_path, path, task, number, positions, mark)
    yield from _release(chain.plan_path, path, task, number, len(chunks), k)
    task.number = number


def _create(chain: AddChain, task: NewTask) -> Step[tuple[str, bytes]]:
    record = with_sources(task.record, list(map(dep_number, task.deps)))
    while True:
        number = f"{(yield from chain.learn()):010d}"
        path = f"{chain.plan_path}/task-{number}"
        identity, ops = chain.begin(chain.previous)
        ops += [
            Create(f"{chain.plan_path}/task-", record, sequence=True, becomes=path),
            Create(f"{path}/ready", ready_to_bytes(len(task.deps) + 1, task.queue)),
            Create(f"{path}/incomplete", identity.encode()),
            *key_ops(chain.plan_path, task, number),
        ]
        if task.takes_failures:
            ops.append(Create(f"{path}/{TAKES_FAILURES}"))
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


def _edges(
    plan_path: str, path: str, task: NewTask, number: str, positions: list[int], mark: SetData
) -> Step[None]:
    k = len(task.deps) + 1
    arrived = SetData(f"{path}/ready", ready_to_bytes(k, task.queue))
    while True:
        ops: list[Op] = [mark]
        for position in positions:
            value, source = task.known.get(position), dep_number(task.deps[position])
            if value is not None:
                # Count its arrival here, because no delivery will ever count it.
                ops.append(Create(f"{path}/arg-{position:010d}", argument_of(source, value)))
                ops.append(arrived)
                continue
            edge = (source, number, position, k, task.rank, task.queue, task.takes_failures)
            ops += edge_ops(plan_path, *edge)
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return
        node = yield ReadData(mark.path)
        if node is not None and node.version > mark.version:
            return  # an earlier copy of this very step was applied
        if node is None or not answer.path.endswith("/prov-"):
            raise PlanNotFound(
                plan_path, f"{task.label} vanished while its edges were added: {answer.path}"
            )
        # Only these positions: a dependency of an earlier step may have delivered and finished
        # since. If this raises, the incomplete task stays, and the check reports it.
        yield from read_finished(plan_path, task, positions)


def _release(
    plan_path: str, path: str, task: NewTask, number: str, steps: int, k: int
) -> Step[None]:
    while True:
        ready, mark = yield ReadMany([ReadData(f"{path}/ready"), ReadData(f"{path}/incomplete")])
        if mark is None:
            return  # an earlier copy of this transaction deleted the mark
        if ready is None:
            raise PlanNotFound(plan_path, f"{task.label} vanished while its edges were added")
        ops: list[Op] = [
            Delete(f"{path}/incomplete", steps),
            SetData(f"{path}/ready", ready_to_bytes(k, task.queue), ready.version),
        ]
        if ready.version + 1 == k:
            ops += publish_ops(plan_path, Dependent("", number, k, task.rank, task.queue))
        answer = yield Multi(ops)
        if isinstance(answer, Applied):
            return
