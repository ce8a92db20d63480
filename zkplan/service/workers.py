"""Routes of workers: who lives, what each holds, and orders for them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel

from ..client import Client
from ..controls.orders import find_worker, tell_worker
from ..inspection.across import task_names
from ..inspection.held import Held, held_tasks
from ..protocol.worker_record import WorkerRecord, WorkerState
from .asked import ClientOf, needs
from .problems import documented

router = APIRouter(tags=["workers"], responses=documented(404, 409, 422))
WorkerId = Annotated[
    str, Path(min_length=1, max_length=200, description="Its ID, or the beginning.")
]


class WorkerOut(BaseModel):
    """A living worker. `claims` counts its tasks, `slots` how many it runs at a time, `abandoned`
    the functions that it has given up and that still hold a thread."""

    id: str
    host: str
    pid: int
    slots: int
    started: float
    claims: int
    queues: list[str]
    version: str
    isolation: str
    state: Literal["running", "paused", "draining"]
    abandoned: int


class HeldOut(BaseModel):
    """A task that a worker holds: `running`, `claimed ahead`, or `left behind` by a lost worker."""

    plan: int
    number: int
    name: str | None
    attempt: int
    since: float
    queue: str
    state: Literal["running", "claimed ahead", "left behind"]


class WorkerDetails(WorkerOut):
    """A worker with the tasks that it holds, the oldest claim first."""

    held: list[HeldOut]


class Workers(BaseModel):
    """The living workers, by ID."""

    items: list[WorkerOut]


def _out(worker: WorkerRecord) -> WorkerOut:
    facts = {name: getattr(worker, name) for name in WorkerOut.model_fields}
    return WorkerOut(**facts | {"queues": list(worker.queues)})


@router.get("/workers", dependencies=[needs("read")])
def list_workers(client: ClientOf) -> Workers:
    """The workers that are registered under the root."""
    return Workers(items=[_out(worker) for worker in client.workers()])


@router.get("/workers/{worker}", dependencies=[needs("read")])
def show_worker(client: ClientOf, worker: WorkerId) -> WorkerDetails:
    """One worker, and the tasks that it holds."""
    found = find_worker(client, worker)
    held = client.transport.run(held_tasks(client.paths)).claims
    mine = [each for each in held if each.worker == found.id]
    names = task_names(client, [(each.plan, each.task) for each in mine])
    shown = [_held(each, names.get((each.plan, each.task))) for each in mine]
    return WorkerDetails(**_out(found).model_dump(), held=shown)


def _held(held: Held, name: str | None) -> HeldOut:
    shown = {key: getattr(held, key) for key in ("attempt", "since", "queue", "state")}
    return HeldOut(plan=int(held.plan), number=int(held.task), name=name, **shown)


@router.post("/workers/{worker}/drain", dependencies=[needs("operate")])
def drain_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Have it finish what runs, hand back the rest, and end. It hears of it within seconds."""
    return _told(client, worker, "draining")


@router.post("/workers/{worker}/pause", dependencies=[needs("operate")])
def pause_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Have it claim nothing more until it is resumed."""
    return _told(client, worker, "paused")


@router.post("/workers/{worker}/resume", dependencies=[needs("operate")])
def resume_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Let a paused worker claim again."""
    return _told(client, worker, "running")


def _told(client: Client, worker: str, state: WorkerState) -> WorkerOut:
    return _out(tell_worker(client, worker, state)._replace(state=state))
