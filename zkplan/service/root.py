"""Routes of the whole root: overview, queues, limits, workers, and the caller."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from ..author.operator_actions import find_worker, order_worker
from ..client import Client
from ..protocol.core.workers import WorkerState
from ..protocol.features.limits import PERIODS_S, SIZE_MAX
from ..views.overview import Overview
from ..views.root_look import PlanNow
from ..views.unfinished import task_names
from ..views.workers import held_tasks
from .answers import (
    NOT_MODIFIED,
    IfMatch,
    NumberOrNull,
    NumberOut,
    Out,
    Problem,
    Tagged,
    demand,
    documented,
)
from .parameters import ClientOf, Strict, needs
from .plans import Changed
from .tokens import ROLES, Caller, Role

router = APIRouter(tags=["root"], responses=documented(404, 409, 422))
LimitName = Annotated[
    str, Path(pattern=r"^[a-z0-9._-]{1,40}$", description="The name of the limit.")
]
Per = Literal["second", "minute", "hour", "day"]


class ActivePlanOut(BaseModel):
    """An active plan. `rate` is in tasks a second. At that rate it ends in `left` seconds."""

    number: int
    name: str
    state: str
    tasks: int
    added: int
    finished: int
    runnable: int
    dead: int
    running: int
    ahead: int
    delayed: int | None
    gated: int | None
    rate: float | None
    left: float | None


class QueueNowOut(Out):
    """A queue of active plans: tasks that are runnable, run, or are claimed ahead."""

    name: str
    runnable: int
    running: int
    ahead: int
    workers: int


class OverviewOut(BaseModel):
    """A whole root at a glance. `others` counts plans that are not active, `failed` those of them
    that ended with failed tasks, or at their deadline. `late` names what needs attention,
    failed plans first."""

    root: str
    when: float
    plans: list[ActivePlanOut]
    queues: list[QueueNowOut]
    workers: int
    slots: int
    held: int
    late: list[str]
    others: int
    failed: int
    unreadable: int
    rate: float | None


@router.get("/overview", dependencies=[needs("read")])
async def overview(request: Request, client: ClientOf) -> OverviewOut:
    """Active plans, queues and workers with rates. It is read at most once a second."""
    seen: Overview = await request.app.state.watcher.overview()
    facts = seen._asdict() | {
        "plans": [_active_plan(each) for each in seen.plans],
        "queues": [QueueNowOut.model_validate(each) for each in seen.queues],
        "workers": len(seen.workers),
        "late": [each.text for each in seen.late],
    }
    slots = sum(each.record.slots for each in seen.workers)
    return OverviewOut(root=client.root, slots=slots, **facts)


def _active_plan(seen: PlanNow) -> ActivePlanOut:
    facts = seen.status._asdict() | seen._asdict()
    facts |= {"number": int(seen.number), "finished": seen.status.finished}
    return ActivePlanOut(**facts)


class QueueOut(Out):
    """A queue of all active plans. Its oldest runnable task has waited for `oldest` seconds."""

    name: str
    waiting: int
    runnable: int
    running: int
    workers: list[str]
    oldest: float | None


class Queues(BaseModel):
    """The queues, by name."""

    items: list[QueueOut]


@router.get("/queues", dependencies=[needs("read")])
def list_queues(client: ClientOf) -> Queues:
    """The queues of active plans, with their tasks and the workers that serve them."""
    return Queues(items=[QueueOut.model_validate(each) for each in client.queues()])


class PermitOut(Out):
    """A permit that is held, by a task on a worker."""

    number: int
    worker: str
    plan: NumberOrNull
    task: NumberOrNull
    since: float


class LimitOut(Out):
    """How many tasks may run at the same time, or, with a period in seconds, start within it.

    `unread` says why its size is not known; no task is claimed under it then.
    """

    name: str
    size: int
    period: float | None
    held: list[PermitOut]
    unread: str = ""


class LimitSetting(BaseModel):
    """The setting of a limit. If-Match takes its tag."""

    name: str
    size: int
    per: Per | None


class Limits(BaseModel):
    """The limits, by name."""

    items: list[LimitOut]


class LimitIn(Strict):
    """The size of a limit, and for a rate the period in which this many tasks may start."""

    size: Annotated[int, Field(ge=0, le=SIZE_MAX)]
    per: Per | None = None


def _setting(client: Client, name: str) -> LimitSetting | None:
    found = next((each for each in client.limits() if each.name == name), None)
    if found is None:
        return None
    per: Any = next((per for per, seconds in PERIODS_S.items() if seconds == found.period), None)
    return LimitSetting(name=name, size=found.size, per=per)


@router.get("/limits", dependencies=[needs("read")])
def list_limits(client: ClientOf) -> Limits:
    """The limits, each with the permits that are held."""
    return Limits(items=[LimitOut.model_validate(each) for each in client.limits()])


@router.get("/limits/{name}", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_limit(client: ClientOf, name: LimitName, tagged: Tagged) -> LimitSetting:
    """The setting of one limit."""
    found = _setting(client, name)
    if found is None:
        raise Problem(404, "limit-not-found", f"there is no limit {name}", "Set it with PUT.")
    return tagged(found)


@router.put("/limits/{name}", dependencies=[needs("operate")], responses=documented(412))
def set_limit(
    client: ClientOf, name: LimitName, wanted: LimitIn, if_match: IfMatch = None
) -> LimitSetting:
    """Create the limit, or change its size. Running tasks go on."""
    if if_match is not None:
        demand(if_match, _setting(client, name))
    client.set_limit(name, wanted.size, per=wanted.per)
    return LimitSetting(name=name, size=wanted.size, per=wanted.per)


@router.delete("/limits/{name}", dependencies=[needs("operate")], responses=documented(412))
def remove_limit(client: ClientOf, name: LimitName, if_match: IfMatch = None) -> Changed:
    """Remove a limit. Tasks that name it wait until it is set again."""
    if if_match is not None:
        demand(if_match, _setting(client, name))
    return Changed(changed=client.remove_limit(name))


workers_router = APIRouter(tags=["workers"], responses=documented(404, 409, 422))
WorkerId = Annotated[
    str, Path(min_length=1, max_length=200, description="The worker's ID, or its beginning.")
]


class WorkerOut(Out):
    """A living worker. `claims` counts its tasks, `slots` how many it runs at a time, `abandoned`
    the functions that it has given up and that still occupy a thread."""

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

    plan: NumberOut
    number: NumberOut
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


@workers_router.get("/workers", dependencies=[needs("read")])
def list_workers(client: ClientOf) -> Workers:
    """The workers that are registered under the root."""
    return Workers(items=[WorkerOut.model_validate(each) for each in client.workers()])


@workers_router.get("/workers/{worker}", dependencies=[needs("read")])
def show_worker(client: ClientOf, worker: WorkerId) -> WorkerDetails:
    """One worker, and the tasks that it holds."""
    found = find_worker(client, worker)
    held = client.transport.run(held_tasks(client.paths)).claims
    mine = [each for each in held if each.worker == found.id]
    names = task_names(client, [(each.plan, each.task) for each in mine])
    shown = [
        HeldOut(**each._asdict(), number=int(each.task), name=names.get((each.plan, each.task)))
        for each in mine
    ]
    return WorkerDetails(**WorkerOut.model_validate(found).model_dump(), held=shown)


@workers_router.post("/workers/{worker}/drain", dependencies=[needs("operate")])
def drain_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Let a worker finish its running tasks, hand back the rest, and end, starting in seconds."""
    return _ordered(client, worker, "draining")


@workers_router.post("/workers/{worker}/pause", dependencies=[needs("operate")])
def pause_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Let a worker claim nothing until it is resumed."""
    return _ordered(client, worker, "paused")


@workers_router.post("/workers/{worker}/resume", dependencies=[needs("operate")])
def resume_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Let a paused worker claim again."""
    return _ordered(client, worker, "running")


def _ordered(client: Client, worker: str, state: WorkerState) -> WorkerOut:
    return WorkerOut.model_validate(order_worker(client, worker, state)._replace(state=state))


caller_router = APIRouter(tags=["root"], responses=documented())


class CallerOut(BaseModel):
    """The caller: the name of its token, its roles, and the root that is served."""

    name: str
    roles: list[Role]
    root: str


@caller_router.get("/caller", dependencies=[needs("read")])
async def show_caller(request: Request, client: ClientOf) -> CallerOut:
    """The name and the roles of the token of this request."""
    caller: Caller = request.state.caller
    roles = [role for role in ROLES if caller.may(role)]
    return CallerOut(name=caller.name, roles=roles, root=client.root)
