"""Routes that look inside a plan: its unfinished graph, and its znodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ..client import Client
from ..protocol.core.load import read_all
from ..protocol.features.task_place import placed
from ..protocol.layout import PLAN_FIXED, QUEUES, active_entry, number_of
from ..protocol.requests import ReadChildren, ReadData
from ..views.graph import PlanGraph, task_graph
from .answers import documented
from .parameters import NUMBER_MAX, PlanOf, needs, number_text

router = APIRouter(tags=["plans"], responses=documented(404, 422))
#: The most tasks that get a node each.
SINGLE_MAX = 10_000
#: Of larger plans this many tasks are read, spread evenly.
SAMPLE = 10_000
#: The most task numbers of one node: all that are read, so that a client can follow the graph by
#: events, and need not read it again.
NAMED_MAX = SAMPLE


class NodeOut(BaseModel):
    """A task, or tasks of one function in one state. `level` counts the edges before it; it is null
    if tasks of several levels share the node. `count` is the number of its tasks, `numbers` has the
    tasks that were read."""

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
    counts of tasks and edges are estimates."""

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
            ge=0, le=SINGLE_MAX, description="With more unfinished tasks, similar ones are grouped."
        ),
    ] = 300,
) -> GraphOut:
    """The graph of the unfinished tasks of a plan."""
    found = task_graph(plan.client, plan.path, nodes, SAMPLE)
    if isinstance(found, PlanGraph):
        return _grouped(found)
    singles = []
    for each in found.tasks:
        number = int(each.number)
        singles.append(NodeOut(**each._asdict(), id=number, count=1, numbers=[number]))
    edges = [EdgeOut(source=int(a), target=int(b), count=1) for a, b in found.edges]
    return GraphOut(grouped=False, sampled=False, nodes=singles, edges=edges)


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


OfTask = Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="Only znodes of this task.")]
#: The most children of a task that are shown.
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
    """Znodes. `more` counts those that are left out."""

    items: list[ZnodeOut]
    more: int


@router.get("/plans/{plan}/znodes", dependencies=[needs("read")])
def list_znodes(plan: PlanOf, task: OfTask = None) -> Znodes:
    """The znodes of a plan, or of one of its tasks: paths and sizes, never their data."""
    client: Client = plan.client
    if task is not None:
        return _shown(client, *_of_task(client, plan.path, number_text(task)))
    names = ("ready", "done", *PLAN_FIXED, QUEUES)
    active = active_entry(plan.path)
    return _shown(client, [plan.path, *(f"{plan.path}/{name}" for name in names), active], 0)


def _of_task(client: Client, plan_path: str, number: str) -> tuple[list[str], int]:
    path = f"{plan_path}/task-{number}"
    children = sorted(client.transport.ask(ReadChildren(path)) or ())
    place = client.transport.run(placed(client.paths, number_of(plan_path))).get(number)
    around = [f"{plan_path}/{index}/{number}" for index in ("dead", "results")]
    if place is not None and place.state == "running":
        around.append(place.path)
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
