"""Routes of plans: list, create, show, explain, pause, resume, cancel, retry and remove them."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from operator import gt, lt
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from ..client import Client
from ..errors import PlanNotFound, ZkplanError
from ..plan import Plan
from ..protocol.core.plan_indexes import list_active, list_failed
from ..protocol.core.plan_life import PlanStatus, status
from ..protocol.core.plans_and_queues import plan_records
from ..protocol.features.limits import SIZE_MAX
from ..protocol.layout import number_of
from ..protocol.records import WEIGHT_MAX, PlanRecord
from ..values.connection import together
from ..views.deadlock import status_of
from .answers import (
    NOT_MODIFIED,
    Cursor,
    IfMatch,
    Limit,
    Out,
    Page,
    Problem,
    Tagged,
    cursor_of,
    demand,
    documented,
    parts_of,
)
from .parameters import (
    ClientOf,
    Label,
    MomentIn,
    PlanOf,
    Priority,
    Strict,
    TaskOptionsIn,
    WhyOut,
    given_in,
    idempotency_key_header,
    needs,
    record_of,
)

PlanState = Literal["defining", "running", "paused", "cancelled", "done", "failed"]
Weight = Annotated[int, Field(ge=1, le=WEIGHT_MAX)]


class PlanIn(TaskOptionsIn):
    """A new plan. Options of tasks are the defaults for its tasks."""

    name: Label | None = None
    key: Label | None = None
    if_exists: Literal["return", "raise", "replace_finished"] = "return"
    on_failure: Literal["hold", "cascade"] = "hold"
    retention: Annotated[float, Field(ge=0, le=1e9)] | None = None
    weight: Weight = 1
    max_running: Annotated[int, Field(ge=1, le=SIZE_MAX)] | None = None
    not_before: MomentIn | None = None
    deadline: MomentIn | None = None
    history: bool = True


class PlanShareIn(Strict):
    """The share of a plan to set. Fields that are left out stay."""

    weight: Weight | None = None
    priority: Priority | None = None


class PlanShareOut(Out):
    """The share of the workers that a plan gets."""

    weight: int
    priority: int


class PlanOut(BaseModel):
    """A plan in numbers. `tasks` counts the unfinished tasks, `added` all that were ever added.
    `ended`: it was done, or ended with failed tasks (`failed`), at this time; null before.
    `retried` counts how often it ran again after its end.

    `readable` is false if its record has another format, or is sealed with a key that the service
    does not have.
    """

    number: int
    path: str
    name: str
    state: PlanState
    tasks: int
    runnable: int
    dead: int
    outcomes: int
    added: int
    finished: int
    skipped: int
    created: float
    ended: float | None
    key: str
    not_before: float | None
    deadline: float | None
    reason: str
    retried: int
    weight: int
    priority: int
    on_failure: Literal["hold", "cascade"] = "hold"
    serializer: Literal["pickle", "json"] = "pickle"
    retention: float | None = None
    readable: bool = True


class ProgressOut(Out):
    """The tasks of a plan, counted by state."""

    added: int
    finished: int
    running: int
    runnable: int
    delayed: int
    waiting: int
    dead: int
    gated: int
    skipped: int


class PlanDetails(PlanOut):
    """A plan, with its tasks counted by state."""

    progress: ProgressOut


class Changed(BaseModel):
    """The effect of a change: `changed` is false if there was nothing to do."""

    changed: bool
    count: int = 0


def plan_out(found: PlanStatus, record: PlanRecord | None) -> PlanOut:
    facts = found._asdict()
    if record is not None:
        facts |= {"on_failure": record.on_failure, "serializer": record.serializer}
        if record.retention is not None and record.retention != float("inf"):
            facts["retention"] = record.retention
    number = int(number_of(found.path))
    return PlanOut(**facts, number=number, finished=found.finished, readable=record is not None)


router = APIRouter(tags=["plans"], responses=documented(404, 422))
Sort = Literal["number", "-number", "name", "-name"]
#: The most plans that one page reads if a state is wanted.
SCANNED_MAX = 500
Found = tuple[str, PlanRecord | None]


@router.get("/plans", dependencies=[needs("read")])
def list_plans(
    client: ClientOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: PlanState | None = None,
    name: Annotated[str | None, Query(max_length=200, description="A pattern: load-*.")] = None,
    key: Annotated[str | None, Query(max_length=200)] = None,
    sort: Sort = "-number",
) -> Page[PlanOut]:
    """The plans, the newest first. With `state`, one page reads at most 500 plans."""
    found = [
        (path, record)
        for path, record in client.transport.run(plan_records(client.paths))
        if (name is None or fnmatchcase(record.name if record else "", name))
        and (key is None or (record is not None and record.key == key))
    ]
    if state == "failed":  # few ended plans have failed, and an index lists them
        run, paths = client.transport.run, client.paths
        numbers = {*run(list_failed(paths)), *run(list_active(paths))}
        found = [each for each in found if number_of(each[0]) in numbers]
    down = sort.startswith("-")
    found.sort(key=lambda each: _place(each, sort), reverse=down)
    if cursor is not None:
        last, before = tuple(parts_of(cursor, str, str)), lt if down else gt
        found = [each for each in found if before(_place(each, sort), last)]
    return _page(client, found, limit, state, sort)


def _place(found: Found, sort: str) -> tuple[str, str]:
    path, record = found
    name = record.name if record is not None and sort.endswith("name") else ""
    return name, number_of(path)


def _page(
    client: Client, found: list[Found], limit: int, state: str | None, sort: str
) -> Page[PlanOut]:
    shown: list[PlanOut] = []
    at = 0
    while at < len(found) and len(shown) < limit and at < SCANNED_MAX:
        chunk = found[at : at + (limit - len(shown) if state is None else limit)]
        for each, seen in zip(chunk, _statuses(client, [path for path, _ in chunk]), strict=True):
            at += 1
            if seen is not None and state in (None, seen.state):
                shown.append(plan_out(seen, each[1]))
                if len(shown) == limit:
                    break
    more = at < len(found)
    return Page(items=shown, next=cursor_of(*_place(found[at - 1], sort)) if more else None)


def _statuses(client: Client, paths: list[str]) -> list[PlanStatus | None]:
    """Read the statuses together. The proof that a plan has failed needs reads of its own."""
    found: list[PlanStatus | None] = []
    for seen in client.transport.run(together([status(path) for path in paths])):
        if isinstance(seen, ZkplanError):
            found.append(None)  # removed meanwhile, or hidden
        elif seen.dead and seen.state == "running":
            try:
                found.append(status_of(client, seen.path))
            except PlanNotFound:
                found.append(None)
        else:
            found.append(seen)
    return found


@router.post(
    "/plans",
    status_code=201,
    dependencies=[needs("author")],
    responses={200: {"model": PlanOut, "description": "The plan existed."}, **documented(409)},
)
def create_plan(
    client: ClientOf,
    wanted: PlanIn,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header(
            "Becomes the key of the plan: a repeat returns the same plan.",
            max_length=200,
        ),
    ] = None,
) -> PlanOut:
    """Create an empty plan. Its values are JSON. Then add tasks, and mark it ready."""
    options = given_in(wanted)
    if idempotency_key is not None:
        if wanted.key not in (None, idempotency_key):
            raise Problem(
                422,
                "two-keys",
                "the body has a key, and Idempotency-Key is another one",
                "Send one of them.",
            )
        options["key"] = idempotency_key
    plan = client.create_plan(**options)
    response.status_code = 201 if plan.is_new else 200
    response.headers["Location"] = f"/v1/plans/{int(plan.number)}"
    return plan_out(plan.status(), plan.record)


@router.get("/plans/{plan}", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_plan(plan: PlanOf, tagged: Tagged) -> PlanDetails:
    """One plan in numbers."""
    progress = ProgressOut.model_validate(plan.progress())
    return tagged(PlanDetails(**_now(plan).model_dump(), progress=progress))


@router.get("/plans/{plan}/why", dependencies=[needs("read")])
def why_plan(plan: PlanOf) -> WhyOut:
    """Why a plan has not ended: exact causes, with advice."""
    return WhyOut.model_validate(plan.why())


@router.delete("/plans/{plan}", dependencies=[needs("operate")])
def remove_plan(plan: PlanOf) -> Changed:
    """Cancel the plan, and delete all of it. `count` is the number of its unfinished tasks."""
    return Changed(changed=True, count=plan.remove())


actions_router = APIRouter(tags=["plans"], responses=documented(404, 409, 422))


def _now(plan: Plan) -> PlanOut:
    return plan_out(plan.status(), record_of(plan))


def _action(role: Any, name: str, text: str, act: Callable[[Plan], object]) -> None:
    def route(plan: PlanOf) -> PlanOut:
        act(plan)
        return _now(plan)

    actions_router.add_api_route(
        f"/plans/{{plan}}/{name}",
        route,
        methods=["POST"],
        dependencies=[needs(role)],
        name=f"{name}_plan",
        operation_id=f"{name}_plan",
        summary=f"{name.capitalize()} a plan",
        description=text,
    )


_action("author", "ready", "Let a plan run. Tasks may be added before and after.", Plan.mark_ready)
_action("operate", "pause", "Stop claiming its tasks. Running ones go on.", Plan.pause)
_action("operate", "resume", "Let a paused plan run again.", Plan.resume)
_action("operate", "cancel", "Stop a plan for good.", Plan.cancel)


@actions_router.post("/plans/{plan}/retry", dependencies=[needs("operate")])
def retry_plan(plan: PlanOf) -> Changed:
    """Make all dead tasks runnable again, with all their attempts. `count` says how many."""
    many = plan.retry()
    return Changed(changed=many > 0, count=many)


@actions_router.get("/plans/{plan}/share", dependencies=[needs("read")], responses=NOT_MODIFIED)
def show_share(plan: PlanOf, tagged: Tagged) -> PlanShareOut:
    """The weight and the priority of a plan."""
    return tagged(PlanShareOut.model_validate(plan.status()))


@actions_router.post(
    "/plans/{plan}/set", dependencies=[needs("operate")], responses=documented(412)
)
def set_plan(plan: PlanOf, wanted: PlanShareIn, if_match: IfMatch = None) -> PlanOut:
    """Change the weight or the priority of a plan. If-Match takes the tag of its share."""
    demand(if_match, PlanShareOut.model_validate(plan.status()))
    plan.set(**given_in(wanted))
    return _now(plan)
