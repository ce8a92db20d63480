"""Routes of plans: list, create, show, why, remove."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from ..client import Client
from ..errors import PlanNotFound, ZkplanError
from ..inspection.deadlock import status_of
from ..inspection.together import together
from ..protocol.active import list_active
from ..protocol.control import PlanStatus, status
from ..protocol.failed import list_failed
from ..protocol.layout import number_of
from ..protocol.look import plan_records
from ..protocol.records import PlanRecord
from .asked import ClientOf, PlanOf, idempotency_key_header, needs, record_of
from .etags import NotModified, Tagged
from .fields import given_in
from .paging import Cursor, Limit, Page, cursor_of, parts_of
from .plan_models import (
    Changed,
    PlanDetails,
    PlanIn,
    PlanOut,
    PlanState,
    ProgressOut,
    plan_out,
)
from .problems import Problem, documented
from .why_models import WhyOut, why_out

router = APIRouter(tags=["plans"], responses=documented(404, 422))
Sort = Literal["number", "-number", "name", "-name"]
#: One page looks at so many plans at most, where a state is wanted.
SCANNED_MAX = 500
Found = tuple[str, PlanRecord | None]


@router.get("/plans", dependencies=[needs("read")])
def list_plans(
    client: ClientOf,
    limit: Limit = 50,
    cursor: Cursor = None,
    state: PlanState | None = None,
    name: Annotated[str | None, Query(max_length=200, description="A pattern, as load-*.")] = None,
    key: Annotated[str | None, Query(max_length=200)] = None,
    sort: Sort = "-number",
) -> Page[PlanOut]:
    """The plans, the newest first. With `state`, one page looks at 500 plans at most."""
    found = [
        (path, record)
        for path, record in client.transport.run(plan_records(client.paths))
        if (name is None or fnmatchcase(record.name if record else "", name))
        and (key is None or (record is not None and record.key == key))
    ]
    if state == "failed":  # few of all that have ended, and they stand in lists
        run, paths = client.transport.run, client.paths
        numbers = {*run(list_failed(paths)), *run(list_active(paths))}
        found = [each for each in found if number_of(each[0]) in numbers]
    found.sort(key=lambda each: _place(each, sort), reverse=sort.startswith("-"))
    if cursor is not None:
        last, down = tuple(parts_of(cursor, str, str)), sort.startswith("-")
        found = [
            each
            for each in found
            if (_place(each, sort) < last if down else _place(each, sort) > last)
        ]
    return _page(client, found, limit, state, sort)


def _place(found: Found, sort: str) -> tuple[str, str]:
    path, record = found
    by_name = sort.endswith("name") and record is not None
    return (record.name if by_name and record else "", path.rpartition("-")[2])


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
    """Read together; whether a plan has failed takes a proof, which is read for itself."""
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
    responses={200: {"model": PlanOut, "description": "It was there."}, **documented(409)},
)
def create_plan(
    client: ClientOf,
    wanted: PlanIn,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        idempotency_key_header(
            "Becomes the key of the plan: a repeat gives the plan of the first time.",
            max_length=200,
        ),
    ] = None,
) -> PlanOut:
    """Create an empty plan, whose tasks are JSON: then add tasks, and mark it ready."""
    options = given_in(wanted)
    if idempotency_key is not None:
        if wanted.key not in (None, idempotency_key):
            raise Problem(
                422,
                "two-keys",
                "the request has a key, and another one as Idempotency-Key",
                "Give one of them.",
            )
        options["key"] = idempotency_key
    plan = client.create_plan(**options)
    response.status_code = 201 if plan.is_new else 200
    response.headers["Location"] = f"/v1/plans/{int(plan.number)}"
    return plan_out(plan.status(), plan.record)


@router.get("/plans/{plan}", dependencies=[needs("read")], responses=NotModified)
def show_plan(plan: PlanOf, tagged: Tagged) -> PlanDetails:
    """One plan in numbers."""
    seen, record = plan.status(), record_of(plan)
    progress = ProgressOut(**plan.progress()._asdict())
    shown = PlanDetails(**plan_out(seen, record).model_dump(), progress=progress)
    return tagged(shown)


@router.get("/plans/{plan}/why", dependencies=[needs("read")])
def why_plan(plan: PlanOf) -> WhyOut:
    """Why it has not ended: exact causes, with what to do."""
    return why_out(plan.why())


@router.delete("/plans/{plan}", dependencies=[needs("operate")])
def remove_plan(plan: PlanOf) -> Changed:
    """Cancel it, and delete it with all that belongs to it. `count`: the tasks that were left."""
    return Changed(changed=True, count=plan.remove())
