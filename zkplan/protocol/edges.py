"""The operations on edges: define one, deliver along it, publish the task at its end."""

from __future__ import annotations

from collections.abc import Sequence

from .layout import DEFAULT_QUEUE, entry_path
from .records import Edge, ready_to_bytes
from .requests import Create, Delete, Op, SetData
from .shared import Dependent


def edge_ops(
    plan_path: str,
    source: str,
    task: str,
    position: int,
    k: int,
    rank: str,
    queue: str = DEFAULT_QUEUE,
) -> list[Op]:
    """Let `task` wait for `source` at `position`: both ends of the edge, which come together."""
    # The data is Edge.to_bytes without the tuple, because it runs once for every edge of a plan.
    named = "" if queue == DEFAULT_QUEUE else f',"queue":"{queue}"'
    data = f'{{"dep":"task-{task}/dep-{position:010d}","k":{k},"entry":"{rank}-{task}"{named}}}'
    return [
        Create(f"{plan_path}/task-{task}/dep-{position:010d}", source.encode()),
        Create(f"{plan_path}/task-{source}/prov-", data.encode(), sequence=True),
    ]


def delivery_ops(plan_path: str, task_path: str, prov: str, edge: Edge, value: bytes) -> list[Op]:
    """Deliver `value` along an edge of the task at `task_path`; the third operation counts it."""
    dependent = f"{plan_path}/task-{edge.task}"
    return [
        Create(f"{dependent}/arg-{edge.position}", value),
        Delete(f"{dependent}/dep-{edge.position}"),
        SetData(f"{dependent}/ready", ready_to_bytes(edge.k, edge.queue)),
        Delete(f"{task_path}/{prov}"),
    ]


def publish_ops(plan_path: str, target: Dependent, *, entry: bool = True) -> list[Op]:
    """Publish a task to which all values have come: raise K to K+1, which only one can do.

    Without an `entry` a claim takes its place.
    """
    k, queue = target.k, target.queue
    ops: list[Op] = [SetData(f"{plan_path}/task-{target.task}/ready", ready_to_bytes(k, queue), k)]
    if entry:
        ops.append(Create(entry_path(plan_path, queue, target.entry)))
    return ops


def is_added(path: str, plan_path: str, edges: Sequence[tuple[str, Edge]]) -> bool:
    """Whether a refused path is of tasks that are added, not of a delivery along `edges`."""
    own = {f"{plan_path}/task-{edge.task}" for _, edge in edges}
    return path.endswith(("/prov-", "/ready")) and path.rpartition("/")[0] not in own
