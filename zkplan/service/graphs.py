"""The route of the graph that is left of a plan: single tasks, or alike ones in one node."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ..inspection.graph import PlanGraph, task_graph
from .asked import PlanOf, needs
from .problems import documented

router = APIRouter(tags=["plans"], responses=documented(404, 422))
#: The most tasks that are nodes of their own.
SINGLE_MAX = 10_000
#: Of larger plans so many tasks are read, spread evenly.
SAMPLE = 10_000
#: How many numbers of its tasks a node names: all that are read, so that whoever has the graph can
#: follow it by events, and need not read it again.
NAMED_MAX = SAMPLE


class NodeOut(BaseModel):
    """A task, or tasks of one function in one state. `level` counts the edges before it; null where
    tasks of several levels share the node. `count` is how many tasks it stands for, `numbers` are
    those of some of them."""

    id: int
    name: str | None
    function: str
    state: str
    level: int | None
    count: int
    numbers: list[int]


class EdgeOut(BaseModel):
    """Edges from one node to another, by their ids."""

    source: int
    target: int
    count: int


class GraphOut(BaseModel):
    """The unfinished tasks of a plan. `grouped`: nodes stand for several tasks. `sampled`: the
    numbers of tasks and edges are estimates."""

    grouped: bool
    sampled: bool
    nodes: list[NodeOut]
    edges: list[EdgeOut]


@router.get("/plans/{plan}/graph", dependencies=[needs("read")])
def show_graph(
    plan: PlanOf,
    nodes: Annotated[
        int,
        Query(
            ge=0, le=SINGLE_MAX, description="With more unfinished tasks, alike ones are grouped."
        ),
    ] = 300,
) -> GraphOut:
    """The graph that is left of a plan. A finished task is no part of it."""
    found = task_graph(plan.client, plan.path, nodes, SAMPLE)
    if isinstance(found, PlanGraph):
        return _grouped(found)
    shown = []
    for each in found.tasks:
        number, facts = int(each.number), each._asdict()
        del facts["number"]
        shown.append(NodeOut(**facts, id=number, count=1, numbers=[number]))
    ways = [EdgeOut(source=int(a), target=int(b), count=1) for a, b in found.edges]
    return GraphOut(grouped=False, sampled=False, nodes=shown, edges=ways)


def _grouped(graph: PlanGraph) -> GraphOut:
    nodes = [
        NodeOut(
            id=index,
            name=None,
            function=box.function,
            state=box.state,
            level=box.level,
            count=graph.tasks_of(box),
            numbers=[int(each) for each in box.tasks[:NAMED_MAX]],
        )
        for index, box in enumerate(graph.boxes)
    ]
    edges = [EdgeOut(source=a, target=b, count=many) for (a, b), many in graph.edges.items()]
    return GraphOut(grouped=True, sampled=graph.scale != 1.0, nodes=nodes, edges=edges)
