"""Routes of schedules: list, set, show, pause, resume, trigger and remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from ..author.functions import NamedFunction
from ..client import Client
from ..errors import InvalidTask
from ..schedules import Schedule, ScheduleInfo, find, infos
from .answers import NOT_MODIFIED, Tagged, documented
from .parameters import ClientOf, Strict, needs, record_of
from .plans import Changed, PlanOut, plan_out
from .task_adds import FunctionTaskIn

router = APIRouter(tags=["schedules"], responses=documented(404, 409, 422))
ScheduleName = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$", description="The name of the schedule.")
]
Overlap = Literal["skip", "queue", "cancel_previous", "allow"]
CatchUp = Literal["latest", "all", "none"]


class ScheduleIn(Strict):
    """A schedule. `builder` is MODULE:FUNCTION; this function adds the tasks of each plan."""

    cron: Annotated[str, Field(min_length=1, max_length=200)]
    builder: Annotated[str, FunctionTaskIn.model_fields["function"]]
    args: list[Any] = Field(default_factory=list)
    kwargs: dict[str, Any] = Field(default_factory=dict)
    timezone: Annotated[str, Field(max_length=100)] = "UTC"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    jitter: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    on_failure: Literal["hold", "cascade"] = "cascade"
    retention: Annotated[float, Field(ge=0, le=1e9)] | None = None


class FiringOut(BaseModel):
    """What became of one due time. `plan` is null if no plan was made. `outcome` is the state of
    the plan now, and null if it has none, or was removed."""

    due: float
    when: float
    plan: int | None
    worker: str
    how: str
    outcome: str | None = None


class ScheduleOut(BaseModel):
    """A schedule, and what became of its latest due times. `next` is null while it is paused."""

    name: str
    cron: str
    timezone: str
    builder: str
    overlap: str
    catch_up: str
    jitter: float
    paused: bool
    next: float | None
    fired: list[FiringOut]
    unread: str = ""


class Schedules(BaseModel):
    """The schedules, by name."""

    items: list[ScheduleOut]


def _out(info: ScheduleInfo) -> ScheduleOut:
    fired = [
        FiringOut(
            due=each.due_ms / 1000,
            when=each.when_ms / 1000,
            plan=int(each.plan) if each.plan.isdecimal() else None,
            worker=each.worker,
            how=each.how,
            outcome=outcome or None,
        )
        for each, outcome in zip(info.fired, info.outcomes, strict=True)
    ]
    due = None if info.next is None else info.next.timestamp()
    return ScheduleOut(**info._asdict() | {"next": due, "fired": fired})


@router.get("/schedules", dependencies=[needs("read")])
def list_schedules(client: ClientOf) -> Schedules:
    """All schedules. `unread` says why a schedule cannot be read: then only its name is known."""
    return Schedules(items=[_out(each) for each in infos(client)])


@router.get("/schedules/{name}", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_schedule(client: ClientOf, name: ScheduleName, tagged: Tagged) -> ScheduleOut:
    """One schedule."""
    return tagged(_out(find(client, name).info()))


@router.put("/schedules/{name}", dependencies=[needs("author")])
def set_schedule(client: ClientOf, name: ScheduleName, wanted: ScheduleIn) -> ScheduleOut:
    """Make a schedule, or change the one with this name. Workers import its builder."""
    given = {key: value for key, value in wanted if key not in ("cron", "builder")}
    try:
        builder = NamedFunction(wanted.builder)
    except ValueError as error:
        raise InvalidTask("", str(error)) from None
    return _out(client.schedule(name, wanted.cron, builder, **given).info())


def _act(act: Callable[[Schedule], object], client: Client, name: str) -> ScheduleOut:
    found = find(client, name)
    act(found)
    return _out(found.info())


@router.post("/schedules/{name}/pause", dependencies=[needs("operate")])
def pause_schedule(client: ClientOf, name: ScheduleName) -> ScheduleOut:
    """Skip the due times of a schedule until it is resumed. Its plans go on."""
    return _act(Schedule.pause, client, name)


@router.post("/schedules/{name}/resume", dependencies=[needs("operate")])
def resume_schedule(client: ClientOf, name: ScheduleName) -> ScheduleOut:
    """Let a paused schedule go on with the next due time."""
    return _act(Schedule.resume, client, name)


@router.post("/schedules/{name}/trigger", status_code=201, dependencies=[needs("operate")])
def trigger_schedule(client: ClientOf, name: ScheduleName) -> PlanOut:
    """Make a plan now, whether the schedule is due or not."""
    plan = find(client, name).trigger()
    return plan_out(plan.status(), record_of(plan))


@router.delete("/schedules/{name}", dependencies=[needs("operate")])
def remove_schedule(client: ClientOf, name: ScheduleName) -> Changed:
    """Delete the schedule. Its plans stay, and go on."""
    find(client, name).remove()
    return Changed(changed=True)
