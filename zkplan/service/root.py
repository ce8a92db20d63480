"""Routes of what is of the whole root: overview, queues, limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from ..client import Client
from ..inspection.overview import Overview
from ..protocol.limits import PERIODS_S, SIZE_MAX, LimitStatus, Permit
from .asked import ClientOf, needs
from .etags import IfMatch, NotModified, Tagged, demand
from .fields import Strict
from .plan_models import Changed
from .problems import Problem, documented

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
