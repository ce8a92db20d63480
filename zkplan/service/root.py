"""Routes of the whole root: overview, queues, limits, workers, and what the caller's token
allows."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from ..author.operator_actions import find_worker, tell_worker
from ..client import Client
from ..protocol.core.workers import WorkerRecord, WorkerState
from ..protocol.features.limits import PERIODS_S, SIZE_MAX, LimitStatus, Permit
from ..views.find_tasks import task_names
from ..views.overview import Overview
from ..views.workers import Held, held_tasks
from .answers import IfMatch, NotModified, Problem, Tagged, demand, documented
from .parameters import ClientOf, Strict, needs
from .plans import Changed
from .tokens import ROLES, Caller, Role

router = APIRouter(tags=["root"], responses=documented(404, 409, 422))
LimitName = Annotated[
    str, Path(pattern=r"^[a-z0-9._-]{1,40}$", description="The name of the limit.")
]
Per = Literal["second", "minute", "hour", "day"]


class ActivePlanOut(BaseModel):
    """An active plan. `rate` is in tasks a second, `left` in seconds until its end at that rate."""

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


class QueueNowOut(BaseModel):
    """A queue of active plans: tasks that are runnable, run, or are claimed ahead."""

    name: str
    runnable: int
    running: int
    ahead: int
    workers: int


class OverviewOut(BaseModel):
    """All of a root at a glance. `others` counts plans that are not active, `failed` those of them
    that ended with failed tasks, or at their deadline: `late` names the latest."""

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


def overview_out(root: str, seen: Overview) -> OverviewOut:
    """The overview as it is shown."""
    plans = []
    for each in seen.plans:
        names = ("name", "state", "tasks", "added", "finished", "runnable", "dead")
        facts = {name: getattr(each.status, name) for name in names}
        more = ("running", "ahead", "delayed", "gated", "rate", "left")
        facts |= {name: getattr(each, name) for name in more}
        plans.append(ActivePlanOut(number=int(each.number), **facts))
    return OverviewOut(
        root=root,
        when=seen.when,
        plans=plans,
        queues=[QueueNowOut(**each._asdict()) for each in seen.queues],
        workers=len(seen.workers),
        slots=sum(each.record.slots for each in seen.workers),
        held=seen.held,
        late=[each.text for each in seen.late],
        others=seen.others,
        failed=seen.failed,
        unreadable=seen.unreadable,
        rate=seen.rate,
    )


@router.get("/overview", dependencies=[needs("read")])
async def overview(request: Request, client: ClientOf) -> OverviewOut:
    """Active plans, queues and workers with rates. All who ask within a second see one look."""
    seen = await request.app.state.watcher.overview()
    return overview_out(client.root, seen)


class QueueOut(BaseModel):
    """A queue of all active plans. `oldest` is how many seconds its oldest runnable task has
    stood."""

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
    """What waits in each queue, and who serves it."""
    found = [each._asdict() | {"workers": list(each.workers)} for each in client.queues()]
    return Queues(items=[QueueOut(**facts) for facts in found])


class PermitOut(BaseModel):
    """A permit that is held, by a task on a worker."""

    number: int
    worker: str
    plan: int | None
    task: int | None
    since: float


class LimitOut(BaseModel):
    """A limit of what runs at the same time, or, with a period in seconds, of what starts in it.

    `unread` says why its size is not known; nothing is claimed under it then.
    """

    name: str
    size: int
    period: float | None
    held: list[PermitOut]
    unread: str = ""


class LimitSetting(BaseModel):
    """What a limit is set to; its tag is that for If-Match."""

    name: str
    size: int
    per: Per | None


class Limits(BaseModel):
    """The limits, by name."""

    items: list[LimitOut]


class LimitIn(Strict):
    """The size of a limit, and for a rate the time in which so many tasks may start."""

    size: Annotated[int, Field(ge=0, le=SIZE_MAX)]
    per: Per | None = None


def _limit(found: LimitStatus) -> LimitOut:
    held = [_permit(each) for each in found.held]
    facts = found._asdict() | {"held": held}
    return LimitOut(**facts)


def _permit(permit: Permit) -> PermitOut:
    numbers: dict[str, Any] = {
        name: int(text) if (text := getattr(permit, name)).isdecimal() else None
        for name in ("plan", "task")
    }
    return PermitOut(number=permit.number, worker=permit.worker, since=permit.since, **numbers)


def _setting(client: Client, name: str) -> LimitSetting | None:
    found = next((each for each in client.limits() if each.name == name), None)
    if found is None:
        return None
    per: Any = next((per for per, seconds in PERIODS_S.items() if seconds == found.period), None)
    return LimitSetting(name=name, size=found.size, per=per)


@router.get("/limits", dependencies=[needs("read")])
def list_limits(client: ClientOf) -> Limits:
    """The limits, each with the permits that are held."""
    return Limits(items=[_limit(each) for each in client.limits()])


@router.get("/limits/{name}", dependencies=[needs("read")], responses=NotModified)
def show_limit(client: ClientOf, name: LimitName, tagged: Tagged) -> LimitSetting:
    """What one limit is set to."""
    found = _setting(client, name)
    if found is None:
        raise Problem(404, "limit-not-found", f"there is no limit {name}", "Set it with PUT.")
    return tagged(found)


@router.put("/limits/{name}", dependencies=[needs("operate")], responses=documented(412))
def set_limit(
    client: ClientOf, name: LimitName, wanted: LimitIn, if_match: IfMatch = None
) -> LimitSetting:
    """Make the limit, or change its size. No task that runs is stopped."""
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


# ---- Routes of workers: who lives, what each holds, and orders for them.


workers_router = APIRouter(tags=["workers"], responses=documented(404, 409, 422))
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


@workers_router.get("/workers", dependencies=[needs("read")])
def list_workers(client: ClientOf) -> Workers:
    """The workers that are registered under the root."""
    return Workers(items=[_out(worker) for worker in client.workers()])


@workers_router.get("/workers/{worker}", dependencies=[needs("read")])
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


@workers_router.post("/workers/{worker}/drain", dependencies=[needs("operate")])
def drain_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Have it finish what runs, hand back the rest, and end. It hears of it within seconds."""
    return _told(client, worker, "draining")


@workers_router.post("/workers/{worker}/pause", dependencies=[needs("operate")])
def pause_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Have it claim nothing more until it is resumed."""
    return _told(client, worker, "paused")


@workers_router.post("/workers/{worker}/resume", dependencies=[needs("operate")])
def resume_worker(client: ClientOf, worker: WorkerId) -> WorkerOut:
    """Let a paused worker claim again."""
    return _told(client, worker, "running")


def _told(client: Client, worker: str, state: WorkerState) -> WorkerOut:
    return _out(tell_worker(client, worker, state)._replace(state=state))


# ---- The route that tells a caller what its token allows.


caller_router = APIRouter(tags=["root"], responses=documented())


class CallerOut(BaseModel):
    """Who asks: the name that its token was given, its roles, and the root that is served."""

    name: str
    roles: list[Role]
    root: str


@caller_router.get("/caller", dependencies=[needs("read")])
async def show_caller(request: Request, client: ClientOf) -> CallerOut:
    """What the token of this request allows."""
    caller: Caller = request.state.caller
    roles = [role for role in ROLES if caller.may(role)]
    return CallerOut(name=caller.name, roles=roles, root=client.root)
