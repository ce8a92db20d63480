"""Edges: their record, and the operations: define one, deliver along it, publish its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import PayloadUndecodable
from .records import from_json, rank_in, text_in
from .requests import Create, Delete, Op, SetData
from .shared import Dependent

#: What the record of an edge holds besides, if its dependent takes a failure as well.
FAILS = ',"fails":true'


class Edge(NamedTuple):
    """The data of a `prov-`: the dependent's `dep-`, its number of edges and its rank.

    `fails` says that the dependent takes a failure as well, so that a dead task delivers it.
    """

    task: str
    position: str
    k: int
    rank: str
    fails: bool = False

    def to_bytes(self) -> bytes:
        # Written by hand: json.dumps costs six times as much, and edges are the most frequent
        # record.
        return (
            f'{{"dep":"task-{self.task}/dep-{self.position}","k":{self.k},'
            f'"entry":"{self.rank}-{self.task}"{FAILS if self.fails else ""}}}'
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Edge:
        """`k` is -1 and `rank` empty where another client wrote only the path of the dep."""
        value = from_json(data, "an edge")
        dep = text_in(value.get("dep"))
        task, position = dep[-25:-15], dep[-10:]
        numbers = task + position
        if len(numbers) != 20 or not (numbers.isascii() and numbers.isdecimal()):
            raise PayloadUndecodable(f"an edge names no dep: {dep!r:.100}")
        if dep[-15:-10] != "/dep-":
            raise PayloadUndecodable(f"an edge names no dep: {dep!r:.100}")
        k = value.get("k")
        known = k if isinstance(k, int) and 0 <= k < 2**31 else -1
        return cls(task, position, known, rank_in(value.get("entry")), value.get("fails") is True)


def edge_ops(
    plan_path: str, source: str, task: str, position: int, k: int, rank: str, fails: bool = False
) -> list[Op]:
    """Let `task` wait for `source` at `position`: both ends of the edge, which come together.

    `fails`: it takes a failure as well.
    """
    # The data is Edge.to_bytes without the tuple, because it runs once for every edge of a plan.
    more = FAILS if fails else ""
    data = f'{{"dep":"task-{task}/dep-{position:010d}","k":{k},"entry":"{rank}-{task}"{more}}}'
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
        SetData(f"{dependent}/ready", b"%d" % edge.k),
        Delete(f"{task_path}/{prov}"),
    ]


def publish_ops(plan_path: str, target: Dependent, *, entry: bool = True) -> list[Op]:
    """Publish a task to which all values have come: raise K to K+1, which only one can do.

    Without an `entry` a claim takes its place.
    """
    k = target.k
    ops: list[Op] = [SetData(f"{plan_path}/task-{target.task}/ready", b"%d" % k, k)]
    if entry:
        ops.append(Create(f"{plan_path}/runnable/{target.entry.name}"))
    return ops


def is_added(path: str, plan_path: str, edges: Sequence[tuple[str, Edge]]) -> bool:
    """Whether a refused path is of tasks that are added, not of a delivery along `edges`."""
    own = {f"{plan_path}/task-{edge.task}" for _, edge in edges}
    return path.endswith(("/prov-", "/ready")) and path.rpartition("/")[0] not in own
