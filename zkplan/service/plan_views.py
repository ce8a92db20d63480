"""Routes that look inside a plan: its remaining graph, and the znodes behind it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ..client import Client
from ..protocol.core.load import read_all
from ..protocol.layout import PLAN_FIXED, QUEUES, active_entry
from ..protocol.requests import ReadChildren, ReadData
from ..views.graph import PlanGraph, task_graph
from ..views.task_lists import places_of
from .answers import documented
from .parameters import NUMBER_MAX, PlanOf, needs, number_text

graph_router = APIRouter(tags=["plans"], responses=documented(404, 422))
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


@graph_router.get("/plans/{plan}/graph", dependencies=[needs("read")])
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


# ---- The route of the znodes behind a plan or a task: their paths and sizes, never their data.


znodes_router = APIRouter(tags=["plans"], responses=documented(404, 422))
OfTask = Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="Those of one task.")]
#: Of the children of a task so many are shown.
CHILDREN_MAX = 500


class ZnodeOut(BaseModel):
    """A znode: its path, the bytes of its data, its children, its version, and its times."""

    path: str
    bytes: int
    children: int
    version: int
    created: float
    modified: float


class Znodes(BaseModel):
    """The znodes behind a thing; `more` counts those that are left out."""

    items: list[ZnodeOut]
    more: int


@znodes_router.get("/plans/{plan}/znodes", dependencies=[needs("read")])
def list_znodes(
    plan: PlanOf,
    task: OfTask = None,
) -> Znodes:
    """The znodes behind a plan, or behind one of its tasks."""
    client: Client = plan.client
    if task is not None:
        return _shown(client, *_of_task(client, plan.path, number_text(task)))
    names = ("ready", "done", *PLAN_FIXED, QUEUES)
    active = active_entry(plan.path)
    return _shown(client, [plan.path, *(f"{plan.path}/{name}" for name in names), active], 0)


def _of_task(client: Client, plan_path: str, number: str) -> tuple[list[str], int]:
    path = f"{plan_path}/task-{number}"
    children = sorted(client.transport.ask(ReadChildren(path)) or ())
    place = client.transport.run(places_of(client.paths, plan_path)).get(number)
    around = [f"{plan_path}/{index}/{number}" for index in ("dead", "results")]
    if place is not None and place.claim:
        around.append(place.claim)
    shown = [f"{path}/{name}" for name in children[:CHILDREN_MAX]]
    return [path, *shown, *around], max(0, len(children) - CHILDREN_MAX)


def _shown(client: Client, paths: list[str], more: int) -> Znodes:
    nodes = client.transport.run(read_all([ReadData(path) for path in paths], strict=False))
    items = [
        ZnodeOut(
            path=path,
            bytes=len(node.data),
            children=node.child_count,
            version=node.version,
            created=node.created_ms / 1000,
            modified=node.modified_ms / 1000,
        )
        for path, node in zip(paths, nodes, strict=True)
        if node is not None
    ]
    return Znodes(items=items, more=more)
