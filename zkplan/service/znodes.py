"""The route of the znodes behind a plan or a task: their paths and sizes, never their data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel

from ..client import Client
from ..inspection.unfinished import places_of
from ..protocol.layout import PLAN_FIXED, QUEUES, active_entry
from ..protocol.load import read_all
from ..protocol.requests import ReadChildren, ReadData
from .asked import NUMBER_MAX, PlanOf, needs, number_text
from .problems import documented

router = APIRouter(tags=["plans"], responses=documented(404, 422))
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


@router.get("/plans/{plan}/znodes", dependencies=[needs("read")])
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
